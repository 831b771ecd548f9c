"""Without rounds: what an update counts that others have overtaken, and how it moves the model."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedat_service.aggregation.mean import RunningMean
from fedat_service.aggregation.pieces import float_pieces
from fedat_service.errors import ManifestError, RuleError
from fedat_service.params import Manifest, Model

Staleness = Callable[[int], float]
"""From the age of an update, in versions, the factor ``s(D)``: above 0, at most 1, and 1 for a fresh one."""


@dataclass(frozen=True, slots=True)
class Blend:
    """How a mean of updates becomes a tier's model: ``share * mean + own * x + sum_v c_v x_v``.

    Attributes:
        share: What the mean counts. A mean that replaces the model has 1, and the other parts nothing.
        own: What the tier's model ``x`` counts, as it was.
        bases: Versions and their ``c_v``: what the updates started from, if only their way counts.
    """

    share: float = 1.0
    own: float = 0.0
    bases: tuple[tuple[int, float], ...] = ()


REPLACE = Blend()
"""The mean is the model, as in every synchronous round."""


def constant(age: int) -> float:
    """``s(D) = 1``: an update counts alike, however old (Xie et al., FedAsync, 2019, section 5.2)."""
    _require_age(age)
    return 1.0


def hinge(age: int, a: float = 10.0, b: float = 4.0) -> float:
    """``s(D) = 1`` if ``D <= b``, else ``1 / (a (D - b) + 1)`` (FedAsync, section 5.2)."""
    _require_age(age)
    return 1.0 if age <= b else 1 / (a * (age - b) + 1)


def polynomial(age: int, a: float = 0.5) -> float:
    """``s(D) = (D + 1)^-a`` (FedAsync, section 5.2); with ``a = 1/2`` it is FedBuff's ``1 / sqrt(1 + D)``."""
    _require_age(age)
    return float((age + 1.0) ** -a)


def fedasync(s: Staleness, alpha: float, version: int, bases: Sequence[int]) -> Blend:
    """Mix one update in: ``x <- (1 - a) x + a x_new`` with ``a = alpha s(t - tau)``.

    Xie et al., Asynchronous Federated Optimization (2019), Algorithm 1.

    Args:
        s: The staleness factor.
        alpha: What a fresh update counts.
        version: The newest version, ``t``.
        bases: The version that the update started from, ``tau``.

    Raises:
        RuleError: If there is more than one update, or it comes from a version that is not there yet.
    """
    if len(bases) != 1:
        raise RuleError(f"FedAsync mixes one update at a time, got {len(bases)}")
    a = alpha * s(version - bases[0])
    return Blend(share=a, own=1 - a)


def fedbuff(s: Staleness, version: int, bases: Sequence[int]) -> Blend:
    """Go the mean way of the updates in the buffer: ``x <- x + 1/K sum_i s(t - tau_i) (x_i - x_tau_i)``.

    Nguyen et al., FedBuff (AISTATS 2022), Algorithm 1. The mean that it is applied to weighs update i by
    ``s(t - tau_i)``. A server rate ``eta_g`` is a server optimizer, not part of this.

    Args:
        s: The staleness factor.
        version: The newest version, ``t``.
        bases: For each of the K updates, the version that it started from, ``tau_i``.

    Raises:
        RuleError: If there is no update, or one comes from a version that is not there yet.
    """
    if not bases:
        raise RuleError("a buffer without updates moves nothing")
    parts = {base: bases.count(base) * s(version - base) / len(bases) for base in sorted(set(bases))}
    return Blend(sum(parts.values()), 1.0, tuple((base, -part) for base, part in parts.items()))


def blended(
    blend: Blend, mean: RunningMean, x: Model, bases: Mapping[int, Model], manifest: Manifest
) -> Model:
    """A tier's new model; computed in float64 and rounded once to float32.

    What does not learn (the statistics of a normalisation) is no way to go but a value: it becomes
    ``(1 - share) x + share mean``, so that a variance stays one. Integer buffers take the largest value.

    Args:
        blend: What counts how much.
        mean: The updates.
        x: The tier's model as it was.
        bases: Models by version; those of `blend` are needed.
        manifest: What all of them are made of.

    Raises:
        RuleError: If no update was admitted.
        ManifestError: If a model has not the manifest's sizes, or one that is needed is missing.
    """
    if blend == REPLACE:
        return mean.mean()
    if mean.num_updates == 0:
        raise RuleError("without updates there is nothing to blend")
    if missing := [version for version, _ in blend.bases if version not in bases]:
        raise ManifestError(f"version {missing[0]}, which updates started from, is not there")
    learning = [(blend.own, x), *((c, bases[version]) for version, c in blend.bases)]
    floats = np.empty(manifest.num_floats, np.float32)
    if any(model.floats.shape != floats.shape for _, model in learning) or mean.total.shape != floats.shape:
        raise ManifestError(f"all models must have {floats.size} floats")
    unit = mean.weight_sum * mean.scale
    for learns, terms in ((True, learning), (False, [(1 - blend.share, x)])):
        tensors = [t for t in manifest.tensors if t.dtype == "float32" and t.trainable is learns]
        for here, _ in float_pieces(manifest, manifest, tensors):
            floats[here] = blend.share * (mean.total[here] / unit) + _weighted_sum(terms, here)
    return Model(floats, np.maximum(x.integers, mean.integers))


def _weighted_sum(terms: Iterable[tuple[float, Model]], here: slice) -> NDArray[np.float64]:
    total = np.zeros(here.stop - here.start)
    for c, model in terms:
        total += np.multiply(model.floats[here], c, dtype=np.float64)
    return total


def _require_age(age: int) -> None:
    if age < 0:
        raise RuleError(f"an update cannot come from {-age} versions ahead")
