"""The state of a federation: frozen values, cheap to copy, and the questions one may ask of them."""

from dataclasses import dataclass, field, replace
from typing import Literal

from immutables import Map

from fedat_service.errors import NotFound
from fedat_service.federation.events import ClientEvaluated, VersionEvaluated
from fedat_service.federation.spec import Spec
from fedat_service.federation.tasks import TaskId

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
    """A synchronous round inside a tier: a fixed cohort, trained from `base_version`."""

    index: int
    base_version: int
    cohort: tuple[str, ...]
    deadline_s: float
    reported: tuple[str, ...] = ()
    num_examples: int = 0


@dataclass(frozen=True, slots=True)
class Tier:
    """One tier: its live members by name, its counter `T_m`, and the round it is in (none: parked)."""

    number: int
    live: tuple[str, ...] = ()
    update_count: int = 0
    rounds_opened: int = 0
    model_version: int = 0
    updated_at_s: float | None = None
    round: Round | None = None


@dataclass(frozen=True, slots=True)
class State:
    """Everything a federation is, but its arrays.

    `version` is decided, `published` is computed and readable; they differ for the moment in between.
    `profiling` holds the clients whose latency is not known yet, with the end of their leases; none of them
    ends before `profile_deadline_s`. `evaluated` holds what observers reported, by version.
    """

    spec: Spec
    status: Status
    tiers: tuple[Tier, ...]
    clients: Map[str, Client] = field(default_factory=Map)
    profiling: Map[str, float] = field(default_factory=Map)
    profile_deadline_s: float | None = None
    borders: tuple[float, ...] = ()
    model_digest: str = ""
    evaluated: Map[int, VersionEvaluated] = field(default_factory=Map)
    version: int = 0
    published: int = 0
    now_s: float = 0.0
    started_at_s: float | None = None
    lost_clients: int = 0
    reason: str = ""

    @property
    def over(self) -> bool:
        """Whether it is finished and its last version is readable."""
        return self.status == "finished" and self.published == self.version

    @property
    def update_counts(self) -> tuple[int, ...]:
        """Tier rounds counted so far, fastest tier first (`T_m`)."""
        return tuple(tier.update_count for tier in self.tiers)

    @property
    def parked(self) -> tuple[bool, ...]:
        """Which tiers have no round, because no live member is left to run one."""
        return tuple(self.status == "training" and tier.round is None for tier in self.tiers)

    @property
    def weights(self) -> tuple[float, ...]:
        """Share of each tier in the next global model."""
        cold_start = self.spec.method.participation.cold_start
        return tuple(self.spec.rule.weights(self.update_counts, cold_start, self.parked).tolist())


def initial_state(spec: Spec) -> State:
    """A federation before its first event."""
    return State(
        spec=spec,
        status="awaiting-model" if spec.uploads_model else "waiting",
        tiers=tuple(Tier(m + 1) for m in range(spec.num_tiers)),
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


def next_deadline_s(state: State) -> float | None:
    """When `DeadlinePassed` is due next; None if nothing waits."""
    if state.status == "finished":
        return None
    dues = [tier.round.deadline_s for tier in state.tiers if tier.round is not None]
    if state.profile_deadline_s is not None:
        dues.append(state.profile_deadline_s)
    if state.started_at_s is not None and state.spec.stop.max_time_s is not None:
        dues.append(state.started_at_s + state.spec.stop.max_time_s)
    return min(dues, default=None)


def since_start_s(state: State, at_s: float) -> float:
    """Seconds from the first task that could be given out to `at_s`."""
    return 0.0 if state.started_at_s is None else max(0.0, at_s - state.started_at_s)


def versions_in_use(state: State) -> frozenset[int]:
    """Versions somebody may ask for.

    What open rounds started from, what profiling uses, and everything from the newest published one on.
    """
    bases = {tier.round.base_version for tier in state.tiers if tier.round is not None}
    profiled = {0} if len(state.tiers) > 1 else set()
    return frozenset(bases | profiled | set(range(state.published, state.version + 1)))


def with_client(state: State, client: Client) -> State:
    """The state with one client's record replaced."""
    return replace(state, clients=state.clients.set(client.name, client))


def with_tier(state: State, tier: Tier) -> State:
    """The state with one tier replaced."""
    m = tier.number - 1
    return replace(state, tiers=(*state.tiers[:m], tier, *state.tiers[m + 1 :]))
