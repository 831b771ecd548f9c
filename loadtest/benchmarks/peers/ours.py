"""Ours in virtual time: service, HTTP layer, codec, event log and workers, and a pool of two that trains."""

import asyncio
from concurrent.futures import Executor
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
from fedat_service.wire.codecs import make_codec
from fedat_service.wire.messages import CreateFederation, ManifestMessage
from fedat_service.wire.presets import resolve
from fedat_service.wire.settings import Rounds, Stop
from loadtest.benchmarks.peers import workload
from workers.client import AppConnection, FedATClient, ModelCache
from workers.fleet.cohort_engine import CohortEngine
from workers.fleet.hosting import host
from workers.fleet.pools import open_pool
from workers.fleet.population import Population, build_model
from workers.fleet.settings import FleetSettings
from workers.models.state import manifest_of
from workers.training.jobs import InlineExecutor

_URL, _NAME = "http://simulated", "w1"
_LONGEST_POLL_S = 3600.0
_ROUND_S = 20.0
"""Simulated seconds of a round: everybody takes equally long."""


def fleet_of(model: str, seed: int, evaluate: bool) -> FleetSettings:
    """The clients: 120 training and 30 test images of two classes each."""
    return FleetSettings(
        federation=_NAME,
        num_clients=workload.CLIENTS,
        num_processes=1,
        data="fashion-mnist",
        limit_per_class=1500,
        partition="classes:2",
        model=model,
        latency="none",
        compute_s=_ROUND_S,
        seed=seed,
        evaluate_every_s=_ROUND_S if evaluate else 0.0,
    )


def write_data(path: Path, seed: int, models: tuple[str, ...] = ("cnn", "mlp", "logistic")) -> None:
    """Write what the others train on: the same clients, and the same initial models."""
    population = Population(fleet_of(models[0], seed, evaluate=False))
    trains, tests = (
        [data_of(client) for client in range(workload.CLIENTS)]
        for data_of in (population.train_data, population.test_data)
    )
    starts = {
        f"{model}/{key}": value.numpy()
        for model in models
        for key, value in build_model(model, population.dataset, seed).state_dict().items()
    }
    np.savez(
        path,
        allow_pickle=False,
        x=np.stack([x for x, _ in trains]),
        y=np.stack([y for _, y in trains]),
        test_x=np.concatenate([x for x, _ in tests]),
        test_y=np.concatenate([y for _, y in tests]),
        **starts,
    )


async def _simulate(options: workload.Options, pool: Executor, store: JsonLinesStore) -> None:
    fleet = fleet_of(options.model, options.seed, options.evaluate)
    population = Population(fleet)
    manifest = manifest_of(population.build_model())
    app = create_app(Limits(max_wait_s=_LONGEST_POLL_S), store=store, offload=inline)
    connect = partial(AppConnection, app)
    engine = CohortEngine(fleet, pool, autocast=options.bfloat16)
    marks_s: list[float] = []
    async with app.router.lifespan_context(app), connect(_URL) as connection:
        client = FedATClient(connection, _NAME, jitter=np.random.default_rng(options.seed))
        await client.create_federation(_federation(options, ManifestMessage.of(manifest)))
        marking = asyncio.create_task(_mark(marks_s))
        await host(population, 0, engine, InlineExecutor(), connect, _LONGEST_POLL_S)
        marks_s.append(perf_counter())
        marking.cancel()
        models = ModelCache(_NAME, manifest, InlineExecutor())
        last = await client.fetch_newest(models, make_codec(resolve("fedavg").codec))
        clients = await engine.evaluate_all(last.params, 0.0).result()
    reached = sum(one.correct for one in clients) / sum(one.num_examples for one in clients)
    workload.report(marks_s, reached, "fedat-service")


async def _mark(marks_s: list[float]) -> None:
    """Note the real time in the middle of each round: its training happens at its end."""
    await asyncio.sleep(_ROUND_S / 2)  # noqa: TID251 - simulated time
    while True:
        marks_s.append(perf_counter())
        await asyncio.sleep(_ROUND_S)  # noqa: TID251 - simulated time


def _federation(options: workload.Options, manifest: ManifestMessage) -> CreateFederation:
    method = resolve("fedavg")
    work = {"lr": workload.LR, "batch_size": workload.BATCH, "epochs": options.epochs}
    return CreateFederation(
        name=_NAME,
        method=method.model_copy(update={"solver": method.solver.model_copy(update=work)}),
        manifest=manifest,
        rounds=Rounds(cohort_size=workload.COHORT, start_clients=workload.CLIENTS),
        stop=Stop(max_versions=options.rounds),
        seed=options.seed,
    )


def main() -> None:
    """Run it."""
    options = workload.read_options()
    with TemporaryDirectory() as folder, open_pool("processes", workload.PROCESSES) as pool:
        run_virtual(_simulate(options, pool, JsonLinesStore(Path(folder))))


if __name__ == "__main__":
    main()
