"""What a federation is measured by: communication volume, versions and evaluations over time."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, get_args

from fedat_service.federation.effects import MakeVersion
from fedat_service.federation.events import VersionEvaluated
from fedat_service.wire.entries import Entry
from fedat_service.wire.views import AccuracyPoint, ByteCount, VersionPoint, Volume

Direction = Literal["up", "down"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


@dataclass
class _Count:
    parameters: int = 0
    payload: int = 0
    wire: int = 0

    def volume(self) -> Volume:
        return Volume(parameters=self.parameters, payload=self.payload, wire=self.wire)


@dataclass
class ByteLedger:
    """Byte truth: what travelled up and down, by tier, layer and slot.

    Parameters and payload bytes are counted per tensor. Wire bytes belong to whole messages: the body with
    its framing, after content encoding, and the HTTP head. Tier 0 is everything outside a tier: profiling
    and observers.
    """

    _messages: dict[tuple[Direction, int], _Count] = field(default_factory=lambda: defaultdict(_Count))
    _layers: dict[tuple[Direction, int, str, str], _Count] = field(
        default_factory=lambda: defaultdict(_Count)
    )

    def count(self, direction: Direction, tier: int, entries: Iterable[Entry], wire_bytes: int) -> None:
        """Take one message with its entries in."""
        message = self._messages[direction, tier]
        message.wire += wire_bytes
        for entry in entries:
            layer = self._layers[direction, tier, entry.tensor.layer, entry.slot]
            for count in (message, layer):
                count.parameters += entry.tensor.size
                count.payload += len(entry.payload)

    def total(self, direction: Direction) -> Volume:
        """Sum over all tiers."""
        counts = [count for (way, _), count in self._messages.items() if way == direction]
        return Volume(
            parameters=sum(c.parameters for c in counts),
            payload=sum(c.payload for c in counts),
            wire=sum(c.wire for c in counts),
        )

    def by_tier(self) -> dict[str, dict[str, Volume]]:
        """Volume by tier number and direction."""
        tiers: dict[str, dict[str, Volume]] = {}
        for (direction, tier), count in sorted(self._messages.items(), key=lambda item: item[0][1]):
            tiers.setdefault(str(tier), {})[direction] = count.volume()
        return tiers

    def by_layer(self) -> tuple[ByteCount, ...]:
        """Parameters and payload bytes by direction, tier, layer and slot."""
        return tuple(
            ByteCount(
                direction=direction,
                tier=tier,
                layer=layer,
                slot=slot,
                parameters=count.parameters,
                payload=count.payload,
            )
            for (direction, tier, layer, slot), count in sorted(self._layers.items())
        )


@dataclass
class Timeline:
    """What happened when, in seconds since the federation started."""

    versions: list[VersionPoint] = field(default_factory=list)
    _evaluated: dict[int, AccuracyPoint] = field(default_factory=dict)

    def version(self, made: MakeVersion, at_s: float) -> None:
        """Note a published version."""
        self.versions.append(
            VersionPoint(
                version=made.version,
                at_s=at_s,
                tier=made.tier,
                update_counts=made.update_counts,
                weights=made.weights,
                num_updates=made.num_updates,
                num_examples=made.num_examples,
            )
        )

    def evaluation(self, event: VersionEvaluated, at_s: float) -> None:
        """Note an evaluated version."""
        self._evaluated[event.version] = self.point(event, at_s)

    def evaluated(self, version: int) -> AccuracyPoint | None:
        """What is known of a version's quality."""
        return self._evaluated.get(version)

    @property
    def evaluations(self) -> tuple[AccuracyPoint, ...]:
        """All evaluated versions, in the order they were evaluated."""
        return tuple(self._evaluated.values())

    @staticmethod
    def point(event: VersionEvaluated, at_s: float) -> AccuracyPoint:
        """An evaluation as a point of the time series."""
        return AccuracyPoint(
            version=event.version,
            at_s=at_s,
            num_clients=event.num_clients,
            num_examples=event.num_examples,
            accuracy=event.accuracy,
            loss=event.loss,
            client_accuracy_variance=event.client_accuracy_variance,
        )
