"""Who is in which tier: registering, profiling, forming tiers, coming back, moving."""

from dataclasses import replace

from immutables import Map

from fedat_service.federation.effects import WakeClients
from fedat_service.federation.rounds import Step, lose_clients, open_rounds
from fedat_service.federation.state import Client, Lease, State, Status, with_client, with_tier
from fedat_service.federation.tasks import PROFILE_TIER, TaskId
from fedat_service.tiering import (
    assign_by_quantiles,
    assign_tiers,
    equal_borders,
    place,
    quantile_borders,
    retier,
)


def register(state: State, name: str, num_examples: int) -> Step:
    """Take a client in; with `start_clients` of them the federation starts."""
    known = state.clients.get(name)
    if known is not None:
        state = with_client(state, replace(known, num_examples=num_examples))
        return come_back(state, name) if known.lost else (state, ())
    state = with_client(state, Client(name, num_examples))
    if state.status in ("profiling", "training"):
        return _join(state, (name,))
    return start_if_ready(state)


def start_if_ready(state: State) -> Step:
    """Begin once the initial model is there and `start_clients` have registered."""
    if state.status != "waiting" or len(state.clients) < state.spec.rounds.start_clients:
        return state, ()
    status: Status = "training" if len(state.tiers) == 1 else "profiling"
    state = replace(state, status=status, started_at_s=state.now_s)
    return _join(state, tuple(sorted(state.clients)))


def _join(state: State, names: tuple[str, ...]) -> Step:
    """One tier takes everybody; several need to know first how fast a client is."""
    if len(state.tiers) == 1:
        return enrol(state, dict.fromkeys(names, 1), "the only tier")
    return _profile(state, names)


def _profile(state: State, names: tuple[str, ...]) -> Step:
    """Lease each client a task that returns nothing: it measures the time to fetch and train."""
    deadline_s = state.now_s + state.spec.rounds.deadline_s
    clients, profiling = state.clients.mutate(), state.profiling.mutate()
    for name in names:
        client = clients[name]
        task = TaskId(PROFILE_TIER, client.profiles + 1, 0, name)
        # Latency does not depend on the values: every profile task starts from the same kept version.
        lease = Lease(task, 0, deadline_s)
        clients[name] = replace(client, lease=lease, profiles=client.profiles + 1, reason="being profiled")
        profiling[name] = deadline_s
    # Leases end in the order they were given, so the earliest end only moves when it is reached.
    earliest_s = deadline_s if state.profile_deadline_s is None else state.profile_deadline_s
    state = replace(state, clients=clients.finish(), profiling=profiling.finish())
    return replace(state, profile_deadline_s=earliest_s), (WakeClients(names),)


def come_back(state: State, name: str) -> Step:
    """Take a lost client up again: into its tier, or to be profiled if it never had one."""
    client = replace(state.clients[name], lost=False, reason="came back")
    state = with_client(replace(state, lost_clients=state.lost_clients - 1), client)
    if client.tier is None:
        return _join(state, (name,))
    return enrol(state, {name: client.tier}, "came back")


def profiled(state: State, name: str, latency_s: float) -> Step:
    """A profile task is done: place a late-comer, or form the tiers if it was the last one."""
    state = _without_profiling(state, [name])
    if state.status == "training":
        tier = min(place(latency_s, state.borders), len(state.tiers))
        return enrol(state, {name: tier}, f"latency {latency_s:.3g} s")
    return _form_tiers(state) if not state.profiling else (state, ())


def expire_profiling(state: State) -> Step:
    """At a profiling deadline: whose lease is over is given up; if nobody is left, the others start."""
    names = sorted(name for name, end_s in state.profiling.items() if end_s <= state.now_s)
    state = lose_clients(_without_profiling(state, names), names, "missed the profiling deadline")
    state = replace(state, profile_deadline_s=min(state.profiling.values(), default=None))
    ready = state.status == "profiling" and not state.profiling
    return _form_tiers(state) if ready else (state, ())


def _without_profiling(state: State, names: list[str]) -> State:
    profiling = state.profiling.mutate()
    for name in names:
        del profiling[name]
    left: Map[str, float] = profiling.finish()
    return replace(state, profiling=left, profile_deadline_s=state.profile_deadline_s if left else None)


def _form_tiers(state: State) -> Step:
    """Group the profiled clients and start training; with nobody profiled, wait for somebody to come back."""
    latencies = _latencies(state)
    if not latencies:
        return state, ()
    tiering = state.spec.tiering
    if tiering.rule == "equal":
        assigned = assign_tiers(latencies, tiering.num_tiers)
    else:
        assigned = assign_by_quantiles(latencies, tiering.quantiles)
    state = replace(state, status="training", borders=_borders(state, latencies))
    return enrol(state, assigned, f"first tiering of {len(latencies)} clients")


def enrol(state: State, tiers: dict[str, int], reason: str) -> Step:
    """Put clients into tiers, and open a round wherever there was nobody to train before."""
    clients = state.clients.mutate()
    moved: dict[int, set[str]] = {tier.number: set() for tier in state.tiers}
    for name, number in tiers.items():
        clients[name] = replace(clients[name], tier=number, reason=reason)
        moved[number].add(name)
    state = replace(state, clients=clients.finish())
    for tier in state.tiers:
        if joined := moved[tier.number]:
            # Two sorted runs: sorting them is one merge.
            live = sorted((*tier.live, *sorted(joined.difference(tier.live))))
            state = with_tier(state, replace(tier, live=tuple(live)))
    return open_rounds(state)


def move_clients(state: State) -> Step:
    """Look at the latencies again; who has passed a border by the margin changes tier.

    A held lease keeps its tier: the update lands in the round it was drawn for.
    """
    latencies = _latencies(state)
    borders = _borders(state, latencies)
    current = {name: number for name in latencies if (number := state.clients[name].tier) is not None}
    target = retier(latencies, current, borders, state.spec.tiering.hysteresis)
    moving = {name: number for name, number in target.items() if number != current.get(name, number)}
    state = replace(state, borders=borders)
    for tier in state.tiers:
        live = tuple(name for name in tier.live if name not in moving)
        state = with_tier(state, replace(tier, live=live))
    state, effects = enrol(state, moving, "moved: its latency passed a border")
    return state, effects


def _latencies(state: State) -> dict[str, float]:
    return {
        name: client.latency_s
        for name, client in state.clients.items()
        if client.latency_s is not None and not client.lost
    }


def _borders(state: State, latencies: dict[str, float]) -> tuple[float, ...]:
    tiering = state.spec.tiering
    if tiering.rule == "equal":
        return equal_borders(latencies, tiering.num_tiers)
    return quantile_borders(latencies, tiering.quantiles)


def is_time_to_move(state: State) -> bool:
    """Whether the tier round that just closed was the `retier_every`-th since the last look."""
    every = state.spec.tiering.retier_every
    return len(state.tiers) > 1 and every > 0 and state.version % every == 0 and state.status == "training"
