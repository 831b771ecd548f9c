"""Which event a request is, in the state it meets; None if what it asks for is so already."""

from fedat_service.coordinator.intake import Submission, check_submission, summary_of
from fedat_service.errors import Conflict
from fedat_service.federation.events import (
    ClientEvaluated,
    ClientRegistered,
    ClientReturned,
    DeadlinePassed,
    ModelUploaded,
    Stopped,
    TaskDelivered,
    UpdateAccepted,
    VersionEvaluated,
)
from fedat_service.federation.state import State, client_of, exchange_of, next_deadline_s, ready_lease
from fedat_service.federation.tasks import TaskId
from fedat_service.federation.transition import due_lease
from fedat_service.wire.messages import EvaluateVersion, RegisterClient


def registration(
    state: State, message: RegisterClient, max_clients: int, at_s: float
) -> ClientRegistered | None:
    """A client comes, comes back, or has other examples than before.

    Raises:
        Conflict: If there are too many clients.
    """
    known = state.clients.get(message.name)
    if known is None and len(state.clients) >= max_clients:
        raise Conflict(f"there are {max_clients} clients already", "name", limit=max_clients)
    if known is not None and known.num_examples == message.num_examples and not known.lost:
        return None
    return ClientRegistered(at_s, message.name, message.num_examples)


def upload(state: State, event: ModelUploaded) -> ModelUploaded | None:
    """The initial model is there, unless the very same was before."""
    return None if state.model_digest == event.digest else event


def homecoming(state: State, name: str, at_s: float) -> ClientReturned | None:
    """A client that was given up asks again."""
    return ClientReturned(at_s, name) if client_of(state, name).lost else None


def delivery(state: State, name: str, at_s: float) -> TaskDelivered | None:
    """A client is told its task for the first time."""
    lease = ready_lease(state, name)
    if lease is None or lease.delivered_at_s is not None:
        return None
    return TaskDelivered(at_s, str(lease.task))


def acceptance(state: State, task: TaskId, submission: Submission, at_s: float) -> UpdateAccepted | None:
    """An update counts.

    Raises:
        RequestError: If it does not answer its task, or the task's time is over.
    """
    lease = due_lease(state, task, submission.digest)
    if lease is None:
        return None
    num_examples = check_submission(submission, lease, exchange_of(state, task).up, state.spec)
    return UpdateAccepted(at_s, str(task), num_examples, submission.digest)


def client_evaluation(state: State, name: str, event: ClientEvaluated) -> ClientEvaluated | None:
    """A client has evaluated a model, unless it said the same before."""
    known = client_of(state, name).evaluation
    return None if known is not None and known.tells_the_same_as(event) else event


def version_evaluation(state: State, message: EvaluateVersion, at_s: float) -> VersionEvaluated | None:
    """An observer has evaluated a version, unless the same was said before.

    Raises:
        Unprocessable: If the numbers contradict each other.
    """
    event = summary_of(message, state, at_s)
    known = state.evaluated.get(message.version)
    return None if known is not None and known.tells_the_same_as(event) else event


def stop(state: State, reason: str, at_s: float) -> Stopped | None:
    """The federation ends, unless it has."""
    return None if state.status == "finished" else Stopped(at_s, reason)


def deadline(state: State, at_s: float) -> DeadlinePassed | None:
    """A deadline is over, unless it was moved."""
    due_s = next_deadline_s(state)
    return None if due_s is None or due_s > at_s else DeadlinePassed(at_s)
