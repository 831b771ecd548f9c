"""Virtual time: an event loop that never waits, but jumps to its next timer.

The service, the worker loop and the client run on it unchanged: an hour of simulated straggling costs only
the work done in it, and the order of events depends on nothing but the program.
"""

import asyncio
import gc
import selectors
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any, TypeVar, TypeVarTuple, Unpack

from fedat_service.errors import Deadlock, ThreadForbidden

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_COLLECT_AFTER = (50_000, 20, 100)
"""When garbage is looked for: as `gc.set_threshold`."""


class _JumpingSelector(selectors.SelectSelector):
    """Looks whether a file is ready, and instead of waiting lets time pass."""

    def __init__(self, jump: Callable[[float | None], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[Any]:
        """Files that are ready now; if there is none, and nothing else to do, move the clock."""
        ready: list[Any] = super().select(0)
        if not ready and (timeout is None or timeout > 0):
            self._jump(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is a number that jumps to the next timer.

    Threads are forbidden: when one ends is not a matter of this clock.
    """

    def __init__(self) -> None:
        self._virtual_s = 0.0
        super().__init__(_JumpingSelector(self._jump))
        # A jump can fall short of its timer by a rounding; far from zero that is more than the default 1 ns.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._virtual_s

    def _jump(self, timeout: float | None) -> None:
        if timeout is None:
            raise Deadlock("nothing is scheduled, and these tasks wait for ever: " + _waiting(self))
        self._virtual_s += timeout

    def _write_to_self(self) -> None:
        """Wake nobody: a loop that never sleeps needs no byte in a pipe."""

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Hand work to an executor that was chosen for it, never to the loop's own threads.

        Raises:
            ThreadForbidden: If no executor is given.
        """
        if executor is None:
            raise ThreadForbidden(f"{func!r} asked for a thread, whose end is not a matter of virtual time")
        return super().run_in_executor(executor, func, *args)


def _waiting(loop: asyncio.AbstractEventLoop) -> str:
    """Who waits for what: each task's name and the innermost place it stands at."""
    places = []
    for task in sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name()):
        frames = task.get_stack()
        where = f"{frames[-1].f_code.co_qualname}, line {frames[-1].f_lineno}" if frames else "not started"
        places.append(f"{task.get_name()} in {where}")
    return "; ".join(places) or "none"


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on virtual time, as `asyncio.run` does on real time.

    Raises:
        Deadlock: If everything waits and no timer is set.
    """
    with _rare_collections(), asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Look for cycles of garbage seldom: thousands of clients that all live on are gone through each time.

    At Python's own thresholds a third of the time of 10,000 clients goes there, for little garbage.
    """
    before = gc.get_threshold()
    gc.set_threshold(*_COLLECT_AFTER)
    try:
        yield
    finally:
        gc.set_threshold(*before)
