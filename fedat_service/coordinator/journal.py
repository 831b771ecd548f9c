"""Decide, commit, carry out: one after the other, so that nobody ever sees what is not durable."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from fedat_service.errors import FedATError, NotNow, RequestError
from fedat_service.federation.effects import Effect
from fedat_service.federation.events import Event
from fedat_service.federation.state import State
from fedat_service.federation.transition import transition
from fedat_service.params import Model
from fedat_service.store.base import Body, Record, Store, unwritten
from fedat_service.wire.bundle import Bundle

_log = structlog.get_logger(__name__)

_CLOSE_S = 1.0
"""Longest wait, at the end, for a store that may never answer."""

Decide = Callable[[State], Event | None]
"""Which event a request is, in the state it meets; None if it has happened already. May refuse by raising."""


@dataclass(slots=True, eq=False)
class Command:
    """A request in line.

    Attributes:
        decide: Makes it an event.
        body: Bytes that the event speaks of.
        update: The body, read.
        model: The initial model, if that is what came.
        insists: Whether it stays in line until it is written down (the coordinator's own events).
        done: Whether something happened, once that is durable and carried out.
    """

    decide: Decide
    body: Body | None = None
    update: Bundle | None = None
    model: Model | None = None
    insists: bool = False
    done: asyncio.Future[bool] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of a command: an event and its consequences, or a refusal, or nothing."""

    command: Command
    after: State
    event: Event | None = None
    effects: tuple[Effect, ...] = ()
    refusal: RequestError | None = None


_NO_EFFECTS: tuple[Effect, ...] = ()


class Journal:
    """One task per federation through which every change goes.

    Commands that wait are decided one after the other on a copy of the state, appended to the store in one
    batch (group commit), and then become visible and are carried out in order. If the store fails, none of
    the batch has happened: who waits is told to try again.

    Args:
        federation: Its name in the store.
        store: Where events go.
        state: The state to begin with.
        carry_out: Does what a committed decision asks for; the new state is visible then.
        pause: Waits before the store is tried again after a failure.
    """

    def __init__(
        self,
        federation: str,
        store: Store,
        state: State,
        carry_out: Callable[[Decision], Awaitable[None]],
        pause: Callable[[], Awaitable[None]],
    ) -> None:
        self.state = state
        self._federation = federation
        self._store = store
        self._carry_out = carry_out
        self._pause = pause
        self._line: list[Command] = []
        self._arrived = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"journal-{federation}")
        self._task.add_done_callback(self._ended)

    @property
    def ended(self) -> bool:
        """Whether it is closed, or failed: nothing can change any more."""
        return self._task.done()

    @property
    def failed(self) -> bool:
        """Whether a defect ended it."""
        return self._task.done() and not self._task.cancelled()

    def enter(self, command: Command) -> asyncio.Future[bool]:
        """Put a command in line; its future says whether it changed anything.

        Raises:
            NotNow: If the journal has ended.
        """
        if self.ended:
            raise self._refusal()
        self._line.append(command)
        self._arrived.set()
        return command.done

    async def close(self) -> None:
        """Finish what is in line, then end."""
        waiting = [command.done for command in self._line]
        if waiting:
            await asyncio.wait(waiting, timeout=_CLOSE_S)
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._line:
                if not await self._commit(self._line.copy()):
                    await self._pause()

    async def _commit(self, batch: list[Command]) -> bool:
        """Decide, append and carry out what waits; False if the store failed."""
        decisions = self._decide(batch)
        records = [Record(d.event, d.command.body) for d in decisions if d.event is not None]
        try:
            if records:
                await self._store.append(self._federation, records)
        except (OSError, FedATError) as error:
            self._put_off(batch, error)
            return False
        for decision in decisions:
            self.state = decision.after
            if decision.event is not None:
                await self._carry_out(decision)
            self._line.remove(decision.command)
            _answer(decision)
        return True

    def _decide(self, batch: list[Command]) -> list[Decision]:
        state, decisions = self.state, []
        for command in batch:
            event, refusal, effects = None, None, _NO_EFFECTS
            try:
                event = command.decide(state)
                if event is not None:
                    state, effects = transition(state, event)
            except RequestError as error:
                # Answered after the batch: what it was refused for may not be durable yet.
                event, refusal = None, error
            decisions.append(Decision(command, state, event, effects, refusal))
        return decisions

    def _put_off(self, batch: list[Command], error: Exception) -> None:
        _log.error("the log cannot be written", federation=self._federation, error=str(error))
        for command in batch:
            if not command.insists:
                self._line.remove(command)
                _fail(command, NotNow(unwritten(error), retry_after_s=5))

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A defect in carrying out must not leave anybody waiting for ever."""
        error = None if task.cancelled() else task.exception()
        # An exit or an interrupt of the process is no defect.
        if isinstance(error, Exception):
            _log.error("defect", federation=self._federation, exc_info=error)
        for command in self._line:
            _fail(command, self._refusal())

    def _refusal(self) -> NotNow:
        if self.failed:
            return NotNow("the federation has met a defect and stands still until the service restarts", 60)
        return NotNow("the federation is being closed", retry_after_s=1)


def _answer(decision: Decision) -> None:
    done = decision.command.done
    if done.done():
        return
    if decision.refusal is not None:
        done.set_exception(decision.refusal)
    else:
        done.set_result(decision.event is not None)


def _fail(command: Command, error: Exception) -> None:
    if not command.done.done():
        command.done.set_exception(error)
