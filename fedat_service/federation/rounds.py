"""Rounds inside a tier: a cohort is drawn and reports; the round closes, or is abandoned and redone."""

from dataclasses import replace

import numpy as np
from immutables import Map

from fedat_service.federation.effects import DropRound, Effect, Finish, MakeVersion, WakeClients
from fedat_service.federation.state import Lease, Round, State, Tier, with_client, with_tier
from fedat_service.federation.tasks import TaskId

Step = tuple[State, tuple[Effect, ...]]

_COHORT_STREAM = 1
"""Purpose number of the generator that draws cohorts: no two purposes share random numbers."""


def finish(state: State, reason: str) -> Step:
    """End the federation: no round, no lease, no deadline."""
    held = [name for tier in state.tiers if tier.round for name in tier.round.cohort]
    clients = state.clients.mutate()
    for name in (*held, *state.profiling):
        clients[name] = replace(clients[name], lease=None)
    idle = tuple(replace(tier, round=None) for tier in state.tiers)
    state = replace(state, status="finished", reason=reason, tiers=idle, clients=clients.finish())
    return replace(state, profiling=Map(), profile_deadline_s=None), (Finish(reason),)


def open_rounds(state: State) -> Step:
    """Open a round in every tier that has none and has somebody to train."""
    effects: tuple[Effect, ...] = ()
    if state.status != "training":
        return state, effects
    for tier in state.tiers:
        if tier.round is None and tier.live:
            state, more = open_round(state, tier.number)
            effects += more
    return state, effects


def open_round(state: State, number: int) -> Step:
    """Draw a cohort of live members and lease each its task; without any the tier is parked."""
    tier = state.tiers[number - 1]
    cohort = _draw_cohort(state, tier)
    index = tier.rounds_opened + 1
    if not cohort:
        return with_tier(state, replace(tier, round=None)), ()
    deadline_s = state.now_s + state.spec.rounds.deadline_s
    clients = state.clients.mutate()
    for name in cohort:
        lease = Lease(TaskId(number, index, 0, name), state.version, deadline_s)
        clients[name] = replace(clients[name], lease=lease)
    opened = replace(tier, rounds_opened=index, round=Round(index, state.version, cohort, deadline_s))
    state = with_tier(replace(state, clients=clients.finish()), opened)
    # A cohort that starts from a version still being computed is woken when that is published.
    return state, (WakeClients(cohort),) if state.version == state.published else ()


def _draw_cohort(state: State, tier: Tier) -> tuple[str, ...]:
    """A uniform sample without replacement, by a generator of its own: order of arrival plays no part."""
    rng = np.random.default_rng((state.spec.seed, _COHORT_STREAM, tier.number, tier.rounds_opened + 1))
    size = min(state.spec.rounds.cohort_size, len(tier.live))
    drawn = [tier.live[i] for i in rng.choice(len(tier.live), size, replace=False)] if size else []
    free = [name for name in drawn if state.clients[name].lease is None]
    if len(free) < size:
        # Somebody still works for the tier it was in before re-tiering: draw among the others only.
        others = [name for name in tier.live if state.clients[name].lease is None]
        size = min(size, len(others))
        free = [others[i] for i in rng.choice(len(others), size, replace=False)] if size else []
    return tuple(sorted(free))


def report(state: State, task: TaskId, num_examples: int) -> Step:
    """Note that a cohort member's update is in; close the round if it was the last one."""
    tier = state.tiers[task.tier - 1]
    current = tier.round
    if current is None:
        return state, ()
    reported = (*current.reported, task.client)
    noted = replace(current, reported=reported, num_examples=current.num_examples + num_examples)
    state = with_tier(state, replace(tier, round=noted))
    return close_round(state, tier.number) if len(reported) == len(current.cohort) else (state, ())


def expire_round(state: State, number: int) -> Step:
    """At the deadline: the missing are given up; with a quorum the round closes, else it is redone."""
    tier = state.tiers[number - 1]
    current = tier.round
    if current is None:
        return state, ()
    missing = sorted(set(current.cohort).difference(current.reported))
    state = lose_clients(state, missing, f"missed the deadline of round {current.index} of tier {number}")
    if len(current.reported) >= state.spec.rounds.quorum * len(current.cohort):
        return close_round(state, number)
    state, effects = open_round(with_tier(state, replace(state.tiers[number - 1], round=None)), number)
    return state, (DropRound(number), *effects)


def close_round(state: State, number: int) -> Step:
    """Count the round (`T_m += 1`, `t += 1`), have a version mixed with these counts, open the next."""
    tier = state.tiers[number - 1]
    current = tier.round
    if current is None:
        return state, ()
    version = state.version + 1
    counted = replace(
        tier, update_count=tier.update_count + 1, model_version=version, updated_at_s=state.now_s
    )
    state = with_tier(replace(state, version=version), counted)
    made = MakeVersion(
        version=version,
        tier=number,
        weights=state.weights,
        update_counts=state.update_counts,
        num_updates=len(current.reported),
        num_examples=current.num_examples,
    )
    if version == state.spec.stop.max_versions:
        state, effects = finish(state, f"reached version {version}")
    else:
        state, effects = open_round(with_tier(state, replace(counted, round=None)), number)
    return state, (made, *effects)


def lose_clients(state: State, names: list[str], reason: str) -> State:
    """Give clients up until they ask again: their leases end and their tiers sample without them."""
    for name in names:
        client = state.clients[name]
        latency_s = client.latency_s
        if latency_s is not None:
            # It took at least this long: an estimate that never rises would keep it in a tier it slows down.
            latency_s = max(latency_s, state.spec.rounds.deadline_s)
        state = with_client(state, replace(client, lost=True, lease=None, reason=reason, latency_s=latency_s))
    gone = set(names)
    for tier in state.tiers:
        live = tuple(name for name in tier.live if name not in gone)
        if len(live) < len(tier.live):
            state = with_tier(state, replace(tier, live=live))
    return replace(state, lost_clients=state.lost_clients + len(names))
