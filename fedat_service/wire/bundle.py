"""The frame models and updates travel in.

``magic | u32 LE header length | header (UTF-8 JSON) | payloads, concatenated``: one payload a tensor and
slot, slot by slot, in manifest order, for any set of tensors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, get_args

from numpy.typing import NDArray
from zlib_ng import zlib_ng

from fedat_service.errors import WireError
from fedat_service.params import Manifest, Model, Params, TensorSpec, to_model
from fedat_service.wire import header as headers
from fedat_service.wire.codecs import Codec, Float32, Int64, Polyline, parse_codec
from fedat_service.wire.entries import Entry, blamed, values_of
from fedat_service.wire.header import EntryHeader, Header
from fedat_service.wire.polyline_numpy import Payload
from fedat_service.wire.rounded import Rounded
from fedat_service.wire.settings import Slot

MAGIC = b"FEDAT1\n"

_HEAD_BYTES = len(MAGIC) + 4
_INT64 = Int64()
_SLOTS: tuple[Slot, ...] = get_args(Slot)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A model (`version`) or an update of one (`base_version`, `num_examples`).

    A model that is sent as differences to another version says that one's number as `base_version`.
    """

    federation: str
    entries: tuple[Entry, ...]
    version: int | None = None
    base_version: int | None = None
    num_examples: int | None = None


def encode_bundle(bundle: Bundle) -> bytes:
    """Lay a bundle out as bytes.

    Raises:
        WireError: If a member cannot stand in a header; `field` names it.
    """
    text = headers.write_header(_header(bundle))
    payloads = [entry.payload for entry in bundle.entries]
    return b"".join([MAGIC, len(text).to_bytes(4, "little"), text, *payloads])


def parse_bundle(data: Payload, manifest: Manifest) -> Bundle:
    """Read a bundle of a model; linear time, no tensor allocated, payloads are views of `data`.

    Raises:
        WireError: If the bytes are not exactly one bundle of tensors of `manifest`; `field` names the member
            at fault. Whether the values are in range is for `check_bundle` to say.
    """
    view = memoryview(data)
    if bytes(view[: len(MAGIC)]) != MAGIC:
        raise WireError(f"a bundle begins with {MAGIC!r}, got {bytes(view[: len(MAGIC)])!r}", "magic")
    size = int.from_bytes(view[len(MAGIC) : _HEAD_BYTES], "little")
    limit = min(headers.size_bound(len(_SLOTS) * len(manifest.tensors)), max(0, len(view) - _HEAD_BYTES))
    if size > limit:
        raise WireError(f"the header can have at most {limit} bytes, it claims {size}", "header")
    header = headers.read_header(bytes(view[_HEAD_BYTES : _HEAD_BYTES + size]))
    tensors = _tensors(header.entries, manifest)
    codecs = [_codec(i, entry, tensors[i]) for i, entry in enumerate(header.entries)]
    payloads = _payloads(header.entries, view[_HEAD_BYTES + size :])
    entries = tuple(
        Entry(entry.slot, tensor, codec, entry.reference, payload, entry.crc32)
        for entry, tensor, codec, payload in zip(header.entries, tensors, codecs, payloads, strict=True)
    )
    return Bundle(header.federation, entries, header.version, header.base_version, header.num_examples)


def head_of(data: Payload) -> memoryview:
    """Everything before the payloads of a parsed bundle: magic, length, header."""
    view = memoryview(data)
    return view[: _HEAD_BYTES + int.from_bytes(view[len(MAGIC) : _HEAD_BYTES], "little")]


def check_bundle(bundle: Bundle) -> None:
    """Go through all payloads: every value must be finite and in range.

    Raises:
        WireError: If a payload does not decode; `field` names the tensor.
    """
    for entry in bundle.entries:
        try:
            entry.codec.check(entry.payload, entry.tensor.size)
        except WireError as error:
            raise blamed(entry.tensor, error) from error


def decode_bundle(bundle: Bundle, base: Params | None = None) -> dict[Slot, dict[str, NDArray[Any]]]:
    """Decode to float32 and int64 arrays by slot and tensor name, shaped as the manifest says.

    Args:
        bundle: What was received.
        base: What its differences are added to.

    Raises:
        WireError: If a payload does not decode, or a difference has no base; `field` names the tensor.
    """
    slots: dict[Slot, dict[str, NDArray[Any]]] = {}
    for entry in bundle.entries:
        tensor = entry.tensor
        start = None if base is None else base.get(tensor.name)
        try:
            values = values_of(entry, None if start is None else start.reshape(-1))
        except WireError as error:
            raise blamed(tensor, error) from error
        slots.setdefault(entry.slot, {})[tensor.name] = values.reshape(tensor.shape)
    return slots


def decode_model(bundle: Bundle, manifest: Manifest) -> Model:
    """Decode a bundle of a whole model.

    Raises:
        WireError: If a tensor is missing or does not decode; `field` names it.
    """
    sent = {entry.tensor.name for entry in bundle.entries if entry.slot == "weights"}
    if missing := [tensor.name for tensor in manifest.tensors if tensor.name not in sent]:
        raise WireError(f"tensor {missing[0]!r} of the model is missing", missing[0])
    return to_model(decode_bundle(bundle)["weights"], manifest)


