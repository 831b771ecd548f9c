"""How an experiment does, while it runs: a line a method on a terminal, else a few lines of text."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bars
from rich.table import Column

from fedat_service.errors import NotNow
from fedat_service.wire.views import AccuracyPoint
from loadtest.experiments.settings import ExperimentSettings
from workers.client import FedATClient
from workers.fleet.progress import describe, newest_evaluation

_LOOK_EVERY_S = 1.0
_LOOKS_PER_EVALUATION = 3
"""Time series grow: they are asked for less often."""

Watch = Callable[[FedATClient, asyncio.Event], Coroutine[Any, Any, None]]
"""Shows a federation until the event is set; never fails because it cannot be reached."""


class Progress:
    """Shows each method's simulated time, version, accuracy and tiers. A context manager.

    Args:
        settings: What is run.
        console: Where to show it.
        look_every_s: Seconds of the event loop between two looks; in virtual time these are simulated.
    """

    def __init__(
        self, settings: ExperimentSettings, console: Console, look_every_s: float = _LOOK_EVERY_S
    ) -> None:
        self._horizon_of = settings.horizon_of
        self._look_every_s = look_every_s
        self._console = console
        self._bars = Bars(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            # May wrap: on a narrow terminal the names stay whole.
            TextColumn("{task.fields[words]}", markup=False, table_column=Column()),
            console=console,
            disable=not console.is_terminal,
        )
        self._lines = {
            name: self._bars.add_task(name, total=settings.horizon_of(name), words="waits")
            for name in settings.methods
        }

    def __enter__(self) -> "Progress":
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def keep(self, name: str) -> None:
        """Say that a method's run is there already."""
        self._bars.update(
            self._lines[name], completed=self._horizon_of(name), words="kept from an earlier run"
        )
        if not self._console.is_terminal:
            self._say(f"{name}: kept from an earlier run")

    def watch(self, name: str, *, is_begun: bool = False) -> Watch:
        """What shows one method; `is_begun` if it was interrupted, and what it computed is looked up."""
        line, begins = self._lines[name], "goes on where it was interrupted" if is_begun else "starts"
        self._bars.update(line, words=begins)
        if not self._console.is_terminal:
            self._say(f"{name}: {begins}; {self._horizon_of(name):,.0f} simulated seconds")

        async def watch(client: FedATClient, finished: asyncio.Event) -> None:
            await self._watch(line, self._horizon_of(name), client, finished)

        return watch

    async def _watch(
        self, line: TaskID, horizon_s: float, client: FedATClient, finished: asyncio.Event
    ) -> None:
        evaluated: AccuracyPoint | None = None
        look = 0
        words = ""
        over = False
        while not over:
            # Once more after the end: the last words are those of the last version.
            over = finished.is_set()
            try:
                view = await client.view()
                if over or look % _LOOKS_PER_EVALUATION == 0:
                    evaluated = await newest_evaluation(client)
                words = describe(view, evaluated)
                self._bars.update(line, completed=min(view.now_s, horizon_s), words=words)
            except NotNow as error:
                self._bars.update(line, words=str(error))
            look += 1
            await _wait(finished, self._look_every_s)
        if not self._console.is_terminal:
            self._say(words)

    def _say(self, words: str) -> None:
        self._console.print(words, highlight=False, markup=False, soft_wrap=True)


@asynccontextmanager
async def shown(watch: Watch, client: FedATClient) -> AsyncIterator[None]:
    """Have a federation watched until the block is left.

    Whoever watches is told, not cancelled: httpx loses the connection of a cancelled request.
    """
    finished = asyncio.Event()
    watching = asyncio.create_task(watch(client, finished))
    try:
        yield
    finally:
        finished.set()
        await watching


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
