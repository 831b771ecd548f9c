"""QSGD: a tensor as its norm, and per element a sign and one of a few levels.

Alistarh et al. (NeurIPS 2017); FedPAQ (AISTATS 2020) sends model differences this way. A payload is the
norm (float32, little-endian), then for each element one sign bit and ``ceil(log2(s + 1))`` bits of level,
most significant bit first; the bits left over in the last byte are zero. Every payload stands for other
values: level 0 has no sign, and a norm of 0 only levels 0.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedat_service.errors import WireError
from fedat_service.wire.polyline_numpy import Payload
from fedat_service.wire.rounded import Rounded

MAX_LEVELS = 65_535
MAX_NORM = 2.0**126
"""No larger norm travels: a model and a difference of this size still have a finite sum."""

_NORM = np.dtype("<f4")
_BLOCK = 1 << 15
"""Elements packed at a time; a multiple of 8, so that every block but the last is whole bytes."""


def quantise(
    values: NDArray[np.floating[Any]], levels: int, uniforms: NDArray[np.float64]
) -> tuple[float, NDArray[np.int32]]:
    """Round each value to a level of the tensor's norm, up or down so that the mean stays the value.

    ``Q(x_i) = ||x|| sign(x_i) xi_i`` with ``l = floor(s |x_i| / ||x||)`` and ``xi_i`` equal to ``(l+1)/s``
    with probability ``s |x_i| / ||x|| - l``, else ``l/s``.

    Args:
        values: Shape `(n,)`.
        levels: ``s``.
        uniforms: Shape `(n,)`, in [0, 1): an element is rounded up if its number is below the probability.

    Returns:
        ``||x||``, rounded to the type of `values`, and ``s sign(x_i) xi_i``, from -s to s.

    Raises:
        WireError: If `levels` is out of range, a value or the norm is not finite, or the shapes differ.
    """
    _require_levels(levels)
    if values.shape != uniforms.shape:
        raise WireError(f"{values.size} values need as many uniforms, got {uniforms.size}")
    norm = _norm(values)
    return norm, _levels_of(values, norm, levels, uniforms)


def dequantise(norm: float, signed: NDArray[np.int32], levels: int) -> NDArray[np.float64]:
    """The values that `quantise` rounded to: ``||x|| sign xi``."""
    return norm * (signed / levels)


def size_bytes(count: int, levels: int) -> int:
    """Bytes that `count` values take: ``4 + ceil(count (1 + ceil(log2(s + 1))) / 8)``.

    Raises:
        WireError: If `levels` is out of range or the count is negative.
    """
    _require_levels(levels)
    if count < 0:
        raise WireError(f"a count must be at least 0, got {count}")
    return _NORM.itemsize + -(-count * _bits(levels) // 8)


def encode(values: NDArray[np.float32], levels: int, rng: np.random.Generator) -> bytes:
    """Encode a one-dimensional float32 array; the generator gives one uniform number a value.

    Raises:
        WireError: If `levels` is out of range, or a value or the norm is not finite.
    """
    _require_levels(levels)
    norm = _norm(values)
    parts = [np.array(norm, _NORM).tobytes()]
    for start in range(0, values.size, _BLOCK):
        block = values[start : start + _BLOCK]
        parts.append(_pack(_levels_of(block, norm, levels, rng.random(block.size)), levels))
    return b"".join(parts)


def decode(payload: Payload, count: int, levels: int) -> NDArray[np.float32]:
    """Decode exactly `count` values.

    Raises:
        WireError: If the payload is anything but `count` values as `encode` writes them.
    """
    blocks = _decoded(payload, count, levels)
    values = np.empty(count, np.float32)
    for part, block in blocks:
        values[part] = block
    return values


def check(payload: Payload, count: int, levels: int) -> None:
    """Go through a payload as `decode` does, but give no values.

    Raises:
        WireError: If the payload is anything but `count` values as `encode` writes them.
    """
    for _ in _decoded(payload, count, levels):
        pass


def add(payload: Payload, weight: float, total: NDArray[np.float64], levels: int) -> None:
    """Add ``weight * value`` to every element of `total`, for a payload that passed `check`.

    Raises:
        WireError: If the payload is anything but `total.size` values as `encode` writes them.
    """
    for part, block in _decoded(payload, total.size, levels):
        total[part] += weight * block.astype(np.float64)


@dataclass(frozen=True, slots=True)
class Qsgd(Rounded):
    """The functions of this module at so many levels.

    Raises:
        WireError: If `levels` is out of range.
    """

    levels: int = 16

    def __post_init__(self) -> None:
        _require_levels(self.levels)

    @property
    def largest(self) -> float:
        """No tensor of 2**34 elements of this size has differences of a norm that cannot travel."""
        return MAX_NORM / 2.0**18

    def fields(self) -> dict[str, str | int]:
        """See `Rounded`."""
        return {"codec": "qsgd", "levels": self.levels}

    def size_bytes(self, count: int) -> int:
        """See `Rounded`."""
        return size_bytes(count, self.levels)

    def encode(self, differences: NDArray[np.float32], rng: np.random.Generator) -> bytes:
        """See `Rounded`."""
        return encode(differences, self.levels, rng)

    def decode(self, payload: Payload, count: int) -> NDArray[np.float32]:
        """See `Rounded`."""
        return decode(payload, count, self.levels)

    def check(self, payload: Payload, count: int) -> None:
        """See `Rounded`."""
        check(payload, count, self.levels)

    def add(self, payload: Payload, weight: float, total: NDArray[np.float64]) -> None:
        """See `Rounded`."""
        add(payload, weight, total, self.levels)


def _require_levels(levels: int) -> None:
    if type(levels) is not int or not 1 <= levels <= MAX_LEVELS:
        raise WireError(f"levels must be 1..{MAX_LEVELS}, got {levels!r}", "levels")


def _bits(levels: int) -> int:
    return 1 + levels.bit_length()


def _norm(values: NDArray[np.floating[Any]]) -> float:
    """The norm as it travels: rounding it is monotone, so that no value comes out larger than it."""
    squares = 0.0
    for start in range(0, values.size, _BLOCK):
        block = values[start : start + _BLOCK].astype(np.float64)
        # Not `block @ block`: its bits would be those of the processor and the number of its threads.
        squares += float(np.square(block).sum())
    with np.errstate(over="ignore"):
        norm = float(values.dtype.type(math.sqrt(squares)))
    if not norm <= MAX_NORM:
        raise WireError(f"the norm of the values is {norm}, it must be at most {MAX_NORM:g}")
    return norm


def _levels_of(
    values: NDArray[np.floating[Any]], norm: float, levels: int, uniforms: NDArray[np.float64]
) -> NDArray[np.int32]:
    if norm == 0:
        return np.zeros(values.shape, np.int32)
    ratio = np.abs(values, dtype=np.float64)
    ratio *= levels
    ratio /= norm
    floor = np.floor(ratio)
    level = np.minimum(floor + (uniforms < ratio - floor), levels)
    signed: NDArray[np.int32] = np.copysign(level, values).astype(np.int32)
    return signed


def _decoded(payload: Payload, count: int, levels: int) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Check the frame of a payload and give its values block by block, each checked when it comes."""
    if len(payload) != size_bytes(count, levels):
        raise WireError(
            f"{count} values of {levels} levels take {size_bytes(count, levels)} bytes, got {len(payload)}"
        )
    norm = float(np.frombuffer(payload, _NORM, 1)[0])
    if not norm <= MAX_NORM or math.copysign(1, norm) < 0:
        raise WireError(f"a norm must be from 0 to {MAX_NORM:g}, got {norm}")
    packed = np.frombuffer(payload, np.uint8, offset=_NORM.itemsize)
    spare = 8 * packed.size - count * _bits(levels)
    if spare and packed[-1] & ((1 << spare) - 1):
        raise WireError(f"the last {spare} bits of a payload must be zero")
    return _blocks(norm, packed, count, levels)


