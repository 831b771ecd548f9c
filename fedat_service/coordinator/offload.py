"""Where work goes that would hold up the event loop: a thread, or inline where threads are forbidden."""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Offload(Protocol):
    """Runs a function and waits for its result."""

    async def __call__(self, work: Callable[[], T], /) -> T:
        """Return what `work` returns."""
        ...


async def in_thread(work: Callable[[], T], /) -> T:
    """Run in the event loop's thread pool: codecs, hashes and sums release the interpreter lock."""
    return await asyncio.to_thread(work)


async def inline(work: Callable[[], T], /) -> T:
    """Run here and now: on virtual time nothing else could happen meanwhile."""
    return work()
