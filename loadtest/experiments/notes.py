"""How a report's numbers were made, and how far they may be trusted."""

from collections.abc import Iterable, Sequence
from statistics import mean

from loadtest.experiments.outcome import Outcome
from loadtest.experiments.results import FINAL_SHARE, SMOOTHING

_FLOAT32_BYTES = 4
_LATE_WARNING = 0.05

_VIRTUAL = (
    "Time is virtual: the real service and the real workers ran in one process whose clock jumps to the next "
    "timer. The same seed gives the same event log. Real time says how long the arithmetic took."
)
_REAL = (
    "All numbers come from this one run. Cohorts, data and simulated latencies follow from the seed; real "
    "processes add their own time, so that another run of the same seed differs a little."
)
_ONE_SEED = "One seed says nothing about the spread over seeds."
_SEEDS = (
    "With each seed all methods had the same data, latencies and drop-outs. A cell holds the mean over the "
    "seeds and, in brackets, the smallest and largest value; where some seeds have none, it says so, and the "
    "mean is that of the others. The mean of ratios, speed-ups among them, is geometric. A claim shows if "
    "every seed shows it. A method that did not reach the target is taken to need more than its whole run."
)
_BYTES = (
    "Bytes of training are those of the tiers: what clients fetched for a round and sent back. Profiling and "
    "the observer that evaluates versions are counted apart (`bytes_outside_tiers` in report.json). A curve "
    "over bytes, and bytes to target, share out all that the service counted evenly among the updates that "
    "made versions: the last version has cost all of it, with what lost clients and unfinished rounds took."
)
_TO_TARGET = (
    f"Time to target: when the centred mean of {SMOOTHING} consecutive evaluations first is at or above the "
    "target, at the time the middle version was published; the same for every method. Time starts when all "
    "clients have registered, so that a tiered method's profiling is part of it."
)
_FINAL = (
    f"Final accuracy, loss and variance: mean over the evaluations of the last {FINAL_SHARE:.0%} of the "
    "simulated time. Accuracy and loss are sample-weighted means over the clients' own test splits."
)
_BEST = (
    "Best accuracy is the largest single evaluation. The newest version is evaluated at one cadence for all "
    "methods, and each version once: a method that publishes more often has more of them, and so a higher "
    "largest one by chance alone. Final accuracy is a mean, which has no such advantage."
)


def to_notes(outcomes: Sequence[Outcome]) -> str:
    """All notes, as a list in Markdown; those on a method say which experiment's, if there are several."""
    first = outcomes[0]
    seeds = _ONE_SEED if len(first.seeds) == 1 else _SEEDS
    notes = [f"{_VIRTUAL if first.virtual else _REAL} {seeds}", _TO_TARGET, _FINAL, _BEST]
    for outcome in outcomes:
        where = f"{outcome.experiment.name}, " if len(outcomes) > 1 else ""
        notes += [f"{where}{note}" for note in _compression_notes(outcome)]
    notes.append(_BYTES)
    notes += [note for outcome in outcomes for note in _late_notes(outcome)]
    return "\n".join(f"- {note}" for note in notes)


def _compression_notes(outcome: Outcome) -> Iterable[str]:
    for name in outcome.runs:
        size = outcome.spread(name, "bytes_per_parameter_up").mean
        if size is None:
            continue
        note = f"{name}: an update's payload has {size:.2f} bytes a parameter"
        yield (
            f"{note}."
            if size >= _FLOAT32_BYTES
            else f"{note}, {_FLOAT32_BYTES / size:.2f} times less than float32."
        )


def _late_notes(outcome: Outcome) -> Iterable[str]:
    for name, ones in outcome.summaries.items():
        shares = [one.late_share for one in ones if one.late_share is not None]
        if not shares:
            continue
        note = (
            f"{name}: in {mean(shares):.1%} of the client rounds the real work took longer than the "
            "simulated latency."
        )
        if mean(shares) > _LATE_WARNING:
            rate = outcome.experiment.rate
            note += f" That stretches its simulated times: run again with a rate below {rate:g}."
        yield note
