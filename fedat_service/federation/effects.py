"""What the coordinator must do after a transition, in this order, once the event is durable."""

from dataclasses import dataclass

from fedat_service.aggregation.asynchronous import REPLACE, Blend
from fedat_service.schedules.cycle import Cycle


@dataclass(frozen=True, slots=True)
class AddUpdate:
    """Take the accepted update into the running means of its sync, its weights with this weight."""

    tier: int
    weight: float
    round: int
    is_last: bool = True


@dataclass(frozen=True, slots=True)
class DropRound:
    """The tier's round was abandoned after somebody had sent something: forget its running means.

    Of the `num_clients` there are, `num_updates` have sent the exchange that it was at.
    """

    tier: int
    round: int
    num_updates: int
    num_clients: int


@dataclass(frozen=True, slots=True)
class CloseSync:
    """A sync that does not end its round is whole: its means are what the next exchange begins with."""

    tier: int
    round: int
    sync: int
    base_version: int
    num_updates: int
    num_clients: int


@dataclass(frozen=True, slots=True)
class MakeVersion:
    """The tier's mean is whole: blended in, it makes the tier's model; `weights` mix the tiers' models.

    The mean is of `num_updates` of the federation's `num_clients`, of these `rounds`, which ran `cycle`.
    """

    version: int
    tier: int
    weights: tuple[float, ...]
    update_counts: tuple[int, ...]
    num_updates: int
    num_examples: int
    num_clients: int
    rounds: tuple[int, ...]
    cycle: Cycle
    blend: Blend = REPLACE


@dataclass(frozen=True, slots=True)
class WakeClients:
    """These clients have a task now."""

    clients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """The federation is over: release everybody who waits."""

    reason: str


Effect = AddUpdate | DropRound | CloseSync | MakeVersion | WakeClients | Finish
