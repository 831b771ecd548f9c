"""What if there were other tiers: predicted pace of a federation for every number of tiers, from its log."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import mean

from fedat_service.errors import ConfigError, LogDamaged, NotFound
from fedat_service.federation.events import TaskDelivered, UpdateAccepted, VersionEvaluated
from fedat_service.federation.tasks import TaskId
from fedat_service.store.jsonl import Created, read_log
from fedat_service.tiering import assign_tiers

_HUNDREDTHS = 100


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a log says of its clients' pace.

    Attributes:
        latencies_s: Every latency of each client, from the delivery of a task to its update.
        versions_per_point: Versions that one hundredth of accuracy took; None if accuracy did not rise.
    """

    latencies_s: Mapping[str, Sequence[float]]
    versions_per_point: float | None


@dataclass(frozen=True, slots=True)
class Prediction:
    """A number of tiers and what it would do.

    Attributes:
        num_tiers: M.
        round_s: Expected seconds of a round in each tier, fastest first.
        version_s: Expected seconds between two versions: all tiers report side by side.
        point_s: Expected seconds for one hundredth of accuracy, if a version is worth what it was in the
            recorded run. More tiers make versions of fewer, more alike clients: read it as a lower bound.
    """

    num_tiers: int
    round_s: tuple[float, ...]
    version_s: float
    point_s: float | None


def recorded(log: Path) -> Recorded:
    """Read latencies and progress off an event log; profiling counts as work like any other.

    Where a log holds several federations, one after the other, it is about the last.

    Raises:
        LogDamaged: If the log cannot be read.
        ConfigError: If it holds no update.
    """
    delivered_s: dict[str, float] = {}
    latencies: dict[str, list[float]] = defaultdict(list)
    evaluated: list[VersionEvaluated] = []
    for entry in read_log(log):
        if isinstance(entry, Created):
            delivered_s, latencies, evaluated = {}, defaultdict(list), []
            continue
        event = entry.event
        if isinstance(event, TaskDelivered):
            delivered_s[event.task] = event.at_s
        elif isinstance(event, UpdateAccepted):
            if event.task not in delivered_s:
                raise LogDamaged(f"{log}: an update came for task {event.task!r}, which nobody had fetched")
            latencies[_client(log, event.task)].append(event.at_s - delivered_s.pop(event.task))
        elif isinstance(event, VersionEvaluated):
            evaluated.append(event)
    if not latencies:
        raise ConfigError(f"{log} holds no update: nothing can be said of its clients' latencies")
    return Recorded(latencies, _versions_per_point(evaluated))


def _client(log: Path, task: str) -> str:
    try:
        return TaskId.parse(task).client
    except NotFound as error:
        raise LogDamaged(f"{log}: {error}") from error


def _versions_per_point(evaluated: Sequence[VersionEvaluated]) -> float | None:
    if len(evaluated) < 2:
        return None
    first, best = evaluated[0], max(evaluated, key=lambda event: event.accuracy)
    points = (best.accuracy - first.accuracy) * _HUNDREDTHS
    return (best.version - first.version) / points if points > 0 else None


def predict(run: Recorded, max_tiers: int, cohort_size: int) -> list[Prediction]:
    """Predict the pace for 1 to `max_tiers` tiers of equal size.

    A tier's round lasts as long as the slowest of its cohort. Every client of a tier is as likely to be in
    it, with one of the latencies that it was seen to have: the fast were seen more often, and count no more.

    Raises:
        ConfigError: If a number is not positive, or there are more tiers than clients.
    """
    if not 1 <= max_tiers <= len(run.latencies_s):
        raise ConfigError(f"{len(run.latencies_s)} clients make 1 to as many tiers, got {max_tiers}")
    if cohort_size < 1:
        raise ConfigError(f"a cohort has at least one client, got {cohort_size}")
    means = {client: mean(seen) for client, seen in run.latencies_s.items()}
    predictions = []
    for num_tiers in range(1, max_tiers + 1):
        tiers: dict[int, list[str]] = defaultdict(list)
        for client, tier in assign_tiers(means, num_tiers).items():
            tiers[tier].append(client)
        round_s = tuple(
            slowest_of(
                [run.latencies_s[client] for client in tiers[tier]], min(cohort_size, len(tiers[tier]))
            )
            for tier in sorted(tiers)
        )
        # A tier that takes no time makes versions without end.
        version_s = 1 / sum(1 / one for one in round_s) if min(round_s) > 0 else 0.0
        point_s = None if run.versions_per_point is None else run.versions_per_point * version_s
        predictions.append(Prediction(num_tiers, round_s, version_s, point_s))
    return predictions


def slowest_of(latencies_s: Sequence[Sequence[float]], k: int) -> float:
    """Expected maximum of k independent draws, each of a client and then of one of its latencies.

    ``sum_i x_(i) (F_i^k - F_(i-1)^k)`` over all latencies in order, where ``F_i`` is the probability of one
    that is no longer than ``x_(i)``: each of a client's n latencies has ``1/n`` of its share.

    Args:
        latencies_s: Of each client.
        k: Clients in a cohort.
    """
    weighted = sorted((x, 1 / (len(seen) * len(latencies_s))) for seen in latencies_s for x in seen)
    below = [0.0, *accumulate(weight for _, weight in weighted)]
    return sum(x * (high**k - low**k) for (x, _), (low, high) in zip(weighted, pairwise(below), strict=True))


def to_table(predictions: Sequence[Prediction]) -> str:
    """The predictions as a Markdown table."""
    lines = [
        "| tiers | seconds a round, fastest tier first | seconds a version | seconds a point of accuracy |",
        "|---|---|---|---|",
    ]
    for one in predictions:
        rounds = ", ".join(f"{seconds:.1f}" for seconds in one.round_s)
        point = "unknown" if one.point_s is None else f"{one.point_s:.1f}"
        lines.append(f"| {one.num_tiers} | {rounds} | {one.version_s:.2f} | {point} |")
    return "\n".join(lines) + "\n"
