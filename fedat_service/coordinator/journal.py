"""Commit, then carry out: events in the order they were decided, acknowledged once durable and done."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import islice

import structlog

from fedat_service.errors import FedATError, NotNow
from fedat_service.federation.effects import Effect
from fedat_service.federation.state import State
from fedat_service.store.base import Record, Store
from fedat_service.wire.bundle import Bundle

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Decision:
    """An applied event: its record, the state before it, what it asks for, and who waits for it."""

    record: Record
    before: State
    effects: tuple[Effect, ...]
    update: Bundle | None
    done: asyncio.Future[None]


class Journal:
    """One task per federation that appends decisions to the store in batches and then carries them out.

    Many requests share one commit (group commit). If the store fails, none of the batch has happened:
    `roll_back` gets the state before it, and everybody who waits is told to try again.
    """

    def __init__(
        self,
        federation: str,
        store: Store,
        carry_out: Callable[[Decision], Awaitable[None]],
        roll_back: Callable[[State], None],
    ) -> None:
        self._federation = federation
        self._store = store
        self._carry_out = carry_out
        self._roll_back = roll_back
        self._pending: deque[Decision] = deque()
        self._arrived = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"journal-{federation}")
        self._task.add_done_callback(self._ended)

    def enter(self, decision: Decision) -> None:
        """Put a decision in line; its future is done once it is durable and carried out."""
        self._pending.append(decision)
        self._arrived.set()

    async def close(self) -> None:
        """Finish what is in line, then end."""
        while self._pending and not self._task.done():
            await asyncio.wait([self._pending[-1].done, self._task], return_when=asyncio.FIRST_COMPLETED)
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._pending:
                await self._commit(len(self._pending))

    async def _commit(self, count: int) -> None:
        batch = list(islice(self._pending, count))
        try:
            await self._store.append(self._federation, [decision.record for decision in batch])
        except (OSError, FedATError) as error:
            self._fail(error)
            return
        for decision in batch:
            await self._carry_out(decision)
            self._pending.popleft()
            if not decision.done.done():
                decision.done.set_result(None)

    def _fail(self, error: BaseException) -> None:
        """Nothing in line has happened, nor what was decided after it."""
        _log.error("log failed", federation=self._federation, error=str(error))
        lost, self._pending = self._pending, deque()
        self._roll_back(lost[0].before)
        for decision in lost:
            if not decision.done.done():
                decision.done.set_exception(NotNow(f"the log cannot be written: {error}", retry_after_s=5))

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A defect in carrying out must not leave anybody waiting for ever."""
        if not task.cancelled() and (error := task.exception()) is not None and self._pending:
            self._fail(error)
