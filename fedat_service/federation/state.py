"""The state of a federation: frozen values, cheap to copy, and the questions one may ask of them."""

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Literal

from immutables import Map

from fedat_service.aggregation.mixing import tier_weights
from fedat_service.errors import Gone, NotFound
from fedat_service.federation.events import ClientEvaluated, VersionEvaluated
from fedat_service.federation.ordered import Ordered
from fedat_service.federation.spec import Plan, Spec
from fedat_service.federation.tasks import TaskId
from fedat_service.methods.exchanges import Exchange
from fedat_service.schedules.cycle import Cycle

Status = Literal["awaiting-model", "waiting", "profiling", "training", "finished"]


@dataclass(frozen=True, slots=True)
class Lease:
    """A client's right, and duty, to send one update; latency counts from the first delivery."""

    task: TaskId
    base_version: int
    deadline_s: float
    delivered_at_s: float | None = None


@dataclass(frozen=True, slots=True)
class Client:
    """One registered client. `done` is its last counted task: the same bytes again are answered alike."""

    name: str
    num_examples: int
    tier: int | None = None
    latency_s: float | None = None
    lost: bool = False
    reason: str = "registered"
    lease: Lease | None = None
    profiles: int = 0
    done: TaskId | None = None
    done_digest: str = ""
    evaluation: ClientEvaluated | None = None

    @property
    def accuracy(self) -> float | None:
        """Share of its test split that the last model it evaluated got right."""
        return None if self.evaluation is None else self.evaluation.correct / self.evaluation.num_examples


@dataclass(frozen=True, slots=True)
class Round:
    """A synchronous round inside a tier: a fixed cohort, trained from `base_version`.

    It is at exchange `sync` of its `plan`, which `reported` have answered; `closing` while the values that
    the next one begins with are computed. `size` clients were in it when it opened.
    """

    index: int
    base_version: int
    cohort: tuple[str, ...]
    size: int
    deadline_s: float
    plan: Plan
    sync: int = 0
    closing: bool = False
    reported: tuple[str, ...] = ()
    num_examples: int = 0

    @property
    def exchange(self) -> Exchange:
        """What its cohort does now."""
        return self.plan[self.sync]

    @property
    def is_last(self) -> bool:
        """Whether it ends with the exchange it is at."""
        return self.exchange.last


_index, _deadline_s = attrgetter("index"), attrgetter("deadline_s")


@dataclass(frozen=True, slots=True)
class Tier:
    """One tier: who is idle in it, its counter `T_m`, its cycle of syncs, and its rounds.

    `idle` are the live members that no round holds, `rounds` the open ones in the order they were opened, so
    that no base version comes before an earlier one's. `closed` are rounds whose mean makes no version yet.
    Of its members' own evaluations, `correct` of `tested` examples were right.
    """

    number: int
    cycle: Cycle
    idle: Ordered[str] = field(default_factory=Ordered)
    update_count: int = 0
    rounds_opened: int = 0
    model_version: int = 0
    updated_at_s: float | None = None
    rounds: tuple[Round, ...] = ()
    closed: tuple[Round, ...] = ()
    tested: int = 0
    correct: int = 0

    def find(self, index: int) -> Round | None:
        """The open round of that number."""
        at = bisect_left(self.rounds, index, key=_index)
        return self.rounds[at] if at < len(self.rounds) and self.rounds[at].index == index else None

    def with_round(self, changed: Round) -> "Tier":
        """The tier with an open round as it is now."""
        at = bisect_left(self.rounds, changed.index, key=_index)
        return replace(self, rounds=(*self.rounds[:at], changed, *self.rounds[at + 1 :]))

    def without_round(self, index: int) -> "Tier":
        """The tier without a round that was open."""
        return replace(self, rounds=tuple(one for one in self.rounds if one.index != index))


