"""What a run says about a method: pure functions over the metrics that the service kept.

Time is that of the federation's clock, counted from the first task that could be given out. A version's
quality counts from the moment the version was published, not from when its observer had evaluated it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import mean

from fedat_service.wire.views import FederationView, MetricsView, Volume

SMOOTHING = 3
"""Evaluations in the centred mean that is held against the target; the same for every method."""

FINAL_SHARE = 0.2
"""The last share of the horizon whose evaluations make the final accuracy and variance.

A share of time, not a number of evaluations: a tiered method publishes several times as many versions, and
the same number would reach back further in time for the others.
"""

DIRECTIONS = ("up", "down")
"""To the service, and to the clients."""

OUTSIDE_TIERS = "0"
"""Tier of `by_tier` that holds what no tier's training sent: profiling and observers."""


@dataclass(frozen=True, slots=True)
class MethodRun:
    """What one method's run left behind.

    Attributes:
        name: The method, as in the report.
        federation: Its federation when it was over.
        metrics: Its time series and communication volume.
        wall_s: Real seconds from creating the federation to its end.
        late_share: Share of training rounds whose real work took longer than their simulated latency, so
            that this machine, not the latency model, set their time; None if it was not measured.
    """

    name: str
    federation: FederationView
    metrics: MetricsView
    wall_s: float
    late_share: float | None = None


@dataclass(frozen=True, slots=True)
class Curve:
    """A method's evaluations in the order of their versions; all attributes have the same length.

    Attributes:
        version: Which version was evaluated.
        at_s: When each version was published.
        accuracy: Sample-weighted mean over clients.
        loss: Sample-weighted mean cross-entropy over clients.
        variance: Population variance of the accuracy over clients.
        wire_bytes: Bytes of training, both directions, that had led to it: of all that the service counted,
            the share of the updates published by then. The last version has cost all of them.
    """

    version: tuple[int, ...]
    at_s: tuple[float, ...]
    accuracy: tuple[float, ...]
    loss: tuple[float, ...]
    variance: tuple[float, ...]
    wire_bytes: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """A method's row in the report; see the module for what its times mean.

    Attributes:
        time_to_target_s: When the centred mean of `SMOOTHING` evaluations first was at or above the target.
        first_hit_s: When a single evaluation first was.
        final_accuracy: Mean over the `final_evaluations` of the last `FINAL_SHARE` of the horizon.
        final_loss: Mean of the same evaluations' loss.
        client_accuracy_variance: Mean of the same evaluations' variance over clients.
        bytes_up: What the updates of all tiers took.
        bytes_down: What their clients fetched to make them.
        bytes_outside_tiers: What profiling and observers took, by direction.
        bytes_to_target: Wire bytes by direction until `time_to_target_s`: of all that training took, the
            share of the updates published by then.
        bytes_per_parameter_up: Payload of an update over its parameters; float32 has 4.
    """

    time_to_target_s: float | None
    first_hit_s: float | None
    final_accuracy: float | None
    final_loss: float | None
    final_evaluations: int
    best_accuracy: float | None
    client_accuracy_variance: float | None
    bytes_up: Volume
    bytes_down: Volume
    bytes_outside_tiers: dict[str, Volume]
    bytes_to_target: dict[str, float] | None
    bytes_per_parameter_up: float | None
    bytes_per_parameter_down: float | None
    versions: int
    updates: int
    evaluations: int
    tier_update_counts: tuple[int, ...]
    tier_weights: tuple[float, ...]
    clients: int
    lost_clients: int
    simulated_s: float
    wall_s: float
    late_share: float | None


def summarise(run: MethodRun, target_accuracy: float) -> Summary:
    """Reduce a run to its row."""
    curve = curve_of(run)
    final = _final(curve, _horizon_s(run))
    up, down = (trained_volume(run.metrics, way) for way in DIRECTIONS)
    reached_s = time_to_target(curve.at_s, curve.accuracy, target_accuracy)
    outside = run.metrics.by_tier.get(OUTSIDE_TIERS, {})
    return Summary(
        time_to_target_s=reached_s,
        first_hit_s=time_to_target(curve.at_s, curve.accuracy, target_accuracy, window=1),
        final_accuracy=_mean([curve.accuracy[i] for i in final]),
        final_loss=_mean([curve.loss[i] for i in final]),
        final_evaluations=len(final),
        best_accuracy=max(curve.accuracy, default=None),
        client_accuracy_variance=_mean([curve.variance[i] for i in final]),
        bytes_up=up,
        bytes_down=down,
        bytes_outside_tiers={way: outside.get(way, Volume()) for way in DIRECTIONS},
        bytes_to_target=None if reached_s is None else _bytes_until(run, reached_s),
        bytes_per_parameter_up=up.payload / up.parameters if up.parameters else None,
        bytes_per_parameter_down=down.payload / down.parameters if down.parameters else None,
        versions=len(run.metrics.versions),
        updates=sum(version.num_updates for version in run.metrics.versions),
        evaluations=len(curve.at_s),
        tier_update_counts=run.federation.update_counts,
        tier_weights=run.metrics.versions[-1].weights if run.metrics.versions else (),
        clients=run.federation.clients,
        lost_clients=run.federation.lost_clients,
        simulated_s=_horizon_s(run),
        wall_s=run.wall_s,
        late_share=run.late_share,
    )


