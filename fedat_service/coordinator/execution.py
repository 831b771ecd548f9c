"""What follows from a committed event: sums, versions, alarms, and clients woken up."""

from collections.abc import Callable, Collection, Mapping
from functools import partial

from fedat_service.clock import Clock
from fedat_service.coordinator.arithmetic import Arithmetic
from fedat_service.coordinator.journal import Decide, Decision
from fedat_service.coordinator.offload import Offload
from fedat_service.coordinator.publisher import Publication, Publisher, round_name
from fedat_service.coordinator.steps import Steps
from fedat_service.coordinator.waiting import Alarm, WaitingRoom
from fedat_service.errors import NotFound
from fedat_service.federation.effects import (
    AddUpdate,
    CloseSync,
    DropRound,
    Effect,
    Finish,
    MakeVersion,
    WakeClients,
)
from fedat_service.federation.events import ModelUploaded, SyncClosed, VersionEvaluated, VersionPublished
from fedat_service.federation.spec import Spec
from fedat_service.federation.state import State, next_deadline_s, since_start_s, versions_in_use
from fedat_service.metrics import Timeline
from fedat_service.params import Model
from fedat_service.wire.bundle import Bundle
from fedat_service.wire.settings import Slot


class Execution:
    """Carries the effects of decisions out, one decision after the other, in the order of the log.

    Args:
        spec: What the federation is.
        initial: Its initial model; None if that will be uploaded.
        clock: The federation's time.
        offload: Runs codecs and arithmetic off the event loop.
        alarm: Rings when the next deadline is over.
        insist: Enters an event that follows from an effect.
    """

    def __init__(
        self,
        spec: Spec,
        initial: Model | None,
        clock: Clock,
        offload: Offload,
        alarm: Alarm,
        insist: Callable[[Decide], None],
    ) -> None:
        self.publisher = Publisher(spec, offload)
        self._steps = Steps(spec, offload)
        self.waiting = WaitingRoom()
        self.timeline = Timeline()
        self.alarm = alarm
        self._spec = spec
        self._clock = clock
        self._offload = offload
        self._insist = insist
        self._arithmetic = None if initial is None else Arithmetic(spec, initial)

    @property
    def arrays(self) -> Arithmetic:
        """The federation's arrays.

        Raises:
            NotFound: If it waits for its initial model.
        """
        if self._arithmetic is None:
            raise NotFound(f"federation {self._spec.name!r} waits for its initial model", "model")
        return self._arithmetic

    async def carry_out(self, decision: Decision) -> None:
        """Do what a committed decision asks for; its state is visible already."""
        event, state = decision.event, decision.after
        if isinstance(event, ModelUploaded) and decision.command.model is not None:
            self._arithmetic = Arithmetic(self._spec, decision.command.model)
        for effect in decision.effects:
            await self._perform(effect, decision.command.update, state)
        if isinstance(event, VersionPublished):
            in_use = versions_in_use(state)
            self.arrays.keep_only(in_use)
            self.publisher.keep_only("global", in_use)
            self._steps.keep_only(in_use)
        elif isinstance(event, VersionEvaluated):
            self.timeline.evaluation(event, since_start_s(state, event.at_s))
        self.alarm.set(next_deadline_s(state))

    async def publication(
        self, version: int, newest: int, down: Mapping[Slot, tuple[str, ...]], held: Collection[str]
    ) -> Publication:
        """A version as it travels to a client that holds what some entity tags name.

        Raises:
            NotFound: If there is no such version yet.
            Gone: If it is no longer kept.
        """
        whole = await self.publisher.publication(
            "global", version, self.arrays.version(version, newest), down
        )
        return await self._steps.onward(whole, held, self.arrays.step(version))

    async def _perform(self, effect: Effect, update: Bundle | None, state: State) -> None:
        match effect:
            case AddUpdate() if update is not None:
                await self._offload(partial(self.arrays.add, effect, update))
            case DropRound():
                self.arrays.drop(effect)
                self.publisher.keep_only(round_name(effect.tier, effect.round), ())
            case CloseSync():
                await self._close_sync(effect)
            case MakeVersion():
                await self._publish(effect, state)
            case WakeClients(clients):
                self.waiting.wake(clients)
            case Finish():
                self._finish(state)

    def _finish(self, state: State) -> None:
        if self._arithmetic is not None:
            self._arithmetic.drop_all()
            self._arithmetic.keep_only(versions_in_use(state))
        self.waiting.wake_all()

    async def _publish(self, made: MakeVersion, state: State) -> None:
        new = await self._offload(partial(self.arrays.make_version, made))
        digest = await self._offload(new.model.digest)
        event = VersionPublished(self._clock.now(), made.version, digest, made.tier, new.intervals)
        self.timeline.version(made, since_start_s(state, event.at_s))
        for whose in (f"tier{made.tier}", *(round_name(made.tier, index) for index in made.rounds)):
            self.publisher.keep_only(whose, ())
        self._insist(lambda _: event)

    async def _close_sync(self, closed: CloseSync) -> None:
        digest = await self._offload(partial(self.arrays.close_sync, closed))
        self.publisher.keep_only(round_name(closed.tier, closed.round), ())
        event = SyncClosed(self._clock.now(), closed.tier, closed.round, closed.sync, digest)
        self._insist(lambda state: None if state.status == "finished" else event)
