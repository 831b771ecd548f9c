import pytest
import torch
from torch import nn

from workers.training.contexts import (
    as_they_are,
    computing_on,
    random_state,
    rounding,
    seeded,
    set_random_state,
    type_of_layers,
)

GPU = torch.device("cuda:0")
CPU = torch.device("cpu")


def settings():
    cudnn = torch.backends.cudnn
    return (
        torch.get_num_threads(),
        torch.get_deterministic_debug_mode(),
        torch.utils.deterministic.fill_uninitialized_memory,
        (cudnn.benchmark, cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision),
    )


@pytest.fixture
def generator(monkeypatch):
    """What draws on the GPU."""
    generator = torch.Generator().manual_seed(9)
    monkeypatch.setattr(torch.cuda, "default_generators", (generator,))
    return generator


def test_on_a_gpu_sums_have_one_order_and_float32_is_whole():
    with computing_on(GPU):
        assert settings() == (1, 1, False, (False, "ieee", "ieee"))
    assert torch.get_deterministic_debug_mode() == 0


def test_torch_is_left_as_it_was_also_after_an_error(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    before = settings()
    for device in (GPU, CPU):
        with pytest.raises(KeyError), computing_on(device):
            raise KeyError
        assert settings() == before


def test_who_wants_an_error_where_there_is_no_order_still_gets_it():
    torch.set_deterministic_debug_mode("error")
    try:
        with computing_on(GPU):
            assert torch.get_deterministic_debug_mode() == 2
        assert torch.get_deterministic_debug_mode() == 2
    finally:
        torch.set_deterministic_debug_mode("default")


def test_the_settings_of_a_gpu_do_not_contradict_each_other():
    """torch refuses to convolve if old and new ways of saying the precision disagree."""
    with computing_on(GPU):
        nn.Conv2d(1, 2, 3)(torch.rand(1, 1, 4, 4)).sum().backward()
        nn.LSTM(2, 3)(torch.rand(4, 1, 2))[0].sum().backward()


@pytest.mark.parametrize(
    ("dtype", "bfloat16", "expected"),
    [
        (torch.float32, True, torch.bfloat16),
        (torch.float32, False, torch.float32),
        (torch.float64, True, torch.float64),
    ],
)
def test_layers_compute_in_the_type_in_which_torch_would_have_them(dtype, bfloat16, expected):
    layer = nn.Linear(2, 3, dtype=dtype)
    values = torch.ones(1, 2, dtype=dtype)
    with rounding(CPU, bfloat16):
        assert type_of_layers(layer.weight) is layer(values).dtype is expected
        with as_they_are(CPU):
            assert type_of_layers(layer.weight) is layer(values).dtype is dtype


def test_a_device_that_torch_rounds_nothing_on_leaves_layers_as_they_are():
    elsewhere = torch.empty(2, 3, device="meta")
    with rounding(CPU, bfloat16=True), as_they_are(elsewhere.device):
        assert type_of_layers(elsewhere) is torch.float32
        assert type_of_layers(torch.empty(2, 3)) is torch.bfloat16


def test_a_seed_is_that_of_both_generators_and_both_are_put_back(generator):
    before = torch.rand(2), torch.rand(2, generator=generator)
    with seeded(5, GPU):
        first = torch.rand(2), torch.rand(2, generator=generator)
    with seeded(5, GPU):
        again = torch.rand(2), torch.rand(2, generator=generator)
    with seeded(6, GPU):
        others = torch.rand(2), torch.rand(2, generator=generator)
    after = torch.rand(2), torch.rand(2, generator=generator)
    assert all(map(torch.equal, first, again))
    assert not any(map(torch.equal, first, others))
    assert not any(map(torch.equal, before, after))
    generator.manual_seed(9)
    untouched = torch.rand(2, generator=generator), torch.rand(2, generator=generator)
    assert all(map(torch.equal, untouched, (before[1], after[1])))


def test_both_generators_go_on_from_where_they_were(generator):
    state = random_state(GPU)
    first = torch.rand(2), torch.rand(2, generator=generator)
    set_random_state(state, GPU)
    assert all(map(torch.equal, first, (torch.rand(2), torch.rand(2, generator=generator))))


def test_the_state_on_the_cpu_is_torchs_own():
    assert torch.equal(random_state(CPU), torch.get_rng_state())
