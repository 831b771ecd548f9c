"""The coordinator of one federation: a request becomes an event, or an answer read off the state."""

import asyncio
from functools import partial

from fedat_service.aggregation.report import summarise
from fedat_service.clock import Clock
from fedat_service.coordinator.arithmetic import Arithmetic
from fedat_service.coordinator.intake import check_submission, lease_of, read_initial_model, read_submission
from fedat_service.coordinator.journal import Decision, Journal
from fedat_service.coordinator.offload import Offload
from fedat_service.coordinator.publisher import Publication, Publisher
from fedat_service.coordinator.waiting import Alarm, WaitingRoom
from fedat_service.errors import Conflict, Gone, NotFound, NotNow, Unprocessable
from fedat_service.federation.effects import AddUpdate, DropRound, Effect, Finish, MakeVersion, WakeClients
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
from fedat_service.federation.spec import Spec
from fedat_service.federation.state import (
    Lease,
    State,
    client_of,
    initial_state,
    next_deadline_s,
    ready_lease,
    tier_of,
    versions_in_use,
)
from fedat_service.federation.tasks import TaskId
from fedat_service.federation.transition import check_update, transition
from fedat_service.metrics import ByteLedger, Timeline
from fedat_service.params import initial_model
from fedat_service.store.base import Record, Store
from fedat_service.wire.bundle import Bundle
from fedat_service.wire.messages import EvaluateVersion, Evaluation, RegisterClient

_RETRY_SPREAD_S = 5


