"""Rounds inside a tier: a cohort is drawn and reports; the round closes, or is abandoned and redone."""

import math
from collections.abc import Mapping
from dataclasses import replace

from fedat_service.errors import Conflict
from fedat_service.federation.drawing import credits_left, draw_cohort, look_again, tiers_with_room
from fedat_service.federation.effects import CloseSync, DropRound, Effect, Finish, MakeVersion, WakeClients
from fedat_service.federation.ordered import Ordered
from fedat_service.federation.state import Lease, Round, State, Tier, next_round, with_client, with_tier
from fedat_service.federation.tasks import TaskId
from fedat_service.schedules.cycle import Cycle

Step = tuple[State, tuple[Effect, ...]]

_NO_EFFECTS: tuple[Effect, ...] = ()


def finish(state: State, reason: str) -> Step:
    """End the federation: no round, no lease, no deadline."""
    state = replace(state, last_weights=state.weights)
    held = [name for tier in state.tiers for current in tier.rounds for name in current.cohort]
    clients = state.clients.mutate()
    for name in (*held, *(name for _, name in state.profiling)):
        clients[name] = replace(clients[name], lease=None)
    idle = tuple(replace(tier, rounds=(), closed=()) for tier in state.tiers)
    state = replace(state, status="finished", reason=reason, tiers=idle, clients=clients.finish())
    return replace(state, profiling=Ordered()), (Finish(reason),)


def open_rounds(state: State) -> Step:
    """Open rounds wherever the participation has room for one and somebody is idle."""
    effects = _NO_EFFECTS
    if state.status != "training":
        return state, effects
    for number in tiers_with_room(state):
        state, more = _open_round(state, state.tiers[number - 1])
        effects += more
    return state, effects


def _open_round(state: State, tier: Tier) -> Step:
    """Draw a cohort and lease each its task."""
    cohort = draw_cohort(state, tier)
    index = tier.rounds_opened + 1
    deadline_s = state.now_s + state.spec.rounds.deadline_s
    plan = state.spec.plan_of(tier.cycle, index)
    fresh = Round(index, state.version, cohort, len(cohort), deadline_s, plan)
    opened = replace(tier, rounds_opened=index, rounds=(*tier.rounds, fresh), idle=tier.idle.without(cohort))
    state = _lease(with_tier(state, opened), tier.number, fresh)
    # A cohort that starts from a version still being computed is woken when that is published.
    return state, (WakeClients(cohort),) if state.version == state.published else ()


def _lease(state: State, number: int, current: Round) -> State:
    """Give each of a round's cohort the task of the exchange that it is at."""
    clients = state.clients.mutate()
    for name in current.cohort:
        task = TaskId(number, current.index, current.sync, name)
        clients[name] = replace(clients[name], lease=Lease(task, current.base_version, current.deadline_s))
    return replace(state, clients=clients.finish())


def next_exchange(state: State, number: int, index: int) -> Step:
    """Go on with a round: what its cohort begins the next exchange with is there."""
    tier = state.tiers[number - 1]
    current = tier.find(index)
    if current is None or not current.closing:
        raise Conflict(f"round {index} of tier {number} does not wait for anything", "round")
    current = replace(
        current,
        sync=current.sync + 1,
        closing=False,
        reported=(),
        num_examples=0,
        deadline_s=state.now_s + state.spec.rounds.deadline_s,
    )
    state = _lease(with_tier(state, tier.with_round(current)), number, current)
    return state, (WakeClients(current.cohort),)


def plan_again(state: State, number: int, version: int, cycle: Cycle) -> State:
    """Have a tier's rounds follow another cycle, from those that begin with `version` on."""
    tier = state.tiers[number - 1]
    plan = state.spec.plan_of
    rounds = tuple(
        replace(one, plan=plan(cycle, one.index)) if one.base_version >= version else one
        for one in tier.rounds
    )
    return with_tier(state, replace(tier, cycle=cycle, rounds=rounds))


def report(state: State, task: TaskId, num_examples: int) -> Step:
    """Note that a cohort member's update is in; close the round if it was the last one."""
    tier = state.tiers[task.tier - 1]
    current = tier.find(task.round)
    if current is None:
        return state, ()
    reported = (*current.reported, task.client)
    noted = replace(current, reported=reported, num_examples=current.num_examples + num_examples)
    state = with_tier(state, tier.with_round(noted))
    return _close(state, tier.number, noted) if len(reported) == len(noted.cohort) else (state, ())


