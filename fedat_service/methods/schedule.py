"""The layer schedule axis: the cycle of a round from a method's settings."""

from collections.abc import Mapping

from fedat_service.params import Manifest
from fedat_service.schedules.cycle import Cycle, uniform
from fedat_service.schedules.fedals import classifier, fedals, head_by_count, head_by_name
from fedat_service.schedules.fedlama import adjusts, fedlama
from fedat_service.wire.settings import Schedule


def first_cycle(schedule: Schedule, manifest: Manifest) -> Cycle:
    """The cycle of a tier's first round.

    Raises:
        RuleError: If the head matches nothing or everything, or nothing travels.
    """
    tensors = _travelling(schedule, manifest)
    match schedule.name:
        case "full":
            return uniform(tensors)
        case "fedals":
            return fedals(manifest, tensors, schedule.alpha, _head(schedule, manifest))
        case "fedlama":
            return uniform(tensors, schedule.phi)


def measures(schedule: Schedule, blocks: int) -> bool:
    """Whether the last sync of a round needs the uploads' discrepancies for `next_cycle`.

    Args:
        schedule: The method's schedule.
        blocks: Base intervals that the tier has behind it when that round is over.
    """
    return schedule.name == "fedlama" and schedule.phi > 1 and adjusts(blocks, schedule.warmup_blocks)


def next_cycle(
    schedule: Schedule, manifest: Manifest, cycle: Cycle, discrepancies: Mapping[str, float]
) -> Cycle:
    """The cycle of the round after one that ran `cycle` and whose last sync was measured.

    Raises:
        RuleError: If a discrepancy is missing, negative or not finite.
    """
    return fedlama(manifest, cycle.intervals, schedule.phi, discrepancies, schedule.rule, schedule.unit)


def _travelling(schedule: Schedule, manifest: Manifest) -> tuple[str, ...]:
    return tuple(t.name for t in manifest.tensors if t.trainable or schedule.buffers == "average")


def _head(schedule: Schedule, manifest: Manifest) -> frozenset[str]:
    match schedule.head:
        case "classifier":
            return classifier(manifest)
        case int(count):
            return head_by_count(manifest, count)
        case patterns:
            return head_by_name(manifest, patterns)