class Coordinator:
    """Holds the state of one federation, and is the only one to replace it.

    Args:
        spec: What the federation is.
        store: Where events go before they are acknowledged.
        clock: The federation's time.
        offload: Runs codecs and arithmetic off the event loop.
    """

    def __init__(self, spec: Spec, store: Store, clock: Clock, offload: Offload) -> None:
        self.spec = spec
        self.state = initial_state(spec)
        self.clock = clock
        self.ledger = ByteLedger()
        self.timeline = Timeline()
        self._offload = offload
        self._publisher = Publisher(spec, offload)
        self._journal = Journal(spec.name, store, self._carry_out, self._roll_back)
        self._arithmetic: Arithmetic | None = None
        self._initial_digest = ""
        self._waiting = WaitingRoom()
        self._alarm = Alarm(clock, self._on_deadline)
        self._stopping = False
        if not spec.uploads_model:
            self._arithmetic = Arithmetic(spec, initial_model(spec.manifest, spec.seed))

    async def register(self, message: RegisterClient) -> bool:
        """Take a client in; False if it was known already.

        Raises:
            Unprocessable: If it cannot read the federation's codec.
        """
        codec = self.spec.method.codec.name
        if codec not in message.codecs:
            raise Unprocessable(f"the federation speaks {codec}, the client {message.codecs}", "codecs")
        known = self.state.clients.get(message.name)
        if known is not None and known.num_examples == message.num_examples and not known.lost:
            return False
        await self._decide(ClientRegistered(self.clock.now(), message.name, message.num_examples))
        return known is None

    async def upload_model(self, body: bytes | bytearray) -> bool:
        """Take the initial model; False if the very same was uploaded before.

        Raises:
            Unprocessable: If the bytes are not a whole model.
            Conflict: If the federation has another initial model.
        """
        model = await self._offload(partial(read_initial_model, body, self.spec))
        digest = model.digest()
        if self._arithmetic is not None:
            if digest == self._initial_digest:
                return False
            raise Conflict("the federation has its initial model already", "model")
        self._arithmetic, self._initial_digest = Arithmetic(self.spec, model), digest
        await self._decide(ModelUploaded(self.clock.now(), digest))
        return True

    async def next_task(self, name: str, wait_s: float) -> Lease | None:
        """The client's work: what it holds already, or what it is given within `wait_s` real seconds.

        Raises:
            NotFound: If the client is not registered.
            Gone: If the federation is finished.
            NotNow: If the service is going down.
        """
        client_of(self.state, name)
        end_s = asyncio.get_running_loop().time() + wait_s
        while True:
            self._check_serving(name)
            if client_of(self.state, name).lost:
                await self._decide(ClientReturned(self.clock.now(), name))
            lease = ready_lease(self.state, name)
            if lease is None:
                if not await self._waiting.wait(name, end_s - asyncio.get_running_loop().time()):
                    return None
            elif lease.delivered_at_s is not None:
                return lease
            else:
                await self._decide(TaskDelivered(self.clock.now(), str(lease.task)))

    def _check_serving(self, name: str) -> None:
        if self.state.status == "finished":
            raise Gone(f"federation {self.spec.name!r} is finished: {self.state.reason}")
        if self._stopping:
            # Spread by name, so that a restarted service does not meet everybody at once.
            raise NotNow("the service is going down", retry_after_s=1 + sum(name.encode()) % _RETRY_SPREAD_S)

    def returns(self, task: TaskId) -> tuple[str, ...]:
        """Layers that come back with a task's update: none from profiling."""
        return () if task.is_profile else self.spec.manifest.layers

    async def accept(self, task: TaskId, body: bytes | bytearray) -> tuple[Bundle, bool]:
        """Count an update, exactly once; False if the same bytes were counted before.

        Raises:
            RequestError: If the body is wrong or its time is over; nothing has changed then.
        """
        client_of(self.state, task.client)
        submission = await self._offload(partial(read_submission, body, self.spec))
        if not check_update(self.state, task, submission.digest):
            return submission.bundle, False
        lease = lease_of(client_of(self.state, task.client).lease, task)
        num_examples = check_submission(submission, lease, self.returns(task), self.spec)
        event = UpdateAccepted(self.clock.now(), str(task), num_examples, submission.digest)
        await self._decide(event, body, submission.bundle)
        return submission.bundle, True

    async def evaluate_task(self, task: TaskId, message: Evaluation) -> bool:
        """Note a client's own evaluation of the model it received; False if it is noted already."""
        _check_correct(message)
        if client_of(self.state, task.client).evaluated == task:
            return False
        await self._decide(
            ClientEvaluated(self.clock.now(), str(task), message.num_examples, message.correct, message.loss)
        )
        return True

    async def evaluate_version(self, message: EvaluateVersion) -> bool:
        """Note an observer's evaluation of a version; False if it was noted with the same numbers before.

        Raises:
            NotFound: If the version is not published.
            Conflict: If it was evaluated with other numbers.
            Unprocessable: If the numbers contradict each other.
        """
        if message.version > self.state.published:
            raise NotFound(f"no version {message.version}; the newest is {self.state.published}", "version")
        if len({client.client for client in message.clients}) < len(message.clients):
            raise Unprocessable("a client stands twice", "clients")
        for client in message.clients:
            _check_correct(client)
        summary = summarise(
            [c.num_examples for c in message.clients],
            [c.correct for c in message.clients],
            [c.loss for c in message.clients],
        )
        event = VersionEvaluated(
            at_s=self.clock.now(),
            version=message.version,
            num_clients=summary.num_clients,
            num_examples=summary.num_examples,
            accuracy=summary.accuracy,
            loss=summary.loss,
            client_accuracy_variance=summary.client_accuracy_variance,
        )
        if (known := self.timeline.evaluated(message.version)) is not None:
            if known == self.timeline.point(event, known.at_s):
                return False
            raise Conflict(f"version {message.version} was evaluated with other numbers", "version")
        await self._decide(event)
        return True

    async def model(self, version: int | None, layers: tuple[str, ...] | None) -> Publication:
        """A published version as it travels; the newest if None."""
        number = self.state.published if version is None else version
        model = self._arrays().version(number, self.state.published)
        return await self._publisher.publication("global", number, model, layers)

    async def tier_model(self, number: int, layers: tuple[str, ...] | None) -> Publication:
        """A tier's own model as it travels."""
        version = tier_of(self.state, number).model_version
        return await self._publisher.publication(
            f"tier{number}", version, self._arrays().tier_model(number), layers
        )

    def _arrays(self) -> Arithmetic:
        if self._arithmetic is None:
            raise NotFound(f"federation {self.spec.name!r} waits for its initial model", "model")
        return self._arithmetic

    async def stop(self, reason: str) -> bool:
        """End the federation for good; False if it is over already."""
        if self.state.status == "finished":
            return False
        await self._decide(Stopped(self.clock.now(), reason))
        return True

    def release(self) -> None:
        """Send everybody who waits away: the service is going down."""
        self._stopping = True
        self._waiting.wake_all()

    async def close(self) -> None:
        """Finish what is in line, and end the coordinator's tasks."""
        self.release()
        self._alarm.set(None)
        await self._journal.close()

    def _decide(
        self, event: Event, body: bytes | bytearray | None = None, update: Bundle | None = None
    ) -> asyncio.Future[None]:
        """Apply an event; the future is done once it is durable and carried out."""
        before = self.state
        self.state, effects = transition(before, event)
        done = asyncio.get_running_loop().create_future()
        # Some decisions are the coordinator's own, and nobody awaits them.
        done.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._journal.enter(Decision(Record(event, body), before, effects, update, done))
        self._alarm.set(next_deadline_s(self.state))
        return done

    def _on_deadline(self, at_s: float) -> None:
        self._decide(DeadlinePassed(at_s))

    def _roll_back(self, state: State) -> None:
        self.state = state
        self._alarm.set(next_deadline_s(self.state))

    async def _carry_out(self, decision: Decision) -> None:
        event = decision.record.event
        for effect in decision.effects:
            await self._perform(effect, decision.update)
        if isinstance(event, VersionPublished):
            in_use = versions_in_use(self.state)
            self._arrays().keep_only(in_use)
            self._publisher.keep_only("global", in_use)
        elif isinstance(event, VersionEvaluated):
            self.timeline.evaluation(event, self._since_start_s(event.at_s))

    async def _perform(self, effect: Effect, update: Bundle | None) -> None:
        match effect:
            case AddUpdate(tier, weight) if update is not None:
                await self._offload(partial(self._arrays().add, tier, update, weight))
            case DropRound(tier):
                self._arrays().drop(tier)
            case MakeVersion():
                await self._publish(effect)
            case WakeClients(clients):
                self._waiting.wake(clients)
            case Finish():
                self._waiting.wake_all()

    async def _publish(self, made: MakeVersion) -> None:
        model = await self._offload(partial(self._arrays().make_version, made))
        digest = await self._offload(model.digest)
        self.timeline.version(made, self._since_start_s(self.clock.now()))
        self._publisher.keep_only(f"tier{made.tier}", ())
        self._decide(VersionPublished(self.clock.now(), made.version, digest))

    @property
    def elapsed_s(self) -> float:
        """Seconds since the first task could be given out, until the end."""
        finished = self.state.status == "finished"
        return self._since_start_s(self.state.now_s if finished else self.clock.now())

    def _since_start_s(self, at_s: float) -> float:
        started_s = self.state.started_at_s
        return 0.0 if started_s is None else max(0.0, at_s - started_s)


def _check_correct(message: Evaluation) -> None:
    if message.correct > message.num_examples:
        raise Unprocessable(f"{message.correct} correct of {message.num_examples} examples", "correct")
