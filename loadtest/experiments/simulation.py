"""One method in virtual time: the real service and the real workers in this process, without waiting."""

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

from fedat_service.coordinator.limits import Limits
from fedat_service.coordinator.offload import inline
from fedat_service.http.app import create_app
from fedat_service.store.jsonl import JsonLinesStore
from fedat_service.virtual import run_virtual
from fedat_service.wire.messages import ManifestMessage
from loadtest.experiments.demo import federation_of, fleet_of
from loadtest.experiments.files import keep_log
from loadtest.experiments.progress import Watch, shown
from loadtest.experiments.results import MethodRun
from loadtest.experiments.settings import ExperimentSettings, federation_name
from loadtest.experiments.unfinished import ResumingExecutor, unfinished
from workers.client import AppConnection, FedATClient
from workers.fleet.cohort_engine import CohortEngine
from workers.fleet.hosting import host
from workers.fleet.pools import EngineName, open_pool
from workers.fleet.population import Population
from workers.fleet.settings import FleetSettings
from workers.models.state import manifest_of
from workers.training.jobs import InlineExecutor

_URL = "http://simulated"
_LONGEST_POLL_S = 3600.0
"""What the API allows: an idle client costs nothing while it waits, and nothing can get lost on the way."""


def simulate(
    name: str,
    settings: ExperimentSettings,
    watch: Watch,
    engine: EngineName = "processes",
    *,
    autocast: bool = False,
) -> MethodRun:
    """Run one method in virtual time, and keep its event log.

    What was interrupted goes on: its results are in `settings.unfinished_of(name)` until the run is over.

    Args:
        name: The method, as the experiment calls it.
        settings: Under which conditions; `rate` plays no part.
        watch: Shown how the federation does, while it runs.
        engine: Where training runs; the results do not depend on it.
        autocast: Whether stacks compute in bfloat16: faster on processors that have it, else slower.

    Raises:
        FedATError: If a setting makes no sense, the federation fails, or a run under other conditions was
            interrupted here.
        OSError: If the folder cannot be written to.
    """
    folder = settings.unfinished_of(name)
    # One event loop hosts all clients; the pool's processes only train.
    fleet = fleet_of(name, settings, _URL).model_copy(update={"num_processes": 1})
    with (
        unfinished(folder, settings.conditions_of(name)),
        TemporaryDirectory(dir=folder) as events,
        open_pool(engine, settings.processes) as pool,
        ResumingExecutor(pool, folder) as work,
    ):
        store = JsonLinesStore(Path(events), keeps_bodies=settings.keep_updates)
        trainer = CohortEngine(fleet, work, autocast=autocast)
        run = run_virtual(_run(name, settings, fleet, trainer, store, watch))
        keep_log(Path(events) / f"{federation_name(name)}.events.jsonl", settings.log_of(name))
    return run


async def _run(
    name: str,
    settings: ExperimentSettings,
    fleet: FleetSettings,
    trainer: CohortEngine,
    store: JsonLinesStore,
    watch: Watch,
) -> MethodRun:
    population = Population(fleet)
    manifest = ManifestMessage.of(manifest_of(population.build_model()))
    app = create_app(Limits(max_wait_s=_LONGEST_POLL_S), store=store, offload=inline)
    connect = partial(AppConnection, app)
    start_s = perf_counter()
    async with app.router.lifespan_context(app), connect(_URL) as connection:
        client = FedATClient(connection, federation_name(name), jitter=np.random.default_rng(settings.seed))
        await client.create_federation(federation_of(name, settings, manifest))
        async with shown(watch, client):
            await host(population, 0, trainer, InlineExecutor(), connect, _LONGEST_POLL_S)
        return MethodRun(
            name=name,
            federation=await client.view(),
            metrics=await client.metrics(),
            wall_s=perf_counter() - start_s,
        )
