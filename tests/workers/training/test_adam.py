import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from fedat_service.wire.settings import Solver
from workers.training import adam

built = pytest.mark.skipif(not adam.BUILT, reason="no compiler built the C half")
ODD_ONES = np.array([0, -0.0, 1e-42, -1e-42, 1e-30, 1e30, np.inf, -np.inf, np.nan], np.float32)
numbers = st.tuples(*[st.floats(0, 1) for _ in range(6)])


def values(size, seed):
    """Of which many are at the edges of what a float32 can be; of size None, without dimensions."""
    if size is None:
        return [array.reshape(()) for array in values(1, seed)]
    draw = np.random.default_rng(seed)
    plain = draw.standard_normal((4, size), np.float32)
    w, g, m, v = np.where(draw.random((4, size)) < 0.2, draw.choice(ODD_ONES, (4, size)), plain)
    return w, g, m, abs(v)


@built
@example(size=None, seed=0, numbers=(0.1, 0.9, 0.1, 0.1, 0.01, 0.5))
@given(size=st.integers(0, 70), seed=st.integers(0, 999), numbers=numbers)
def test_both_halves_give_the_same_bits(size, seed, numbers):
    mine, others = values(size, seed), values(size, seed)
    adam.step(*others, *numbers)
    adam._adam.step(*mine, *numbers)
    for here, there in zip(mine, others, strict=True):
        np.testing.assert_array_equal(here, there)
        known = ~np.isnan(here)
        assert np.array_equal(np.signbit(here[known]), np.signbit(there[known]))


def moved(dtype, solver, by_torch=False):
    generator = torch.Generator().manual_seed(0)
    draw = lambda: torch.randn(3, 37, generator=generator, dtype=torch.float64).to(dtype)  # noqa: E731
    w, m, v, count = draw(), *(torch.zeros(3, 37, dtype=dtype) for _ in range(2)), torch.zeros(())
    for t in range(1, 6):
        if by_torch:
            adam.adam_by_torch([w], [draw()], [[m], [v], [count]], solver, t)
        else:
            adam.adam_on_cpu([w], [draw()], [[m.numpy()], [v.numpy()], [count.numpy()]], solver)
    assert count == 5
    return w, m, v


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("eps", [1e-7, 0.1])
@pytest.mark.parametrize("name", ["adam", "adamw"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_torchs_kernels_take_the_same_steps(dtype, name, eps, weight_decay):
    numbers = {"lr": 0.05, "beta1": 0.8, "beta2": 0.95, "eps": eps, "weight_decay": weight_decay}
    solver = Solver(name=name, **numbers)
    torch.testing.assert_close(moved(dtype, solver), moved(dtype, solver, by_torch=True))


@built
def test_the_c_half_serves_float32_and_leaves_gradients_alone(monkeypatch):
    monkeypatch.setattr(adam, "step", None)
    w, g = torch.ones(3), torch.ones(3)
    zeros = [[np.zeros(shape, np.float32)] for shape in (3, 3, ())]
    adam.adam_on_cpu([w], [g], zeros, Solver(name="adam", weight_decay=0.5))
    assert torch.equal(g, torch.ones(3))
    assert (w < 1).all()


@built
def test_without_the_extension_numpy_gives_the_same_bits(unbuilt, monkeypatch):
    bare = unbuilt("workers.training.adam", "workers.training._adam")
    assert not bare.BUILT
    expected = moved(torch.float32, Solver(name="adam"))
    monkeypatch.setattr(adam, "adam_on_cpu", bare.adam_on_cpu)
    assert all(map(torch.equal, moved(torch.float32, Solver(name="adam")), expected))


def test_a_parameter_that_comes_late_begins_with_its_own_first_step():
    begun, late, gradient = torch.zeros(1), torch.zeros(1), torch.ones(1)
    moments = [[np.zeros(1, np.float32) for _ in range(2)] for _ in range(2)]
    counts = [np.array(7, np.float32), np.zeros((), np.float32)]
    solver = Solver(name="adam", lr=0.1)
    adam.adam_on_cpu([begun, late], [gradient, gradient], [*moments, counts], solver)
    assert late.item() == pytest.approx(-0.1, rel=1e-5)
    assert -0.06 < begun.item() < 0
    assert counts == [8, 1]


def floats(size=4):
    return np.ones(size, np.float32)


def read_only():
    array = floats()
    array.flags.writeable = False
    return array


@built
@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize(
    "wrong",
    [floats(3), floats(5), np.ones(18, np.int8)[1:17].view(np.float32), floats(8)[::2], [1.0] * 4, None],
)
def test_the_c_half_takes_only_whole_aligned_arrays_of_one_size(place, wrong):
    arrays = [floats() for _ in range(4)]
    arrays[place] = wrong
    with pytest.raises((ValueError, TypeError, BufferError)):
        adam._adam.step(*arrays, 0.1, 1.0, 0.1, 0.1, 0.1, 0.1)
    assert all(np.array_equal(array, floats()) for i, array in enumerate(arrays) if i != place)


@built
@pytest.mark.parametrize("place", [0, 2, 3])
def test_the_c_half_does_not_write_to_what_may_only_be_read(place):
    arrays = [floats() for _ in range(4)]
    arrays[place] = read_only()
    with pytest.raises((TypeError, BufferError)):
        adam._adam.step(*arrays, 0.1, 1.0, 0.1, 0.1, 0.1, 0.1)


@built
def test_the_c_half_refuses_pieces_of_numbers():
    arrays = [np.ones(5, np.int8) for _ in range(4)]
    with pytest.raises(ValueError, match="equally many floats"):
        adam._adam.step(*arrays, 0.1, 1.0, 0.1, 0.1, 0.1, 0.1)
