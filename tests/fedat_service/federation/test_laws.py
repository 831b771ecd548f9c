"""Laws that hold in every state any history can lead to, whatever the participation."""

import json
import math
from typing import ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fedat_service.errors import RequestError
from fedat_service.federation.effects import AddUpdate, DropRound, Effect, MakeVersion
from fedat_service.federation.events import (
    ClientEvaluated,
    ClientRegistered,
    ClientReturned,
    DeadlinePassed,
    Event,
    TaskDelivered,
    UpdateAccepted,
    VersionEvaluated,
    VersionPublished,
    from_record,
    to_record,
)
from fedat_service.federation.spec import Spec
from fedat_service.federation.state import initial_state, next_deadline_s, versions_in_use
from fedat_service.federation.transition import transition
from fedat_service.wire.messages import CreateFederation, ManifestMessage, TensorMessage

NAMES = [f"c{i}" for i in range(9)]
SIZES = st.integers(1, 4)
STALENESS = st.sampled_from(["constant", "hinge", "polynomial"])


class Federation(RuleBasedStateMachine):
    """Clients come, work, vanish and return, in any order, with right and wrong messages."""

    participation: ClassVar[dict[str, st.SearchStrategy]] = {}

    @initialize(
        data=st.data(),
        num_tiers=st.integers(1, 4),
        cohort_size=st.integers(1, 4),
        quorum=st.sampled_from([0.3, 0.5, 1.0]),
        retier_every=st.integers(0, 2),
        crowd=st.integers(0, 9),
    )
    def create(self, data, num_tiers, cohort_size, quorum, retier_every, crowd):
        participation = data.draw(st.fixed_dictionaries(self.participation))
        manifest = ManifestMessage(tensors=(TensorMessage(name="w", shape=(2,)),))
        rounds = {"cohort_size": cohort_size, "quorum": quorum, "start_clients": 4, "deadline_s": 50}
        moves = retier_every > 0 and participation["name"] in ("fedat", "tifl")
        moving = {"retier_every": retier_every, "hysteresis": 0.1} if moves else {}
        message = CreateFederation.model_validate(
            {
                "name": "f",
                "manifest": manifest.model_dump(),
                "method": {"participation": participation},
                "tiering": {"num_tiers": num_tiers, **moving},
                "rounds": rounds,
            }
        )
        self.spec = Spec.of(message)
        self.state = initial_state(self.spec)
        self.now_s = 0.0
        self.log: list[Event] = []
        self.effects: list[Effect] = []
        self.added: dict[int, int] = {}
        self.closed = [0] * self.spec.num_tiers
        self.opened: set[tuple[int, int]] = set()
        for name in NAMES[:crowd]:
            self.register(name, 50)

    def apply(self, event: Event) -> None:
        before = self.state
        try:
            self.state, effects = transition(before, event)
        except RequestError:
            assert self.state is before
            return
        self.log.append(event)
        self.effects.extend(effects)
        for effect in effects:
            if isinstance(effect, AddUpdate):
                self.added[effect.tier] = self.added.get(effect.tier, 0) + 1
            elif isinstance(effect, DropRound):
                assert self.added.pop(effect.tier) > 0
            elif isinstance(effect, MakeVersion):
                self.make_version(event, effect)
        self.rounds_opened_since(before)

    def make_version(self, event: Event, made: MakeVersion) -> None:
        assert isinstance(event, UpdateAccepted | DeadlinePassed)
        # Every accepted update is in exactly one version: none is lost, none counted twice.
        assert made.num_updates == self.added.pop(made.tier)
        self.closed[made.tier - 1] += 1
        assert made.version == sum(self.closed)
        assert math.isclose(sum(made.weights), 1.0)
        assert math.isclose(made.blend.share + made.blend.own + sum(c for _, c in made.blend.bases), 1.0)
        if self.spec.rule.drawn:
            assert made.weights[made.tier - 1] == 1.0

    def rounds_opened_since(self, before) -> None:
        """A task's name is never given out twice."""
        for tier, old in zip(self.state.tiers, before.tiers, strict=True):
            known = {one.index for one in old.rounds}
            fresh = {(tier.number, one.index) for one in tier.rounds if one.index not in known}
            assert not fresh & self.opened
            self.opened |= fresh

    @rule(name=st.sampled_from(NAMES), num_examples=st.integers(1, 50))
    def register(self, name, num_examples):
        self.apply(ClientRegistered(self.now_s, name, num_examples))

    @rule(name=st.sampled_from(NAMES), seconds=st.floats(0, 20))
    def fetch_task(self, name, seconds):
        self.now_s += seconds
        client = self.state.clients.get(name)
        if client is not None and client.lost:
            self.apply(ClientReturned(self.now_s, name))
        elif client is not None and client.lease is not None and client.lease.delivered_at_s is None:
            self.apply(TaskDelivered(self.now_s, str(client.lease.task)))

    @rule(name=st.sampled_from(NAMES), num_examples=st.integers(1, 60), same=st.booleans())
    def update(self, name, num_examples, same):
        client = self.state.clients.get(name)
        lease = None if client is None else client.lease
        task = f"t1.r{num_examples}.s0.{name}" if lease is None else str(lease.task)
        if lease is not None and lease.delivered_at_s is None and num_examples > 5:
            self.apply(TaskDelivered(self.now_s, task))
        digest = task if same else f"{task}/{num_examples}"
        self.apply(UpdateAccepted(self.now_s, task, num_examples, digest))

    @rule(turns=st.lists(st.tuples(st.integers(0, 8), st.sampled_from([0, 1, 5, 30])), max_size=9))
    def work(self, turns):
        """Those who hold a task do it, one after the other; each takes its time."""
        for which, seconds in turns:
            clients = [client for name in NAMES if (client := self.state.clients.get(name)) and client.lease]
            if clients:
                lease = clients[which % len(clients)].lease
                if lease.delivered_at_s is None:
                    self.apply(TaskDelivered(self.now_s, str(lease.task)))
                self.now_s += seconds
                self.apply(UpdateAccepted(self.now_s, str(lease.task), 1, "d"))

    @rule(name=st.sampled_from(NAMES))
    def send_again(self, name):
        client = self.state.clients.get(name)
        if client is not None and client.done is not None:
            before = self.state
            self.apply(UpdateAccepted(self.now_s, str(client.done), 1, client.done_digest))
            assert self.state is before

    @precondition(lambda self: next_deadline_s(self.state) is not None)
    @rule()
    def reach_deadline(self):
        self.now_s = max(self.now_s, next_deadline_s(self.state))
        self.apply(DeadlinePassed(self.now_s))

    @precondition(lambda self: self.state.published < self.state.version)
    @rule()
    def publish(self):
        self.apply(VersionPublished(self.now_s, self.state.published + 1, "d"))

    @rule(name=st.sampled_from(NAMES), num_examples=st.integers(1, 9), share=st.floats(0, 1))
    def evaluate_task(self, name, num_examples, share):
        client = self.state.clients.get(name)
        task = None if client is None else client.done if client.lease is None else client.lease.task
        if task is not None:
            correct = int(share * num_examples)
            self.apply(ClientEvaluated(self.now_s, str(task), num_examples, correct, 0.5))

    @rule(accuracies=st.lists(st.none() | st.floats(0, 1), min_size=4, max_size=4))
    def evaluate_version(self, accuracies):
        by_tier = tuple(accuracies[: self.spec.num_tiers])
        self.apply(VersionEvaluated(self.now_s, self.state.published, 1, 9, 0.5, 1.0, 0.0, by_tier))

    @invariant()
    def weights_are_a_distribution(self):
        assert math.isclose(sum(self.state.weights), 1.0, abs_tol=1e-9)
        assert min(self.state.weights) >= 0
        parked = self.state.parked
        training = any(tier.rounds for tier in self.state.tiers)
        if not all(parked) and (training or not self.spec.rule.drawn):
            assert all(w == 0 for w, is_parked in zip(self.state.weights, parked, strict=True) if is_parked)

    @invariant()
    def counters_equal_versions(self):
        assert list(self.state.update_counts) == self.closed
        assert self.state.version == sum(self.closed)

    @invariant()
    def accepted_updates_are_in_a_version_or_in_a_round(self):
        for tier in self.state.tiers:
            waiting = sum(len(one.reported) for one in (*tier.rounds, *tier.closed))
            assert waiting == self.added.get(tier.number, 0) or self.state.status == "finished"

    @invariant()
    def nobody_works_for_two(self):
        cohorts = [name for tier in self.state.tiers for one in tier.rounds for name in one.cohort]
        reported = [name for tier in self.state.tiers for one in tier.rounds for name in one.reported]
        leased = {c.name for c in self.state.clients.values() if c.lease and not c.lease.task.is_profile}
        assert len(cohorts) == len(set(cohorts))
        assert set(cohorts) - set(reported) == leased

    @invariant()
    def as_many_rounds_are_open_as_there_is_room_for(self):
        rounds = [len(tier.rounds) for tier in self.state.tiers]
        assert max(rounds) <= self.spec.rounds_at_once
        if self.spec.rule.drawn:
            assert sum(rounds) <= 1
        if self.state.status != "training":
            return
        if self.spec.rule.drawn:
            left = self.spec.credits
            able = [t for t in self.state.tiers if t.idle and (left is None or t.update_count < left)]
            assert sum(rounds) == 1 or not able
        else:
            for tier in self.state.tiers:
                assert len(tier.rounds) == self.spec.rounds_at_once or not tier.idle

    @invariant()
    def rounds_stand_in_the_order_of_time(self):
        for tier in self.state.tiers:
            for values in (
                [one.index for one in tier.rounds],
                [one.base_version for one in tier.rounds],
                [one.deadline_s for one in tier.rounds],
            ):
                assert values == sorted(values)
            bases = {one.base_version for one in (*tier.rounds, *tier.closed)}
            assert bases <= versions_in_use(self.state)
            assert len(tier.closed) < self.spec.rule.buffer_size

    @invariant()
    def everybody_is_where_their_record_says(self):
        clients = self.state.clients.values()
        busy = {name for tier in self.state.tiers for one in tier.rounds for name in one.cohort}
        for tier in self.state.tiers:
            free = {c.name for c in clients if c.tier == tier.number and not c.lost} - busy
            assert list(tier.idle) == sorted(free) or self.state.status == "finished"
            found = [c.evaluation for c in clients if c.tier == tier.number and c.evaluation]
            assert tier.tested == sum(one.num_examples for one in found)
            assert tier.correct == sum(one.correct for one in found)
        assert self.state.lost_clients == sum(c.lost for c in clients)
        assert {name for _, name in self.state.profiling} == {
            c.name for c in clients if c.lease and c.lease.task.is_profile
        }

    @invariant()
    def somebody_who_waits_has_a_deadline(self):
        busy = self.state.profiling or any(t.rounds for t in self.state.tiers)
        assert (next_deadline_s(self.state) is not None) == bool(busy)

    def teardown(self):
        """The log alone, as text, gives the same state and asks for the same arithmetic."""
        state, effects = initial_state(self.spec), []
        for event in self.log:
            state, more = transition(state, from_record(json.loads(json.dumps(to_record(event)))))
            effects.extend(more)
        assert state == self.state
        assert effects == self.effects


def checked(machine: type[Federation]) -> type:
    machine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
    return machine.TestCase


@checked
class TestFedAvg(Federation):
    participation: ClassVar = {"name": st.just("fedavg")}


@checked
class TestFedAT(Federation):
    participation: ClassVar = {
        "name": st.just("fedat"),
        "cold_start": st.sampled_from(["literal", "smoothed", "reported"]),
    }


@checked
class TestTiFL(Federation):
    participation: ClassVar = {
        "name": st.just("tifl"),
        "interval": st.none() | st.integers(1, 3),
        "num_rounds": st.none() | st.integers(3, 40),
    }


@checked
class TestFedAsync(Federation):
    participation: ClassVar = {"name": st.just("fedasync"), "staleness": STALENESS}


@checked
class TestFedBuff(Federation):
    participation: ClassVar = {"name": st.just("fedbuff"), "staleness": STALENESS, "buffer_size": SIZES}
