"""FedLAMA: layers whose copies hardly drift apart are averaged less often."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedat_service.errors import RuleError
from fedat_service.params import Manifest, TensorSpec
from fedat_service.schedules.cycle import Cycle

Rule = Literal["official", "text"]
Unit = Literal["kernel-tensor", "layer"]


def fedlama(
    manifest: Manifest,
    tensors: Iterable[str],
    phi: int,
    discrepancies: Mapping[str, float],
    rule: Rule = "official",
    unit: Unit = "kernel-tensor",
) -> Cycle:
    """The next round's intervals from the discrepancies at the last sync of the one before.

    Lee et al., FedLAMA (AAAI '23), Algorithm 1. With unit `kernel-tensor` (the authors' code) only
    trainable tensors of two dimensions or more can have the long interval; biases, normalisations and
    buffers travel at every sync. With unit `layer` all tensors of a layer travel together.

    Args:
        manifest: The model.
        tensors: Names of the tensors that travel.
        phi: The long interval, in base intervals.
        discrepancies: ``d_l`` of every trainable tensor, by name.
        rule: See `extended`.
        unit: What has an interval of its own.

    Raises:
        RuleError: If `phi` is below 1, or a discrepancy is missing, negative or not finite.
    """
    units = _units(manifest, unit)
    learning = {t.name: t.size for t in manifest.tensors if t.trainable}
    _require_every_drift(learning, discrepancies)
    dims = [sum(learning.get(t.name, 0) for t in members) for members in units]
    d = [_mean_drift(members, discrepancies) for members in units]
    extendable = [
        dim > 0 and (unit == "layer" or len(members[0].shape) >= 2)
        for members, dim in zip(units, dims, strict=True)
    ]
    long = {t.name for i in extended(d, dims, extendable, rule) for t in units[i]}
    return Cycle(phi, {name: phi if name in long else 1 for name in tensors})


def extended(
    d: Sequence[float], dims: Sequence[int], extendable: Sequence[bool], rule: Rule = "official"
) -> list[int]:
    """Which units get the long interval, least discrepancy per element first.

    FedLAMA's ``delta_l`` is the share of the whole discrepancy in the l units of least d, and ``lambda_l``
    their share of the extendable elements. `text` takes units while ``delta_l < 1 - lambda_l``, as the
    paper says. `official`, the authors' code, also takes the unit at which the curves cross; only so is a
    unit that holds most of the model ever extended, and only so come the published costs out. The
    preprint's Algorithm 2 prints ``delta_l < lambda_l``, which holds for nearly every unit.

    Equal d keep the order of the model. Where nothing drifts apart nothing is extended.

    Args:
        d: Discrepancy per element, one per unit.
        dims: Elements, one per unit.
        extendable: Whether the unit may be extended.
        rule: Where to stop.

    Raises:
        RuleError: If the lengths differ, or a discrepancy is negative or not finite.
    """
    if not len(d) == len(dims) == len(extendable):
        raise RuleError(f"one d, dim and flag a unit is needed, got {len(d)}, {len(dims)}, {len(extendable)}")
    drift: NDArray[np.float64] = np.asarray(d, np.float64)
    sizes: NDArray[np.float64] = np.asarray(dims, np.float64)
    _require_drift(drift)
    total = (drift * sizes).sum()
    candidates = np.flatnonzero(extendable)
    if total == 0 or candidates.size == 0:
        return []
    order = candidates[np.argsort(drift[candidates], kind="stable")]
    delta = np.cumsum(drift[order] * sizes[order]) / total
    lambda_ = np.cumsum(sizes[order]) / sizes[candidates].sum()
    if rule == "text":
        stop = int(np.argmin(np.append(delta < 1 - lambda_, False)))
    else:
        stop = int(np.argmax(np.append(1 - lambda_ < delta, True))) + 1
    return [int(unit) for unit in order[:stop]]


def _require_drift(drift: NDArray[np.float64]) -> None:
    wrong = ~(np.isfinite(drift) & (drift >= 0))
    if wrong.any():
        raise RuleError(
            f"a discrepancy must be finite and >= 0, got {drift[wrong][0]} of unit {wrong.argmax()}"
        )


def _require_every_drift(learning: Iterable[str], discrepancies: Mapping[str, float]) -> None:
    for name in learning:
        if name not in discrepancies:
            raise RuleError(f"tensor {name!r} has no discrepancy")
        d = discrepancies[name]
        if not (math.isfinite(d) and d >= 0):
            raise RuleError(f"tensor {name!r}: a discrepancy must be finite and >= 0, got {d}")


def _mean_drift(members: Iterable[TensorSpec], discrepancies: Mapping[str, float]) -> float:
    """Discrepancy per element of a unit that learns; where its tensors have the same, exactly that."""
    learning = [t for t in members if t.trainable and t.size]
    if not learning:
        return 0.0
    # Dividing what was multiplied would part equal discrepancies by a last bit, and so their units' order.
    least = min(discrepancies[t.name] for t in learning)
    above = sum((discrepancies[t.name] - least) * t.size for t in learning)
    return least + above / sum(t.size for t in learning)


def adjusts(blocks: int, warmup_blocks: int) -> bool:
    """Whether intervals are adjusted at the end of a round that ends base interval number `blocks`.

    The authors' code leaves the first 6 alone, which the paper does not say: 0 is the paper.
    """
    return blocks > warmup_blocks


def _units(manifest: Manifest, unit: Unit) -> list[tuple[TensorSpec, ...]]:
    """What has an interval of its own, in model order."""
    if unit == "kernel-tensor":
        return [(tensor,) for tensor in manifest.tensors]
    return [tuple(members) for _, members in groupby(manifest.tensors, key=lambda tensor: tensor.layer)]
