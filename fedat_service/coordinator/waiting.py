"""Waiting without polling: clients for their tasks, the federation for its next deadline."""

import asyncio
from collections.abc import Callable, Iterable

from fedat_service.clock import Clock


class WaitingRoom:
    """Long-polls in progress, by client; a client that was killed and restarted may have two."""

    def __init__(self) -> None:
        self._polls: dict[str, set[asyncio.Future[None]]] = {}

    async def wait(self, name: str, timeout_s: float) -> bool:
        """Wait until somebody wakes `name`; False if nobody did within `timeout_s` real seconds."""
        poll: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._polls.setdefault(name, set()).add(poll)
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                await poll
        except TimeoutError:
            return False
        finally:
            self._leave(name, poll)
        return True

    def _leave(self, name: str, poll: asyncio.Future[None]) -> None:
        polls = self._polls.get(name, set())
        polls.discard(poll)
        if not polls:
            self._polls.pop(name, None)

    def wake(self, names: Iterable[str]) -> None:
        """Let these clients look again."""
        for name in names:
            for poll in self._polls.pop(name, set()):
                if not poll.done():
                    poll.set_result(None)

    def wake_all(self) -> None:
        """Let everybody look again."""
        self.wake(tuple(self._polls))


class Alarm:
    """Rings once at the time it is set to, in the clock's seconds; setting it again moves it."""

    def __init__(self, clock: Clock, ring: Callable[[float], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._due_s: float | None = None
        self._task: asyncio.Task[None] | None = None

    def set(self, due_s: float | None) -> None:
        """Ring at `due_s`, or not at all."""
        if due_s == self._due_s:
            return
        if self._task is not None:
            self._task.cancel()
        self._due_s = due_s
        self._task = None if due_s is None else asyncio.create_task(self._sleep(due_s))

    async def _sleep(self, due_s: float) -> None:
        await self._clock.sleep(due_s - self._clock.now())
        self._due_s = self._task = None
        # A clock may wake a moment early: the time has come all the same.
        self._ring(max(due_s, self._clock.now()))