@lru_cache(maxsize=16)
def max_bundle_bytes(manifest: Manifest, *codecs: Codec | Rounded, num_slots: int = 0) -> int:
    """More bytes than any bundle of the model in these codecs takes, with `num_slots` beside the weights."""
    payloads = sum(
        _INT64.size_bounds(t.size)[1]
        if t.dtype == "int64"
        else max(codec.size_bounds(t.size)[1] for codec in codecs)
        for t in manifest.tensors
    )
    beside = num_slots * Float32().size_bounds(manifest.num_floats)[1]
    return _HEAD_BYTES + headers.size_bound((1 + num_slots) * len(manifest.tensors)) + payloads + beside


def describe(bundle: Bundle) -> dict[str, Any]:
    """What is in a bundle, for people: its header and the sums, as JSON values."""
    return _header(bundle).model_dump(mode="json", exclude_none=True) | {
        "parameters": sum(entry.tensor.size for entry in bundle.entries),
        "payload_bytes": sum(len(entry.payload) for entry in bundle.entries),
    }


def _header(bundle: Bundle) -> Header:
    entries = [
        {
            "slot": entry.slot,
            "layer": entry.tensor.layer,
            "tensor": entry.tensor.name,
            "shape": entry.tensor.shape,
            **entry.codec.fields(),
            "reference": entry.reference,
            "nbytes": len(entry.payload),
            "crc32": entry.crc32,
        }
        for entry in bundle.entries
    ]
    return headers.make_header(
        {
            "federation": bundle.federation,
            "version": bundle.version,
            "base_version": bundle.base_version,
            "num_examples": bundle.num_examples,
            "entries": entries,
        }
    )


def _tensors(entries: Sequence[EntryHeader], manifest: Manifest) -> list[TensorSpec]:
    """Find what the entries are of: slot by slot, in manifest order."""
    positions = {tensor.name: i for i, tensor in enumerate(manifest.tensors)}
    found: list[TensorSpec] = []
    last = (-1, -1)
    for i, entry in enumerate(entries):
        position = positions.get(entry.tensor)
        if position is None:
            raise WireError(f"the model has no tensor {entry.tensor!r}", f"entries[{i}].tensor")
        place = (_SLOTS.index(entry.slot), position)
        if place <= last:
            raise WireError(
                f"tensor {entry.tensor!r} stands twice or out of manifest order", f"entries[{i}].tensor"
            )
        tensor = manifest.tensors[position]
        if entry.slot != "weights" and not tensor.trainable:
            raise WireError(f"tensor {tensor.name!r} does not learn: no {entry.slot}", f"entries[{i}].slot")
        for member, said, is_so in (
            ("layer", entry.layer, tensor.layer),
            ("shape", entry.shape, tensor.shape),
        ):
            if said != is_so:
                raise WireError(
                    f"tensor {tensor.name!r} has {member} {is_so!r}, got {said!r}", f"entries[{i}].{member}"
                )
        found.append(tensor)
        last = place
    return found


def _codec(i: int, entry: EntryHeader, tensor: TensorSpec) -> Codec | Int64 | Rounded:
    """Read an entry's codec and hold its size against what `tensor` can take in it."""
    try:
        codec = parse_codec(entry.codec_fields())
    except WireError as error:
        raise WireError(str(error), f"entries[{i}].{error.field}") from error
    if isinstance(codec, Int64) != (tensor.dtype == "int64"):
        raise WireError(
            f"{tensor.dtype} tensor {tensor.name!r} cannot come as {entry.codec}", f"entries[{i}].codec"
        )
    reference = "base" if isinstance(codec, Rounded) else "absolute"
    if entry.reference != reference and not isinstance(codec, Polyline):
        raise WireError(
            f"tensor {tensor.name!r} has reference {reference!r} in {entry.codec}, got {entry.reference!r}",
            f"entries[{i}].reference",
        )
    fewest, most = codec.size_bounds(tensor.size)
    if not fewest <= entry.nbytes <= most:
        raise WireError(
            f"tensor {tensor.name!r} takes {fewest} to {most} bytes in {entry.codec}, got {entry.nbytes}",
            f"entries[{i}].nbytes",
        )
    return codec


def _payloads(entries: Sequence[EntryHeader], rest: memoryview) -> list[memoryview]:
    """Cut the rest of a body into payloads and hold each against its checksum."""
    ends = list(accumulate((entry.nbytes for entry in entries), initial=0))
    if ends[-1] != len(rest):
        raise WireError(f"the header speaks of {ends[-1]} payload bytes, there are {len(rest)}", "body")
    payloads = [rest[start:end] for start, end in pairwise(ends)]
    for i, (entry, payload) in enumerate(zip(entries, payloads, strict=True)):
        if (found := zlib_ng.crc32(payload)) != entry.crc32:
            raise WireError(
                f"tensor {entry.tensor!r} has crc32 {entry.crc32}, its bytes have {found}",
                f"entries[{i}].crc32",
            )
    return payloads