def _blocks(
    norm: float, packed: NDArray[np.uint8], count: int, levels: int
) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    bits = _bits(levels)
    for start in range(0, count, _BLOCK):
        size = min(_BLOCK, count - start)
        first = start * bits // 8
        signed = _unpack(packed[first : first + -(-size * bits // 8)], size, levels, norm)
        yield slice(start, start + size), dequantise(norm, signed, levels).astype(np.float32)


def _pack(signed: NDArray[np.int32], levels: int) -> bytes:
    """Write sign and magnitude, `_bits` bits an element."""
    bits = _bits(levels)
    word = _word(bits)
    codes = (np.abs(signed) | (signed < 0).astype(np.int32) << (bits - 1)).astype(word)
    planes = np.unpackbits(codes.view(np.uint8).reshape(-1, word.itemsize), axis=1)
    return np.packbits(planes[:, -bits:]).tobytes()


def _unpack(packed: NDArray[np.uint8], count: int, levels: int, norm: float) -> NDArray[np.int32]:
    """Read what `_pack` wrote, and refuse what it would not write."""
    bits = _bits(levels)
    word = _word(bits)
    planes = np.zeros((count, 8 * word.itemsize), np.uint8)
    planes[:, -bits:] = np.unpackbits(packed, count=count * bits).reshape(count, bits)
    codes = np.packbits(planes, axis=1).view(word).reshape(count).astype(np.int32)
    sign, level = codes >> (bits - 1), codes & ((1 << (bits - 1)) - 1)
    wrong = (level > levels) | (level < sign)
    if norm == 0:
        wrong |= level > 0
    if wrong.any():
        raise WireError(
            f"code {codes[wrong][0]:#x} has no place in {levels} levels of norm {norm:g}, where 0 has no sign"
        )
    return np.where(sign, -level, level).astype(np.int32)


def _word(bits: int) -> np.dtype[Any]:
    """The shortest big-endian word of at least so many bits."""
    return np.dtype(">u1" if bits <= 8 else ">u2" if bits <= 16 else ">u4")
