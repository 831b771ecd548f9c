import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from workers.training.stacked import pooled_convolution
from workers.training.stacked.pooled_convolution import MOST_TAPS, Arrays, pooled_conv2d

built = pytest.mark.skipif(not pooled_convolution.BUILT, reason="no compiler built the C half")
with_relu = pytest.mark.parametrize("relu", [False, True])
ODD_ONES = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], np.float32)


def some_of(generator, *shape, odd=0.0):
    """Numbers, of which a share are equal to others, or not finite."""
    numbers = generator.standard_normal(shape).astype(np.float32)
    return np.where(generator.random(shape) < odd, generator.choice(ODD_ONES, shape), numbers)


def arrays_of(seed, clients=2, batch=2, kernel=(3, 3), channels=5, extra=(3, 3), odd=0.0):
    """Arrays as the halves take them; of the image, a kernel leaves `extra` rows and columns."""
    generator = np.random.default_rng(seed)
    size = [k + e - 1 for k, e in zip(kernel, extra, strict=True)]
    shape = batch, extra[0] // 2, extra[1] // 2, clients, channels
    return Arrays(
        # As from a larger array: rows lie without gaps, and nothing else does.
        some_of(generator, clients, batch + 1, size[0] + 2, size[1] + 3, odd=odd)[:, 1:, 1:-1, 2:-1],
        some_of(generator, clients, *kernel, channels, odd=odd),
        some_of(generator, clients, channels, odd=odd),
        np.empty(shape, np.float32),
        np.empty(shape, np.uint8),
    )


def bits(array):
    """With one kind of NaN."""
    return np.where(np.isnan(array), np.nan, array).astype(array.dtype).view(np.uint32)


def passed(arrays, gradient, relu, forward, backward):
    """Everything that a pass forward and one backward fill, as bits."""
    results, winners = np.full_like(arrays.results, 7), np.full_like(arrays.winners, 7)
    kernels, biases = np.full_like(arrays.kernels, 7), np.full_like(arrays.biases, 7)
    forward(*arrays[:3], results, winners, relu)
    backward(arrays.images, kernels, biases, gradient, winners)
    return [bits(results), winners, bits(kernels), bits(biases)]


@built
@given(
    seed=st.integers(0, 999),
    clients=st.integers(1, 3),
    batch=st.integers(1, 3),
    kernel=st.one_of(st.just((3, 3)), st.tuples(st.integers(1, 4), st.integers(1, 4))),
    channels=st.sampled_from([1, 3, 4, 5, 7, 8, 9, 17, 32]),
    extra=st.tuples(st.integers(2, 5), st.integers(2, 9)),
    odd=st.sampled_from([0.0, 0.2]),
    relu=st.booleans(),
)
def test_both_halves_give_the_same_bits(seed, clients, batch, kernel, channels, extra, odd, relu):
    arrays = arrays_of(seed, clients, batch, kernel, channels, extra, odd)
    gradient = some_of(np.random.default_rng(seed + 1), *arrays.results.shape, odd=odd)
    c = pooled_convolution._pooled_convolution
    mine = passed(arrays, gradient, relu, c.forward, c.backward)
    its = passed(arrays, gradient, relu, pooled_convolution.forward, pooled_convolution.backward)
    for one, other in zip(mine, its, strict=True):
        np.testing.assert_array_equal(one, other)


def torchs(images, weight, bias, relu):
    """The same by torch, of all clients."""
    results = []
    for k, of_client in enumerate(images):
        values = F.max_pool2d(F.conv2d(of_client, weight[k], None if bias is None else bias[k]), 2)
        results.append(F.relu(values) if relu else values)
    return torch.cat(results, 1)


def gradients(results, back, direction, *parameters):
    back(direction) if back else results.backward(direction)
    found = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    return [results.detach(), *found]


