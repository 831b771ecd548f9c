"""Across tiers: how much each tier's model counts in the global model."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedat_service.aggregation.chunks import chunks
from fedat_service.errors import ManifestError, RuleError
from fedat_service.params import Model

ColdStart = Literal["literal", "smoothed", "reported"]
Mixing = Literal["inverse-frequency", "uniform"]

_TOLERANCE = 1e-9


def tier_weights(
    update_counts: Sequence[int],
    cold_start: ColdStart = "literal",
    parked: Sequence[bool] | None = None,
    mixing: Mixing = "inverse-frequency",
) -> NDArray[np.float64]:
    """Share of each tier in the global model: the rarer the updates of its mirror tier, the smaller.

    Chai et al., FedAT (SC '21), eq. 3: ``p_m = T_{M+1-m} / T`` with ``T = sum_m T_m``. The mirror is taken
    by tier index, not by rank of the counts. Before the first update the shares are equal: every tier
    model is still ``w0`` then, and so is their mix.

    Args:
        update_counts: ``T_m``, updates received per tier, fastest tier first.
        cold_start: What holds while some tiers have not reported. `literal` is eq. 3 as printed, which
            keeps the global model at ``w0`` until the slower half has reported; `smoothed` counts one more
            update for every tier; `reported` applies eq. 3 to the tiers that have reported.
        parked: Per tier, whether nobody in it is alive; none if not given. It has share 0, and the rule
            holds for the others in their order. If all are parked, none counts as parked.
        mixing: `uniform`, the baseline of FedAT's Figure 6, gives the same tiers equal shares.

    Returns:
        Shape `(M,)`, non-negative, summing to 1.

    Raises:
        RuleError: If there is no tier, a count is negative, or `parked` is not one flag per tier.
    """
    live = _live(update_counts, parked)
    if cold_start == "reported":
        live = [m for m in live if update_counts[m] > 0] or live
    extra = 1 if cold_start == "smoothed" else 0
    # Python integers: the sum cannot overflow, and each quotient is rounded once.
    counts = [int(update_counts[m]) + extra for m in live]
    if mixing == "uniform" or not any(counts):
        counts = [1] * len(live)
    p = np.zeros(len(update_counts))
    p[live] = [count / sum(counts) for count in reversed(counts)]
    return p


def _live(update_counts: Sequence[int], parked: Sequence[bool] | None) -> list[int]:
    """Tiers that take part: those that are not parked, or all if all are."""
    num_tiers = len(update_counts)
    if num_tiers == 0 or min(update_counts) < 0:
        raise RuleError(f"update counts must be one number >= 0 per tier, got {update_counts!r}")
    if parked is not None and len(parked) != num_tiers:
        raise RuleError(f"{num_tiers} tiers need {num_tiers} parked flags, got {len(parked)}")
    return [m for m in range(num_tiers) if parked is None or not parked[m]] or list(range(num_tiers))


def mix_tiers(tier_models: Sequence[Model], weights: Sequence[float] | NDArray[np.float64]) -> Model:
    """The global model: ``w = sum_m p_m w_tier_m`` (FedAT, Algorithm 1, WeightedAverage).

    Computed in float64 and rounded once to float32. A tier of weight 0 takes no part, so one weight of 1
    gives back that tier's model. Integer buffers take the largest value of the tiers that take part.

    Args:
        tier_models: One per tier, fastest tier first.
        weights: ``p_m``, shape `(M,)`, as `tier_weights` gives them.

    Raises:
        RuleError: If the weights are not one number >= 0 per tier, or do not sum to 1.
        ManifestError: If the models differ in size.
    """
    p = np.asarray(weights, np.float64)
    if p.shape != (len(tier_models),) or not (p >= 0).all() or not abs(p.sum() - 1) <= _TOLERANCE:
        raise RuleError(f"{len(tier_models)} tiers need as many weights >= 0 of sum 1, got {p.tolist()}")
    if len({(w.floats.size, w.integers.size) for w in tier_models}) > 1:
        raise ManifestError("tier models must have the same size")
    terms = [(float(p_m), w_m) for p_m, w_m in zip(p, tier_models, strict=True) if p_m > 0]
    if len(terms) == 1:
        return terms[0][1]
    floats = np.empty_like(tier_models[0].floats)
    for part in chunks(floats.size):
        total = np.zeros(floats[part].size)
        for p_m, w_m in terms:
            total += np.multiply(w_m.floats[part], p_m, dtype=np.float64)
        floats[part] = total
    return Model(floats, np.maximum.reduce([w_m.integers for _, w_m in terms]))
