"""One event loop that hosts a process's share of a fleet."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from functools import partial

import numpy as np

from fedat_service.clock import Clock, LoopClock
from workers.client import Connection, FedATClient, ModelCache, open_http
from workers.fleet.engine import Engine
from workers.fleet.observer import Observer
from workers.fleet.population import Population
from workers.fleet.settings import FleetSettings
from workers.models.state import manifest_of
from workers.worker import LONG_POLL_S, Tally, Worker, check_manifest

_JITTER = 2
"""Purpose number of the generators that draw back-offs."""


async def host(
    population: Population,
    process: int,
    engine: Engine,
    executor: Executor,
    connect: Callable[[str], Connection] = open_http,
    wait_s: float = LONG_POLL_S,
) -> Tally:
    """Run one process's share of a fleet until the federation is finished or all of it has dropped out.

    Args:
        population: The fleet's clients.
        process: Which share; the first one also observes.
        engine: Trains and evaluates.
        executor: Where codecs run.
        connect: Opens one client's way to the service.
        wait_s: Longest long-poll, in seconds of the event loop.

    Raises:
        ManifestError: If the federation is about another model.
        FedATError: Whatever ends one of the clients ends all.
    """
    settings = population.settings
    manifest = manifest_of(population.build_model())
    async with AsyncExitStack() as stack:
        client_of = partial(_client_of, settings, connect, stack)
        onlooker = await client_of(settings.num_clients + process)
        view = await onlooker.view()
        check_manifest(manifest, view.manifest.to_manifest())
        models = ModelCache(settings.federation, manifest, executor)
        clock = LoopClock(settings.rate or view.clock_rate)
        workers = [
            _worker_of(population, number, engine, await client_of(number), models, clock, wait_s)
            for number in settings.clients_of(process)
        ]
        observes = process == 0 and settings.evaluate_every_s > 0
        observer = Observer(onlooker, models, clock, engine.evaluate_all, settings.evaluate_every_s)
        return await _run_together(workers, observer if observes else None)


async def _client_of(
    settings: FleetSettings, connect: Callable[[str], Connection], stack: AsyncExitStack, stream: int
) -> FedATClient:
    connection = await stack.enter_async_context(connect(settings.url))
    jitter = np.random.default_rng((settings.seed, _JITTER, stream))
    return FedATClient(connection, settings.federation, jitter=jitter)


def _worker_of(
    population: Population,
    number: int,
    engine: Engine,
    client: FedATClient,
    models: ModelCache,
    clock: Clock,
    wait_s: float,
) -> Worker:
    return Worker(
        population.settings.client_name(number),
        population.num_examples(number),
        engine.training_of(number),
        client=client,
        models=models,
        clock=clock,
        pace=population.pace(number),
        evaluates=population.settings.evaluate_on_task,
        wait_s=wait_s,
    )


async def _run_together(workers: Sequence[Worker], observer: Observer | None) -> Tally:
    """Run all until all are done; the first error ends the others and is raised."""
    finished = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_run_one(worker, finished)) for worker in workers]
            if observer is not None:
                group.create_task(observer.run(finished))
    except BaseExceptionGroup as failures:
        raise _first(failures) from None
    return sum((task.result() for task in tasks), Tally())


async def _run_one(worker: Worker, finished: asyncio.Event) -> Tally:
    tally = await worker.run()
    if tally.finished:
        finished.set()
    return tally


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    error = failures.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
