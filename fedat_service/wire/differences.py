"""Updates as they travel: values, or differences to the version that the client started from."""

import numpy as np
from zlib_ng import zlib_ng

from fedat_service.errors import WireError
from fedat_service.params import Manifest, Model, TensorSpec
from fedat_service.wire.bundle import Entry, absolute_entry, blame, model_entries
from fedat_service.wire.codecs import make_codec, make_update_codec
from fedat_service.wire.qsgd import Qsgd
from fedat_service.wire.settings import CodecSettings

DIFFERENCES = "fedat-differences"
"""Instance manipulation (RFC 3229, `A-IM` and `IM`) of a model that is sent as differences to another."""


def update_entries(
    update: Model,
    base: Model | None,
    manifest: Manifest,
    layers: tuple[str, ...],
    settings: CodecSettings,
    rng: np.random.Generator,
) -> tuple[Entry, ...]:
    """Encode the tensors of some layers of an update.

    Args:
        update: The trained model.
        base: The version it started from; needed where differences travel.
        manifest: What both are made of.
        layers: Which layers travel.
        settings: How they do.
        rng: Rounds what is rounded at random.

    Raises:
        ManifestError: If a layer is unknown.
        WireError: If a value cannot be carried, or there is no base; `field` names the tensor.
    """
    codec, plain = make_update_codec(settings), make_codec(settings)
    if not isinstance(codec, Qsgd):
        return model_entries(update, manifest, layers, codec)
    return tuple(
        _difference(update, base, manifest, tensor, codec, rng)
        if tensor.trainable
        else absolute_entry(update, manifest, tensor, plain)
        for tensor in manifest.select(layers)
    )


def stepped(
    base: Model, target: Model, manifest: Manifest, settings: CodecSettings, rng: np.random.Generator
) -> tuple[Model, tuple[Entry, ...]]:
    """Go a rounded step from one version to the next, and what travels to those who hold the first.

    The FedLAMA authors' FedPAQ (AAAI 2023) quantises the averaged update once more: ``x + Q(mean - x)``.

    Args:
        base: A version.
        target: Where the next one would be.
        manifest: What both are made of.
        settings: With the codec qsgd.
        rng: Rounds the step.

    Returns:
        The next version, and its entries: exactly it comes out where they are added to `base`.

    Raises:
        WireError: If the step is too large to travel.
    """
    entries = update_entries(target, base, manifest, manifest.layers, settings, rng)
    floats = target.floats.copy()
    for entry in entries:
        if entry.reference == "base":
            span = manifest.spans[entry.tensor.name]
            np.add(base.floats[span], entry.codec.decode(entry.payload, entry.tensor.size), out=floats[span])
    return Model(floats, target.integers), entries


def _difference(
    update: Model,
    base: Model | None,
    manifest: Manifest,
    tensor: TensorSpec,
    codec: Qsgd,
    rng: np.random.Generator,
) -> Entry:
    if base is None:
        raise WireError(f"tensor {tensor.name!r} has no base to be different from", tensor.name)
    span = manifest.spans[tensor.name]
    # A difference that leaves the range is infinite, and no number to a codec.
    with blame(tensor), np.errstate(over="ignore"):
        payload = codec.encode(np.subtract(update.floats[span], base.floats[span]), rng)
    return Entry("weights", tensor, codec, "base", payload, zlib_ng.crc32(payload))
