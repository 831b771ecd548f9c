"""Grouping clients by response latency: tier 1 is the fastest; and which group is drawn how often."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

import numpy as np

from fedat_service.errors import RuleError


def assign_tiers(latencies: Mapping[str, float], num_tiers: int) -> dict[str, int]:
    """Cut the clients, sorted by latency, into tiers of equal size (FedAT, SC '21, section 4; TiFL).

    Sizes differ by one at most. Clients of equal latency are ordered by name. With fewer clients than
    tiers each client is a tier of its own and the slowest tiers are empty.

    Args:
        latencies: Seconds by client name.
        num_tiers: Number of tiers, M.

    Returns:
        Tier by client name, 1..M.

    Raises:
        RuleError: If `num_tiers` is not positive or a latency is not a time.
    """
    ranked = _ranked(latencies)
    parts = _parts(len(ranked), num_tiers)
    return {client: rank * parts // len(ranked) + 1 for rank, (_, client) in enumerate(ranked)}


def equal_borders(latencies: Mapping[str, float], num_tiers: int) -> tuple[float, ...]:
    """Latencies that part the tiers of `assign_tiers`: half-way between the neighbours on either side.

    Returns:
        Ascending seconds, one fewer than there are tiers with clients.

    Raises:
        RuleError: If `num_tiers` is not positive or a latency is not a time.
    """
    ranked = _ranked(latencies)
    parts = _parts(len(ranked), num_tiers)
    firsts = [-(-tier * len(ranked) // parts) for tier in range(1, parts)]
    return tuple((ranked[first - 1][0] + ranked[first][0]) / 2 for first in firsts)


def quantile_borders(latencies: Mapping[str, float], quantiles: Sequence[float]) -> tuple[float, ...]:
    """Latencies at the given quantiles, linearly interpolated.

    Args:
        latencies: Seconds by client name, at least one client.
        quantiles: Ascending shares between 0 and 1; one fewer than there are tiers.

    Raises:
        RuleError: If the quantiles do not ascend inside 0..1, there is no client, or a latency is not
            a time.
    """
    if list(quantiles) != sorted(set(quantiles)) or not all(0 < q < 1 for q in quantiles):
        raise RuleError(f"quantiles must ascend between 0 and 1, got {tuple(quantiles)!r}")
    values = [latency_s for latency_s, _ in _ranked(latencies)]
    if not values:
        raise RuleError("no client, so no latency to take quantiles of")
    return tuple(np.quantile(values, quantiles).tolist())


def assign_by_quantiles(latencies: Mapping[str, float], quantiles: Sequence[float]) -> dict[str, int]:
    """Cut the clients at latency quantiles; clients of equal latency share a tier, so one may be empty.

    Raises:
        RuleError: As `quantile_borders`.
    """
    borders = quantile_borders(latencies, quantiles)
    return {client: place(latency_s, borders) for client, latency_s in latencies.items()}


def place(latency_s: float, borders: Sequence[float]) -> int:
    """Tier of a client that comes late; on a border it belongs to the faster side."""
    return bisect_left(borders, latency_s) + 1


def retier(
    latencies: Mapping[str, float],
    current: Mapping[str, int],
    borders: Sequence[float],
    hysteresis: float,
) -> dict[str, int]:
    """Tiers after another look at the latencies; who stays near a border stays where it is.

    A client moves to a slower tier when its latency is over `border * (1 + hysteresis)`, to a faster one
    when it is under `border / (1 + hysteresis)`, and only past the borders for which that holds. A client
    without a tier is placed.

    Args:
        latencies: Seconds by client name.
        current: Tier by client name.
        borders: Ascending seconds between the tiers.
        hysteresis: Share by which a border must be passed, >= 0.

    Returns:
        Tier by client name, for the clients of `latencies`.

    Raises:
        RuleError: If `hysteresis` is negative or not finite.
    """
    if not (math.isfinite(hysteresis) and hysteresis >= 0):
        raise RuleError(f"hysteresis must be a share >= 0, got {hysteresis!r}")
    margin = 1 + hysteresis
    tiers = {}
    for client, latency_s in latencies.items():
        fastest = bisect_left(borders, latency_s / margin) + 1
        slowest = bisect_right(borders, latency_s * margin) + 1
        tier = current.get(client)
        tiers[client] = place(latency_s, borders) if tier is None else min(max(tier, fastest), slowest)
    return tiers


def tier_chances(
    accuracies: Sequence[float | None], credits_left: Sequence[int] | None = None
) -> tuple[float, ...]:
    """How likely each tier is drawn next: the worse the model does there, the likelier.

    Chai et al., TiFL (HPDC '20), Algorithm 2, with the probabilities of its public implementations: the n
    tiers that have credits left are sorted by ascending accuracy, and the one of rank r, from 0, is drawn
    with ``p = (n - r) / D``, ``D = n (n + 1) / 2``. A tier whose accuracy nobody knows comes before all
    others, and tiers that do equally well in their order. If none is known, all have the same chance.

    Args:
        accuracies: Per tier, accuracy on its clients' test splits; None if it is not known.
        credits_left: Per tier, how often it may still be drawn; without limit if not given.

    Returns:
        Per tier, its chance; 0 without credits. They sum to 1, unless no tier has credits left.

    Raises:
        RuleError: If there is no tier, or not one credit a tier.
    """
    if not accuracies or (credits_left is not None and len(credits_left) != len(accuracies)):
        raise RuleError(f"{len(accuracies)} tiers need as many credits, got {credits_left!r}")
    drawable = [m for m in range(len(accuracies)) if credits_left is None or credits_left[m] > 0]
    known = {m: accuracy for m in drawable if (accuracy := accuracies[m]) is not None}
    n = len(drawable)
    chances = [0.0] * len(accuracies)
    for rank, m in enumerate(sorted(drawable, key=lambda m: known.get(m, -1.0))):
        chances[m] = (n - rank) / (n * (n + 1) / 2) if known else 1 / n
    return tuple(chances)


def smoothed_latency(previous_s: float | None, measured_s: float, weight: float = 0.3) -> float:
    """Exponentially weighted mean of a client's latencies; the first measurement counts as it is."""
    return measured_s if previous_s is None else previous_s + weight * (measured_s - previous_s)


def _ranked(latencies: Mapping[str, float]) -> list[tuple[float, str]]:
    for client, latency_s in latencies.items():
        if not (math.isfinite(latency_s) and latency_s >= 0):
            raise RuleError(f"the latency of client {client!r} must be seconds >= 0, got {latency_s!r}")
    return sorted((latency_s, client) for client, latency_s in latencies.items())


def _parts(num_clients: int, num_tiers: int) -> int:
    if num_tiers < 1:
        raise RuleError(f"there must be at least one tier, got {num_tiers!r}")
    return min(num_tiers, num_clients)
