"""A round as a cycle of syncs, and what travels at each."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fedat_service.errors import RuleError


@dataclass(frozen=True, slots=True)
class Cycle:
    """The syncs of one round, a base interval of local work (``tau'`` steps) before each.

    Syncs are numbered 1 to `length`; a tensor is due at every sync that its interval divides. Intervals
    divide the length, so at the last sync all tensors are due and nothing differs between clients.

    Attributes:
        length: Base intervals in a round.
        intervals: Base intervals between two syncs of a tensor, by name, in manifest order. A tensor that
            is not among them never travels.

    Raises:
        RuleError: If there is no tensor, or an interval does not divide the length.
    """

    length: int
    intervals: Mapping[str, int]

    def __post_init__(self) -> None:
        if self.length < 1:
            raise RuleError(f"a round has at least one sync, got length {self.length}")
        if not self.intervals:
            raise RuleError("a schedule must name at least one tensor")
        for tensor, interval in self.intervals.items():
            if interval < 1 or self.length % interval:
                raise RuleError(
                    f"tensor {tensor!r}: interval {interval} does not divide a round of {self.length} syncs"
                )
        object.__setattr__(self, "intervals", MappingProxyType(dict(self.intervals)))

    def due(self, sync: int) -> tuple[str, ...]:
        """Name the tensors that travel at a sync, in manifest order.

        Raises:
            RuleError: If the round has no such sync.
        """
        if not 1 <= sync <= self.length:
            raise RuleError(f"a round of {self.length} syncs has no sync {sync}")
        return tuple(tensor for tensor, interval in self.intervals.items() if sync % interval == 0)

    def syncs(self) -> tuple[int, ...]:
        """Number the syncs at which anything travels; local work goes on through the others."""
        intervals = set(self.intervals.values())
        return tuple(s for s in range(1, self.length + 1) if any(s % i == 0 for i in intervals))


def uniform(tensors: Iterable[str], length: int = 1) -> Cycle:
    """Every tensor at every sync: FedAvg, cut into rounds of `length` syncs.

    Raises:
        RuleError: If there is no tensor, or the length is below 1.
    """
    return Cycle(length, dict.fromkeys(tensors, 1))
