"""What is measured of a method: the rows of a report, and the names by which experiments speak of them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import geometric_mean, mean
from types import MappingProxyType
from typing import Annotated, Self

from pydantic import AfterValidator

from loadtest.experiments.results import Summary

MEGABYTE = 1e6
"""Bytes."""

_MILLION = 1e6


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number of a method's summary.

    Attributes:
        label: What a report calls it; may hold `{target}`.
        value: Reads it; None if there is none.
        form: Format of one value.
        missing: What a report says if there is no value.
        at_least: For what was not reached within the horizon: what it is more than.
    """

    label: str
    value: Callable[[Summary], float | None]
    form: str
    missing: str = "none"
    at_least: Callable[[Summary], float] | None = None


def _to_target(*ways: str) -> Quantity:
    """Wire bytes of training until the target; a run that never gets there has taken all of its own."""

    def value(one: Summary) -> float | None:
        taken = one.bytes_to_target
        return None if taken is None else sum(taken[way] for way in ways) / MEGABYTE

    def at_least(one: Summary) -> float:
        volumes = {"up": one.bytes_up, "down": one.bytes_down}
        return sum(volumes[way].wire for way in ways) / MEGABYTE

    words = f"{ways[0]}" if len(ways) == 1 else "both ways"
    return Quantity(f"on the wire to the target, {words} (MB)", value, ".2f", "not reached", at_least)


QUANTITIES: Mapping[str, Quantity] = MappingProxyType(
    {
        "time_to_target_s": Quantity(
            "simulated time to accuracy {target} (s)",
            lambda one: one.time_to_target_s,
            ".1f",
            "not reached",
            lambda one: one.simulated_s,
        ),
        "final_accuracy": Quantity("final accuracy", lambda one: one.final_accuracy, ".4f"),
        "final_loss": Quantity("final loss (cross-entropy)", lambda one: one.final_loss, ".3f"),
        "final_evaluations": Quantity(
            "... mean of so many evaluations", lambda one: one.final_evaluations, ".0f"
        ),
        "best_accuracy": Quantity("best accuracy", lambda one: one.best_accuracy, ".4f"),
        "evaluations": Quantity("... largest of so many evaluations", lambda one: one.evaluations, ".0f"),
        "client_accuracy_variance": Quantity(
            "variance of accuracy over clients", lambda one: one.client_accuracy_variance, ".4f"
        ),
        "versions": Quantity("global versions", lambda one: one.versions, ".0f"),
        "updates": Quantity("client updates", lambda one: one.updates, ".0f"),
        "parameters_up_m": Quantity(
            "parameters up (millions)", lambda one: one.bytes_up.parameters / _MILLION, ".2f"
        ),
        "payload_up_mb": Quantity("payload up (MB)", lambda one: one.bytes_up.payload / MEGABYTE, ".2f"),
        "wire_up_mb": Quantity("on the wire up (MB)", lambda one: one.bytes_up.wire / MEGABYTE, ".2f"),
        "wire_down_mb": Quantity("on the wire down (MB)", lambda one: one.bytes_down.wire / MEGABYTE, ".2f"),
        "wire_to_target_mb": _to_target("up", "down"),
        "wire_up_to_target_mb": _to_target("up"),
        "wire_down_to_target_mb": _to_target("down"),
        "bytes_per_parameter_up": Quantity(
            "payload bytes a parameter, up", lambda one: one.bytes_per_parameter_up, ".3f"
        ),
        "lost_clients": Quantity("clients lost at the end", lambda one: one.lost_clients, ".0f"),
        "wall_s": Quantity("real time (s)", lambda one: one.wall_s, ".1f"),
    }
)


def _known(name: str) -> str:
    if name not in QUANTITIES:
        raise ValueError(f"{name!r} is not measured: there are {', '.join(QUANTITIES)}")
    return name


QuantityName = Annotated[str, AfterValidator(_known)]
"""A key of `QUANTITIES`."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A quantity over seeds.

    Attributes:
        values: One a seed; None where there is none.
    """

    values: tuple[float | None, ...]

    @property
    def known(self) -> list[float]:
        """The values that there are."""
        return [value for value in self.values if value is not None]

    @property
    def mean(self) -> float | None:
        """Mean of the values that there are."""
        return mean(self.known) if self.known else None

    @property
    def min(self) -> float | None:
        """Smallest of the values that there are."""
        return min(self.known, default=None)

    @property
    def max(self) -> float | None:
        """Largest of the values that there are."""
        return max(self.known, default=None)

    def text(self, form: str, missing: str = "none") -> str:
        """As in a table: the mean, the extremes if they differ, and how many seeds have no value."""
        known, seeds = self.known, len(self.values)
        if not known:
            return missing
        words, low, high = (format(value, form) for value in (self.mean, self.min, self.max))
        if low != high:
            words += f" ({low} to {high})"
        if len(known) < seeds:
            words += f"; {missing} with {seeds - len(known)} of {seeds} seeds"
        return words


@dataclass(frozen=True, slots=True)
class Ratios(Spread):
    """Ratios over seeds, none negative. Their mean is geometric: twice and half as much cancel out."""

    @property
    def mean(self) -> float | None:
        """Geometric mean of the ratios that there are."""
        if not self.known:
            return None
        return geometric_mean(self.known) if all(self.known) else 0.0

    @property
    def inverse(self) -> Self:
        """The ratios the other way round; none where one is 0."""
        return type(self)(tuple(1 / one if one else None for one in self.values))


def spread_of(name: str, summaries: Iterable[Summary]) -> Spread:
    """One quantity of a method's summaries, one of which is of each seed."""
    value = QUANTITIES[name].value
    return Spread(tuple(value(one) for one in summaries))
