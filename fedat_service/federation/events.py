"""What can happen to a federation. The log holds these, in order; everything else is derived from them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from fedat_service.errors import WireError
from fedat_service.wire.complaints import complaint, first_of, place_of
from fedat_service.wire.messages import NumExamples, Version
from fedat_service.wire.strict import Float, Int, Name

Share = Annotated[Float, Field(ge=0, le=1)]
Amount = Annotated[Float, Field(ge=0)]
Count = Annotated[Int, Field(ge=0, lt=2**53)]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at `at_s`, in seconds of the federation's clock.

    The types of its fields are what a log may hold; an event that is made here is not checked again.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)

    kind: ClassVar[str] = "event"
    at_s: Float

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
    client: Name
    num_examples: NumExamples


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
    num_examples: NumExamples
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
class SyncClosed(Event):
    """What the next exchange of a round begins with was computed; `digest` is that of its values."""

    kind: ClassVar[str] = "sync_closed"
    tier: int
    round: int
    sync: int
    digest: str


@dataclass(frozen=True, slots=True)
class VersionPublished(Event):
    """The model of a version was computed; replay compares `digest`.

    If the uploads changed how often the tensors of its tier travel, `intervals` are what they are now.
    """

    kind: ClassVar[str] = "version_published"
    version: Version
    digest: str
    tier: int = 0
    intervals: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ClientEvaluated(Event):
    """A client evaluated the model it received on its own test split."""

    kind: ClassVar[str] = "client_evaluated"
    task: str
    num_examples: NumExamples
    correct: Count
    loss: Amount


@dataclass(frozen=True, slots=True)
class VersionEvaluated(Event):
    """An observer evaluated a version over many clients' test splits.

    `tier_accuracies` is what that says of each tier, with the members that it had then: None if it says
    nothing. It is no part of what the observer told.
    """

    kind: ClassVar[str] = "version_evaluated"
    version: Version
    num_clients: Count
    num_examples: Count
    accuracy: Share
    loss: Amount
    client_accuracy_variance: Amount
    tier_accuracies: tuple[Share | None, ...] = ()

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
        SyncClosed,
        VersionPublished,
        ClientEvaluated,
        VersionEvaluated,
        Stopped,
    )
}


_READERS: Mapping[str, TypeAdapter[Event]] = {name: TypeAdapter(kind) for name, kind in _KINDS.items()}


def to_record(event: Event) -> dict[str, Any]:
    """An event as a JSON object."""
    return {"kind": event.kind, **asdict(event)}


def from_record(record: dict[str, Any]) -> Event:
    """Read an event back.

    Raises:
        WireError: If the kind is unknown or its fields do not fit.
    """
    fields = dict(record)
    kind = fields.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise WireError(f"unknown event kind {kind!r}", "kind")
    try:
        event: Event = _READERS[kind].validate_python(fields)
    except ValidationError as error:
        first = first_of(error)
        raise WireError(f"event {kind}: {complaint(first)}", place_of(first)) from error
    return event
