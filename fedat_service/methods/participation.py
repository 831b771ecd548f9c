"""The participation axis: who trains when, and how finished work enters the global model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from fedat_service.aggregation.mixing import ColdStart, tier_weights
from fedat_service.wire.settings import Participation


@dataclass(frozen=True, slots=True)
class ParticipationRule:
    """What differs between two values of the axis; the round itself is the same for all.

    Attributes:
        name: The value's name in a method.
        num_tiers: From the number of tiers asked for, how many train.
        weights: From update counts, cold start and parked flags, the share of each tier's model in the
            global model, shape `(M,)`.
    """

    name: str
    num_tiers: Callable[[int], int]
    weights: Callable[[Sequence[int], ColdStart, Sequence[bool] | None], NDArray[np.float64]]


RULES: Mapping[str, ParticipationRule] = MappingProxyType(
    {
        rule.name: rule
        for rule in (
            # FedAvg is FedAT with one tier that holds everybody: eq. 3 gives that tier weight 1.
            ParticipationRule("fedavg", num_tiers=lambda _: 1, weights=tier_weights),
            ParticipationRule("fedat", num_tiers=lambda asked: asked, weights=tier_weights),
        )
    }
)


def rule_for(participation: Participation) -> ParticipationRule:
    """The behaviour behind a method's participation settings."""
    return RULES[participation.name]
