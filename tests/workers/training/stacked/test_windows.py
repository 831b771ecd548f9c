import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from workers.training.stacked.known_layers import call_layer, module_layer
from workers.training.stacked.windows import ELEMENT, Window, looked_at, window_of

sizes = st.integers(1, 3)
convolutions = st.builds(
    lambda kernel, stride, dilation: nn.Conv2d(1, 1, kernel, stride, dilation=dilation, bias=False),
    st.tuples(sizes, sizes), st.tuples(sizes, sizes), st.tuples(sizes, sizes),
)  # fmt: skip
poolings = st.builds(nn.AvgPool2d, st.tuples(sizes, sizes), st.tuples(sizes, sizes))
chains = st.lists(convolutions | poolings | st.just(nn.LeakyReLU()), max_size=4)


def windows_of(chain):
    return [module_layer("", module).window for module in chain]


@given(chains, st.tuples(st.integers(1, 20), st.integers(1, 20)))
def test_what_is_looked_at_ends_at_the_last_row_and_column_with_a_gradient(chain, size):
    for module in chain:
        if isinstance(module, nn.Conv2d):
            nn.init.ones_(module.weight)
    image = torch.ones(1, 1, *size, dtype=torch.float64, requires_grad=True)
    network = nn.Sequential(*chain).double()
    height, width = looked_at(windows_of(chain), size)
    try:
        network(image).sum().backward()
    except RuntimeError:
        with pytest.raises(RuntimeError, match=r"too small|greater than actual"):
            network(image[..., :height, :width])
        return
    seen = image.grad[0, 0].nonzero().amax(0) + 1
    assert (height, width) == tuple(seen.tolist())
    torch.testing.assert_close(network(image[..., :height, :width]), network(image))


def test_all_is_looked_at_without_layers():
    assert looked_at([], (5, 7)) == (5, 7)
    assert looked_at([ELEMENT], (5, 7)) == (5, 7)


def test_a_layer_without_a_window_looks_at_all_that_the_one_before_gives():
    pooling = Window((2, 2), (2, 2))
    assert looked_at([pooling, None, pooling], (7, 8)) == (6, 8)


def test_fedats_cnn_looks_at_26_of_28_rows():
    layers = [Window((3, 3)), Window((2, 2), (2, 2))]
    assert looked_at([*layers, *layers, Window((3, 3))], (28, 28)) == (26, 26)


@pytest.mark.parametrize("padding", [1, (0, 1), "same"])
def test_what_pads_has_no_window(padding):
    assert window_of(3, 1, padding) is None


@pytest.mark.parametrize("padding", [0, (0, 0), "valid"])
def test_what_does_not_pad_has_one(padding):
    assert window_of((3, 2), (2,), padding, dilation=2) == Window((5, 3), (2, 2))


@pytest.mark.parametrize(
    "module",
    [
        nn.Conv2d(1, 1, 3, padding=1), nn.MaxPool2d(2, padding=1), nn.AvgPool2d(2, ceil_mode=True),
        nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(3, 3),
    ],
)  # fmt: skip
def test_layers_that_look_over_the_edge_or_at_all_have_no_window(module):
    assert windows_of([module]) == [None]


@pytest.mark.parametrize(
    ("module", "window"),
    [
        (nn.MaxPool2d(3, (1, 2), dilation=2), Window((5, 5), (1, 2))),
        (nn.MaxPool2d(2), Window((2, 2), (2, 2))),
        (nn.AvgPool2d((2, 3)), Window((2, 3), (2, 3))),
        (nn.ReLU(), ELEMENT),
        (nn.GELU(), ELEMENT),
    ],
)
def test_windows_of_modules(module, window):
    assert windows_of([module]) == [window]


@pytest.mark.parametrize(
    ("function", "args", "window"),
    [
        (torch.max_pool2d, (2, []), Window((2, 2), (2, 2))),
        (torch.max_pool2d, (2, 3, 0, 2), Window((3, 3), (3, 3))),
        (torch.max_pool2d, (2, 2, 1), None),
        (torch.max_pool2d, (2, 2, 0, 1, True), None),
        (F.avg_pool2d, (2, 1), Window((2, 2), (1, 1))),
        (F.avg_pool2d, (2, 2, 0, True), None),
        (F.adaptive_avg_pool2d, (1,), None),
    ],
)
def test_windows_of_calls_with_settings_by_position(function, args, window):
    assert call_layer(function, args, {}).window == window
