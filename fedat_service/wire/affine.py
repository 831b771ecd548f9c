"""Affine rounding to eight bits: a tensor as a grid of 256 values around its mean, and a place on it each.

This is how the authors of FedCOMGATE round (Haddadpour et al., AISTATS 2021; `quantize_tensor` of FedTorch):
not at random, so that equal values are all off by as much. A payload is scale and mean (float32,
little-endian), the zero point (int8), then one int8 an element.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedat_service.errors import WireError
from fedat_service.wire.polyline_numpy import Payload
from fedat_service.wire.rounded import Rounded

MAX_VALUE = 2.0**126
"""No larger value travels: a model and a difference of this size still have a finite sum."""

_Q_MIN, _Q_MAX = -128, 127
_MIN_SCALE = 2.0**-126
"""The least float32 with all its digits."""

_SCALE_OF_EQUALS = 0.001
_HEAD = struct.Struct("<ffb")
_BLOCK = 1 << 15
"""Elements taken at a time."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The values that integers q from -128 to 127 stand for: ``scale (q - zero_point) + mean``.

    Raises:
        WireError: If the scale, the mean or the first or last value is out of range.
    """

    scale: float
    zero_point: int
    mean: float

    def __post_init__(self) -> None:
        for name, number, least in (("scale", self.scale, _MIN_SCALE), ("mean", self.mean, -MAX_VALUE)):
            if not least <= number <= MAX_VALUE:
                raise WireError(f"a {name} must be from {least:g} to {MAX_VALUE:g}, got {number}")
        ends = dequantise(self, np.array([_Q_MIN, _Q_MAX], np.int8))
        _require_range(float(ends[0]), float(ends[1]))


def quantise(values: NDArray[np.floating[Any]]) -> tuple[Grid, NDArray[np.int8]]:
    """Round each value to the nearest of its tensor's grid.

    ``q = round(clip(zero_point + (x - mean) / scale, -128, 127))`` with ``scale = (max - min) / 255`` and
    ``zero_point = -128 - (min - mean) / scale`` without its fraction. By that the grid may end up to a step
    short of the largest value, or of the smallest: what lies beyond comes out less than a step off, all
    other values at most half a step. Where a scale would be 0 or below 2**-126, it is 0.001: values that are
    all equal come out as they are, and those that nearly are as their mean.

    Args:
        values: Shape `(n,)`.

    Returns:
        The grid, its scale and mean rounded to the type of `values`, and ``q``.

    Raises:
        WireError: If a value or the grid is out of range.
    """
    grid = _grid_of(values)
    return grid, _places(values, grid)


def dequantise(grid: Grid, q: NDArray[np.int8]) -> NDArray[np.float64]:
    """The values that `quantise` rounded to: ``scale (q - zero_point) + mean``."""
    return grid.scale * (q.astype(np.float64) - grid.zero_point) + grid.mean


def size_bytes(count: int) -> int:
    """Bytes that `count` values take: ``9 + count``.

    Raises:
        WireError: If the count is negative.
    """
    if count < 0:
        raise WireError(f"a count must be at least 0, got {count}")
    return _HEAD.size + count


def encode(values: NDArray[np.float32]) -> bytes:
    """Encode a one-dimensional float32 array.

    Raises:
        WireError: If a value or the grid is out of range.
    """
    grid = _grid_of(values)
    parts = [_HEAD.pack(grid.scale, grid.mean, grid.zero_point)]
    parts += [_places(values[part], grid).tobytes() for part in _parts(values.size)]
    return b"".join(parts)


def decode(payload: Payload, count: int) -> NDArray[np.float32]:
    """Decode exactly `count` values.

    Raises:
        WireError: If the payload has another size, or its grid is out of range.
    """
    blocks = _decoded(payload, count)
    values = np.empty(count, np.float32)
    for part, block in blocks:
        values[part] = block
    return values


def check(payload: Payload, count: int) -> None:
    """Check size and grid: every place on a grid is a value.

    Raises:
        WireError: If the payload has another size, or its grid is out of range.
    """
    _read(payload, count)


def add(payload: Payload, weight: float, total: NDArray[np.float64]) -> None:
    """Add ``weight * value`` to every element of `total`, for a payload that passed `check`.

    Raises:
        WireError: If the payload has another size, or its grid is out of range.
    """
    for part, block in _decoded(payload, total.size):
        total[part] += weight * block.astype(np.float64)


@dataclass(frozen=True, slots=True)
class Affine8(Rounded):
    """The functions of this module."""

    @property
    def largest(self) -> float:
        """Differences of such values are at most half of what travels; the grid is a little wider."""
        return MAX_VALUE / 4

    def fields(self) -> dict[str, str | int]:
        """See `Rounded`."""
        return {"codec": "affine8"}

    def size_bytes(self, count: int) -> int:
        """See `Rounded`."""
        return size_bytes(count)

    def encode(self, differences: NDArray[np.float32], rng: np.random.Generator) -> bytes:
        """See `Rounded`."""
        return encode(differences)

    def decode(self, payload: Payload, count: int) -> NDArray[np.float32]:
        """See `Rounded`."""
        return decode(payload, count)

    def check(self, payload: Payload, count: int) -> None:
        """See `Rounded`."""
        check(payload, count)

    def add(self, payload: Payload, weight: float, total: NDArray[np.float64]) -> None:
        """See `Rounded`."""
        add(payload, weight, total)


def _grid_of(values: NDArray[np.floating[Any]]) -> Grid:
    """The grid as it travels: where values are placed, they are found again."""
    if not values.size:
        return Grid(_as_type(_SCALE_OF_EQUALS, values), _Q_MIN, 0.0)
    low, high = float(values.min()), float(values.max())
    _require_range(low, high)
    mean = _as_type(float(values.mean(dtype=np.float64)), values)
    scale = _as_type((high - low) / (_Q_MAX - _Q_MIN), values)
    if scale < _MIN_SCALE:
        scale = _as_type(_SCALE_OF_EQUALS, values)
    zero_point = _Q_MIN - (low - mean) / scale
    return Grid(scale, int(min(max(zero_point, _Q_MIN), _Q_MAX)), mean)


def _as_type(number: float, values: NDArray[np.floating[Any]]) -> float:
    return float(values.dtype.type(number))


def _require_range(low: float, high: float) -> None:
    if not -MAX_VALUE <= low <= high <= MAX_VALUE:
        raise WireError(f"values must be from {-MAX_VALUE:g} to {MAX_VALUE:g}, got {low} to {high}")


def _places(values: NDArray[np.floating[Any]], grid: Grid) -> NDArray[np.int8]:
    steps = (values.astype(np.float64) - grid.mean) / grid.scale
    return np.rint(np.clip(grid.zero_point + steps, _Q_MIN, _Q_MAX)).astype(np.int8)


def _read(payload: Payload, count: int) -> tuple[Grid, NDArray[np.int8]]:
    if len(payload) != size_bytes(count):
        raise WireError(f"{count} values take {size_bytes(count)} bytes, got {len(payload)}")
    scale, mean, zero_point = _HEAD.unpack_from(payload)
    return Grid(scale, zero_point, mean), np.frombuffer(payload, np.int8, offset=_HEAD.size)


def _decoded(payload: Payload, count: int) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Check a payload, then give its values block by block."""
    grid, q = _read(payload, count)
    return ((part, dequantise(grid, q[part]).astype(np.float32)) for part in _parts(count))


def _parts(count: int) -> Iterator[slice]:
    return (slice(start, start + _BLOCK) for start in range(0, count, _BLOCK))
