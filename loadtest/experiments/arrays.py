"""Values with arrays in them as bytes, and back: results that outlive the process that computed them."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any
from weakref import ref

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, TypeAdapter
from zlib_ng import zlib_ng

_ARRAY = "__array__"
_CHECKSUM_BYTES = 4


def to_pieces(value: Any) -> list[bytes | memoryview]:  # noqa: ANN401 - plain values, arrays, dataclasses ...
    """Write a value down: a checksum, one line of JSON, then the arrays. Equal values give equal bytes.

    Args:
        value: Plain values, arrays, dataclasses and pydantic models, one within the other.

    Returns:
        What to write one after the other; arrays are not copied.

    Raises:
        TypeError: If it holds anything else.
    """
    arrays: list[memoryview] = []
    size = 0

    def placed(array: NDArray[Any]) -> int:
        nonlocal size
        at, content = size, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        arrays.append(content)
        size += content.nbytes
        return at

    head = _head(value, placed) + b"\n"
    return [_checksum((head, *arrays)), head, *arrays]


class ArrayDigests:
    """Digests of arrays that nobody writes to: each is read once, as long as it lives."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[ref[NDArray[Any]], str]] = {}

    def __call__(self, array: NDArray[Any]) -> str:
        """Hex digest of an array's values."""
        key = id(array)
        if key not in self._known:
            found = hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
            # Gone with its array, so that no other array can be taken for it.
            self._known[key] = ref(array, lambda _: self._known.pop(key, None)), found
        return self._known[key][1]


def digest(value: Any, of_array: ArrayDigests) -> str:  # noqa: ANN401 - as in `to_pieces`
    """Name a value: equal values have equal digests.

    Raises:
        TypeError: As `to_pieces`.
    """
    return hashlib.sha256(_head(value, of_array)).hexdigest()


def from_bytes(content: bytes, kind: Any) -> Any:  # noqa: ANN401 - a type, and one of its values
    """Read what `to_pieces` gave.

    Args:
        content: What it wrote.
        kind: The value's type, such as `list[TrainResult]`.

    Raises:
        ValueError: If that is not what was written, or only a part of it.
    """
    written = content[_CHECKSUM_BYTES:]
    if content[:_CHECKSUM_BYTES] != _checksum((written,)):
        raise ValueError(f"not what was written: {len(content)} bytes with another checksum")
    head, _, arrays = written.partition(b"\n")

    def array(part: dict[str, Any]) -> Any:  # noqa: ANN401 - an array, or a dictionary as it is
        if _ARRAY not in part:
            return part
        dtype, shape, at = part[_ARRAY]
        count = int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(arrays, dtype, count, at).reshape(shape).copy()

    (value,) = _reader(kind).validate_python([json.loads(head, object_hook=array)])
    return value


def _checksum(parts: Iterable[bytes | memoryview]) -> bytes:
    """Of accidents only: a write that was torn, a disk that errs."""
    checksum = 0
    for part in parts:
        checksum = zlib_ng.crc32(part, checksum)
    return checksum.to_bytes(_CHECKSUM_BYTES)


@lru_cache
def _reader(kind: Any) -> TypeAdapter[Any]:  # noqa: ANN401 - a type
    # Of a list of them: a class of its own would not take the configuration.
    return TypeAdapter(list[kind], config=ConfigDict(arbitrary_types_allowed=True))


def _head(value: Any, known_by: Callable[[NDArray[Any]], int | str]) -> bytes:  # noqa: ANN401 - as in `to_pieces`
    """JSON of a value, with what an array is known by in its place."""

    def plain(part: Any) -> Any:  # noqa: ANN401 - whatever JSON does not know
        if isinstance(part, np.ndarray):
            return {_ARRAY: [part.dtype.str, part.shape, known_by(part)]}
        return _fields(part)

    return json.dumps(value, default=plain).encode()


def _fields(part: Any) -> Any:  # noqa: ANN401 - of any class
    if isinstance(part, BaseModel):
        return part.model_dump(mode="json")
    if is_dataclass(part):
        return {field.name: getattr(part, field.name) for field in fields(part)}
    if isinstance(part, Mapping):
        return dict(part)
    raise TypeError(f"a {type(part).__name__} cannot be written down")
