"""Time as an argument: the same program runs on real time, on sped-up time and on virtual time."""

import asyncio
import math
from typing import Protocol

from fedat_service.errors import ConfigError


class Clock(Protocol):
    """Seconds of the federation: every duration that a method, a tier or a straggler knows."""

    @property
    def rate(self) -> float:
        """Federation seconds per second of the event loop."""
        ...

    def now(self) -> float:
        """Seconds since the clock was made."""
        ...

    async def sleep(self, duration_s: float) -> None:
        """Wait for `duration_s` federation seconds."""
        ...


class LoopClock:
    """The running event loop's time, sped up by `rate`.

    With `rate=100` a simulated straggler of 30 s costs 0.3 s; a loop whose time jumps to its next timer
    makes the very same class a virtual clock.

    Raises:
        ConfigError: If `rate` is not a positive finite number.
    """

    def __init__(self, rate: float = 1.0) -> None:
        if not (math.isfinite(rate) and rate > 0):
            raise ConfigError(f"rate must be a positive number, got {rate!r}")
        self._rate = rate
        self._start = asyncio.get_running_loop().time()

    @property
    def rate(self) -> float:
        """Federation seconds per second of the event loop."""
        return self._rate

    def now(self) -> float:
        """Federation seconds since this clock was made."""
        return (asyncio.get_running_loop().time() - self._start) * self._rate

    async def sleep(self, duration_s: float) -> None:
        """Wait for `duration_s` federation seconds; not at all if it is not positive."""
        if duration_s > 0:
            await asyncio.sleep(duration_s / self._rate)  # noqa: TID251 - the one place that may
