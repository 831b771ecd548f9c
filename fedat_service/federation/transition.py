"""The fold: `transition(state, event) -> (state, effects)`, without I/O, clock or hidden randomness.

An event that is not allowed in a state raises, and the state stays what it was.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fedat_service.aggregation.mean import update_weight
from fedat_service.errors import Conflict, Gone, NotFound, Unprocessable
from fedat_service.federation.effects import AddUpdate, Effect, WakeClients
from fedat_service.federation.events import (
    ClientEvaluated,
    ClientRegistered,
    ClientReturned,
    DeadlinePassed,
    Event,
    ModelUploaded,
    Stopped,
    TaskDelivered,
    UpdateAccepted,
    VersionEvaluated,
    VersionPublished,
)
from fedat_service.federation.membership import (
    come_back,
    expire_profiling,
    is_time_to_move,
    measure,
    move_clients,
    profiled,
    register,
    start_if_ready,
)
from fedat_service.federation.rounds import Step, expire_round, finish, report
from fedat_service.federation.state import Client, State, client_of, tier_of, with_client
from fedat_service.federation.tasks import TaskId


def transition(state: State, event: Event) -> Step:
    """Apply one event.

    Returns:
        The next state, and what must be done because of it, in order.

    Raises:
        RequestError: If the event is not allowed now; which kind says why.
    """
    if state.status == "finished" and not isinstance(event, VersionPublished | VersionEvaluated):
        raise Gone(
            f"federation {state.spec.name!r} is finished: {state.reason}", current_version=state.version
        )
    # The log's order is the truth; a clock that steps back must not make a deadline come twice.
    state = replace(state, now_s=max(state.now_s, event.at_s))
    return _HANDLERS[type(event)](state, event)


def check_update(state: State, task: TaskId, digest: str) -> bool:
    """Whether an update for `task` may be counted; False if the very same bytes were counted before.

    Raises:
        NotFound: If the task was never given out.
        Conflict: If other bytes were counted for it.
        Gone: If its lease is over.
    """
    client = client_of(state, task.client)
    if client.done == task:
        if client.done_digest == digest:
            return False
        raise Conflict(f"task {task} was answered with other bytes before", "task")
    if not task.is_profile and task.round > tier_of(state, task.tier).rounds_opened:
        raise NotFound(f"no task {task}", "task")
    if task.is_profile and task.round > client.profiles:
        raise NotFound(f"no task {task}", "task")
    if client.lease is None or client.lease.task != task:
        raise Gone(f"task {task} is over: ask for a new one", "task", current_version=state.published)
    return True


def _on_model(state: State, event: ModelUploaded) -> Step:
    if state.status != "awaiting-model":
        raise Conflict("the initial model is there already", "model")
    return start_if_ready(replace(state, status="waiting"))


def _on_registered(state: State, event: ClientRegistered) -> Step:
    return register(state, event.client, event.num_examples)


def _on_delivered(state: State, event: TaskDelivered) -> Step:
    client = _holder(state, event.task)
    if client.lease is None or client.lease.delivered_at_s is not None:
        return state, ()
    return with_client(state, replace(client, lease=replace(client.lease, delivered_at_s=state.now_s))), ()


def _holder(state: State, task: str) -> Client:
    client = client_of(state, TaskId.parse(task).client)
    if client.lease is None or str(client.lease.task) != task:
        raise Gone(f"task {task} is over: ask for a new one", "task", current_version=state.published)
    return client


def _on_update(state: State, event: UpdateAccepted) -> Step:
    task = TaskId.parse(event.task)
    if not check_update(state, task, event.digest):
        raise Conflict(f"task {task} is counted already", "task")
    client = client_of(state, task.client)
    if event.num_examples > client.num_examples:
        raise Unprocessable(
            f"num_examples is {event.num_examples}, but {client.name!r} registered {client.num_examples}",
            "num_examples",
        )
    client = replace(measure(state, client), lease=None, done=task, done_digest=event.digest)
    state = with_client(state, client)
    if task.is_profile:
        return profiled(state, client.name)
    weight = update_weight(event.num_examples, state.spec.method.participation.weighting)
    version = state.version
    state, effects = report(state, task, event.num_examples)
    if state.version > version and is_time_to_move(state):
        state, more = move_clients(state)
        effects += more
    return state, (AddUpdate(task.tier, weight), *effects)


def _on_returned(state: State, event: ClientReturned) -> Step:
    return come_back(state, event.client) if client_of(state, event.client).lost else (state, ())


def _on_deadline(state: State, event: DeadlinePassed) -> Step:
    stop, started = state.spec.stop, state.started_at_s
    if started is not None and stop.max_time_s is not None and state.now_s >= started + stop.max_time_s:
        return finish(state, f"{stop.max_time_s:g} s have passed")
    effects: tuple[Effect, ...] = ()
    if state.profile_deadline_s is not None and state.now_s >= state.profile_deadline_s:
        state, effects = expire_profiling(state)
    for number in range(1, len(state.tiers) + 1):
        current = state.tiers[number - 1].round
        if current is not None and state.now_s >= current.deadline_s:
            state, more = expire_round(state, number)
            effects += more
    return state, effects


def _on_published(state: State, event: VersionPublished) -> Step:
    if event.version != state.published + 1 or event.version > state.version:
        raise Conflict(f"version {event.version} cannot follow version {state.published}", "version")
    waiting = [t.round.cohort for t in state.tiers if t.round and t.round.base_version == event.version]
    state = replace(state, published=event.version)
    return state, tuple(WakeClients(cohort) for cohort in waiting)


def _on_client_evaluated(state: State, event: ClientEvaluated) -> Step:
    task = TaskId.parse(event.task)
    client = client_of(state, task.client)
    if client.evaluated == task:
        raise Conflict(f"task {task} is evaluated already", "task")
    if client.done != task:
        client = _holder(state, event.task)
    accuracy = event.correct / event.num_examples
    return with_client(state, replace(client, evaluated=task, accuracy=accuracy)), ()


def _on_version_evaluated(state: State, event: VersionEvaluated) -> Step:
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
    VersionPublished: _on_published,
    ClientEvaluated: _on_client_evaluated,
    VersionEvaluated: _on_version_evaluated,
    Stopped: _on_stopped,
}
