"""Updates as they travel: values, or differences to the version that the client started from."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np
from zlib_ng import zlib_ng

from fedat_service.errors import WireError
from fedat_service.params import Manifest, Model, Params, TensorSpec, to_params
from fedat_service.wire.bundle import Entry, absolute_entry, blame
from fedat_service.wire.codecs import Codec, Polyline, make_codec
from fedat_service.wire.qsgd import Qsgd
from fedat_service.wire.settings import CodecSettings

DIFFERENCES = "fedat-differences"
"""Instance manipulation (RFC 3229, `A-IM` and `IM`) of a model that is sent as differences to another."""


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
    return tuple(_shortest(update, base, manifest, tensor, settings, rng) for tensor in tensors)


def differential(entry: Entry) -> Polyline | Qsgd:
    """The codec of an entry that holds differences.

    Raises:
        WireError: If it has none.
    """
    if not isinstance(entry.codec, Polyline | Qsgd):
        raise WireError(f"{entry.codec} has no differences", entry.tensor.name)
    return entry.codec


def codecs_of(tensor: TensorSpec, settings: CodecSettings) -> tuple[Codec | None, Polyline | Qsgd | None]:
    """How a float tensor of an update may travel: as its values, and as differences; None if not."""
    plain = make_codec(settings)
    if settings.name == "qsgd" and tensor.trainable:
        return None, Qsgd(settings.levels)
    if isinstance(plain, Polyline) and settings.reference == "base":
        return plain, replace(plain, layout="plain")
    return plain, None


def _shortest(
    update: Model,
    base: Params | None,
    manifest: Manifest,
    tensor: TensorSpec,
    settings: CodecSettings,
    rng: np.random.Generator,
) -> Entry:
    plain, codec = codecs_of(tensor, settings)
    found = [] if plain is None else [absolute_entry(update, manifest, tensor, plain)]
    if codec is not None and base is not None and tensor.name in base and tensor.dtype == "float32":
        start = base[tensor.name].reshape(-1)
        with blame(tensor):
            payload = codec.encode_from(update.floats[manifest.spans[tensor.name]], start, rng)
        if payload is not None:
            found.append(Entry("weights", tensor, codec, "base", payload, zlib_ng.crc32(payload)))
    if not found:
        raise WireError(f"tensor {tensor.name!r} has no base to be different from", tensor.name)
    return min(found, key=lambda entry: len(entry.payload))


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
    entries = update_entries(target, to_params(base, manifest), manifest, manifest.tensors, settings, rng)
    floats = target.floats.copy()
    for entry in entries:
        if entry.reference == "base":
            span = manifest.spans[entry.tensor.name]
            floats[span] = differential(entry).decode_from(entry.payload, base.floats[span])
    return Model(floats, target.integers), entries
