"""Updates as they travel: values, or differences to the version that the client started from."""

from collections.abc import Collection

import numpy as np
from zlib_ng import zlib_ng

from fedat_service.errors import WireError
from fedat_service.params import Manifest, Model, Params, TensorSpec
from fedat_service.wire.bundle import Entry, absolute_entry, blame, model_entries
from fedat_service.wire.codecs import make_codec, make_update_codec
from fedat_service.wire.qsgd import Qsgd
from fedat_service.wire.settings import CodecSettings


def update_entries(
    update: Model,
    base: Params | None,
    manifest: Manifest,
    tensors: Collection[TensorSpec],
    settings: CodecSettings,
    rng: np.random.Generator,
) -> tuple[Entry, ...]:
    """Encode some tensors of an update.

    Args:
        update: The trained model.
        base: Their values when the client last fetched them; needed where differences travel.
        manifest: What both are made of.
        tensors: Which of them travel, in manifest order.
        settings: How they do.
        rng: Rounds what is rounded at random.

    Raises:
        WireError: If a value cannot be carried, or there is no base; `field` names the tensor.
    """
    codec, plain = make_update_codec(settings), make_codec(settings)
    if not isinstance(codec, Qsgd):
        return model_entries(update, manifest, tensors, codec)
    return tuple(
        _difference(update, base, manifest, tensor, codec, rng)
        if tensor.trainable
        else absolute_entry(update, manifest, tensor, plain)
        for tensor in tensors
    )


def _difference(
    update: Model,
    base: Params | None,
    manifest: Manifest,
    tensor: TensorSpec,
    codec: Qsgd,
    rng: np.random.Generator,
) -> Entry:
    if base is None or tensor.name not in base:
        raise WireError(f"tensor {tensor.name!r} has no base to be different from", tensor.name)
    span = manifest.spans[tensor.name]
    # A difference that leaves the range is infinite, and no number to a codec.
    with blame(tensor), np.errstate(over="ignore"):
        payload = codec.encode(np.subtract(update.floats[span], base[tensor.name].reshape(-1)), rng)
    return Entry("weights", tensor, codec, "base", payload, zlib_ng.crc32(payload))
