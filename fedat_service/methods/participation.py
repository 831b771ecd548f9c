"""The participation axis: who trains when, and how finished work enters the global model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from fedat_service.aggregation.asynchronous import (
    REPLACE,
    Blend,
    Staleness,
    constant,
    fedasync,
    fedbuff,
    hinge,
    polynomial,
)
from fedat_service.aggregation.mean import update_weight
from fedat_service.wire.settings import Participation


@dataclass(frozen=True, slots=True)
class ParticipationRule:
    """What differs between the values of the axis; the round itself is the same for all.

    Attributes:
        name: The value's name in a method.
        weight: From the number of examples and the age in versions, what an update counts in its mean.
        blend: From the newest version and those that the updates of a mean started from, how the mean
            becomes the tier's model.
        tiered: Whether clients are profiled into tiers, or one tier holds everybody.
        drawn: Whether one tier at a time trains, and is drawn; else all do.
        solo: Whether every client is a round of its own, and as many rounds are open at once as a cohort
            has clients; else a tier has one round, of one cohort.
        buffer_size: How many rounds are over until their mean makes a version.
    """

    name: str
    weight: Callable[[int, int], float]
    blend: Callable[[int, Sequence[int]], Blend] = lambda _version, _bases: REPLACE
    tiered: bool = False
    drawn: bool = False
    solo: bool = False
    buffer_size: int = 1

    def num_tiers(self, asked: int) -> int:
        """How many tiers train, if `asked` are asked for."""
        return asked if self.tiered else 1

    def round_size(self, cohort_size: int) -> int:
        """How many clients a round has."""
        return 1 if self.solo else cohort_size

    def rounds_at_once(self, cohort_size: int) -> int:
        """How many rounds a tier may have open."""
        return cohort_size if self.solo else 1


def rule_for(participation: Participation) -> ParticipationRule:
    """The behaviour behind a method's participation settings."""
    s = _staleness(participation)

    def by_examples(num_examples: int, _age: int) -> float:
        return update_weight(num_examples, participation.weighting)

    match participation.name:
        case "fedavg":
            # FedAvg is FedAT with one tier that holds everybody: eq. 3 gives that tier weight 1.
            return ParticipationRule("fedavg", by_examples)
        case "fedat":
            return ParticipationRule("fedat", by_examples, tiered=True)
        case "tifl":
            return ParticipationRule("tifl", by_examples, tiered=True, drawn=True)
        case "fedasync":
            blend = partial(fedasync, s, participation.alpha)
            return ParticipationRule("fedasync", lambda _n, _age: 1.0, blend, solo=True)
        case "fedbuff":
            size = participation.buffer_size
            return ParticipationRule(
                "fedbuff", lambda _n, age: s(age), partial(fedbuff, s), solo=True, buffer_size=size
            )


def _staleness(participation: Participation) -> Staleness:
    match participation.staleness:
        case "constant":
            return constant
        case "hinge":
            return partial(hinge, a=participation.hinge_a, b=participation.hinge_b)
        case "polynomial":
            return partial(polynomial, a=participation.poly_a)
