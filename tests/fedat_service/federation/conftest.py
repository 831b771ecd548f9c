"""A federation driven by hand: no HTTP, no clock, no arrays."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from fedat_service.federation.effects import Effect, MakeVersion
from fedat_service.federation.events import (
    ClientRegistered,
    DeadlinePassed,
    Event,
    TaskDelivered,
    UpdateAccepted,
    VersionPublished,
)
from fedat_service.federation.spec import Spec
from fedat_service.federation.state import State, client_of, initial_state, next_deadline_s
from fedat_service.federation.transition import transition
from fedat_service.wire.messages import CreateFederation, ManifestMessage, TensorMessage


def make_spec(**fields: object) -> Spec:
    manifest = ManifestMessage(tensors=(TensorMessage(name="fc.weight", shape=(2, 3)),))
    definition = {"name": "f", "manifest": manifest.model_dump(), **fields}
    return Spec.of(CreateFederation.model_validate(definition))


@dataclass
class Driver:
    """Applies events and keeps what came of them."""

    state: State
    effects: list[Effect] = field(default_factory=list)
    log: list[Event] = field(default_factory=list)

    def apply(self, event: Event) -> tuple[Effect, ...]:
        self.state, effects = transition(self.state, event)
        self.log.append(event)
        self.effects.extend(effects)
        return effects

    def register(self, *names: str, at_s: float = 0.0, num_examples: int = 10) -> None:
        for name in names:
            self.apply(ClientRegistered(at_s, name, num_examples))

    @property
    def made(self) -> list[MakeVersion]:
        """Versions so far."""
        return [effect for effect in self.effects if isinstance(effect, MakeVersion)]

    def members(self, number: int) -> tuple[str, ...]:
        """Live members of a tier."""
        clients = self.state.clients.values()
        return tuple(sorted(c.name for c in clients if c.tier == number and not c.lost))

    def task(self, name: str) -> str:
        lease = client_of(self.state, name).lease
        return "" if lease is None else str(lease.task)

    def deliver(self, name: str, at_s: float) -> None:
        self.apply(TaskDelivered(at_s, self.task(name)))

    def update(self, name: str, at_s: float, num_examples: int = 10) -> tuple[Effect, ...]:
        effects = self.send(name, at_s, num_examples, digest=f"bytes of {self.task(name)}")
        self.publish(at_s)
        return effects

    def send(self, name: str, at_s: float, num_examples: int = 10, digest: str = "x") -> tuple[Effect, ...]:
        """Fetch the task if that was not done, and answer it; nothing is published."""
        lease = client_of(self.state, name).lease
        task = self.task(name)
        if lease is not None and lease.delivered_at_s is None:
            self.deliver(name, at_s)
        return self.apply(UpdateAccepted(at_s, task, num_examples, digest))

    def publish(self, at_s: float) -> None:
        while self.state.published < self.state.version:
            self.apply(VersionPublished(at_s, self.state.published + 1, "digest"))

    def deadline(self) -> tuple[Effect, ...]:
        due_s = next_deadline_s(self.state)
        effects = self.apply(DeadlinePassed(0.0 if due_s is None else due_s))
        self.publish(0.0 if due_s is None else due_s)
        return effects

    def profile(self, latencies_s: dict[str, float], start_s: float = 0.0) -> None:
        for name in latencies_s:
            self.deliver(name, start_s)
        for name, latency_s in sorted(latencies_s.items(), key=lambda item: item[1]):
            self.update(name, start_s + latency_s)


@pytest.fixture
def drive() -> Callable[..., Driver]:
    return lambda **fields: Driver(initial_state(make_spec(**fields)))


@pytest.fixture
def two_tiers(drive: Callable[..., Driver]) -> Callable[..., Driver]:
    """`two_tiers(**fields)` has registered a, b, c and d, who are being profiled."""

    def start(**fields: object) -> Driver:
        rounds = {"cohort_size": 2, "start_clients": 4, "deadline_s": 100.0}
        tiering = {"num_tiers": 2, **fields.pop("tiering", {})}
        driver = drive(tiering=tiering, rounds=rounds, **fields)
        driver.register("a", "b", "c", "d")
        return driver

    return start
