"""How one tensor becomes bytes: float codecs behind one protocol, and raw integers beside it."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from fedat_service.errors import WireError
from fedat_service.wire import polyline
from fedat_service.wire.affine import Affine8
from fedat_service.wire.polyline import Layout
from fedat_service.wire.polyline_numpy import Payload
from fedat_service.wire.qsgd import Qsgd
from fedat_service.wire.rounded import Rounded
from fedat_service.wire.settings import CodecSettings


class Codec(Hashable, Protocol):
    """A codec of float32 tensors."""

    @property
    def scale(self) -> int:
        """What `add` multiplies values by: grid units per 1.0, or 1 where there is no grid."""
        ...

    @property
    def largest(self) -> float:
        """Largest magnitude that it carries."""
        ...

    def fields(self) -> dict[str, str | int]:
        """What the header of a bundle says of this codec."""
        ...

    def size_bounds(self, count: int) -> tuple[int, int]:
        """Fewest and most bytes that `count` values can take."""
        ...

    def encode(self, values: NDArray[np.float32]) -> bytes:
        """Encode a one-dimensional float32 array.

        Raises:
            WireError: If a value cannot be carried.
        """
        ...

    def decode(self, payload: Payload, count: int) -> NDArray[np.float32]:
        """Decode exactly `count` values.

        Raises:
            WireError: If the payload is anything but `count` finite values in range.
        """
        ...

    def check(self, payload: Payload, count: int) -> None:
        """Go through a payload as `decode` does, but give no values.

        Raises:
            WireError: If the payload is anything but `count` finite values in range.
        """
        ...

    def add(self, payload: Payload, weight: float, total: NDArray[np.float64]) -> None:
        """Add ``weight * value * scale`` to every element of `total`, for a payload that passed `check`.

        Raises:
            WireError: If the payload is anything but `total.size` finite values in range.
        """
        ...


@dataclass(frozen=True, slots=True)
class Polyline:
    """Values on the grid of ``10**-precision``, as text; sums on the grid are exact in any order.

    Raises:
        WireError: If the precision or the layout is unknown.
    """

    precision: int = 4
    layout: Layout = "pairs"
    backend: polyline.Backend = field(default=polyline.DEFAULT, repr=False, compare=False)

    def __post_init__(self) -> None:
        polyline.require_precision(self.precision)
        polyline.require_layout(self.layout)

    @property
    def scale(self) -> int:
        """Grid units per 1.0."""
        return int(10**self.precision)

    @property
    def largest(self) -> float:
        """The last float32 whose integer is below 2**30."""
        return float(np.nextafter(np.float32(2**30 / 10**self.precision), np.float32(0)))

    def fields(self) -> dict[str, str | int]:
        """What the header of a bundle says of this codec."""
        return {"codec": "polyline", "precision": self.precision, "layout": self.layout}

    def size_bounds(self, count: int) -> tuple[int, int]:
        """Fewest and most bytes that `count` values can take."""
        return polyline.size_bounds(count, self.layout)

    def encode(self, values: NDArray[np.float32]) -> bytes:
        """See `Codec`."""
        return self.backend.encode(values, self.precision, self.layout)

    def decode(self, payload: Payload, count: int) -> NDArray[np.float32]:
        """See `Codec`."""
        return self.backend.decode(payload, count, self.precision, self.layout)

    def check(self, payload: Payload, count: int) -> None:
        """See `Codec`."""
        self.backend.check(payload, count, self.layout)

    def add(self, payload: Payload, weight: float, total: NDArray[np.float64]) -> None:
        """See `Codec`."""
        self.backend.add(payload, weight, total, self.layout)

    def on_grid(self, values: NDArray[np.float32]) -> NDArray[np.int32]:
        """Values in the units of `add`."""
        return self.backend.quantise(values, self.precision)

    def encode_from(self, values: NDArray[np.float32], base: NDArray[np.float32]) -> bytes | None:
        """Encode differences on the grid; None if they would take more room than the values."""
        return self.backend.encode_from(values, base, self.precision, self.layout)

    def decode_from(self, payload: Payload, base: NDArray[np.float32]) -> NDArray[np.float32]:
        """Add differences to the same base."""
        return self.backend.decode_from(payload, base, self.precision, self.layout)


@dataclass(frozen=True, slots=True)
class _Raw:
    """IEEE 754 numbers, little-endian, one after the other."""

    dtype: ClassVar[np.dtype[Any]]

    @property
    def scale(self) -> int:
        """1: there is no grid."""
        return 1

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return float(np.finfo(self.dtype).max)

    def fields(self) -> dict[str, str | int]:
        """What the header of a bundle says of this codec."""
        return {"codec": type(self).__name__.lower()}

    def size_bounds(self, count: int) -> tuple[int, int]:
        """Fewest and most bytes that `count` values can take."""
        return count * self.dtype.itemsize, count * self.dtype.itemsize

    def encode(self, values: NDArray[np.float32]) -> bytes:
        """See `Codec`."""
        narrow = values.astype(self.dtype, copy=False)
        _require_finite(narrow, values)
        return narrow.tobytes()

    def decode(self, payload: Payload, count: int) -> NDArray[np.float32]:
        """See `Codec`."""
        return self._read(payload, count).astype(np.float32)

    def check(self, payload: Payload, count: int) -> None:
        """See `Codec`."""
        self._read(payload, count)

    def add(self, payload: Payload, weight: float, total: NDArray[np.float64]) -> None:
        """See `Codec`."""
        total += np.multiply(self._read(payload, total.size), weight, dtype=np.float64)

    def _read(self, payload: Payload, count: int) -> NDArray[Any]:
        values = _view(payload, count, self.dtype)
        _require_finite(values, values)
        return values


class Float32(_Raw):
    """Values as they are."""

    dtype = np.dtype("<f4")


class Float16(_Raw):
    """Values rounded to half precision; those of 65520 and more in size are refused."""

    dtype = np.dtype("<f2")

    def encode(self, values: NDArray[np.float32]) -> bytes:
        """See `Codec`."""
        with np.errstate(over="ignore"):
            return super().encode(values)


@dataclass(frozen=True, slots=True)
class Int64:
    """Integer tensors (counters): raw, little-endian. No `Codec`: integers are counted, not averaged."""

    def fields(self) -> dict[str, str | int]:
        """What the header of a bundle says of this codec."""
        return {"codec": "int64"}

    def size_bounds(self, count: int) -> tuple[int, int]:
        """Fewest and most bytes that `count` values can take."""
        return 8 * count, 8 * count

    def encode(self, values: NDArray[np.int64]) -> bytes:
        """Encode an int64 array."""
        return values.astype("<i8", casting="safe").tobytes()

    def decode(self, payload: Payload, count: int) -> NDArray[np.int64]:
        """Decode exactly `count` values.

        Raises:
            WireError: If the payload is not 8 bytes a value.
        """
        return _view(payload, count, np.dtype("<i8")).astype(np.int64)

    def check(self, payload: Payload, count: int) -> None:
        """Check the length.

        Raises:
            WireError: If the payload is not 8 bytes a value.
        """
        _view(payload, count, np.dtype("<i8"))


def make_codec(settings: CodecSettings) -> Codec:
    """How models travel, and of an update what does not learn."""
    match settings.name:
        case "polyline":
            return Polyline(settings.precision, settings.layout)
        case "float16":
            return Float16()
        case "float32" | "qsgd" | "affine8":
            return Float32()


_KINDS: Mapping[str, tuple[Callable[..., Codec | Int64 | Rounded], tuple[str, ...]]] = MappingProxyType(
    {
        "float32": (Float32, ()),
        "float16": (Float16, ()),
        "int64": (Int64, ()),
        "polyline": (Polyline, ("precision", "layout")),
        "qsgd": (Qsgd, ("levels",)),
        "affine8": (Affine8, ()),
    }
)
"""Every codec and its members, in the order of its arguments."""


def parse_codec(fields: Mapping[str, Any]) -> Codec | Int64 | Rounded:
    """Read what `fields()` wrote: exactly the members of one codec.

    Raises:
        WireError: If the codec, a member or its value is unknown, or a member is missing; `field` names it.
    """
    name = fields.get("codec")
    if not isinstance(name, str) or name not in _KINDS:
        raise WireError(f"unknown codec {name!r}; there are {', '.join(_KINDS)}", "codec")
    make, members = _KINDS[name]
    for member in members:
        if member not in fields:
            raise WireError(f"a {name} codec must say its {member}", member)
    for member in fields:
        if member not in ("codec", *members):
            raise WireError(f"unknown member {member!r} for codec {name}", member)
    return make(*(fields[member] for member in members))


def _view(payload: Payload, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    if count < 0 or len(payload) != count * dtype.itemsize:
        raise WireError(
            f"{count} values of {dtype.name} take {count * dtype.itemsize} bytes, got {len(payload)}"
        )
    return np.frombuffer(payload, dtype)


def _require_finite(carried: NDArray[Any], values: NDArray[Any]) -> None:
    # A search through bytes: for the few values of most tensors it costs a quarter of a reduction.
    index = np.isfinite(carried).tobytes().find(b"\0")
    if index >= 0:
        raise WireError(f"value {values[index]} at index {index} is not a finite {carried.dtype.name}")
