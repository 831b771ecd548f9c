"""Values with arrays in them as bytes, and back: results that outlive the process that computed them."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, TypeAdapter

_ARRAY = "__array__"


def to_bytes(value: Any) -> bytes:  # noqa: ANN401 - plain values, arrays, dataclasses and models of them
    """Write a value down: one line of JSON, then the arrays it holds. Equal values give equal bytes.

    Args:
        value: Plain values, arrays, dataclasses and pydantic models, one within the other.

    Raises:
        TypeError: If it holds anything else.
    """
    arrays: list[bytes] = []
    size = 0

    def plain(part: Any) -> Any:  # noqa: ANN401 - whatever JSON does not know
        nonlocal size
        if isinstance(part, np.ndarray):
            at, content = size, np.ascontiguousarray(part).tobytes()
            arrays.append(content)
            size += len(content)
            return {_ARRAY: [part.dtype.str, part.shape, at]}
        return _fields(part)

    head = json.dumps(value, default=plain)
    return b"".join((head.encode(), b"\n", *arrays))


def from_bytes(content: bytes, kind: Any) -> Any:  # noqa: ANN401 - a type, and one of its values
    """Read what `to_bytes` wrote.

    Args:
        content: What it wrote.
        kind: The value's type, such as `list[TrainResult]`.

    Raises:
        ValueError: If that is not what was written, or only a part of it.
    """
    head, _, arrays = content.partition(b"\n")

    def array(part: dict[str, Any]) -> Any:  # noqa: ANN401 - an array, or a dictionary as it is
        if _ARRAY not in part:
            return part
        dtype, shape, at = part[_ARRAY]
        count = int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(arrays, dtype, count, at).reshape(shape).copy()

    (value,) = _reader(kind).validate_python([json.loads(head, object_hook=array)])
    return value


@lru_cache
def _reader(kind: Any) -> TypeAdapter[Any]:  # noqa: ANN401 - a type
    # Of a list of them: a class of its own would not take the configuration.
    return TypeAdapter(list[kind], config=ConfigDict(arbitrary_types_allowed=True))


def _fields(part: Any) -> Any:  # noqa: ANN401 - of any class
    if isinstance(part, BaseModel):
        return part.model_dump(mode="json")
    if is_dataclass(part):
        return {field.name: getattr(part, field.name) for field in fields(part)}
    if isinstance(part, Mapping):
        return dict(part)
    raise TypeError(f"a {type(part).__name__} cannot be written down")
