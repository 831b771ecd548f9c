"""What follows from a committed event: sums, versions, alarms, and clients woken up."""

from collections.abc import Callable, Collection
from functools import partial

from fedat_service.clock import Clock
from fedat_service.coordinator.arithmetic import Arithmetic
from fedat_service.coordinator.journal import Decide, Decision
from fedat_service.coordinator.offload import Offload
from fedat_service.coordinator.publisher import Publication, Publisher
from fedat_service.coordinator.waiting import Alarm, WaitingRoom
from fedat_service.errors import NotFound
from fedat_service.federation.effects import AddUpdate, DropRound, Effect, Finish, MakeVersion, WakeClients
from fedat_service.federation.events import ModelUploaded, VersionEvaluated, VersionPublished
from fedat_service.federation.spec import Spec
from fedat_service.federation.state import State, next_deadline_s, since_start_s, versions_in_use
from fedat_service.metrics import Timeline
from fedat_service.params import Model
from fedat_service.wire.bundle import Bundle


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
        elif isinstance(event, VersionEvaluated):
            self.timeline.evaluation(event, since_start_s(state, event.at_s))
        self.alarm.set(next_deadline_s(state))

    async def publication(
        self, version: int, newest: int, layers: tuple[str, ...] | None, held: Collection[str]
    ) -> Publication:
        """Layers of a version as they travel to a client that holds what some entity tags name."""
        arrays = self.arrays
        model, step = arrays.version(version, newest), arrays.step(version)
        whole = await self.publisher.publication("global", version, model, layers)
        if step is None or whole.etag in held or not self.publisher.holds_base(whole, held):
            return whole
        return await self.publisher.step(whole, step)

    async def _perform(self, effect: Effect, update: Bundle | None, state: State) -> None:
        match effect:
            case AddUpdate(tier, weight) if update is not None:
                await self._offload(partial(self.arrays.add, tier, update, weight))
            case DropRound(tier):
                self.arrays.drop(tier)
            case MakeVersion():
                await self._publish(effect, state)
            case WakeClients(clients):
                self.waiting.wake(clients)
            case Finish():
                self._finish()

    def _finish(self) -> None:
        if self._arithmetic is not None:
            self._arithmetic.drop_all()
        self.waiting.wake_all()

    async def _publish(self, made: MakeVersion, state: State) -> None:
        model = await self._offload(partial(self.arrays.make_version, made))
        event = VersionPublished(self._clock.now(), made.version, await self._offload(model.digest))
        self.timeline.version(made, since_start_s(state, event.at_s))
        self.publisher.keep_only(f"tier{made.tier}", ())
        self._insist(lambda _: event)
