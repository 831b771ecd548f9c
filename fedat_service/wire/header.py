"""The header of a bundle: strict JSON, in and out."""

import json
import reprlib
from typing import Annotated, Any

from pydantic import Field, ValidationError

from fedat_service.errors import WireError
from fedat_service.wire.messages import MAX_EXAMPLES
from fedat_service.wire.settings import Reference, Slot
from fedat_service.wire.strict import Name, Strict

_Text = Annotated[str, Field(strict=True, max_length=128)]
_Count = Annotated[int, Field(strict=True, ge=0, lt=2**53)]


class EntryHeader(Strict):
    """What the header says of one tensor; `precision`, `layout` and `levels` only with a codec that has them.

    `reference` says what the values are: themselves, or differences to those of the `base_version`.
    """

    slot: Slot
    layer: _Text
    tensor: _Text
    shape: tuple[_Count, ...] = Field(max_length=8)
    codec: _Text
    precision: _Count | None = None
    layout: _Text | None = None
    levels: _Count | None = None
    reference: Reference
    nbytes: _Count
    crc32: Annotated[int, Field(strict=True, ge=0, lt=2**32)]

    def codec_fields(self) -> dict[str, str | int]:
        """Give the members that belong to the codec."""
        fields = {
            "codec": self.codec,
            "precision": self.precision,
            "layout": self.layout,
            "levels": self.levels,
        }
        return {name: value for name, value in fields.items() if value is not None}


class Header(Strict):
    """Everything of a bundle but its payloads."""

    federation: Name
    version: _Count | None = None
    base_version: _Count | None = None
    num_examples: Annotated[int, Field(strict=True, ge=1, le=MAX_EXAMPLES)] | None = None
    entries: tuple[EntryHeader, ...]


def size_bound(num_tensors: int) -> int:
    """More bytes than the header of any bundle of `num_tensors` tensors takes.

    An entry has up to 172 bytes of punctuation, names and constants, two names of up to 128 and ten numbers.
    """
    return 320 + 640 * num_tensors


def make_header(members: object) -> Header:
    """Validate a header.

    Raises:
        WireError: If a member is unknown, missing or of the wrong kind; `field` names it.
    """
    try:
        header = Header.model_validate(members)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = _path(first["loc"])
        raise WireError(f"{name}: {first['msg']}, got {reprlib.repr(first['input'])}", name) from error
    _require_versions(header)
    return header


def _require_versions(header: Header) -> None:
    differs = any(entry.reference == "base" for entry in header.entries)
    if header.version is None and header.base_version is None:
        raise WireError("a bundle has a version or a base_version", "version")
    if header.base_version is None and differs:
        raise WireError("differences need the base_version that they are taken to", "base_version")
    if header.version is not None and header.base_version is not None and not differs:
        raise WireError("only a version that came as differences has a base_version, too", "version")
    if header.version is not None and header.num_examples is not None:
        raise WireError("a version has no num_examples", "num_examples")


def write_header(header: Header) -> bytes:
    """Give a header as UTF-8 JSON."""
    return header.model_dump_json(exclude_none=True).encode()


def read_header(data: bytes) -> Header:
    """Read a header.

    Raises:
        WireError: If it is not one JSON object in UTF-8 with exactly the known members, each once.
    """
    try:
        members = json.loads(data.decode(), object_pairs_hook=_once, parse_constant=_no_constant)
    except WireError:
        raise
    except (ValueError, RecursionError) as error:
        raise WireError(f"the header is no JSON: {error}", "header") from error
    return make_header(members)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise WireError(f"member {reprlib.repr(name)} stands twice", name[:128])
        members[name] = value
    return members


def _no_constant(name: str) -> None:
    raise WireError(f"{name} is no JSON", "header")


def _path(location: tuple[int | str, ...]) -> str:
    """`entries[3].shape`; a stranger's name for a member is cut."""
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step[:128]}" for step in location)
    return path.removeprefix(".") or "header"
