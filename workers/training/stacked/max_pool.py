"""2x2 max-pooling, in C for images in channels-last on a CPU: torch's writes 8 bytes an index, and zeros."""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from workers.training.stacked.layer import Back

try:
    from workers.training.stacked import _max_pool
except ImportError:
    BUILT = False
else:
    BUILT = True

_TYPES = (torch.float32, torch.bfloat16)
_MOST = 2**15
"""Rows, columns or channels that the C half takes: a product of them fits into 64 bits."""


def max_pool_2x2(images: Tensor) -> tuple[Tensor, Back]:
    """``F.max_pool2d(images, 2)`` and its way back, to the same bits but for those of a NaN."""
    if (
        BUILT
        and images.device.type == "cpu"
        and images.dtype in _TYPES
        and images.is_contiguous(memory_format=torch.channels_last)
        and images.shape[1] > 1  # One channel lies in both orders, and torch's result in the other.
        and min(images.shape[2:]) > 1
        and max(images.shape[1:]) <= _MOST
    ):
        return _in_c(images)
    pooled, indices = F.max_pool2d_with_indices(images, (2, 2))

    def back(gradient: Tensor) -> Tensor:
        before: Tensor = torch.ops.aten.max_pool2d_with_indices_backward(
            gradient, images, (2, 2), (2, 2), (0, 0), (1, 1), False, indices
        )
        return before

    return pooled, back


def _in_c(images: Tensor) -> tuple[Tensor, Back]:
    """It remembers which of four values each result is, in a byte."""
    shape, sizes = images.shape, _sizes(images)
    batch, channels, height, width = shape
    pooled = _channels_last(images, (batch, channels, height // 2, width // 2))
    winners = torch.empty(pooled.numel(), dtype=torch.uint8).numpy()
    _max_pool.forward(_array(images), _array(pooled), winners, *sizes)

    def back(gradient: Tensor) -> Tensor:
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        before = _channels_last(gradient, shape)
        _max_pool.backward(_array(before), _array(gradient), winners, *sizes)
        return before

    return pooled, back


def _channels_last(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    return torch.empty(shape, dtype=like.dtype, memory_format=torch.channels_last)


def _array(images: Tensor) -> NDArray[Any]:
    """The bits, as they lie in memory: NumPy has no bfloat16."""
    bits = torch.int32 if images.dtype is torch.float32 else torch.int16
    array: NDArray[Any] = images.detach().permute(0, 2, 3, 1).view(bits).numpy()
    return array


def _sizes(images: Tensor) -> tuple[int, int, int, int]:
    _, channels, height, width = images.shape
    return images.element_size(), height, width, channels
