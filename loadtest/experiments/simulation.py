"""One method in virtual time: the real service and the real workers in this process, without waiting."""

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

from fedat_service.coordinator.limits import Limits
from fedat_service.coordinator.offload import inline
from fedat_service.http.app import create_app
from fedat_service.store.base import Record
from fedat_service.store.jsonl import JsonLinesStore
from fedat_service.virtual import run_virtual
from fedat_service.wire.messages import ManifestMessage
from loadtest.experiments.content import content_of
from loadtest.experiments.federations import federation_of, fleet_of
from loadtest.experiments.files import keep_log
from loadtest.experiments.progress import Watch, shown
from loadtest.experiments.results import MethodRun
from loadtest.experiments.settings import ExperimentSettings, federation_name
from loadtest.experiments.unfinished import ResumingExecutor, unfinished
from loadtest.in_process import LONGEST_POLL_S, URL
from workers.client import AppConnection, FedATClient
from workers.fleet.cohort_engine import CohortEngine
from workers.fleet.hosting import host
from workers.fleet.pools import EngineName, open_pool
from workers.models.state import manifest_of
from workers.training.devices import find_device
from workers.training.jobs import InlineExecutor


def simulate(
    name: str,
    settings: ExperimentSettings,
    watch: Watch,
    engine: EngineName = "processes",
) -> MethodRun:
    """Run one method in virtual time, and keep its event log.

    What was interrupted goes on: its results are in `settings.unfinished_of(name)` until the run is over.

    Args:
        name: The method, as the experiment calls it.
        settings: Under which conditions; `rate` plays no part.
        watch: Shown how the federation does, while it runs.
        engine: Where training runs; the results do not depend on it.

    Raises:
        FedATError: If a setting makes no sense, the federation fails, or a run under other conditions was
            interrupted here.
        OSError: If the folder cannot be written to.
    """
    folder = settings.unfinished_of(name)
    # One event loop hosts all clients; the pool's processes compute, all on the device that is found here.
    here = {"num_processes": 1, "device": str(find_device(settings.device))}
    fleet = fleet_of(name, settings, URL).model_copy(update=here)
    with (
        unfinished(folder, settings.conditions_of(name, content_of(settings))),
        TemporaryDirectory(dir=folder) as events,
        open_pool(engine, settings.processes) as pool,
        ResumingExecutor(pool, folder) as work,
    ):
        store = _EndingStore(Path(events), keeps_bodies=settings.keep_updates)
        trainer = CohortEngine(fleet, work)
        trainer.prepare(pool, settings.processes)
        run = run_virtual(_run(name, settings, trainer, store, watch))
        keep_log(Path(events) / f"{federation_name(name)}.events.jsonl", settings.log_of(name))
    return run


class _EndingStore(JsonLinesStore):
    """Event logs that end the run when they cannot be written.

    A service tries again later; in virtual time nobody makes room on a disk meanwhile.
    """

    _task: asyncio.Task[Any] | None = None
    _error: OSError | None = None

    @contextmanager
    def ending_this_task(self) -> Iterator[None]:
        """Have the current task end with the first failure.

        Raises:
            OSError: If a log could not be written.
        """
        self._task = asyncio.current_task()
        try:
            yield
        except asyncio.CancelledError:
            if self._error is not None:
                raise self._error from None
            raise

    async def create(self, federation: str, definition: str) -> None:
        """See `Store`."""
        await self._or_end(super().create(federation, definition))

    async def append(self, federation: str, records: Sequence[Record]) -> None:
        """See `Store`."""
        await self._or_end(super().append(federation, records))

    async def _or_end(self, writing: Awaitable[None]) -> None:
        try:
            await writing
        except OSError as error:
            self._error = error
            if self._task is not None:
                self._task.cancel()
            # Whoever asked is not told to try again, but cancelled with the rest.
            await asyncio.Future()


async def _run(
    name: str,
    settings: ExperimentSettings,
    trainer: CohortEngine,
    store: _EndingStore,
    watch: Watch,
) -> MethodRun:
    population = trainer.population
    manifest = ManifestMessage.of(manifest_of(population.build_model()))
    app = create_app(Limits(max_wait_s=LONGEST_POLL_S), store=store, offload=inline)
    connect = partial(AppConnection, app)
    start_s = perf_counter()
    with store.ending_this_task():
        async with app.router.lifespan_context(app), connect(URL) as connection:
            client = FedATClient(
                connection, federation_name(name), jitter=np.random.default_rng(settings.seed)
            )
            await client.create_federation(federation_of(name, settings, manifest))
            async with shown(watch, client):
                await host(population, 0, trainer, InlineExecutor(), connect, LONGEST_POLL_S)
            return MethodRun(
                name=name,
                federation=await client.view(),
                metrics=await client.metrics(),
                wall_s=perf_counter() - start_s,
            )
