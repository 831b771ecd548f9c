"""Laws that hold in every state any history can lead to."""

import math

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fedat_service.errors import RequestError
from fedat_service.federation.effects import AddUpdate, DropRound, MakeVersion
from fedat_service.federation.events import (
    ClientRegistered,
    ClientReturned,
    DeadlinePassed,
    Event,
    TaskDelivered,
    UpdateAccepted,
    VersionPublished,
    from_record,
    to_record,
)
from fedat_service.federation.spec import Spec
from fedat_service.federation.state import initial_state, next_deadline_s
from fedat_service.federation.transition import transition
from fedat_service.wire.messages import CreateFederation, ManifestMessage, TensorMessage

NAMES = [f"c{i}" for i in range(9)]


class Federation(RuleBasedStateMachine):
    """Clients come, work, vanish and return, in any order, with right and wrong messages."""

    @initialize(
        preset=st.sampled_from(["fedavg", "fedat"]),
        num_tiers=st.integers(1, 4),
        cohort_size=st.integers(1, 4),
        quorum=st.sampled_from([0.3, 0.5, 1.0]),
        retier_every=st.integers(0, 2),
        cold_start=st.sampled_from(["literal", "smoothed", "reported"]),
    )
    def create(self, preset, num_tiers, cohort_size, quorum, retier_every, cold_start):
        manifest = ManifestMessage(tensors=(TensorMessage(name="w", shape=(2,)),))
        message = CreateFederation.model_validate(
            {
                "name": "f",
                "manifest": manifest.model_dump(),
                "method": {"participation": {"name": preset, "cold_start": cold_start}},
                "tiering": {"num_tiers": num_tiers, "retier_every": retier_every, "hysteresis": 0.1},
                "rounds": {
                    "cohort_size": cohort_size,
                    "quorum": quorum,
                    "start_clients": 4,
                    "deadline_s": 50,
                },
            }
        )
        self.spec = Spec.of(message)
        self.state = initial_state(self.spec)
        self.now_s = 0.0
        self.log: list[Event] = []
        self.added: dict[int, int] = {}
        self.closed = [0] * self.spec.num_tiers

    def apply(self, event: Event) -> None:
        before = self.state
        try:
            self.state, effects = transition(self.state, event)
        except RequestError:
            assert self.state is before
            return
        self.log.append(event)
        for effect in effects:
            if isinstance(effect, AddUpdate):
                self.added[effect.tier] = self.added.get(effect.tier, 0) + 1
            elif isinstance(effect, DropRound):
                self.added.pop(effect.tier, None)
            elif isinstance(effect, MakeVersion):
                # Every accepted update is in exactly one closed round: none is lost, none counted twice.
                assert effect.num_updates == self.added.pop(effect.tier)
                self.closed[effect.tier - 1] += 1

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

    @precondition(lambda self: next_deadline_s(self.state) is not None)
    @rule()
    def reach_deadline(self):
        self.now_s = max(self.now_s, next_deadline_s(self.state))
        self.apply(DeadlinePassed(self.now_s))

    @precondition(lambda self: self.state.published < self.state.version)
    @rule()
    def publish(self):
        self.apply(VersionPublished(self.now_s, self.state.published + 1, "d"))

    @invariant()
    def weights_are_a_distribution(self):
        assert math.isclose(sum(self.state.weights), 1.0, abs_tol=1e-9)
        assert min(self.state.weights) >= 0
        parked = self.state.parked
        if not all(parked):
            assert all(w == 0 for w, is_parked in zip(self.state.weights, parked, strict=True) if is_parked)

    @invariant()
    def counters_equal_closed_rounds(self):
        assert list(self.state.update_counts) == self.closed
        assert self.state.version == sum(self.closed)

    @invariant()
    def leases_and_rounds_agree(self):
        rounds = [tier.round for tier in self.state.tiers if tier.round]
        waiting = {name for one in rounds for name in set(one.cohort) - set(one.reported)}
        leased = {c.name for c in self.state.clients.values() if c.lease and not c.lease.task.is_profile}
        assert waiting == leased

    @invariant()
    def nobody_who_is_free_has_a_tier_without_a_round(self):
        for tier in self.state.tiers:
            if self.state.status == "training" and tier.round is None:
                assert all(self.state.clients[name].lease is not None for name in tier.live)

    @invariant()
    def everybody_is_where_their_record_says(self):
        for tier in self.state.tiers:
            assert list(tier.live) == sorted(set(tier.live))
            assert all(
                self.state.clients[n].tier == tier.number and not self.state.clients[n].lost
                for n in tier.live
            )
        assert self.state.lost_clients == sum(c.lost for c in self.state.clients.values())
        assert set(self.state.profiling) == {
            c.name for c in self.state.clients.values() if c.lease and c.lease.task.is_profile
        }

    @invariant()
    def somebody_who_waits_has_a_deadline(self):
        busy = self.state.profiling or any(t.round for t in self.state.tiers)
        assert (next_deadline_s(self.state) is not None) == bool(busy)

    def teardown(self):
        state = initial_state(self.spec)
        for event in self.log:
            state, _ = transition(state, from_record(to_record(event)))
        assert state == self.state


Federation.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestFederation = Federation.TestCase
