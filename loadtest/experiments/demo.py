"""The demonstration: the same clients under several methods, on real processes, and a report."""

import asyncio
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
from rich.console import Console

from loadtest.experiments.experiment import Experiment
from loadtest.experiments.federations import federation_of, fleet_of, make_room
from loadtest.experiments.files import keep_log
from loadtest.experiments.outcome import Outcome
from loadtest.experiments.progress import Progress, Watch, shown
from loadtest.experiments.report import write_report
from loadtest.experiments.results import MethodRun
from loadtest.experiments.service import fedat_serve, running
from loadtest.experiments.settings import ExperimentSettings, federation_name
from workers.client import FedATClient, Retry, open_http
from workers.fleet.creation import create_federation, describe_model
from workers.fleet.launch import launch

_SOON = Retry(total_s=5.0)
"""The service is a process of ours, next door."""


def run_demo(experiment: Experiment, console: Console) -> Path:
    """Run all methods one after the other and write the report.

    Returns:
        The path of report.md.

    Raises:
        FedATError: If a setting makes no sense, or the folder, a service or a fleet fails.
    """
    make_room(experiment.out, experiment)
    with Progress(experiment, console) as progress:
        runs = asyncio.run(_run_all(experiment, progress))
    return write_report(Outcome(experiment, (experiment.seed,), runs, virtual=False))


async def _run_all(experiment: Experiment, progress: Progress) -> dict[str, tuple[MethodRun]]:
    return {name: (await run_method(name, experiment, progress.watch(name)),) for name in experiment.methods}


async def run_method(name: str, settings: ExperimentSettings, watch: Watch) -> MethodRun:
    """Run one method on a service and a fleet of its own, and keep its event log.

    Nothing is left running, whatever happens.

    Args:
        name: A method of the settings.
        settings: Under which conditions.
        watch: Shown how the federation does, while it runs.

    Raises:
        FedATError: If a setting makes no sense, or the service or the fleet fails.
    """
    settings.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=settings.out, prefix=f".{name}-") as folder:
        events = Path(folder)
        command = fedat_serve(settings.rate, events, keep_updates=settings.keep_updates)
        with running(command, settings.out / "logs" / f"{name}.log") as service:
            run = await _train(name, settings, service.url, watch)
        # The service has ended: its log is whole.
        keep_log(events / f"{federation_name(name)}.events.jsonl", settings.log_of(name))
    return run


async def _train(name: str, settings: ExperimentSettings, url: str, watch: Watch) -> MethodRun:
    fleet = fleet_of(name, settings, url)
    model = describe_model(fleet)
    await create_federation(url, federation_of(name, settings, model.manifest), model)
    start_s = perf_counter()
    async with open_http(url) as http:
        client = FedATClient(
            http, federation_name(name), jitter=np.random.default_rng(settings.seed), retry=_SOON
        )
        async with shown(watch, client):
            tally = await launch(fleet)
        return MethodRun(
            name=name,
            federation=await client.view(),
            metrics=await client.metrics(),
            wall_s=perf_counter() - start_s,
            late_share=tally.late / tally.tasks if tally.tasks else None,
        )
