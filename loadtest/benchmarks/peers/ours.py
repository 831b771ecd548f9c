"""Ours in virtual time: service, HTTP layer, codec, event log and workers, and a pool of two that trains."""

import asyncio
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

from fedat_service.clock import LoopClock
from fedat_service.federation.drawing import draw_ranks
from loadtest.benchmarks.peers import workload
from loadtest.experiments.federations import fleet_of
from loadtest.experiments.settings import ExperimentSettings
from loadtest.experiments.simulation import simulate
from workers.client import FedATClient
from workers.fleet.population import Population, build_model

_METHOD, _TIER = "fedavg", 1
_ROUND_S = 20.0
"""Simulated seconds of a round: everybody takes equally long."""


def settings_of(options: workload.Options, out: Path) -> ExperimentSettings:
    """The work as an experiment: 100 clients with 120 training and 100 test images of two classes each."""
    images = workload.TRAINING_IMAGES + workload.TEST_IMAGES
    return ExperimentSettings(
        methods=(_METHOD,),
        data="fashion-mnist",
        limit_per_class=images * workload.CLIENTS // workload.CLASSES,
        test_fraction=workload.TEST_IMAGES / images,
        partition="classes:2",
        model=options.model,
        num_clients=workload.CLIENTS,
        cohort_size=workload.COHORT,
        num_unstable=0,
        latency="none",
        compute_s=_ROUND_S,
        horizon_s=_ROUND_S * (options.rounds + 0.75),
        epochs=options.epochs,
        batch_size=workload.BATCH,
        lr=workload.LR,
        # Without: only before the first round and after the last.
        evaluate_every_s=_ROUND_S * (1 if options.evaluate else options.rounds + 1),
        seed=options.seed,
        processes=workload.PROCESSES,
        bfloat16=options.bfloat16,
        out=out,
    )


def write_data(options: workload.Options) -> None:
    """Write what the others train on: the same clients and initial models, and the cohorts of our rounds."""
    settings = settings_of(options, options.data.parent)
    population = Population(fleet_of(_METHOD, settings, ""))
    trains, tests = (
        [data_of(client) for client in range(workload.CLIENTS)]
        for data_of in (population.train_data, population.test_data)
    )
    cohorts = [
        draw_ranks(options.seed, _TIER, number, workload.CLIENTS, workload.COHORT)
        for number in range(1, options.rounds + 1)
    ]
    starts = {
        f"{model}/{key}": value.numpy()
        for model in workload.MODELS
        for key, value in build_model(model, population.dataset, options.seed).state_dict().items()
    }
    np.savez(
        options.data,
        allow_pickle=False,
        x=np.stack([x for x, _ in trains]),
        y=np.stack([y for _, y in trains]),
        test_x=np.concatenate([x for x, _ in tests]),
        test_y=np.concatenate([y for _, y in tests]),
        cohorts=np.array(cohorts),
        **starts,
    )


async def _mark(marks_s: list[float], _: FedATClient, finished: asyncio.Event) -> None:
    """Note the real time in the middle of each round: its training happens at its end."""
    clock = LoopClock()
    await clock.sleep(_ROUND_S / 2)
    while not finished.is_set():
        marks_s.append(perf_counter())
        await clock.sleep(_ROUND_S)


def main() -> None:
    """Run it."""
    options = workload.read_options()
    marks_s: list[float] = []
    with TemporaryDirectory() as folder:
        settings = settings_of(options, Path(folder))
        run = simulate(_METHOD, settings, partial(_mark, marks_s))
    workload.report(marks_s, run.metrics.evaluations[-1].accuracy, "fedat-service")


if __name__ == "__main__":
    main()