@dataclass(frozen=True, slots=True)
class State:
    """Everything a federation is, but its arrays.

    `version` is decided, `published` is computed and readable; they differ for the moment in between.
    `profiling` holds the clients whose latency is not known yet, by the end of their leases. The tiers, with
    their `borders`, were `formed_of` so many clients, and `joined` have come since. `evaluated` is what
    observers reported, by version, and `observed` what they said of the newest one. `chances` is how likely
    each tier is drawn, once somebody has looked.
    """

    spec: Spec
    status: Status
    tiers: tuple[Tier, ...]
    clients: Map[str, Client] = field(default_factory=Map)
    profiling: Ordered[tuple[float, str]] = field(default_factory=Ordered)
    borders: tuple[float, ...] = ()
    formed_of: int = 0
    joined: int = 0
    model_digest: str = ""
    evaluated: Map[int, VersionEvaluated] = field(default_factory=Map)
    observed: VersionEvaluated | None = None
    chances: tuple[float, ...] = ()
    version: int = 0
    published: int = 0
    now_s: float = 0.0
    started_at_s: float | None = None
    lost_clients: int = 0
    last_weights: tuple[float, ...] = ()
    reason: str = ""

    @property
    def over(self) -> bool:
        """Whether it is finished and its last version is readable."""
        return self.status == "finished" and self.published == self.version

    @property
    def update_counts(self) -> tuple[int, ...]:
        """Versions that each tier has made so far, fastest tier first (`T_m`)."""
        return tuple(tier.update_count for tier in self.tiers)

    @property
    def parked(self) -> tuple[bool, ...]:
        """Which tiers have no round, because no live member is left to run one."""
        return tuple(self.status == "training" and not tier.rounds and not tier.idle for tier in self.tiers)

    @property
    def weights(self) -> tuple[float, ...]:
        """Share of each tier in the next global model; after the end, what it would have been."""
        if self.status == "finished":
            return self.last_weights
        absent = self._not_drawn if self.spec.rule.drawn else self.parked
        rule = self.spec.method.participation
        return tuple(tier_weights(self.update_counts, rule.cold_start, absent, rule.mixing).tolist())

    @property
    def _not_drawn(self) -> tuple[bool, ...]:
        """All tiers but the one that trains, or else was the last to."""
        if any(tier.rounds for tier in self.tiers):
            return tuple(not tier.rounds for tier in self.tiers)
        last = max(tier.model_version for tier in self.tiers)
        return tuple(tier.model_version < last for tier in self.tiers)

    @property
    def tier_accuracies(self) -> tuple[float | None, ...]:
        """Accuracy on the test splits of each tier's clients: an observer's, or else their own."""
        observed = (self.observed and self.observed.tier_accuracies) or (None,) * len(self.tiers)
        return tuple(
            seen if seen is not None else tier.correct / tier.tested if tier.tested else None
            for seen, tier in zip(observed, self.tiers, strict=True)
        )


def initial_state(spec: Spec) -> State:
    """A federation before its first event."""
    return State(
        spec=spec,
        status="awaiting-model" if spec.uploads_model else "waiting",
        tiers=tuple(Tier(m + 1, spec.first_cycle) for m in range(spec.num_tiers)),
    )


def client_of(state: State, name: str) -> Client:
    """Look a client up.

    Raises:
        NotFound: If nobody registered by that name.
    """
    client = state.clients.get(name)
    if client is None:
        raise NotFound(f"no client {name!r} in federation {state.spec.name!r}", "client")
    return client


def tier_of(state: State, number: int) -> Tier:
    """Look a tier up by its number, 1 the fastest.

    Raises:
        NotFound: If there is no such tier.
    """
    if not 1 <= number <= len(state.tiers):
        raise NotFound(f"no tier {number}; the federation has tiers 1..{len(state.tiers)}", "tier")
    return state.tiers[number - 1]


def ready_lease(state: State, name: str) -> Lease | None:
    """The work a client may start now: its lease, once the version it starts from is readable."""
    lease = client_of(state, name).lease
    return lease if lease is not None and lease.base_version <= state.published else None


def exchange_of(state: State, task: TaskId) -> Exchange:
    """What a task's client fetches, does and sends.

    Raises:
        Gone: If its round is over.
    """
    if task.is_profile:
        return state.spec.profile
    current = tier_of(state, task.tier).find(task.round)
    if current is None or task.sync >= len(current.plan):
        raise Gone(f"task {task} is over: ask for a new one", "task", current_version=state.published)
    return current.plan[task.sync]


def next_deadline_s(state: State) -> float | None:
    """When `DeadlinePassed` is due next; None if nothing waits."""
    if state.status == "finished":
        return None
    dues = [next_round(state, tier).deadline_s for tier in state.tiers if tier.rounds]
    if state.profiling.first is not None:
        dues.append(state.profiling.first[0])
    if state.started_at_s is not None and state.spec.stop.max_time_s is not None:
        dues.append(state.started_at_s + state.spec.stop.max_time_s)
    return min(dues, default=None)


def next_round(state: State, tier: Tier) -> Round:
    """The open round whose deadline is next; the tier must have one."""
    # Every sync begins a new wait; without them rounds end in the order they were opened.
    return min(tier.rounds, key=_deadline_s) if state.spec.has_syncs else tier.rounds[0]


def is_busy(state: State, client: Client) -> bool:
    """Whether a round holds a client, or its latency is being measured."""
    if client.lease is not None:
        return True
    done = client.done
    if done is None or done.is_profile:
        return False
    held = state.tiers[done.tier - 1].find(done.round)
    return held is not None and client.name in held.cohort


def since_start_s(state: State, at_s: float) -> float:
    """Seconds from the first task that could be given out to `at_s`."""
    return 0.0 if state.started_at_s is None else max(0.0, at_s - state.started_at_s)


def versions_in_use(state: State) -> frozenset[int]:
    """Versions somebody may ask for.

    What rounds that are open or make no version yet started from, profiling's, and all not yet superseded.
    """
    bases = {one.base_version for tier in state.tiers for one in (*tier.rounds, *tier.closed)}
    profiled = {0} if len(state.tiers) > 1 else set()
    return frozenset(bases | profiled | set(range(state.published, state.version + 1)))


def with_client(state: State, client: Client) -> State:
    """The state with one client's record replaced."""
    return replace(state, clients=state.clients.set(client.name, client))


def with_tier(state: State, tier: Tier) -> State:
    """The state with one tier replaced."""
    m = tier.number - 1
    return replace(state, tiers=(*state.tiers[:m], tier, *state.tiers[m + 1 :]))
