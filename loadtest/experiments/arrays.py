"""Values with arrays in them as bytes, and back: results that outlive the process that computed them."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, TypeAdapter

_ARRAY = "__array__"
_CHECKSUM_BYTES = 16


def to_bytes(value: Any) -> bytes:  # noqa: ANN401 - plain values, arrays, dataclasses and models of them
    """Write a value down: a checksum, one line of JSON, then the arrays. Equal values give equal bytes.

    Args:
        value: Plain values, arrays, dataclasses and pydantic models, one within the other.

    Raises:
        TypeError: If it holds anything else.
    """
    arrays: list[bytes] = []
    size = 0

    def placed(array: NDArray[Any]) -> int:
        nonlocal size
        at, content = size, np.ascontiguousarray(array).tobytes()
        arrays.append(content)
        size += len(content)
        return at

    head = _head(value, placed)
    parts = (head, b"\n", *arrays)
    return b"".join((_checksum(parts), *parts))


def digest(value: Any) -> str:  # noqa: ANN401 - as in `to_bytes`
    """Name a value: equal values have equal digests. An array that it holds many times is read once.

    Raises:
        TypeError: As `to_bytes`.
    """
    seen: dict[int, str] = {}

    def named(array: NDArray[Any]) -> str:
        if id(array) not in seen:
            seen[id(array)] = hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
        return seen[id(array)]

    return hashlib.sha256(_head(value, named)).hexdigest()


def from_bytes(content: bytes, kind: Any) -> Any:  # noqa: ANN401 - a type, and one of its values
    """Read what `to_bytes` wrote.

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


def _checksum(parts: Iterable[bytes]) -> bytes:
    summed = hashlib.blake2b(digest_size=_CHECKSUM_BYTES)
    for part in parts:
        summed.update(part)
    return summed.digest()


@lru_cache
def _reader(kind: Any) -> TypeAdapter[Any]:  # noqa: ANN401 - a type
    # Of a list of them: a class of its own would not take the configuration.
    return TypeAdapter(list[kind], config=ConfigDict(arbitrary_types_allowed=True))


def _head(value: Any, known_by: Callable[[NDArray[Any]], int | str]) -> bytes:  # noqa: ANN401 - as in `to_bytes`
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
