"""One tensor on the wire: what it is, how it is encoded, and its bytes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from zlib_ng import zlib_ng

from fedat_service.errors import WireError
from fedat_service.params import Manifest, Model, Params, TensorSpec, to_params
from fedat_service.wire.codecs import Codec, Int64, Polyline
from fedat_service.wire.polyline_numpy import Payload
from fedat_service.wire.rounded import Rounded
from fedat_service.wire.settings import Reference, Slot

_INT64 = Int64()


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a bundle: what it is, how it is encoded, and its bytes."""

    slot: Slot
    tensor: TensorSpec
    codec: Codec | Int64 | Rounded
    reference: Reference
    payload: Payload
    crc32: int


def model_entries(
    model: Model, manifest: Manifest, tensors: Iterable[TensorSpec], codec: Codec, slot: Slot = "weights"
) -> tuple[Entry, ...]:
    """Encode some tensors of a model, integer tensors raw.

    Args:
        model: The values.
        manifest: What the values are of.
        tensors: Which of them travel, in manifest order.
        codec: How float tensors are encoded.
        slot: What the values are.

    Raises:
        WireError: If a value cannot be carried; `field` names the tensor.
    """
    return params_entries(to_params(model, manifest), tensors, codec, slot)


def params_entries(
    params: Params, tensors: Iterable[TensorSpec], codec: Codec, slot: Slot = "weights"
) -> tuple[Entry, ...]:
    """As `model_entries`, from a `state_dict`, whose arrays may lie in memory in any order."""
    return tuple(absolute_entry(params[tensor.name], tensor, codec, slot) for tensor in tensors)


def absolute_entry(array: NDArray[Any], tensor: TensorSpec, codec: Codec, slot: Slot = "weights") -> Entry:
    """Encode the values of one tensor, an integer tensor raw.

    Raises:
        WireError: If a value cannot be carried; `field` names the tensor.
    """
    chosen: Codec | Int64 = _INT64 if tensor.dtype == "int64" else codec
    try:
        payload = chosen.encode(in_a_row(array))
    except WireError as error:
        raise blamed(tensor, error) from error
    return Entry(slot, tensor, chosen, "absolute", payload, zlib_ng.crc32(payload))


def in_a_row(array: NDArray[Any]) -> NDArray[Any]:
    """Its values one after the other, as codecs take them: a view, if they lie so in memory."""
    return np.require(array, requirements=("C_CONTIGUOUS", "ALIGNED")).reshape(-1)


def values_of(entry: Entry, base: NDArray[np.float32] | None) -> NDArray[Any]:
    """Decode one tensor, flat.

    Args:
        entry: What was received.
        base: What its differences are added to, if it holds such.

    Raises:
        WireError: If the payload does not decode, or a difference has no base.
    """
    if entry.reference == "absolute":
        return entry.codec.decode(entry.payload, entry.tensor.size)
    if base is None or not isinstance(entry.codec, Polyline | Rounded):
        raise WireError("differences came without what they are taken to")
    return entry.codec.decode_from(entry.payload, base)


def blamed(tensor: TensorSpec, error: WireError) -> WireError:
    """What a codec refuses, with the name of the tensor."""
    return WireError(f"tensor {tensor.name!r}: {error}", tensor.name)
