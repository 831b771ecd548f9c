"""The coordinator of one federation: a request becomes a command, or an answer read off the state."""

import asyncio
from collections.abc import Collection
from functools import partial

from fedat_service.clock import Clock
from fedat_service.coordinator import decisions
from fedat_service.coordinator.begin import NO_SLOTS, Begin
from fedat_service.coordinator.execution import Execution
from fedat_service.coordinator.intake import evaluation_of, read_initial_model, read_submission
from fedat_service.coordinator.journal import Command, Decide, Journal
from fedat_service.coordinator.limits import Limits
from fedat_service.coordinator.offload import Offload
from fedat_service.coordinator.publisher import Publication, round_name
from fedat_service.coordinator.waiting import Alarm
from fedat_service.errors import Gone, ManifestError, NotFound, NotNow, Unprocessable
from fedat_service.federation.events import Event, ModelUploaded
from fedat_service.federation.spec import Spec
from fedat_service.federation.state import (
    Lease,
    State,
    client_of,
    exchange_of,
    initial_state,
    ready_lease,
    since_start_s,
    tier_of,
)
from fedat_service.federation.tasks import TaskId
from fedat_service.federation.transition import held_lease
from fedat_service.metrics import ByteLedger, Timeline
from fedat_service.params import Model
from fedat_service.store.base import Body, Store
from fedat_service.wire.bundle import Bundle
from fedat_service.wire.messages import EvaluateVersion, Evaluation, RegisterClient
from fedat_service.wire.settings import Slot

_RETRY_SPREAD_S = 5
_STORE_RETRY_S = 1.0


