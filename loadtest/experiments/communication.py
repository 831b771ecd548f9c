"""What travelled, by slot and by layer: the part of a report that layer schedules and solvers are about."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from statistics import mean

from fedat_service.wire.views import ByteCount
from loadtest.experiments.outcome import Outcome
from loadtest.experiments.quantities import MEGABYTE
from loadtest.experiments.results import OUTSIDE_TIERS, MethodRun
from loadtest.experiments.tables import header, row

Payload = Mapping[str, float]
"""Megabytes, by the label of a row."""


def communication_table(outcome: Outcome) -> str:
    """Payload of training by direction and slot, then by layer over both directions and all slots.

    Empty if nothing was counted.
    """
    lines = [
        *_rows(outcome, lambda count: f"{count.direction}, {count.slot}"),
        *_rows(outcome, lambda count: f"layer {count.layer}"),
    ]
    if not lines:
        return ""
    over = "" if len(outcome.seeds) == 1 else ", means over the seeds"
    return "\n".join([*header(f"payload of training (MB{over})", outcome.runs), *lines])


def _rows(outcome: Outcome, label_of: Callable[[ByteCount], str]) -> Iterable[str]:
    by_method = [[_payload(run, label_of) for run in runs] for runs in outcome.runs.values()]
    labels = dict.fromkeys(label for runs in by_method for payload in runs for label in payload)
    for label in labels:
        yield row(label, [f"{mean(payload.get(label, 0.0) for payload in runs):.3f}" for runs in by_method])


def _payload(run: MethodRun, label_of: Callable[[ByteCount], str]) -> Payload:
    payload: Counter[str] = Counter()
    for count in run.metrics.by_layer:
        if count.tier != int(OUTSIDE_TIERS):
            payload[label_of(count)] += count.payload
    return {label: size / MEGABYTE for label, size in payload.items()}
