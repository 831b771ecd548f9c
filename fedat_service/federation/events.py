"""What can happen to a federation. The log holds these, in order; everything else is derived from them."""

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from fedat_service.errors import WireError


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at `at_s`, in seconds of the federation's clock."""

    kind: ClassVar[str] = "event"
    at_s: float

    def tells_the_same_as(self, other: "Event") -> bool:
        """Whether two events differ in nothing but their time."""
        return self == replace(other, at_s=self.at_s)


@dataclass(frozen=True, slots=True)
class ModelUploaded(Event):
    """The initial model arrived; `digest` is that of its values."""

    kind: ClassVar[str] = "model_uploaded"
    digest: str


@dataclass(frozen=True, slots=True)
class ClientRegistered(Event):
    """A client said what it is; the same name again is the same client."""

    kind: ClassVar[str] = "client_registered"
    client: str
    num_examples: int


@dataclass(frozen=True, slots=True)
class TaskDelivered(Event):
    """A client fetched its task for the first time: its latency counts from here."""

    kind: ClassVar[str] = "task_delivered"
    task: str


@dataclass(frozen=True, slots=True)
class UpdateAccepted(Event):
    """A client's update was checked and will be counted; `digest` is that of the body."""

    kind: ClassVar[str] = "update_accepted"
    task: str
    num_examples: int
    digest: str


@dataclass(frozen=True, slots=True)
class ClientReturned(Event):
    """A client that was given up asked for work again."""

    kind: ClassVar[str] = "client_returned"
    client: str


@dataclass(frozen=True, slots=True)
class DeadlinePassed(Event):
    """The earliest deadline of the state is over."""

    kind: ClassVar[str] = "deadline_passed"


@dataclass(frozen=True, slots=True)
class VersionPublished(Event):
    """The model of a version was computed; replay compares `digest`."""

    kind: ClassVar[str] = "version_published"
    version: int
    digest: str


@dataclass(frozen=True, slots=True)
class ClientEvaluated(Event):
    """A client evaluated the model it received on its own test split."""

    kind: ClassVar[str] = "client_evaluated"
    task: str
    num_examples: int
    correct: int
    loss: float


@dataclass(frozen=True, slots=True)
class VersionEvaluated(Event):
    """An observer evaluated a version over many clients' test splits.

    `tier_accuracies` is what that says of each tier, with the members that it had then: None if it says
    nothing. It is no part of what the observer told.
    """

    kind: ClassVar[str] = "version_evaluated"
    version: int
    num_clients: int
    num_examples: int
    accuracy: float
    loss: float
    client_accuracy_variance: float
    tier_accuracies: tuple[float | None, ...] = ()

    def tells_the_same_as(self, other: Event) -> bool:
        """Whether two evaluations differ in nothing but their time, and who was in which tier then."""
        return isinstance(other, VersionEvaluated) and self == replace(
            other, at_s=self.at_s, tier_accuracies=self.tier_accuracies
        )


@dataclass(frozen=True, slots=True)
class Stopped(Event):
    """An operator ended the federation."""

    kind: ClassVar[str] = "stopped"
    reason: str


_KINDS: dict[str, type[Event]] = {
    kind.kind: kind
    for kind in (
        ModelUploaded,
        ClientRegistered,
        TaskDelivered,
        UpdateAccepted,
        ClientReturned,
        DeadlinePassed,
        VersionPublished,
        ClientEvaluated,
        VersionEvaluated,
        Stopped,
    )
}


def to_record(event: Event) -> dict[str, Any]:
    """An event as a JSON object."""
    return {"kind": event.kind, **asdict(event)}


def from_record(record: dict[str, Any]) -> Event:
    """Read an event back.

    Raises:
        WireError: If the kind is unknown or its fields do not fit.
    """
    # JSON has no tuples.
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in record.items()
    }
    kind = fields.pop("kind", None)
    if kind not in _KINDS:
        raise WireError(f"unknown event kind {kind!r}", "kind")
    try:
        return _KINDS[kind](**fields)
    except TypeError as error:
        raise WireError(f"event {kind}: {error}", "kind") from error
