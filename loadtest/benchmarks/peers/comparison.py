"""Ours over each of the others: seconds, and whether accuracies differ by more than noise."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import mean, median, stdev

from loadtest.benchmarks.peers.workload import CLIENTS, TEST_IMAGES
from loadtest.benchmarks.run import Measurement, Results, measurement

_OURS = ("ours", "ours-bfloat16")
_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t for 1, 2, 3 ... degrees of freedom: 95 % lie between plus and minus that."""
_ONE_IMAGE = 1 / (CLIENTS * TEST_IMAGES)
"""The smallest step of an accuracy."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a contestant; `seconds` are those of a round or of the whole job, as `kind` says."""

    contestant: str
    workload: str
    kind: str
    seed: int
    seconds: float
    accuracy: float
    versions: dict[str, str]


def compare(runs: Sequence[Run]) -> Results:
    """Hold ours against each of the others, on the seeds that both have done.

    Returns:
        By workload, kind and contestant `s`, the medians of the seconds; `accuracy`, the means; and from two
        seeds on `accuracy_difference`, that of the means over what is still `noise`: at most 1 within it.
    """
    groups: dict[tuple[str, str, str], dict[int, Run]] = {}
    for run in runs:
        groups.setdefault((run.workload, run.kind, run.contestant), {})[run.seed] = run
    results: Results = {}
    for (workload, kind, peer), theirs in groups.items():
        for name in _OURS:
            ours = groups.get((workload, kind, name), {})
            pairs = [(ours[seed], theirs[seed]) for seed in sorted(ours.keys() & theirs.keys())]
            if pairs and peer not in _OURS:
                start = f"peers_{workload}_{kind}"
                results |= {f"{start}_{what}_{name}_vs_{peer}": one for what, one in _measurements(pairs)}
    return results


def _measurements(pairs: Sequence[tuple[Run, Run]]) -> Iterator[tuple[str, Measurement]]:
    ours, theirs = zip(*pairs, strict=True)
    versions = {
        run.contestant: ", ".join(" ".join(package) for package in run.versions.items()) for run in pairs[0]
    }
    means = [mean(run.accuracy for run in runs) for runs in (ours, theirs)]
    found = {
        "s": measurement(median(run.seconds for run in ours), median(run.seconds for run in theirs)),
        "accuracy": measurement(*means),
    }
    if len(pairs) > 1:
        limit = noise([one.accuracy - other.accuracy for one, other in pairs])
        found["accuracy_difference"] = measurement(abs(means[0] - means[1]), limit)
    for what, one in found.items():
        yield what, {**one, "versions": versions}


def noise(differences: Sequence[float]) -> float:
    """How far from zero the mean of paired differences may lie by chance: a paired t-test at 5 %.

    A pair has one seed, so the same examples and the same first model, with the loop the same cohorts, too,
    but orders of its own; the other two draw their own cohorts, and in few rounds these decide the most.
    Equals lie outside once in twenty times. Few seeds show only large differences: with three, those of 2.5
    standard deviations of a pair's and more (4.3 standard errors; two would cry wolf once in five times).
    That ours computes what the loop does is not shown here, but by a test (`test_plain_loop.py`).

    Args:
        differences: Accuracy of ours less that of the other, a seed each; two or more.

    Returns:
        The 97.5 % quantile of Student's t times the standard error of the mean; no less than one image.
    """
    n = len(differences)
    t = _QUANTILES[min(n - 1, len(_QUANTILES)) - 1]
    return max(t * stdev(differences) / sqrt(n), _ONE_IMAGE)
