"""Waiting ends by being woken or by time, never by luck."""

import asyncio

import pytest

from fedat_service.coordinator.waiting import Alarm, WaitingRoom


class HandClock:
    """A clock moved by hand."""

    rate = 1.0

    def __init__(self):
        self.time_s = 0.0
        self.sleepers: list[tuple[float, asyncio.Event]] = []

    def now(self):
        return self.time_s

    async def sleep(self, duration_s):
        event = asyncio.Event()
        self.sleepers.append((self.time_s + duration_s, event))
        await event.wait()

    async def move_to(self, time_s):
        await asyncio.sleep(0)
        self.time_s = time_s
        for due_s, event in self.sleepers:
            if due_s <= time_s:
                event.set()
        for _ in range(3):
            await asyncio.sleep(0)


async def test_only_who_is_called_wakes_up():
    room = WaitingRoom()
    a, b = asyncio.create_task(room.wait("a", 60)), asyncio.create_task(room.wait("b", 60))
    await asyncio.sleep(0)
    room.wake(("a", "nobody"))
    assert await a is True
    assert not b.done()
    room.wake_all()
    assert await b is True


async def test_two_polls_of_one_client_wake_together():
    room = WaitingRoom()
    polls = [asyncio.create_task(room.wait("a", 60)) for _ in range(2)]
    await asyncio.sleep(0)
    room.wake(("a",))
    assert await asyncio.gather(*polls) == [True, True]


async def test_a_poll_that_ends_does_not_take_the_other_one_with_it():
    room = WaitingRoom()
    long = asyncio.create_task(room.wait("a", 60))
    await asyncio.sleep(0)
    assert await room.wait("a", 0.0) is False
    room.wake(("a",))
    assert await long is True


async def test_a_wait_without_time_ends_at_once():
    assert await WaitingRoom().wait("a", -1.0) is False


@pytest.fixture
def clock():
    return HandClock()


async def test_the_alarm_rings_once_at_its_time(clock):
    rung = []
    alarm = Alarm(clock, rung.append)
    alarm.set(5.0)
    alarm.set(5.0)
    await clock.move_to(4.0)
    assert rung == []
    await clock.move_to(6.0)
    await clock.move_to(9.0)
    assert rung == [6.0]


async def test_moving_the_alarm_forgets_the_old_time(clock):
    rung = []
    alarm = Alarm(clock, rung.append)
    alarm.set(5.0)
    await clock.move_to(1.0)
    alarm.set(8.0)
    await clock.move_to(5.0)
    assert rung == []
    alarm.set(None)
    await clock.move_to(9.0)
    assert rung == []


async def test_an_alarm_set_again_for_a_time_it_rang_at_rings_again(clock):
    rung = []
    alarm = Alarm(clock, rung.append)
    for _ in range(2):
        alarm.set(5.0)
        await clock.move_to(5.0)
    assert rung == [5.0, 5.0]
