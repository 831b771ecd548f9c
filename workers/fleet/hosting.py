"""One event loop that hosts a process's share of a fleet."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from dataclasses import dataclass

import numpy as np
from torch import nn

from fedat_service.clock import LoopClock
from fedat_service.wire.settings import Solver
from workers.client import Connection, FedATClient, ModelCache, open_http
from workers.fleet.evaluation import FleetEvaluator
from workers.fleet.observer import Observer
from workers.fleet.population import Population
from workers.models.state import manifest_of, params_of
from workers.training.torch_trainer import TorchTrainer
from workers.worker import Tally, Worker, check_manifest

_JITTER = 2
"""Purpose number of the generators that draw back-offs."""


@dataclass(frozen=True, slots=True)
class _Workplace:
    """What the clients of one process share."""

    population: Population
    model: nn.Module
    models: ModelCache
    clock: LoopClock
    executor: Executor

    def worker(self, client: int, connection: FedATClient) -> Worker:
        population = self.population
        train, test = population.train_data(client), population.test_data(client)
        return Worker(
            population.settings.client_name(client),
            population.num_examples(client),
            TorchTrainer(self.model, train, test),
            client=connection,
            models=self.models,
            clock=self.clock,
            executor=self.executor,
            pace=population.pace(client),
            evaluates=population.settings.evaluate_on_task,
        )

    def observer(self, connection: FedATClient) -> Observer:
        evaluate = FleetEvaluator(self.model, self.population)
        every_s = self.population.settings.evaluate_every_s
        return Observer(connection, self.models, self.clock, self.executor, evaluate, every_s)


async def host(
    population: Population,
    process: int,
    executor: Executor,
    connect: Callable[[str], Connection] = open_http,
) -> Tally:
    """Run one process's share of a fleet until the federation is finished or all of it has dropped out.

    Args:
        population: The fleet's clients.
        process: Which share; the first one also observes.
        executor: Where training, evaluation and codecs run. It must do one thing at a time: the clients
            share one torch module.
        connect: Opens one client's way to the service.

    Raises:
        ManifestError: If the federation is about another model.
        FedATError: Whatever ends one of the clients ends all.
    """
    settings = population.settings
    model = population.build_model()
    _warm_up(model, population)
    async with AsyncExitStack() as stack:

        async def client_of(stream: int) -> FedATClient:
            connection = await stack.enter_async_context(connect(settings.url))
            jitter = np.random.default_rng((settings.seed, _JITTER, stream))
            return FedATClient(connection, settings.federation, jitter=jitter)

        onlooker = await client_of(settings.num_clients + process)
        view = await onlooker.view()
        check_manifest(manifest_of(model), view.manifest.to_manifest())
        models = ModelCache(settings.federation, manifest_of(model), executor)
        place = _Workplace(population, model, models, LoopClock(settings.rate or view.clock_rate), executor)
        workers = [place.worker(client, await client_of(client)) for client in settings.clients_of(process)]
        observes = process == 0 and settings.evaluate_every_s > 0
        return await _run_together(workers, place.observer(onlooker) if observes else None)


def _warm_up(model: nn.Module, population: Population) -> None:
    """Train once for nothing: torch's first step takes seconds, which are no client's latency."""
    once = Solver(batch_size=population.num_examples(0))
    trainer = TorchTrainer(model, population.train_data(0), population.test_data(0))
    trainer.train(params_of(model), once, seed=0)


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
