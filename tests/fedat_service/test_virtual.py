"""Virtual time jumps, never waits, and knows a deadlock when it sees one."""

import asyncio
import gc

import pytest

from fedat_service.clock import LoopClock
from fedat_service.errors import Deadlock, ThreadForbidden
from fedat_service.virtual import run_virtual


def test_a_year_passes_at_once_and_in_order():
    seen = []

    async def nap(clock, seconds):
        await clock.sleep(seconds)
        seen.append((seconds, clock.now()))

    async def main():
        clock = LoopClock()
        async with asyncio.TaskGroup() as group:
            for seconds in (3.15e7, 60.0, 0.5, 60.0):
                group.create_task(nap(clock, seconds))

    run_virtual(main())
    assert seen == [(0.5, 0.5), (60.0, 60.0), (60.0, 60.0), (3.15e7, 3.15e7)]


def test_time_stands_still_while_there_is_work():
    async def main():
        clock = LoopClock()
        for _ in range(100):
            await asyncio.sleep(0)
        return clock.now()

    assert run_virtual(main()) == 0.0


def test_timeouts_are_virtual_too():
    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 3600.0


def test_a_deadlock_says_who_waits_where():
    async def wait_for_godot():
        await asyncio.Event().wait()

    async def main():
        await asyncio.create_task(wait_for_godot(), name="vladimir")

    with pytest.raises(Deadlock, match=r"vladimir in .*wait_for_godot"):
        run_virtual(main())


def test_nobody_is_woken_by_a_byte_in_a_pipe():
    async def main():
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        loop.call_soon_threadsafe(woken.set)
        with pytest.raises(BlockingIOError):
            loop._ssock.recv(1)
        await woken.wait()

    run_virtual(main())


def test_threads_are_forbidden():
    with pytest.raises(ThreadForbidden):
        run_virtual(asyncio.to_thread(print))


def test_the_collector_of_garbage_is_left_as_it_was():
    async def fail():
        raise ValueError("on purpose")

    before = gc.get_threshold()
    with pytest.raises(ValueError, match="on purpose"):
        run_virtual(fail())
    assert gc.get_threshold() == before
