"""A convolution of one channel with 2x2 max-pooling and perhaps ReLU, at once: nothing between is written.

What it sees is small and what it gives is many channels: writing those for each place, and their gradients,
takes longer than the arithmetic.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workers.training.stacked.layer import Back, add_gradient

try:
    from workers.training.stacked import _pooled_convolution
except ImportError:
    BUILT = False
else:
    BUILT = True

MOST_TAPS = 64
"""Weights of one kernel that the C half takes: with more, torch's convolution is faster."""

_NOWHERE = 4
"""In place of one of the four places of a window, where ReLU gives 0."""

Array = NDArray[Any]


class Arrays(NamedTuple):
    """What both halves read and fill, in float32; all lie without gaps but the images, of which rows do.

    Args:
        images: ``(K, B, H, W)``.
        kernels: ``(K, h, w, O)``, or their gradient.
        biases: ``(K, O)``, or their gradient.
        results: ``(B, (H - h + 1) // 2, (W - w + 1) // 2, K, O)``, or their gradient.
        winners: Which of its window's four places each result is from, or `_NOWHERE`; bytes, of that shape.
    """

    images: Array
    kernels: Array
    biases: Array
    results: Array
    winners: Array


def pooled_conv2d(images: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> tuple[Tensor, Back]:
    """Each client's ``relu(max_pool2d(conv2d(images, weight, bias), 2))``, or without ReLU, and the way back.

    Each operation rounds alone and sums have one order: equal numbers give equal bits on every machine,
    whether the C half was built or not.

    Args:
        images: ``(K, B, 1, H, W)`` in float32, on the CPU; their gradient is not known.
        weight: ``(K, O, 1, h, w)`` in float32, at most `MOST_TAPS` of them a kernel and ``h < H``, ``w < W``.
        bias: ``(K, O)``, if there is any.
        relu: Whether ReLU follows, or goes before the pooling, which is the same.

    Returns:
        ``(B, K O, H', W')`` in channels-last, and the way back, which gives None.
    """
    seen, kernels, biases, results, winners = arrays = _arrays(images, weight, bias)
    (_pooled_convolution.forward if BUILT else forward)(*arrays, relu)
    shape = results.shape

    def back(gradient: Tensor) -> None:
        lying = np.ascontiguousarray(gradient.numpy().transpose(0, 2, 3, 1)).reshape(shape)
        of_kernels, of_biases = np.empty_like(kernels), np.empty_like(biases)
        (_pooled_convolution.backward if BUILT else backward)(seen, of_kernels, of_biases, lying, winners)
        if weight.requires_grad:
            add_gradient(weight, torch.from_numpy(of_kernels.transpose(0, 3, 1, 2)[:, :, np.newaxis]))
        if bias is not None and bias.requires_grad:
            add_gradient(bias, torch.from_numpy(of_biases))

    return torch.from_numpy(results.reshape(*shape[:3], -1).transpose(0, 3, 1, 2)), back


def _arrays(images: Tensor, weight: Tensor, bias: Tensor | None) -> Arrays:
    seen = images.numpy()[:, :, 0]
    if seen.strides[3] != seen.itemsize:
        seen = np.ascontiguousarray(seen)
    kernels = np.ascontiguousarray(weight.detach().numpy()[:, :, 0].transpose(0, 2, 3, 1))
    num_clients, num_examples, height, width = seen.shape
    _, rows, columns, channels = kernels.shape
    shape = num_examples, (height - rows + 1) // 2, (width - columns + 1) // 2, num_clients, channels
    results, winners = np.empty(shape, np.float32), np.empty(shape, np.uint8)
    if bias is None:
        return Arrays(seen, kernels, np.zeros((num_clients, channels), np.float32), results, winners)
    return Arrays(seen, kernels, np.ascontiguousarray(bias.detach().numpy()), results, winners)


def forward(images: Array, kernels: Array, biases: Array, results: Array, winners: Array, relu: bool) -> None:
    """Fill results and winners, as the C half, to the same bits."""
    with np.errstate(all="ignore"):  # who diverges is found by its result
        for example, (best, places) in enumerate(zip(results, winners, strict=True)):
            _pool(_convolved(images[:, example], kernels, biases, best.shape[:2]), best, places)
        if relu:
            dead = results <= 0
            results[dead], winners[dead] = 0, _NOWHERE


def _convolved(image: Array, kernels: Array, biases: Array, windows: tuple[int, ...]) -> Array:
    """``(2 H', 2 W', K, O)`` from one image of each client."""
    height, width = (2 * size for size in windows)
    values = np.empty((height, width, *biases.shape), np.float32)
    values[:] = biases
    seen = image.transpose(1, 2, 0)[..., np.newaxis]
    for row, column in np.ndindex(kernels.shape[1:3]):
        values += kernels[:, row, column] * seen[row : row + height, column : column + width]
    return values


def _pool(values: Array, best: Array, places: Array) -> None:
    """Find the first of equals in every window, and the last that is not a number, as torch does."""
    best[:], places[:] = values[::2, ::2], 0
    for place in range(1, 4):
        value = values[place // 2 :: 2, place % 2 :: 2]
        better = (value > best) | (value != value)
        np.copyto(best, value, where=better)
        np.copyto(places, place, where=better)


def backward(images: Array, kernels: Array, biases: Array, gradient: Array, winners: Array) -> None:
    """Fill the gradients of kernels and biases, as the C half, to the same bits."""
    num_clients, rows, columns, channels = kernels.shape
    total = np.zeros((rows * columns + 1, num_clients, channels), np.float32)
    with np.errstate(all="ignore"):
        for example, (of_results, places) in enumerate(zip(gradient, winners, strict=True)):
            of_windows = _of_windows(images[:, example], (rows, columns), of_results, places)
            for of_window in of_windows.reshape(-1, *total.shape):
                total += of_window
    kernels[:] = total[:-1].reshape(rows, columns, num_clients, channels).transpose(2, 0, 1, 3)
    biases[:] = total[-1]


def _of_windows(image: Array, kernel: tuple[int, int], gradient: Array, winners: Array) -> Array:
    """What each window adds to the gradients: ``(H', W', h w + 1, K, O)``, those of the biases last."""
    (high, wide, num_clients, channels), (rows, columns) = gradient.shape, kernel
    seen = image.transpose(1, 2, 0)[..., np.newaxis]
    each = [np.where(winners == place, gradient, np.float32(0)) for place in range(4)]
    found = np.empty((high, wide, rows * columns + 1, num_clients, channels), np.float32)
    for tap, (row, column) in enumerate(np.ndindex(rows, columns)):
        places = [(row + place // 2, column + place % 2) for place in range(4)]
        at = [seen[r : r + 2 * high : 2, c : c + 2 * wide : 2] for r, c in places]
        # Three of the four are zeros, so their order does not matter.
        found[:, :, tap] = sum(g * x for g, x in zip(each, at, strict=True))
    found[:, :, -1] = sum(each)
    return found
