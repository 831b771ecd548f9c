"""Who is in which tier: registering, profiling, forming tiers, coming back, moving."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile

from fedat_service.federation.effects import WakeClients
from fedat_service.federation.events import ClientEvaluated
from fedat_service.federation.rounds import Step, lose_clients, make_idle, open_rounds
from fedat_service.federation.state import Client, Lease, State, Status, is_busy, with_client, with_tier
from fedat_service.federation.tasks import PROFILE_TIER, TaskId
from fedat_service.tiering import (
    assign_by_quantiles,
    assign_tiers,
    equal_borders,
    place,
    quantile_borders,
    retier,
)

_MOST_DOUBLINGS = 6
"""A client that never ends its profiling task keeps the start waiting for no more than this allows."""


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
    """Lease each client a task that returns nothing: it measures the time to fetch and train.

    Whoever missed the deadline gets twice the time: else clients that all are slower would try for ever.
    """
    clients = state.clients.mutate()
    leases = []
    for name in names:
        client = clients[name]
        patience = 2 ** min(client.profiles, _MOST_DOUBLINGS)
        deadline_s = state.now_s + patience * state.spec.rounds.deadline_s
        leases.append((deadline_s, name))
        task = TaskId(PROFILE_TIER, client.profiles + 1, 0, name)
        # Latency does not depend on the values: every profile task starts from the same kept version.
        lease = Lease(task, 0, deadline_s)
        clients[name] = replace(client, lease=lease, profiles=client.profiles + 1, reason="being profiled")
    profiling = state.profiling.with_items(leases)
    return replace(state, clients=clients.finish(), profiling=profiling), (WakeClients(names),)


def come_back(state: State, name: str) -> Step:
    """Take a lost client up again: into its tier, or to be profiled if it never had one."""
    client = replace(state.clients[name], lost=False, reason="came back")
    state = with_client(replace(state, lost_clients=state.lost_clients - 1), client)
    if client.tier is None:
        return _join(state, (name,))
    return enrol(state, {name: client.tier}, "came back")


def profiled(state: State, lease: Lease, latency_s: float) -> Step:
    """A profile task is done: place a late-comer, or form the tiers if it was the last one."""
    name = lease.task.client
    state = replace(state, profiling=state.profiling.without([(lease.deadline_s, name)]))
    if state.status == "training":
        tier = min(place(latency_s, state.borders), len(state.tiers))
        state, effects = enrol(
            replace(state, joined=state.joined + 1), {name: tier}, f"latency {latency_s:.3g} s"
        )
        if state.joined < state.formed_of:
            return state, effects
        # Borders of few clients say little: else tiers that began with few would stay unequal for good.
        state, more = _form_tiers(state)
        return state, effects + more
    return (state, ()) if state.profiling else _form_tiers(state)


def expire_profiling(state: State) -> Step:
    """At a profiling deadline: whose lease is over is given up; if nobody is left, the others start."""
    over = list(takewhile(lambda lease: lease[0] <= state.now_s, state.profiling))
    if not over:
        return state, ()
    state = replace(state, profiling=state.profiling.without(over))
    state = lose_clients(state, [name for _, name in over], "missed the profiling deadline")
    ready = state.status == "profiling" and not state.profiling
    return _form_tiers(state) if ready else (state, ())


def _form_tiers(state: State) -> Step:
    """Group the profiled clients, and train; with nobody profiled, wait for somebody to come back."""
    latencies = _latencies(state)
    if not latencies:
        return state, ()
    tiering = state.spec.tiering
    if tiering.rule == "equal":
        assigned = assign_tiers(latencies, tiering.num_tiers)
    else:
        assigned = assign_by_quantiles(latencies, tiering.quantiles)
    formed = "first tiering" if state.status == "profiling" else "tiers formed anew"
    state = replace(
        state, status="training", borders=_borders(state, latencies), formed_of=len(latencies), joined=0
    )
    return _regroup(state, assigned, f"{formed} of {len(latencies)} clients")


def _regroup(state: State, target: Mapping[str, int], reason: str) -> Step:
    """Move whoever belongs to another tier.

    A held lease keeps its tier: the update lands in the round it was drawn for.
    """
    moving = {name: number for name, number in target.items() if state.clients[name].tier != number}
    for tier in state.tiers:
        gone = [name for name in moving if state.clients[name].tier == tier.number]
        state = with_tier(state, replace(tier, idle=tier.idle.without(gone)))
    return enrol(state, moving, reason)


def enrol(state: State, tiers: Mapping[str, int], reason: str) -> Step:
    """Put clients into tiers, and open rounds wherever that makes room for one."""
    clients = state.clients.mutate()
    idle: dict[int, list[str]] = {}
    for name, number in tiers.items():
        client = state.clients[name]
        clients[name] = replace(client, tier=number, reason=reason)
        if not is_busy(state, client):
            idle.setdefault(number, []).append(name)
        if client.evaluation is not None and client.tier != number:
            state = tell(state, client.tier, client.evaluation, -1)
            state = tell(state, number, client.evaluation, 1)
    return open_rounds(make_idle(replace(state, clients=clients.finish()), idle))


def move_clients(state: State) -> Step:
    """Look at the latencies again; who has passed a border by the margin changes tier."""
    latencies = _latencies(state)
    borders = _borders(state, latencies)
    current = {name: number for name in latencies if (number := state.clients[name].tier) is not None}
    target = retier(latencies, current, borders, state.spec.tiering.hysteresis)
    return _regroup(replace(state, borders=borders), target, "moved: its latency passed a border")


def tell(state: State, number: int | None, evaluation: ClientEvaluated, times: int) -> State:
    """Count a client's own evaluation for its tier; -1 times if it is not true of the tier any more."""
    if number is None:
        return state
    tier = state.tiers[number - 1]
    tested = tier.tested + times * evaluation.num_examples
    return with_tier(state, replace(tier, tested=tested, correct=tier.correct + times * evaluation.correct))


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
