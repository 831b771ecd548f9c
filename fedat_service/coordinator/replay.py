"""A federation played again from its log: the same fold, and every version computed anew."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from fedat_service.coordinator.arithmetic import Arithmetic
from fedat_service.coordinator.intake import digest_of, read_initial_model
from fedat_service.errors import FedATError, LogDamaged, WireError
from fedat_service.federation.effects import AddUpdate, CloseSync, DropRound, MakeVersion
from fedat_service.federation.events import ModelUploaded, SyncClosed, UpdateAccepted, VersionPublished
from fedat_service.federation.spec import Spec
from fedat_service.federation.state import State, initial_state, versions_in_use
from fedat_service.federation.transition import transition
from fedat_service.params import initial_model
from fedat_service.store.base import Record
from fedat_service.store.jsonl import Created, read_log
from fedat_service.wire.bundle import parse_bundle
from fedat_service.wire.complaints import complaint, first_of, place_of
from fedat_service.wire.messages import CreateFederation


@dataclass(slots=True)
class Replayed:
    """What came out of a log.

    Attributes:
        state: The federation after its last event.
        verified: Versions whose values were computed again and are the published ones, bit for bit.
        differing: Versions whose values came out differently.
    """

    state: State
    verified: list[int] = field(default_factory=list)
    differing: list[int] = field(default_factory=list)


def replay(log: Path, *, verify: bool) -> Iterator[Replayed]:
    """Play the federations of a log again; a service that was started anew began a new one in the same log.

    Args:
        log: A JSON-lines event log.
        verify: Whether to compute all versions again; the log must have its bodies beside it.

    Raises:
        LogDamaged: If the log cannot be read, contradicts itself, or has no bodies to verify with.
    """
    player: _Player | None = None
    for number, entry in enumerate(read_log(log), 1):
        try:
            if isinstance(entry, Created):
                if player is not None:
                    yield player.replayed
                player = _Player(_spec(entry.definition), verify)
            elif player is None:
                raise WireError("a log begins with the definition of a federation", "kind")
            else:
                player.play(entry)
        except FedATError as error:
            raise LogDamaged(f"{log}, line {number}: {error}") from error
    if player is None:
        raise LogDamaged(f"{log} holds nothing: no federation, no event")
    yield player.replayed


def _spec(definition: object) -> Spec:
    try:
        return Spec.of(CreateFederation.model_validate(definition))
    except ValidationError as error:
        first = first_of(error)
        raise WireError(complaint(first, "definition"), place_of(first)) from error


class _Player:
    """The coordinator without its clock, its clients and its store."""

    def __init__(self, spec: Spec, verify: bool) -> None:
        self.replayed = Replayed(initial_state(spec))
        self._spec = spec
        self._verify = verify
        draws = verify and not spec.uploads_model
        self._arithmetic = Arithmetic(spec, initial_model(spec.manifest, spec.seed)) if draws else None
        self._digests: dict[int, str] = {}
        self._synced: dict[tuple[int, int], str] = {}

    def play(self, record: Record) -> None:
        self.replayed.state, effects = transition(self.replayed.state, record.event)
        if not self._verify:
            return
        if isinstance(record.event, ModelUploaded):
            self._arithmetic = Arithmetic(self._spec, read_initial_model(_body(record), self._spec))
        if isinstance(record.event, UpdateAccepted):
            _require_same("an update", record.event.digest, digest_of(_body(record)))
        if isinstance(record.event, SyncClosed):
            key = record.event.tier, record.event.round
            _require_same("a sync", record.event.digest, self._synced.pop(key))
        for effect in effects:
            self._perform(effect, record)
        if isinstance(record.event, VersionPublished):
            same = self._digests.pop(record.event.version) == record.event.digest
            (self.replayed.verified if same else self.replayed.differing).append(record.event.version)
            if self._arithmetic is not None:
                self._arithmetic.keep_only(versions_in_use(self.replayed.state))

    def _perform(self, effect: object, record: Record) -> None:
        if self._arithmetic is None:
            return
        match effect:
            case AddUpdate():
                self._arithmetic.add(effect, parse_bundle(_body(record), self._spec.manifest))
            case DropRound():
                self._arithmetic.drop(effect)
            case CloseSync():
                self._synced[effect.tier, effect.round] = self._arithmetic.close_sync(effect)
            case MakeVersion():
                self._digests[effect.version] = self._arithmetic.make_version(effect).model.digest()


def _require_same(what: str, logged: str, found: str) -> None:
    if logged != found:
        raise WireError(f"{what} has digest {found}, the log says {logged}", "digest")


def _body(record: Record) -> memoryview:
    if record.body is None:
        raise WireError(
            "no body of this event stands beside the log: versions can be verified where updates were kept "
            "(--keep-updates)",
            "body_at",
        )
    return memoryview(record.body)