@with_relu
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(
    ("kernel", "size", "channels"), [((3, 3), (8, 9), 4), ((1, 1), (2, 2), 1), ((5, 2), (28, 38), 20)]
)
def test_values_and_gradients_are_torchs(kernel, size, channels, biased, relu):
    torch.manual_seed(0)
    images = torch.randn(3, 4, 1, *size)
    weight = torch.randn(3, channels, 1, *kernel).requires_grad_()
    bias = torch.randn(3, channels).requires_grad_() if biased else None
    parameters = [weight, *([bias] if biased else [])]
    expected = torchs(images, weight, bias, relu)
    direction = torch.randn(expected.shape)
    with torch.no_grad():
        mine = gradients(*pooled_conv2d(images, weight, bias, relu), direction, *parameters)
    for found, its in zip(mine, gradients(expected, None, direction, *parameters), strict=True):
        torch.testing.assert_close(found, its, rtol=1e-4, atol=1e-4)
    assert mine[0].is_contiguous(memory_format=torch.channels_last)


@with_relu
@pytest.mark.parametrize("half", ["NumPy", pytest.param("C", marks=built)])
def test_of_equals_and_what_is_not_a_number_the_one_that_torch_takes_wins(half, relu):
    images = np.random.default_rng(0).choice(ODD_ONES, (1, 1, 60, 60))
    unchanged = np.ones((1, 1, 1, 1), np.float32), np.zeros((1, 1), np.float32)
    results, winners = np.empty((1, 30, 30, 1, 1), np.float32), np.empty((1, 30, 30, 1, 1), np.uint8)
    forward = (pooled_convolution if half == "NumPy" else pooled_convolution._pooled_convolution).forward
    forward(images, *unchanged, results, winners, relu)
    pooled, indices = F.max_pool2d(torch.from_numpy(images), 2, return_indices=True)
    places = (indices // 60 % 2 * 2 + indices % 2).numpy()
    dead = (pooled <= 0).numpy() & relu
    np.testing.assert_array_equal(winners[..., 0, 0], np.where(dead, pooled_convolution._NOWHERE, places)[0])
    np.testing.assert_array_equal(results[..., 0, 0], F.relu(pooled)[0] if relu else pooled[0])


@pytest.mark.parametrize("learns", ["weight", "bias"])
def test_what_does_not_learn_gets_no_gradient(learns):
    weight = torch.randn(2, 4, 1, 3, 3, requires_grad=learns == "weight")
    bias = torch.randn(2, 4, requires_grad=learns == "bias")
    with torch.no_grad():
        results, back = pooled_conv2d(torch.randn(2, 3, 1, 6, 6), weight, bias, False)
        back(torch.ones_like(results))
    assert (weight.grad is not None, bias.grad is not None) == (learns == "weight", learns == "bias")
    if learns == "bias":
        torch.testing.assert_close(bias.grad, torch.full((2, 4), 3.0 * 2 * 2))


def test_images_and_parameters_may_lie_in_memory_in_any_order():
    images, weight, bias = torch.randn(2, 3, 1, 7, 6), torch.randn(2, 4, 1, 3, 2), torch.randn(2, 4)
    across = images.transpose(3, 4).contiguous().transpose(3, 4)
    lying = weight.transpose(1, 4).contiguous().transpose(1, 4)
    with torch.no_grad():
        expected, _ = pooled_conv2d(images, weight, bias, True)
        found, _ = pooled_conv2d(across, lying, bias.T.contiguous().T, True)
    assert torch.equal(found, expected)


def test_numpy_serves_where_the_extension_is_not_built(unbuilt):
    bare = unbuilt(
        "workers.training.stacked.pooled_convolution", "workers.training.stacked._pooled_convolution"
    )
    assert not bare.BUILT
    images, weight, bias = torch.randn(2, 3, 1, 9, 9), torch.randn(2, 20, 1, 3, 3), torch.randn(2, 20)
    weight.requires_grad_()
    found = []
    for module in (bare, pooled_convolution):
        with torch.no_grad():
            results, back = module.pooled_conv2d(images, weight, bias, True)
            back(torch.linspace(-1, 1, results.numel()).view_as(results))
        found.append((results, weight.grad))
        weight.grad = None
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def read_only(array):
    array.flags.writeable = False
    return array


def row_stride_23(array):
    return np.zeros((*array.shape[:3], 23), np.uint8)[..., :20].view(np.float32)


def unaligned(array):
    raw = np.zeros(array.nbytes + 1, np.uint8)[1:]
    return raw.view(array.dtype).reshape(array.shape)


CHANGES = {
    "fewer": (Arrays._fields, lambda array: array[:-1]),
    "more dimensions": (Arrays._fields, lambda array: array[..., np.newaxis]),
    "another type": (Arrays._fields, lambda array: array.astype(np.float64)),
    "other channels": (("biases", "winners"), lambda array: array[..., :-1].copy()),
    "gaps": (("results", "winners"), lambda array: np.repeat(array, 2, -1)[..., ::2]),
    "gaps in rows": (("images",), lambda array: np.repeat(array, 2, -1)[..., ::2]),
    "columns first": (("images",), np.asfortranarray),
    "between two numbers": (("images",), unaligned),
    "rows between two numbers": (("images",), row_stride_23),
    "no rows": (("kernels",), lambda array: array[:, :0]),
    "no columns": (("kernels",), lambda array: array[:, :, :0]),
}


@built
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize(
    ("change", "name"), [(change, name) for change, (names, _) in CHANGES.items() for name in names]
)
def test_arrays_that_do_not_belong_together_are_refused(direction, change, name):
    arrays = arrays_of(0)
    given = arrays._replace(**{name: CHANGES[change][1](getattr(arrays, name))})
    run = getattr(pooled_convolution._pooled_convolution, direction)
    with pytest.raises(ValueError, match=r"not those of such|not C-contiguous"):
        run(*given, *([True] if direction == "forward" else []))


@built
@pytest.mark.parametrize("kernel", [(MOST_TAPS + 1, 1), (1, MOST_TAPS + 1), (13, 5)])
def test_kernels_of_more_weights_than_it_has_room_for_are_refused(kernel):
    with pytest.raises(ValueError, match="not those of such"):
        pooled_convolution._pooled_convolution.forward(*arrays_of(0, kernel=kernel), True)


@built
@pytest.mark.parametrize("kernel", [(MOST_TAPS, 1), (1, MOST_TAPS), (8, 8)])
def test_kernels_of_as_many_weights_as_it_has_room_for_are_taken(kernel):
    arrays = arrays_of(0, kernel=kernel)
    gradient = some_of(np.random.default_rng(1), *arrays.results.shape)
    c = pooled_convolution._pooled_convolution
    mine = passed(arrays, gradient, True, c.forward, c.backward)
    its = passed(arrays, gradient, True, pooled_convolution.forward, pooled_convolution.backward)
    assert all(map(np.array_equal, mine, its))


@built
def test_arrays_are_let_go_of_whether_they_were_taken_or_not():
    arrays = arrays_of(0)
    before = [sys.getrefcount(array) for array in arrays]
    run = pooled_convolution._pooled_convolution.forward
    run(*arrays, True)
    for place in range(len(arrays)):
        with pytest.raises((ValueError, TypeError)):
            run(*arrays[:place], None, *arrays[place + 1 :], True)
        with pytest.raises(ValueError, match="not those of such"):
            run(*arrays[:place], np.zeros(3), *arrays[place + 1 :], True)
    assert [sys.getrefcount(array) for array in arrays] == before


@built
@pytest.mark.parametrize(
    ("direction", "name"),
    [("forward", "results"), ("forward", "winners"), ("backward", "kernels"), ("backward", "biases")],
)
def test_what_would_be_filled_must_be_writable(direction, name):
    arrays = arrays_of(0)
    given = arrays._replace(**{name: read_only(getattr(arrays, name))})
    run = getattr(pooled_convolution._pooled_convolution, direction)
    with pytest.raises(ValueError, match="read-only"):
        run(*given, *([True] if direction == "forward" else []))
