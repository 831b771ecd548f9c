import asyncio

import pytest

from fedat_service.clock import LoopClock
from fedat_service.errors import ConfigError
from fedat_service.virtual import run_virtual


@pytest.mark.parametrize("rate", [1.0, 100.0, 0.5])
def test_a_sleep_lasts_as_long_on_the_clock_and_less_on_the_loop_by_the_rate(rate):
    async def sleep():
        loop = asyncio.get_running_loop()
        clock = LoopClock(rate)
        started = loop.time()
        await clock.sleep(30.0)
        return clock.now(), loop.time() - started

    assert run_virtual(sleep()) == pytest.approx((30.0, 30.0 / rate))


def test_a_clock_starts_at_zero_when_it_is_made():
    async def start_late():
        await LoopClock().sleep(7.0)
        return LoopClock().now()

    assert run_virtual(start_late()) == 0.0


def test_a_clock_knows_its_rate():
    async def rate():
        return LoopClock(60.0).rate

    assert run_virtual(rate()) == 60.0


@pytest.mark.parametrize("duration_s", [0.0, -5.0])
def test_no_time_to_wait_is_not_waited_for(duration_s):
    async def sleep():
        others = []
        asyncio.get_running_loop().call_soon(others.append, "ran")
        clock = LoopClock()
        await clock.sleep(duration_s)
        return clock.now(), len(others)

    assert run_virtual(sleep()) == (0.0, 0)


def test_a_synchronous_round_lasts_as_long_as_its_slowest_client(golden):
    case = golden("sync_round_time")

    async def client(clock, compute_s, delay_s):
        await clock.sleep(compute_s)
        await clock.sleep(delay_s)

    async def round_of_all():
        clock = LoopClock(rate=10.0)
        await asyncio.gather(
            *(client(clock, *pair) for pair in zip(*case["inputs"].values(), strict=True)),
        )
        return clock.now()

    assert run_virtual(round_of_all()) == pytest.approx(case["outputs"]["t"], rel=case["rtol"])


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
async def test_a_rate_that_is_no_speed_is_refused(rate):
    with pytest.raises(ConfigError, match=f"got {rate}"):
        LoopClock(rate)
