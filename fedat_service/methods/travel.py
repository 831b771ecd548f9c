"""What a round of a method sends each way: counted from its plan, not written by hand."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from fedat_service.methods.exchanges import plan
from fedat_service.methods.schedule import first_cycle, measures, next_cycle
from fedat_service.methods.solvers import half_for
from fedat_service.params import Manifest
from fedat_service.schedules.cycle import Cycle
from fedat_service.wire.settings import Method, Slot

Times = Mapping[Slot, Mapping[str, int]]
"""By slot and tensor: how often it travels."""


@dataclass(frozen=True, slots=True)
class Travel:
    """What each client of a cohort fetches and sends in one round.

    Attributes:
        exchanges: How often it fetches, and sends.
        down: What it fetches.
        up: What it sends.
    """

    exchanges: int
    down: Times
    up: Times


def travel(method: Method, manifest: Manifest) -> Travel:
    """Count what a round sends in which all that the method ever sends travels.

    That is a round whose second moments travel (Fed-LAMB's Z) and, with FedLAMA, one after intervals were
    adjusted. There every trainable tensor is taken to have drifted as far in all, so that the largest
    drifted least an element.

    Raises:
        RuleError: If the schedule does not fit the model.
    """
    solver = method.solver
    exchanges = plan(
        half_for(solver), _cycle(method, manifest), manifest, solver.moment_every, solver.moment_every
    )
    return Travel(
        len(exchanges),
        _times([exchange.down for exchange in exchanges]),
        _times([exchange.up for exchange in exchanges]),
    )


def _cycle(method: Method, manifest: Manifest) -> Cycle:
    cycle = first_cycle(method.schedule, manifest)
    if not measures(method.schedule, method.schedule.warmup_blocks + 1):
        return cycle
    drift = {tensor.name: 1 / max(1, tensor.size) for tensor in manifest.tensors if tensor.trainable}
    return next_cycle(method.schedule, manifest, cycle, drift)


def _times(sent: list[Mapping[Slot, tuple[str, ...]]]) -> Times:
    times: dict[Slot, Counter[str]] = {}
    for by_slot in sent:
        for slot, names in by_slot.items():
            times.setdefault(slot, Counter()).update(names)
    return times
