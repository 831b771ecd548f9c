"""Waiting without polling: clients for their tasks, the federation for its next deadline."""

import asyncio
from collections.abc import Callable

from fedat_service.clock import Clock


class WaitingRoom:
    """Long-polls in progress, by client."""

    def __init__(self) -> None:
        self._events: dict[str, asyncio.Event] = {}

    async def wait(self, name: str, timeout_s: float) -> bool:
        """Wait until somebody wakes `name`; False if nobody did within `timeout_s` real seconds."""
        event = self._events.setdefault(name, asyncio.Event())
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                await event.wait()
        except TimeoutError:
            return False
        finally:
            if self._events.get(name) is event:
                del self._events[name]
        return True

    def wake(self, names: tuple[str, ...]) -> None:
        """Let these clients look again."""
        for name in names:
            if (event := self._events.pop(name, None)) is not None:
                event.set()

    def wake_all(self) -> None:
        """Let everybody look again."""
        self.wake(tuple(self._events))


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
