"""What a cohort fetches and uploads in a round: the cycle of a layer schedule, with the slots of a solver."""

from collections.abc import Mapping
from dataclasses import dataclass

from fedat_service.errors import RuleError
from fedat_service.methods.solvers import ServerHalf
from fedat_service.params import Manifest
from fedat_service.schedules.cycle import Cycle
from fedat_service.wire.settings import Slot


@dataclass(frozen=True, slots=True)
class Exchange:
    """One sync of a round, as a client sees it: fetch, train, upload.

    Attributes:
        blocks: Base intervals of local work between fetch and upload; 0 where only a gradient is asked for.
        down: Tensors to fetch, by slot.
        up: Tensors to upload, by slot.
        last: Whether the round ends with it.
    """

    blocks: int
    down: Mapping[Slot, tuple[str, ...]]
    up: Mapping[Slot, tuple[str, ...]]
    last: bool = False


def plan(
    half: ServerHalf, cycle: Cycle, manifest: Manifest, round_index: int, sync_every: int = 1
) -> tuple[Exchange, ...]:
    """What a cohort fetches and uploads in a round, one exchange after the other.

    The first exchange fetches everything that travels: the cohort is fresh. Each further one fetches what
    the one before it has averaged. Syncs at which nothing is due are no exchanges: local work goes on.

    Args:
        half: The solver's server half.
        cycle: What is due when.
        manifest: The model.
        round_index: Number of the round, from 1.
        sync_every: Fed-LAMB's Z: slots of `ends` come up in every Z-th round only.

    Raises:
        RuleError: If the round's number or `sync_every` is below 1.
    """
    if round_index < 1 or sync_every < 1:
        raise RuleError(f"rounds and sync_every count from 1, got {round_index} and {sync_every}")
    learns = {tensor.name for tensor in manifest.tensors if tensor.trainable}

    def trained(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name in learns)

    everything = tuple(cycle.intervals)
    exchanges = []
    if half.gathers:
        asked = dict.fromkeys(half.gathers, trained(everything))
        exchanges.append(Exchange(0, {"weights": everything}, asked))
    fresh, done = everything, 0
    for sync in cycle.syncs():
        due, is_last = cycle.due(sync), sync == cycle.length
        down: dict[Slot, tuple[str, ...]] = {} if exchanges and done == 0 else {"weights": fresh}
        down |= dict.fromkeys(half.starts if done == 0 else (), trained(everything))
        down |= dict.fromkeys(half.follows, trained(fresh))
        up: dict[Slot, tuple[str, ...]] = {"weights": due, **dict.fromkeys(half.follows, trained(due))}
        if is_last and round_index % sync_every == 0:
            up |= dict.fromkeys(half.ends, trained(everything))
        exchanges.append(Exchange(sync - done, down, up, is_last))
        fresh, done = due, sync
    return tuple(exchanges)
