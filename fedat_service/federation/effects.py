"""What the coordinator must do after a transition, in this order, once the event is durable."""

from dataclasses import dataclass

from fedat_service.aggregation.asynchronous import REPLACE, Blend


@dataclass(frozen=True, slots=True)
class AddUpdate:
    """Take the accepted update into the tier's running mean with this weight."""

    tier: int
    weight: float


@dataclass(frozen=True, slots=True)
class DropRound:
    """The tier's round was abandoned with updates in it: forget its running mean."""

    tier: int


@dataclass(frozen=True, slots=True)
class MakeVersion:
    """The tier's mean is whole: blended in, it makes the tier's model; `weights` mix the tiers' models."""

    version: int
    tier: int
    weights: tuple[float, ...]
    update_counts: tuple[int, ...]
    num_updates: int
    num_examples: int
    blend: Blend = REPLACE


@dataclass(frozen=True, slots=True)
class WakeClients:
    """These clients have a task now."""

    clients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """The federation is over: release everybody who waits."""

    reason: str


Effect = AddUpdate | DropRound | MakeVersion | WakeClients | Finish
