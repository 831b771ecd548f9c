import asyncio
import selectors

import pytest

from fedat_service.clock import LoopClock
from fedat_service.errors import ConfigError


class JumpingSelector(selectors.SelectSelector):
    """Instead of waiting, it lets the time jump."""

    now = 0.0

    def select(self, timeout=None):
        self.now += timeout or 0.0
        return super().select(0)


class JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self):
        self._jumping = JumpingSelector()
        super().__init__(self._jumping)

    def time(self):
        return self._jumping.now


def run(main):
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(main)


@pytest.mark.parametrize("rate", [1.0, 100.0, 0.5])
def test_a_sleep_lasts_as_long_on_the_clock_and_less_on_the_loop_by_the_rate(rate):
    async def sleep():
        loop = asyncio.get_running_loop()
        clock = LoopClock(rate)
        started = loop.time()
        await clock.sleep(30.0)
        return clock.now(), loop.time() - started

    assert run(sleep()) == pytest.approx((30.0, 30.0 / rate))


def test_a_clock_starts_at_zero_when_it_is_made():
    async def start_late():
        await LoopClock().sleep(7.0)
        return LoopClock().now()

    assert run(start_late()) == 0.0


def test_a_clock_knows_its_rate():
    async def rate():
        return LoopClock(60.0).rate

    assert run(rate()) == 60.0


@pytest.mark.parametrize("duration_s", [0.0, -5.0])
def test_no_time_to_wait_is_not_waited_for(duration_s):
    async def sleep():
        others = []
        asyncio.get_running_loop().call_soon(others.append, "ran")
        clock = LoopClock()
        await clock.sleep(duration_s)
        return clock.now(), len(others)

    assert run(sleep()) == (0.0, 0)


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

    assert run(round_of_all()) == pytest.approx(case["outputs"]["t"], rel=case["rtol"])


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
async def test_a_rate_that_is_no_speed_is_refused(rate):
    with pytest.raises(ConfigError, match=f"got {rate}"):
        LoopClock(rate)
