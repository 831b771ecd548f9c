"""Whether a claim shows in the runs that were made: nothing is taken for granted that was not reached."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from loadtest.experiments.experiment import Expectation
from loadtest.experiments.outcome import Outcome
from loadtest.experiments.quantities import QUANTITIES
from loadtest.experiments.results import Summary


@dataclass(frozen=True, slots=True)
class Verdict:
    """One expectation against one other method.

    Attributes:
        expectation: What was expected.
        other: The method it was compared with.
        ratios: The method's value over the other's, seed by seed, in words: `< 0.300` if the other never
            got there.
        shows: Whether each seed shows it.
    """

    expectation: Expectation
    other: str
    ratios: tuple[str, ...]
    shows: tuple[bool, ...]

    @property
    def holds(self) -> bool:
        """Whether every seed shows it."""
        return all(self.shows)


def judge(outcome: Outcome) -> list[Verdict]:
    """Hold an experiment's runs against what it expects of the methods that were run.

    A method that has not reached its target needs more than its whole run; how much more is not known.
    """
    return [
        _verdict(outcome, one, other)
        for one in outcome.experiment.expect
        for other in one.of
        if {one.method, other} <= set(outcome.summaries)
    ]


def _verdict(outcome: Outcome, expectation: Expectation, other: str) -> Verdict:
    owns = _ranges(expectation.quantity, outcome.summaries[expectation.method])
    others = _ranges(expectation.quantity, outcome.summaries[other])
    pairs = list(zip(owns, others, strict=True))
    return Verdict(
        expectation,
        other,
        tuple(_ratio(own, against) for own, against in pairs),
        tuple(_shows(expectation, own, against) for own, against in pairs),
    )


Range = tuple[float, float]
"""From here to there; a known value is both."""


def _ranges(quantity: str, summaries: Iterable[Summary]) -> list[Range]:
    rule = QUANTITIES[quantity]
    ranges = []
    for one in summaries:
        value = rule.value(one)
        if value is not None:
            ranges.append((value, value))
        else:
            ranges.append((rule.at_least(one) if rule.at_least else 0.0, math.inf))
    return ranges


def _shows(expectation: Expectation, own: Range, other: Range) -> bool:
    if expectation.at_most is not None:
        return own[1] <= expectation.at_most * other[0]
    return own[0] >= (expectation.at_least or 0.0) * other[1]


def _ratio(own: Range, other: Range) -> str:
    low = own[0] / other[1] if other[1] > 0 else math.nan
    high = own[1] / other[0] if other[0] > 0 else math.inf
    if low == high:
        return f"{low:.3f}"
    if high < math.inf:
        return f"< {high:.3f}"
    return f"> {low:.3f}" if low > 0 else "unknown"