def time_to_target(
    at_s: Sequence[float], accuracy: Sequence[float], target: float, window: int = SMOOTHING
) -> float | None:
    """When a centred mean of `window` consecutive evaluations first is at or above `target`.

    The time is that of the middle evaluation, so that a method with few versions is not charged the wait for
    the ones after it. Only whole windows count.

    Returns:
        Seconds, or None if the target is never reached.
    """
    for first, average in enumerate(centred_means(accuracy, window)):
        if average >= target:
            return at_s[first + window // 2]
    return None


def centred_means(values: Sequence[float], window: int = SMOOTHING) -> list[float]:
    """Mean of each whole window of consecutive values; the first belongs to position `window // 2`."""
    return [mean(values[first : first + window]) for first in range(len(values) - window + 1)]


def curve_of(run: MethodRun) -> Curve:
    """A run's evaluations by version, with the time and the bytes that each version took."""
    published_s = {version.version: version.at_s for version in run.metrics.versions}
    costs = _costs(run.metrics, sum(trained_volume(run.metrics, way).wire for way in DIRECTIONS))
    # Version 0 is the initial model: at the start, for nothing.
    points = sorted(run.metrics.evaluations, key=lambda point: point.version)
    return Curve(
        version=tuple(p.version for p in points),
        at_s=tuple(published_s.get(p.version, 0.0) for p in points),
        accuracy=tuple(p.accuracy for p in points),
        loss=tuple(p.loss for p in points),
        variance=tuple(p.client_accuracy_variance for p in points),
        wire_bytes=tuple(costs.get(p.version, 0.0) for p in points),
    )


def trained_volume(metrics: MetricsView, direction: str) -> Volume:
    """What the tiers' training took in one direction; profiling and observers are left out."""
    tiers = [
        ways[direction]
        for tier, ways in metrics.by_tier.items()
        if tier != OUTSIDE_TIERS and direction in ways
    ]
    return Volume(
        parameters=sum(volume.parameters for volume in tiers),
        payload=sum(volume.payload for volume in tiers),
        wire=sum(volume.wire for volume in tiers),
    )


def speedup(reference: Summary, other: Summary) -> float | None:
    """How many times less simulated time `reference` needs to the target; None if one never gets there."""
    if not reference.time_to_target_s or other.time_to_target_s is None:
        return None
    return other.time_to_target_s / reference.time_to_target_s


def _costs(metrics: MetricsView, wire_bytes: int) -> dict[int, float]:
    """By version, the share of `wire_bytes` of the updates up to it; the last version has cost all of it."""
    updates = list(accumulate(version.num_updates for version in metrics.versions))
    return {
        version.version: wire_bytes * so_far / updates[-1]
        for version, so_far in zip(metrics.versions, updates, strict=True)
    }


def _bytes_until(run: MethodRun, at_s: float) -> dict[str, float]:
    published = [version.version for version in run.metrics.versions if version.at_s <= at_s]
    costs = {way: _costs(run.metrics, trained_volume(run.metrics, way).wire) for way in DIRECTIONS}
    return {way: by_version[published[-1]] if published else 0.0 for way, by_version in costs.items()}


def _horizon_s(run: MethodRun) -> float:
    """Simulated seconds that were run; the clock of a finished federation goes on ticking."""
    planned_s = run.federation.stop.max_time_s
    return run.metrics.now_s if planned_s is None else min(planned_s, run.metrics.now_s)


def _final(curve: Curve, horizon_s: float) -> list[int]:
    """Positions of the evaluations in the last share of the horizon; the very last one if there is none."""
    late = [i for i, at_s in enumerate(curve.at_s) if at_s >= (1 - FINAL_SHARE) * horizon_s]
    return late or list(range(len(curve.at_s)))[-1:]


def _mean(values: Sequence[float]) -> float | None:
    return mean(values) if values else None
