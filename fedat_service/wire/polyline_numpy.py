"""The polyline codec's loops in NumPy: the twin of the C half, for machines without a compiler.

Both halves give the same bytes, floats, sums and faults. A payload is read in chunks, each in a fixed number
of array operations, so that time and memory stay linear whatever the bytes are.
"""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Payload = bytes | bytearray | memoryview
FaultKind = Literal["byte", "long", "open", "range", "many", "few"]
Fault = tuple[FaultKind, int]
"""What is wrong with a payload, and the index of the value it is wrong at."""

Q_LIMIT = 1 << 30
"""Every integer on the grid is smaller than this, so that a difference of two fits 32 bits."""

_MAX_CHARS = 7
_FIRST_CHAR = 63
_CHUNK_VALUES = 1 << 15
_CHUNK_BYTES = 1 << 16


def quantise(values: NDArray[np.float32], integers: NDArray[np.int32], factor: float) -> bool:
    """Set `integers` to round-half-away(values * factor); return whether all of them are in range.

    A float32 times 10**p has less than 53 significant bits, so the product and the sum with a half are exact
    in float64 where it matters.
    """
    y = np.multiply(values, factor, dtype=np.float64)
    # Written so that NaN fails too.
    if y.size and not (y.max() < Q_LIMIT - 0.5 and y.min() > 0.5 - Q_LIMIT):
        return False
    y += np.copysign(0.5, y)
    np.copyto(integers, y, casting="unsafe")
    return True


def encode(values: NDArray[np.float32], factor: float, lag: int) -> bytes | None:
    """Return the characters of `values`, or None if a value is out of range.

    Args:
        values: float32, one-dimensional.
        factor: Grid units per 1.0.
        lag: Distance to the value that each one is the difference to; 0: no difference.
    """
    history = np.zeros(2 + _CHUNK_VALUES, np.int32)
    parts = []
    for start in range(0, values.size, _CHUNK_VALUES):
        chunk = values[start : start + _CHUNK_VALUES]
        q = history[2 : 2 + chunk.size]
        if not quantise(chunk, q, factor):
            return None
        d = q - history[2 - lag : 2 - lag + chunk.size] if lag else q
        parts.append(_characters((d << 1 ^ d >> 31).view(np.uint32)))
        history[:2] = history[chunk.size : chunk.size + 2]
    return b"".join(parts)


def _characters(z: NDArray[np.uint32]) -> bytes:
    """Characters of zigzag values: 5-bit groups, low first, all but the last with a continuation bit.

    Each value is spread over the bytes of one word; the bytes it does not need stay 0 and are dropped.
    """
    groups = 4 if z.max() < 1 << 20 else 8
    rest: NDArray[Any] = z if groups == 4 else z.astype(np.uint64)
    words = np.zeros_like(rest)
    live = np.ones(rest.shape, rest.dtype)
    for group in range(groups):
        character = rest & 31
        character += _FIRST_CHAR
        rest = rest >> 5
        more = (rest != 0).astype(rest.dtype)
        character += more << 5
        character *= live
        character <<= 8 * group
        words |= character
        live = more
    little = words.astype(words.dtype.newbyteorder("<"), copy=False).view(np.uint8)
    return np.compress(little != 0, little).tobytes()


def decode(payload: Payload, values: NDArray[np.float32], factor: float, lag: int) -> Fault | None:
    """Fill `values` from a payload that must hold exactly `values.size` of them; return the first fault."""

    def divide(start: int, q: NDArray[np.int64]) -> None:
        np.divide(q, factor, out=values[start : start + q.size], dtype=np.float64, casting="unsafe")

    return _scan(payload, values.size, lag, divide)


def check(payload: Payload, count: int, lag: int) -> Fault | None:
    """Return the first fault of a payload that must hold exactly `count` values."""
    return _scan(payload, count, lag, lambda _start, _q: None)


def add(payload: Payload, total: NDArray[np.float64], weight: float, lag: int) -> Fault | None:
    """Add `weight * q` to `total`, value by value; return the first fault."""

    def accumulate(start: int, q: NDArray[np.int64]) -> None:
        total[start : start + q.size] += weight * q

    return _scan(payload, total.size, lag, accumulate)


def _scan(
    payload: Payload, count: int, lag: int, take: Callable[[int, NDArray[np.int64]], None]
) -> Fault | None:
    """Hand the integers to `take`, chunk by chunk; stop at the first chunk with a fault in or behind it."""
    characters = np.frombuffer(payload, np.uint8)
    last = [0, 0]
    at = done = 0
    while at < characters.size:
        z, used = _read_chunk(characters[at : at + _CHUNK_BYTES])
        q = _integers(z, lag, last)
        if not used or done + q.size > count or not (q.max() < Q_LIMIT and q.min() > -Q_LIMIT):
            return _first_fault(characters[at:], count, lag, last, done)
        take(done, q)
        last = [*last, *q[-2:].tolist()][-2:]
        at += used
        done += q.size
    return ("few", done) if done < count else None


def _read_chunk(chunk: NDArray[np.uint8]) -> tuple[NDArray[np.int64], int]:
    """Zigzag values of all the values that end in `chunk`, and the bytes they take; 0 bytes at any fault."""
    ends = np.flatnonzero(chunk < _FIRST_CHAR + 32)
    if not ends.size or chunk.min() < _FIRST_CHAR or chunk.max() > _FIRST_CHAR + 63:
        return np.empty(0, np.int64), 0
    starts = np.zeros_like(ends)
    starts[1:] = ends[:-1] + 1
    more = ends - starts
    longest = int(more.max()) + 1
    if longest > _MAX_CHARS:
        return np.empty(0, np.int64), 0
    groups = np.zeros(chunk.size + longest, np.uint8)
    np.bitwise_and(chunk - _FIRST_CHAR, 31, out=groups[: chunk.size])
    z = groups.take(starts).astype(np.int64)
    for i in range(1, longest):
        group = groups[i:].take(starts)
        group *= more >= i
        z |= group.astype(np.int64) << 5 * i
    return z, (int(ends[-1]) + 1 if z.max() < 1 << 32 else 0)


def _integers(z: NDArray[np.int64], lag: int, last: list[int]) -> NDArray[np.int64]:
    """Undo the zigzag and the differences; `last` are the two integers before."""
    q = z >> 1 ^ -(z & 1)
    for column in range(lag):
        sums = q[column::lag]
        np.cumsum(sums, out=sums)
        sums += last[column - lag]
    return q


def _first_fault(characters: NDArray[np.uint8], count: int, lag: int, last: list[int], index: int) -> Fault:
    """Find the first fault, byte by byte; the caller knows that it is at most a chunk away."""
    z = length = 0
    for character in characters.data:
        if length == 0 and index == count:
            return "many", index
        if length == _MAX_CHARS:
            return "long", index
        if not _FIRST_CHAR <= character <= _FIRST_CHAR + 63:
            return "byte", index
        z |= (character - _FIRST_CHAR & 31) << 5 * length
        length += 1
        if character < _FIRST_CHAR + 32:
            q = (z >> 1 ^ -(z & 1)) + (last[-lag] if lag else 0)
            if z >> 32 or abs(q) >= Q_LIMIT:
                return "range", index
            last = [last[-1], q]
            z, length, index = 0, 0, index + 1
    return "open", index
