"""Updates and versions as they travel: values, or differences to what the peer holds."""

from collections.abc import Collection, Iterable

import numpy as np
from numpy.typing import NDArray
from zlib_ng import zlib_ng

from fedat_service.errors import WireError
from fedat_service.params import Manifest, Model, Params, TensorSpec, to_params
from fedat_service.wire.affine import Affine8
from fedat_service.wire.codecs import Codec, Polyline, make_codec
from fedat_service.wire.entries import Entry, absolute_entry, blamed, in_a_row, values_of
from fedat_service.wire.qsgd import Qsgd
from fedat_service.wire.rounded import Rounded
from fedat_service.wire.settings import CodecSettings, Reference

DIFFERENCES = "fedat-differences"
"""Instance manipulation (RFC 3229, `A-IM` and `IM`) of a model that is sent as differences to another."""


def update_entries(
    update: Params,
    base: Params | None,
    tensors: Collection[TensorSpec],
    settings: CodecSettings,
    rng: np.random.Generator,
) -> tuple[Entry, ...]:
    """Encode some tensors of an update.

    Args:
        update: What was trained.
        base: Their values when the client last fetched them; needed where differences travel.
        tensors: Which of them travel, in manifest order.
        settings: How they do.
        rng: Rounds what is rounded at random.

    Raises:
        WireError: If a value cannot be carried, or there is no base; `field` names the tensor.
    """
    rounding = rounding_of(settings)
    return tuple(
        _rounded(update[tensor.name], base, tensor, rounding, rng)
        if rounding is not None and tensor.trainable
        else _shorter(absolute_entry(update[tensor.name], tensor, make_codec(settings)), base or {}, settings)
        for tensor in tensors
    )


def relative(entries: Iterable[Entry], base: Params, settings: CodecSettings) -> tuple[Entry, ...]:
    """The same values for a peer that holds others: differences to those, wherever that is shorter.

    Args:
        entries: Values of tensors.
        base: What the peer holds of the weights.
        settings: How they travel.
    """
    return tuple(_shorter(entry, base, settings) for entry in entries)


def rounding_of(settings: CodecSettings) -> Rounded | None:
    """How the differences of what learns are rounded; None if nothing is."""
    match settings.name:
        case "qsgd":
            return Qsgd(settings.levels)
        case "affine8":
            return Affine8()
        case _:
            return None


def make_update_codec(settings: CodecSettings) -> Codec | Rounded:
    """How the trainable tensors of an update travel."""
    return rounding_of(settings) or make_codec(settings)


def updates_differ(settings: CodecSettings) -> bool:
    """Whether updates may hold differences, so that a client must remember what it fetched."""
    return rounding_of(settings) is not None or bool(_exact(settings))


def versions_differ(settings: CodecSettings) -> bool:
    """Whether versions may travel as differences to others."""
    return settings.directions == "both" or bool(_exact(settings))


def differential(entry: Entry) -> Polyline | Rounded:
    """The codec of an entry that holds differences.

    Raises:
        WireError: If it has none.
    """
    if not isinstance(entry.codec, Polyline | Rounded):
        raise WireError(f"{entry.codec} has no differences", entry.tensor.name)
    return entry.codec


def ways_of(tensor: TensorSpec, settings: CodecSettings) -> list[tuple[Codec | Rounded, Reference]]:
    """How a float tensor of an update's weights may travel."""
    rounding = rounding_of(settings)
    if rounding is not None and tensor.trainable:
        return [(rounding, "base")]
    exact: list[tuple[Codec | Rounded, Reference]] = [(codec, "base") for codec in _exact(settings)]
    return [(make_codec(settings), "absolute"), *exact]


def _exact(settings: CodecSettings) -> tuple[Polyline, ...]:
    """Codecs whose differences lose nothing over the values."""
    if settings.name != "polyline" or settings.reference != "base":
        return ()
    # Neighbours move alike where a solver normalises gradients, else not.
    return Polyline(settings.precision, "plain"), Polyline(settings.precision, "flat")


def _shorter(entry: Entry, base: Params, settings: CodecSettings) -> Entry:
    tensor, codecs = entry.tensor, _exact(settings)
    if not codecs or entry.slot != "weights" or tensor.dtype != "float32" or tensor.name not in base:
        return entry
    values, start = values_of(entry, None), in_a_row(base[tensor.name])
    found = [entry]
    for codec in codecs:
        payload = codec.encode_from(values, start)
        if payload is not None:
            found.append(_based(tensor, codec, payload))
    return min(found, key=_size)


def _rounded(
    values: NDArray[np.float32],
    base: Params | None,
    tensor: TensorSpec,
    codec: Rounded,
    rng: np.random.Generator,
) -> Entry:
    if base is None or tensor.name not in base:
        raise WireError(f"tensor {tensor.name!r} has no base to be different from", tensor.name)
    try:
        payload = codec.encode_from(in_a_row(values), in_a_row(base[tensor.name]), rng)
    except WireError as error:
        raise blamed(tensor, error) from error
    return _based(tensor, codec, payload)


def _based(tensor: TensorSpec, codec: Polyline | Rounded, payload: bytes) -> Entry:
    return Entry("weights", tensor, codec, "base", payload, zlib_ng.crc32(payload))


def _size(entry: Entry) -> int:
    return len(entry.payload)


def stepped(
    base: Model, target: Model, manifest: Manifest, settings: CodecSettings, rng: np.random.Generator
) -> tuple[Model, tuple[Entry, ...]]:
    """Go a rounded step from one version to the next, and what travels to those who hold the first.

    The FedLAMA authors' FedPAQ (AAAI 2023) quantises the averaged update once more: ``x + Q(mean - x)``.

    Args:
        base: A version.
        target: Where the next one would be.
        manifest: What both are made of.
        settings: With a codec that rounds.
        rng: Rounds it, if that is done at random.

    Returns:
        The next version, and its entries: exactly it comes out where they are added to `base`.

    Raises:
        WireError: If the step is too large to travel.
    """
    whole, start = to_params(target, manifest), to_params(base, manifest)
    entries = update_entries(whole, start, manifest.tensors, settings, rng)
    floats = target.floats.copy()
    for entry in entries:
        if entry.reference == "base":
            span = manifest.spans[entry.tensor.name]
            floats[span] = differential(entry).decode_from(entry.payload, base.floats[span])
    return Model(floats, target.integers), entries
