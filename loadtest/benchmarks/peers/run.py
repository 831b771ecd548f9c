"""Ours against a hand-written loop, pfl-research and Flower's simulation engine: `python -m` this package.

The work is W1: Fashion-MNIST, 100 clients with 120 training images of two classes, 10 clients a round,
batches of 10, Adam. All start from the same models with the same examples, and every process computes on one
thread; ours, pfl and Flower have two that train. A `round` is the median without evaluation, the first left
out; a `job` is a whole process with an evaluation of the clients' 10,000 test images after every round.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated, Any

import typer

from fedat_service.errors import NotMeasured
from loadtest.benchmarks.peers.comparison import Run, compare
from loadtest.benchmarks.peers.environments import REQUIREMENTS, python_of
from loadtest.benchmarks.peers.ours import write_data
from loadtest.benchmarks.peers.processes import output_of, tried_twice
from loadtest.benchmarks.peers.workload import MODELS, PROCESSES, REPORT_STARTS, Options
from loadtest.benchmarks.run import Results, show

_PACKAGE = "loadtest.benchmarks.peers"
_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={PROCESSES}")
_COMMANDS = {
    "ours": ("-m", f"{_PACKAGE}.ours"),
    "ours-bfloat16": ("-m", f"{_PACKAGE}.ours", "--bfloat16"),
    "loop": ("-m", f"{_PACKAGE}.loop"),
    "pfl": (*_TORCHRUN, "-m", f"{_PACKAGE}.pfl_research"),
    "flower": ("-m", f"{_PACKAGE}.flower"),
}
_VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONPATH": str(Path(__file__).parents[3]),
}
_WORKLOADS = ("cnn_e1", "cnn_e3", "mlp_e3", "logistic_e3")
_KINDS = ("round", "job")

_ENVIRONMENTS = Path(".venv-peers")
_MEASURED = (*((workload, "round") for workload in _WORKLOADS), ("cnn_e1", "job"))
_ROUNDS = 20
_SEEDS = 3


def measure() -> Results:
    """Rounds of every workload, and whole jobs of the one in which evaluation weighs most, over three seeds.

    Raises:
        NotMeasured: If somebody failed twice; it holds the results of the others.
    """
    return run_all(_ENVIRONMENTS, contestants_here(), _MEASURED, _ROUNDS, _SEEDS)


def contestants_here(cpuinfo: Path = Path("/proc/cpuinfo")) -> tuple[str, ...]:
    """Who takes part: ours in bfloat16 only where the processor has it, by what Linux says of it."""
    has_bfloat16 = cpuinfo.exists() and "bf16" in cpuinfo.read_text()
    return tuple(name for name in _COMMANDS if has_bfloat16 or name != "ours-bfloat16")


def run_all(
    environments: Path,
    contestants: Sequence[str],
    works: Sequence[tuple[str, str]],
    rounds: int,
    num_seeds: int,
) -> Results:
    """Run one contestant after the other on every work, and all of that again with the next seed.

    Args:
        environments: Folder of the others' environments; what is missing there is made.
        contestants: Their names.
        works: Workloads and kinds.
        rounds: Of every run.
        num_seeds: How many: 0, 1, 2 ...

    Raises:
        NotMeasured: If somebody failed twice; it holds the results of the others.
        DataMissing: If Fashion-MNIST is not on this machine.
    """
    failures: dict[str, list[str]] = {}
    commands, runs = {}, []
    with TemporaryDirectory() as folder:
        tasks = [
            options_of(*work, Path(folder) / f"{seed}.npz", rounds, seed)
            for seed, work in product(range(num_seeds), works)
        ]
        for options in {task.data: task for task in tasks}.values():
            write_data(options)
        for name in contestants:
            with _noted(failures, name):
                commands[name] = _command_of(name, environments)
        for options, name in product(tasks, commands):
            with _noted(failures, name):
                runs.append(tried_twice(name, partial(run_once, name, commands[name], options)))
    results = compare(runs)
    if failures:
        raise NotMeasured("; ".join(map(_told, failures, failures.values())), results)
    return results


@contextmanager
def _noted(failures: dict[str, list[str]], name: str) -> Iterator[None]:
    try:
        yield
    except (NotMeasured, OSError) as error:
        failures.setdefault(name, []).append(str(error))


def _told(name: str, failures: Sequence[str]) -> str:
    return f"{name} failed {len(failures)} times, at last with: {failures[-1]}"


def _command_of(name: str, environments: Path) -> list[str]:
    own = REQUIREMENTS.get(name)
    python = sys.executable if own is None else str(python_of(environments / name, own))
    return [python, *_COMMANDS[name]]


def run_once(contestant: str, command: Sequence[str], options: Options) -> Run:
    """Run a contestant, and tell what came of it, with the load of the machine before.

    Raises:
        NotMeasured: If it fails, or reports nothing.
    """
    load, start_s = os.getloadavg()[0], perf_counter()
    # Ray's actors may write after the contestant has.
    lines = output_of([*command, *options.as_arguments()], os.environ | _VARIABLES).splitlines()
    job_s = perf_counter() - start_s
    reports = [line for line in lines if line.startswith(REPORT_STARTS)]
    if not reports:
        raise NotMeasured("it ended without a report")
    told: dict[str, Any] = json.loads(reports[0])
    kind, seconds = ("job", job_s) if options.evaluate else ("round", told["round_s"])
    run = Run(contestant, options.workload, kind, options.seed, seconds, told["accuracy"], told["versions"])
    sys.stderr.write(json.dumps(asdict(run) | {"load": load}) + "\n")
    return run


def options_of(workload: str, kind: str, data: Path, rounds: int, seed: int) -> Options:
    """What a contestant is asked for.

    Raises:
        BadParameter: If there is no such workload.
    """
    model, _, epochs = workload.rpartition("_e")
    if model not in MODELS or not epochs.isdigit():
        raise typer.BadParameter(
            f"a workload is MODEL_eEPOCHS, with {', '.join(MODELS)} for MODEL; got {workload!r}"
        )
    return Options(data, model, int(epochs), rounds, seed, evaluate=kind == "job", bfloat16=False)


def _chosen(text: str, known: Sequence[str]) -> list[str]:
    names = text.split(",")
    if strange := set(names).difference(known):
        raise typer.BadParameter(f"there is no {min(strange)!r}; there are {', '.join(known)}")
    return names


def main(
    environments: Annotated[
        Path, typer.Argument(help="Folder of the others' environments; what is missing there is made.")
    ] = _ENVIRONMENTS,
    contestants: Annotated[
        str | None, typer.Option(help=f"{', '.join(_COMMANDS)}; all that the processor suits.")
    ] = None,
    workloads: Annotated[str, typer.Option(help="MODEL_eEPOCHS.")] = ",".join(_WORKLOADS),
    kinds: Annotated[str, typer.Option(help=", ".join(_KINDS))] = "round",
    rounds: Annotated[int, typer.Option(help="Of every run.", min=2)] = _ROUNDS,
    repeats: Annotated[int, typer.Option(help="Each has a seed of its own, from 0.", min=1)] = _SEEDS,
) -> None:
    """Compare, one contestant after the other; prints {name: {value, baseline, ratio, versions}}."""
    names = contestants_here() if contestants is None else _chosen(contestants, tuple(_COMMANDS))
    works = list(product(workloads.split(","), _chosen(kinds, _KINDS)))
    show(partial(run_all, environments, names, works, rounds, repeats))
