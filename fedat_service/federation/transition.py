"""The fold: `transition(state, event) -> (state, effects)`, without I/O, clock or hidden randomness.

An event that is not allowed in a state raises, and the state stays what it was.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile
from typing import Any

from fedat_service.errors import Conflict, Gone, NotFound, Unprocessable
from fedat_service.federation.effects import AddUpdate, WakeClients
from fedat_service.federation.events import (
    ClientEvaluated,
    ClientRegistered,
    ClientReturned,
    DeadlinePassed,
    Event,
    ModelUploaded,
    Stopped,
    SyncClosed,
    TaskDelivered,
    UpdateAccepted,
    VersionEvaluated,
    VersionPublished,
)
from fedat_service.federation.membership import (
    come_back,
    expire_profiling,
    is_time_to_move,
    move_clients,
    profiled,
    register,
    start_if_ready,
    tell,
)
from fedat_service.federation.rounds import (
    Step,
    expire_rounds,
    finish,
    next_exchange,
    open_rounds,
    plan_again,
    report,
)
from fedat_service.federation.state import Lease, State, client_of, tier_of, with_client
from fedat_service.federation.tasks import TaskId
from fedat_service.schedules.cycle import Cycle
from fedat_service.tiering import smoothed_latency


def transition(state: State, event: Event) -> Step:
    """Apply one event.

    Returns:
        The next state, and what must be done because of it, in order.

    Raises:
        RequestError: If the event is not allowed now; which kind says why.
    """
    if state.status == "finished":
        if not isinstance(event, VersionPublished | VersionEvaluated):
            raise Gone(f"federation {state.spec.name!r} is finished: {state.reason}")
        return _HANDLERS[type(event)](state, event)
    # The log's order is the truth; a clock that steps back must not make a deadline come twice.
    state = replace(state, now_s=max(state.now_s, event.at_s))
    return _HANDLERS[type(event)](state, event)


def due_lease(state: State, task: TaskId, digest: str) -> Lease | None:
    """The lease that an update answers; None if the very same bytes were counted before.

    Raises:
        NotFound: If the task was never given out.
        Conflict: If other bytes were counted for it.
        Gone: If its lease is over.
    """
    client = client_of(state, task.client)
    if client.done == task:
        if client.done_digest == digest:
            return None
        raise Conflict(f"task {task} was answered with other bytes before", "task")
    given = client.profiles if task.is_profile else tier_of(state, task.tier).rounds_opened
    if task.round > given:
        raise NotFound(f"no task {task}", "task")
    lease = held_lease(state, task)
    if lease.delivered_at_s is None:
        raise NotFound(f"task {task} was not fetched yet", "task")
    return lease


def held_lease(state: State, task: TaskId) -> Lease:
    """The lease of a task, if it is still held.

    Raises:
        NotFound: If nobody registered by that name.
        Gone: If its lease is over.
    """
    lease = client_of(state, task.client).lease
    if lease is None or lease.task != task:
        raise Gone(f"task {task} is over: ask for a new one", "task", current_version=state.published)
    return lease


def _on_model(state: State, event: ModelUploaded) -> Step:
    if state.status != "awaiting-model":
        raise Conflict("the initial model is there already", "model")
    return start_if_ready(replace(state, status="waiting", model_digest=event.digest))


def _on_registered(state: State, event: ClientRegistered) -> Step:
    return register(state, event.client, event.num_examples)


def _on_delivered(state: State, event: TaskDelivered) -> Step:
    lease = held_lease(state, TaskId.parse(event.task))
    if lease.delivered_at_s is not None:
        raise Conflict(f"task {event.task} was fetched before", "task")
    client = client_of(state, lease.task.client)
    return with_client(state, replace(client, lease=replace(lease, delivered_at_s=state.now_s))), ()


def _on_update(state: State, event: UpdateAccepted) -> Step:
    task = TaskId.parse(event.task)
    lease = due_lease(state, task, event.digest)
    if lease is None or lease.delivered_at_s is None:
        raise Conflict(f"task {task} is counted already", "task")
    client = client_of(state, task.client)
    if event.num_examples > client.num_examples:
        raise Unprocessable(
            f"num_examples is {event.num_examples}, but {client.name!r} registered {client.num_examples}",
            "num_examples",
        )
    latency_s = smoothed_latency(client.latency_s, state.now_s - lease.delivered_at_s)
    client = replace(client, latency_s=latency_s, lease=None, done=task, done_digest=event.digest)
    state = with_client(state, client)
    if task.is_profile:
        return profiled(state, lease, latency_s)
    weight = state.spec.rule.weight(event.num_examples, state.version - lease.base_version)
    current = state.tiers[task.tier - 1].find(task.round)
    added = AddUpdate(task.tier, weight, task.round, is_last=current is None or current.is_last)
    state, effects = _after_report(state, task, event.num_examples)
    return state, (added, *effects)


def _after_report(state: State, task: TaskId, num_examples: int) -> Step:
    """Close the round if this was its last update; then there may be room for others."""
    version = state.version
    state, effects = report(state, task, num_examples)
    if state.version > version and is_time_to_move(state):
        state, more = move_clients(state)
        effects += more
    state, opened = open_rounds(state)
    return state, effects + opened


def _on_returned(state: State, event: ClientReturned) -> Step:
    return come_back(state, event.client) if client_of(state, event.client).lost else (state, ())


def _on_deadline(state: State, event: DeadlinePassed) -> Step:
    stop, started = state.spec.stop, state.started_at_s
    if started is not None and stop.max_time_s is not None and state.now_s >= started + stop.max_time_s:
        return finish(state, f"{stop.max_time_s:g} s have passed")
    state, effects = expire_profiling(state)
    for number in range(1, len(state.tiers) + 1):
        state, more = expire_rounds(state, number)
        effects += more
    state, opened = open_rounds(state)
    return state, effects + opened


def _on_published(state: State, event: VersionPublished) -> Step:
    if event.version != state.published + 1 or event.version > state.version:
        raise Conflict(f"version {event.version} cannot follow version {state.published}", "version")
    # Rounds stand in the order of their base versions: those that waited for this one are among the last.
    waiting = [
        one.cohort
        for tier in state.tiers
        for one in takewhile(lambda one: one.base_version >= event.version, reversed(tier.rounds))
        if one.base_version == event.version
    ]
    if event.intervals:
        cycle = tier_of(state, event.tier).cycle
        if len(event.intervals) != len(cycle.intervals):
            raise Conflict(f"{len(cycle.intervals)} tensors travel, not {len(event.intervals)}", "intervals")
        changed = Cycle(cycle.length, dict(zip(cycle.intervals, event.intervals, strict=True)))
        state = plan_again(state, event.tier, event.version, changed)
    return replace(state, published=event.version), tuple(WakeClients(cohort) for cohort in waiting)


def _on_sync_closed(state: State, event: SyncClosed) -> Step:
    return next_exchange(state, event.tier, event.round)


def _on_client_evaluated(state: State, event: ClientEvaluated) -> Step:
    task = TaskId.parse(event.task)
    client = client_of(state, task.client)
    if client.evaluation is not None and client.evaluation.task == event.task:
        raise Conflict(f"task {task} was evaluated with other numbers", "task")
    if client.done != task:
        held_lease(state, task)
    if client.evaluation is not None:
        state = tell(state, client.tier, client.evaluation, -1)
    state = tell(state, client.tier, event, 1)
    return with_client(state, replace(client, evaluation=event)), ()


def _on_version_evaluated(state: State, event: VersionEvaluated) -> Step:
    if event.version > state.published:
        raise NotFound(f"no version {event.version}; the newest is {state.published}", "version")
    if event.version in state.evaluated:
        raise Conflict(f"version {event.version} was evaluated with other numbers", "version")
    if len(event.tier_accuracies) not in (0, len(state.tiers)):
        raise Unprocessable(
            f"{len(state.tiers)} tiers have as many accuracies, got {len(event.tier_accuracies)}",
            "tier_accuracies",
        )
    newest = event if state.observed is None or event.version > state.observed.version else state.observed
    state = replace(state, evaluated=state.evaluated.set(event.version, event), observed=newest)
    target = state.spec.stop.target_accuracy
    if target is not None and event.accuracy >= target and state.status != "finished":
        return finish(state, f"version {event.version} reached accuracy {event.accuracy:.4f}")
    return state, ()


def _on_stopped(state: State, event: Stopped) -> Step:
    return finish(state, event.reason)


_HANDLERS: dict[type[Event], Callable[[State, Any], Step]] = {
    ModelUploaded: _on_model,
    ClientRegistered: _on_registered,
    TaskDelivered: _on_delivered,
    UpdateAccepted: _on_update,
    ClientReturned: _on_returned,
    DeadlinePassed: _on_deadline,
    SyncClosed: _on_sync_closed,
    VersionPublished: _on_published,
    ClientEvaluated: _on_client_evaluated,
    VersionEvaluated: _on_version_evaluated,
    Stopped: _on_stopped,
}
