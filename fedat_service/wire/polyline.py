"""Google's encoded polyline for tensors: floats on the grid of 10**-precision, as printable ASCII.

https://developers.google.com/maps/documentation/utilities/polylinealgorithm says how: take
``q = round-half-away(x * 10**p)``, the difference to the previous value of the same column, zigzag, and 5-bit
groups, low group first, plus 63. Three layouts:

- `pairs`: two columns, byte for byte what `polyline.encode` makes of consecutive pairs; an odd tail is padded
  with one ``?``;
- `flat`: one column;
- `plain`: no difference.

Every operation is linear in the payload and raises nothing but `WireError`, whatever the bytes are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fedat_service.errors import WireError
from fedat_service.wire import polyline_numpy
from fedat_service.wire.polyline_numpy import Q_LIMIT, Fault, Payload

try:
    from fedat_service.wire._polyline import BUILDS
except ImportError:
    BUILDS = {}

Layout = Literal["pairs", "flat", "plain"]

PRECISIONS = range(3, 7)
MAX_CHARS = 7
"""Longest character sequence of one value: 32 bits in groups of 5."""

_LAG: Mapping[str, int] = MappingProxyType({"plain": 0, "flat": 1, "pairs": 2})
_PAD = b"?"
_FLOAT_LIMIT = 1 << 24
"""All integers below it are float32 numbers."""


class Kernels(Protocol):
    """The loops of the codec, in C or in NumPy; `lag` is the distance of the difference, 0 for none."""

    def encode(self, values: NDArray[Any], factor: float, lag: int, /) -> bytes | None:
        """Return the characters, or None if a value is out of range."""
        ...

    def quantise(self, values: NDArray[Any], integers: NDArray[Any], factor: float, /) -> bool:
        """Fill `integers`; return whether all values are in range."""
        ...

    def decode(self, payload: Payload, values: NDArray[Any], factor: float, lag: int, /) -> Fault | None:
        """Fill `values`; return the first fault."""
        ...

    def check(self, payload: Payload, count: int, lag: int, /) -> Fault | None:
        """Return the first fault."""
        ...

    def add(self, payload: Payload, total: NDArray[Any], weight: float, lag: int, /) -> Fault | None:
        """Add `weight` times the integers to `total`; return the first fault."""
        ...


@dataclass(frozen=True, slots=True)
class Backend:
    """The codec on one set of kernels; all backends give the same bytes, floats, sums and errors."""

    name: str
    kernels: Kernels

    def quantise(self, values: NDArray[np.float32], precision: int) -> NDArray[np.int32]:
        """Return the integers ``round-half-away(values * 10**precision)``.

        Raises:
            WireError: If a value is not finite or its integer is not below 2**30 in size.
        """
        require_precision(precision)
        _require(values, np.float32, "values")
        integers = np.empty(values.size, np.int32)
        if not self.kernels.quantise(values, integers, 10.0**precision):
            raise _misfit(values, precision)
        return integers

    def encode(self, values: NDArray[np.float32], precision: int, layout: Layout = "pairs") -> bytes:
        """Encode a contiguous, one-dimensional float32 array; an empty one is an empty string.

        Raises:
            WireError: If a value is not finite or its integer is not below 2**30 in size.
        """
        require_precision(precision)
        require_layout(layout)
        _require(values, np.float32, "values")
        text = self._encode(values, 10.0**precision, layout)
        if text is None:
            raise _misfit(values, precision)
        return text

    def _encode(self, values: NDArray[np.float32], factor: float, layout: Layout) -> bytes | None:
        text = self.kernels.encode(values, factor, _LAG[layout])
        return text + _PAD if text is not None and _is_padded(values.size, layout) else text

    def decode(
        self, payload: Payload, count: int, precision: int, layout: Layout = "pairs"
    ) -> NDArray[np.float32]:
        """Decode exactly `count` values, each the float32 nearest to its integer / 10**precision.

        Raises:
            WireError: If the payload is anything but `count` well-formed values in range.
        """
        require_precision(precision)
        require_layout(layout)
        # Before the array is made: no more is allocated than the payload can fill.
        if not 0 <= count <= len(payload):
            raise WireError(f"{len(payload)} bytes cannot hold {count} values")
        values = np.empty(count, np.float32)
        payload = _without_pad(payload, count, layout)
        _raise(self.kernels.decode(payload, values, 10.0**precision, _LAG[layout]), count)
        return values

    def check(self, payload: Payload, count: int, layout: Layout = "pairs") -> None:
        """Go through a payload as `decode` does, but give no values.

        Raises:
            WireError: If the payload is anything but `count` well-formed values in range.
        """
        require_layout(layout)
        if count < 0:
            raise WireError(f"a payload cannot hold {count} values")
        _raise(self.kernels.check(_without_pad(payload, count, layout), count, _LAG[layout]), count)

    def add(
        self, payload: Payload, weight: float, total: NDArray[np.float64], layout: Layout = "pairs"
    ) -> None:
        """Add `weight` times the payload's integers to `total`, one for each of its elements, in one pass.

        With an integer weight the sums are exact while below 2**53, so that their order does not matter. Only
        for a payload that passed `check`: at a fault `total` is left with a part of the payload in it.

        Raises:
            WireError: If the payload is anything but `total.size` well-formed values in range.
        """
        require_layout(layout)
        _require(total, np.float64, "total")
        if not total.flags.writeable:
            raise WireError("total must be writable")
        payload = _without_pad(payload, total.size, layout)
        _raise(self.kernels.add(payload, total, weight, _LAG[layout]), total.size)

    def encode_from(
        self, values: NDArray[np.float32], base: NDArray[np.float32], precision: int, layout: Layout
    ) -> bytes | None:
        """Encode the differences of the integers to those of other values, laid out like values.

        They are as exact as the values; where one is not below 2**24 in size they would take more room than
        the values, and there is None.

        Raises:
            WireError: If a value is not finite or its integer is not below 2**30 in size.
        """
        differences = self.quantise(values, precision) - self.quantise(base, precision)
        if np.abs(differences).max(initial=0) >= _FLOAT_LIMIT:
            return None
        return self._encode(differences.astype(np.float32), 1.0, layout)

    def decode_from(
        self, payload: Payload, base: NDArray[np.float32], precision: int, layout: Layout
    ) -> NDArray[np.float32]:
        """Add what `encode_from` gave to the same values; what comes out is what `decode` would give.

        Raises:
            WireError: If the payload is anything but `base.size` well-formed differences.
        """
        total = self.quantise(base, precision).astype(np.float64)
        self.add(payload, 1.0, total, layout)
        return (total / 10.0**precision).astype(np.float32)


BACKENDS: Mapping[str, Backend] = MappingProxyType(
    {f"c-{machine}": Backend(f"c-{machine}", kernels) for machine, kernels in BUILDS.items()}
    | {"numpy": Backend("numpy", polyline_numpy)}
)
"""Everything that runs on this machine, the fastest first."""

DEFAULT = next(iter(BACKENDS.values()))
backend = DEFAULT.name
quantise = DEFAULT.quantise
encode = DEFAULT.encode
decode = DEFAULT.decode
check = DEFAULT.check
add = DEFAULT.add


def require_precision(precision: object) -> None:
    """Check a precision that may come from anywhere.

    Raises:
        WireError: If it is not an integer from 3 to 6.
    """
    if type(precision) is not int or precision not in PRECISIONS:
        raise WireError(f"precision must be 3, 4, 5 or 6, got {precision!r}", "precision")


def require_layout(layout: object) -> None:
    """Check a layout that may come from anywhere.

    Raises:
        WireError: If there is no such layout.
    """
    if not isinstance(layout, str) or layout not in _LAG:
        raise WireError(f"layout must be pairs, flat or plain, got {layout!r}", "layout")


def size_bounds(count: int, layout: Layout) -> tuple[int, int]:
    """Fewest and most bytes that `count` values can take."""
    pad = _is_padded(count, layout)
    return count + pad, MAX_CHARS * count + pad


def _is_padded(count: int, layout: Layout) -> bool:
    return layout == "pairs" and count % 2 == 1


def _without_pad(payload: Payload, count: int, layout: Layout) -> Payload:
    if not _is_padded(count, layout):
        return payload
    if (end := bytes(payload[-1:])) != _PAD:
        raise WireError(f"an odd number of values in pairs must end with the pad {_PAD!r}, got {end!r}")
    return memoryview(payload)[:-1]


def _require(array: NDArray[Any], dtype: type[np.generic], name: str) -> None:
    flags = array.flags
    if array.dtype != dtype or array.ndim != 1 or not (flags.c_contiguous and flags.aligned):
        raise WireError(
            f"{name} must be a contiguous, one-dimensional {dtype.__name__} array, "
            f"got {array.dtype}{list(array.shape)} with strides {array.strides}"
        )


def _misfit(values: NDArray[np.float32], precision: int) -> WireError:
    fits = np.abs(values.astype(np.float64) * 10.0**precision) < Q_LIMIT - 0.5
    index = int(np.argmin(fits))
    limit = Q_LIMIT / 10.0**precision
    return WireError(f"value {values[index]} at index {index} is not a number below {limit:g} in size")


def _raise(fault: Fault | None, count: int) -> None:
    if fault is None:
        return
    kind, index = fault
    what = {
        "byte": f"value {index} has a byte outside '?' (63) to '~' (126)",
        "long": f"value {index} has more than {MAX_CHARS} characters",
        "open": f"value {index} is not terminated",
        "range": f"value {index} is out of range: its integer is not below 2**30 in size",
        "many": f"there are bytes left after {count} values",
        "few": f"there are only {index} of {count} values",
    }
    raise WireError(what[kind])