class Coordinator:
    """Holds the state of one federation; every change goes through its journal.

    Args:
        spec: What the federation is.
        initial: Its initial model; None if that will be uploaded.
        store: Where events go before they are acknowledged.
        clock: The federation's time.
        offload: Runs codecs and arithmetic off the event loop.
        limits: How much anybody may ask of it.
    """

    def __init__(
        self, spec: Spec, initial: Model | None, store: Store, clock: Clock, offload: Offload, limits: Limits
    ) -> None:
        self.spec = spec
        self.clock = clock
        self.ledger = ByteLedger()
        self._offload = offload
        self._limits = limits
        alarm = Alarm(clock, self._on_deadline)
        self._execution = Execution(spec, initial, clock, offload, alarm, self._insist)
        self._journal = Journal(spec.name, store, initial_state(spec), self._execution.carry_out, self._pause)
        self._stopping = False

    @property
    def state(self) -> State:
        """What is durable and carried out."""
        return self._journal.state

    @property
    def timeline(self) -> Timeline:
        """Versions and evaluations so far."""
        return self._execution.timeline

    @property
    def failed(self) -> bool:
        """Whether a defect brought the federation to a standstill."""
        return self._journal.failed

    async def register(self, message: RegisterClient) -> bool:
        """Take a client in; False if it was known already.

        Raises:
            Unprocessable: If it cannot read the federation's codec.
            Conflict: If there are too many clients.
        """
        codec = self.spec.method.codec.name
        if codec not in message.codecs:
            spoken = ", ".join(message.codecs) or "none"
            raise Unprocessable(f"the federation speaks {codec}, the client {spoken}", "codecs")
        is_new = False

        def decide(state: State) -> Event | None:
            nonlocal is_new
            is_new = message.name not in state.clients
            return decisions.registration(state, message, self._limits.max_clients, self.clock.now())

        await self._enter(decide)
        return is_new

    async def upload_model(self, body: Body) -> bool:
        """Take the initial model; False if the very same was uploaded before.

        Raises:
            Unprocessable: If the bytes are not a whole model that the federation's codec can carry.
            Conflict: If the federation has another initial model.
        """
        model = await self._offload(partial(read_initial_model, body, self.spec))
        event = ModelUploaded(self.clock.now(), model.digest())
        return await self._enter(lambda state: decisions.upload(state, event), body, model=model)

    async def next_task(self, name: str, wait_s: float) -> Lease | None:
        """The client's work: what it holds already, or what it is given within `wait_s` real seconds.

        Raises:
            NotFound: If the client is not registered.
            Gone: If the federation is finished.
            NotNow: If the service is going down.
        """
        now = asyncio.get_running_loop().time
        end_s = now() + wait_s
        was_lost = False
        while True:
            self._check_serving(name)
            if client_of(self.state, name).lost:
                if was_lost and now() >= end_s:
                    # A deadline that is over before the task is out loses its client again and again.
                    return None
                was_lost = True
                await self._enter(lambda state: decisions.homecoming(state, name, self.clock.now()))
            lease = ready_lease(self.state, name)
            if lease is None:
                if not await self._execution.waiting.wait(name, end_s - now()):
                    return None
            elif lease.delivered_at_s is not None:
                return lease
            else:
                await self._enter(lambda state: decisions.delivery(state, name, self.clock.now()))

    def _check_serving(self, name: str) -> None:
        if self.state.over:
            raise Gone(f"federation {self.spec.name!r} is finished: {self.state.reason}")
        if self._stopping:
            # Spread by name, so that a restarted service does not meet everybody at once.
            raise NotNow("the service is going down", retry_after_s=1 + sum(name.encode()) % _RETRY_SPREAD_S)

    def tier_of_task(self, task: TaskId) -> int:
        """The tier whose traffic a task's bytes are: one of this federation's, or 0 for profiling.

        Raises:
            NotFound: If no client of the federation can have such a task.
        """
        client_of(self.state, task.client)
        return task.tier if task.is_profile else tier_of(self.state, task.tier).number

    async def accept(self, task: TaskId, body: Body) -> tuple[Bundle, bool]:
        """Count an update, exactly once; False if the same bytes were counted before.

        Raises:
            RequestError: If the body is wrong or its time is over; nothing has changed then.
        """
        client_of(self.state, task.client)
        submission = await self._offload(partial(read_submission, body, self.spec))
        is_new = await self._enter(
            lambda state: decisions.acceptance(state, task, submission, self.clock.now()),
            body,
            submission.bundle,
        )
        return submission.bundle, is_new

    async def evaluate_task(self, task: TaskId, message: Evaluation) -> bool:
        """Note a client's own evaluation of the model it received; False if it is noted already.

        Raises:
            Conflict: If it was noted with other numbers.
        """
        event = evaluation_of(message, task, self.clock.now())
        return await self._enter(lambda state: decisions.client_evaluation(state, task.client, event))

    async def evaluate_version(self, message: EvaluateVersion) -> bool:
        """Note an observer's evaluation of a version; False if it was noted with the same numbers before.

        Raises:
            NotFound: If the version is not published.
            Conflict: If it was evaluated with other numbers.
            Unprocessable: If the numbers contradict each other.
        """
        return await self._enter(lambda state: decisions.version_evaluation(state, message, self.clock.now()))

    async def model(
        self, version: int | None, layers: tuple[str, ...] | None, held: Collection[str] = ()
    ) -> Publication:
        """A published version as it travels to who holds what these tags name; the newest if None."""
        number = self.state.published if version is None else version
        down = self._weights_of(layers)
        return await self._execution.publication(number, self.state.published, down, held)

    async def task_model(
        self, task: TaskId, layers: tuple[str, ...] | None, held: Collection[str] = ()
    ) -> Publication:
        """What a task begins with, as it travels: what it fetches, or some layers of the model.

        Raises:
            Gone: If its lease is over.
            NotFound: If there is no such layer.
        """
        lease, exchange = held_lease(self.state, task), exchange_of(self.state, task)
        down = exchange.down if layers is None else self._weights_of(layers)
        newest, version = self.state.published, lease.base_version
        if not task.sync:
            return await self._execution.publication(version, newest, down, held)
        begin = self._execution.arrays.begin(task.tier, task.round, newest)
        whose = round_name(task.tier, task.round)
        return await self._execution.publisher.publication(whose, version, begin, down)

    async def tier_model(self, number: int, layers: tuple[str, ...] | None) -> Publication:
        """A tier's own model as it travels."""
        tier_of(self.state, number)
        made = self._execution.arrays.tier_model(number)
        begin, down = Begin(made.model, NO_SLOTS), self._weights_of(layers)
        return await self._execution.publisher.publication(f"tier{number}", made.version, begin, down)

    def _weights_of(self, layers: tuple[str, ...] | None) -> dict[Slot, tuple[str, ...]]:
        manifest = self.spec.manifest
        try:
            tensors = manifest.tensors if layers is None else manifest.select(layers)
        except ManifestError as error:
            raise NotFound(str(error), "layers") from error
        return {"weights": tuple(tensor.name for tensor in tensors)}

    async def stop(self, reason: str) -> bool:
        """End the federation for good; False if it is over already."""
        return await self._enter(lambda state: decisions.stop(state, reason, self.clock.now()))

    def release(self) -> None:
        """Send everybody who waits away: the service is going down."""
        self._stopping = True
        self._execution.waiting.wake_all()

    async def close(self) -> None:
        """Finish what is in line, end the coordinator's tasks, and send everybody who waits away."""
        self._execution.alarm.set(None)
        await self._journal.close()
        self.release()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the first task could be given out, until the end."""
        finished = self.state.status == "finished"
        return since_start_s(self.state, self.state.now_s if finished else self.clock.now())

    def _enter(
        self,
        decide: Decide,
        body: Body | None = None,
        update: Bundle | None = None,
        model: Model | None = None,
    ) -> asyncio.Future[bool]:
        return self._journal.enter(Command(decide, body, update, model))

    def _insist(self, decide: Decide) -> None:
        """Enter an event of the coordinator's own: nobody else would try it again."""
        if not self._journal.ended:
            done = self._journal.enter(Command(decide, insists=True))
            done.add_done_callback(lambda future: future.cancelled() or future.exception())

    async def _pause(self) -> None:
        await self.clock.sleep(_STORE_RETRY_S * self.clock.rate)

    def _on_deadline(self, at_s: float) -> None:
        self._insist(lambda state: decisions.deadline(state, at_s))