def expire_rounds(state: State, number: int) -> Step:
    """At a deadline: the missing are given up; with a quorum a round closes, else it is abandoned."""
    effects = _NO_EFFECTS
    while (tier := state.tiers[number - 1]).rounds and (
        current := next_round(state, tier)
    ).deadline_s <= state.now_s:
        missing = sorted(set(current.cohort).difference(current.reported))
        state = lose_clients(state, missing, f"missed the deadline of round {current.index} of tier {number}")
        if len(current.reported) >= state.spec.rounds.quorum * current.size:
            state, more = _close(state, number, current)
        else:
            state = _end_round(state, number, current)
            dropped = DropRound(number, current.index, len(current.reported), len(state.clients))
            more = (dropped,) if current.reported or current.sync else ()
        effects += more
    return state, effects


def _close(state: State, number: int, current: Round) -> Step:
    """An exchange is over: the round is, or its cohort goes on with the means."""
    if current.is_last:
        return _close_round(state, number, current)
    closing = replace(current, closing=True, cohort=current.reported, deadline_s=math.inf)
    state = with_tier(state, state.tiers[number - 1].with_round(closing))
    num_updates, num_clients = len(current.reported), len(state.clients)
    closed = CloseSync(number, current.index, current.sync, current.base_version, num_updates, num_clients)
    return state, (closed,)


def _close_round(state: State, number: int, current: Round) -> Step:
    """Count a round in; a version is made of as many as the participation gathers."""
    state = _end_round(state, number, current)
    tier = state.tiers[number - 1]
    closed = (*tier.closed, current)
    if len(closed) < state.spec.rule.buffer_size:
        return with_tier(state, replace(tier, closed=closed)), ()
    return _make_version(state, replace(tier, closed=()), closed)


def _end_round(state: State, number: int, current: Round) -> State:
    """Take an open round away; who reported is idle again, each in the tier that it is in by now."""
    state = with_tier(state, state.tiers[number - 1].without_round(current.index))
    idle: dict[int, list[str]] = {}
    for name in current.reported:
        tier = state.clients[name].tier
        if tier is not None:
            idle.setdefault(tier, []).append(name)
    return make_idle(state, idle)


def _make_version(state: State, tier: Tier, closed: tuple[Round, ...]) -> Step:
    """Count it (`T_m += 1`, `t += 1`), and have it mixed with these counts."""
    version = state.version + 1
    blend = state.spec.rule.blend(state.version, [one.base_version for one in closed])
    counted = replace(
        tier, update_count=tier.update_count + 1, model_version=version, updated_at_s=state.now_s
    )
    state = look_again(with_tier(replace(state, version=version), counted))
    made = MakeVersion(
        version=version,
        tier=tier.number,
        weights=state.weights,
        update_counts=state.update_counts,
        num_updates=sum(len(one.reported) for one in closed),
        num_examples=sum(one.num_examples for one in closed),
        num_clients=len(state.clients),
        rounds=tuple(one.index for one in closed),
        cycle=tier.cycle,
        blend=blend,
    )
    left = credits_left(state)
    if version == state.spec.stop.max_versions:
        state, effects = finish(state, f"reached version {version}")
    elif left is not None and not any(left):
        state, effects = finish(state, "no tier has credits left")
    else:
        effects = _NO_EFFECTS
    return state, (made, *effects)


def make_idle(state: State, names: Mapping[int, list[str]]) -> State:
    """Let tiers draw these of their members."""
    for number, joined in names.items():
        tier = state.tiers[number - 1]
        state = with_tier(state, replace(tier, idle=tier.idle.with_items(joined)))
    return state


def lose_clients(state: State, names: list[str], reason: str) -> State:
    """Give clients up until they ask again: their leases end, and no tier draws them."""
    for name in names:
        client = state.clients[name]
        latency_s = client.latency_s
        if latency_s is not None:
            # It took at least this long: an estimate that never rises would keep it in a tier it slows down.
            latency_s = max(latency_s, state.spec.rounds.deadline_s)
        state = with_client(state, replace(client, lost=True, lease=None, reason=reason, latency_s=latency_s))
    return replace(state, lost_clients=state.lost_clients + len(names))
