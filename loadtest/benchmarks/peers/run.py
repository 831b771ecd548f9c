"""Ours against a hand-written loop, pfl-research and Flower's simulation engine: `python -m` this package.

The work is W1: Fashion-MNIST, 100 clients with 120 training images of two classes, 10 clients a round,
batches of 10, Adam. All start from the same models with the same examples, and every process computes on one
thread; ours, pfl and Flower have two that train. A `round` is the median without evaluation, the first left
out; a `job` is a whole process with an evaluation of the clients' 3,000 test images after every round.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated, Any

import typer

from loadtest.benchmarks.peers.ours import write_data
from loadtest.benchmarks.peers.workload import MODELS, PROCESSES, REPORT_STARTS, Options
from loadtest.benchmarks.run import Results, measurement

_PACKAGE = "loadtest.benchmarks.peers"
_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={PROCESSES}")
_COMMANDS = {
    "ours": ("-m", f"{_PACKAGE}.ours"),
    "ours-bfloat16": ("-m", f"{_PACKAGE}.ours", "--bfloat16"),
    "loop": ("-m", f"{_PACKAGE}.loop"),
    "pfl": (*_TORCHRUN, "-m", f"{_PACKAGE}.pfl_research"),
    "flower": ("-m", f"{_PACKAGE}.flower"),
}
_OWN_ENVIRONMENTS = ("pfl", "flower")
_VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONPATH": str(Path(__file__).parents[3]),
}
_WORKLOADS = ("cnn_e1", "cnn_e3", "mlp_e3", "logistic_e3")
_KINDS = ("round", "job")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a contestant; `seconds` are those of a round or of the whole job, as `kind` says."""

    contestant: str
    workload: str
    kind: str
    seconds: float
    accuracy: float


def compare(runs: Sequence[Run]) -> Results:
    """Ours over each of the others: seconds are medians of the repeats, accuracies their means."""
    groups: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.workload, run.kind, run.contestant), []).append(run)
    results = {}
    for (workload, kind, peer), theirs in groups.items():
        for name in ("ours", "ours-bfloat16"):
            ours = groups.get((workload, kind, name))
            if ours is None or peer.startswith("ours"):
                continue
            results[f"peers_{workload}_{kind}_s_{name}_vs_{peer}"] = measurement(
                median(run.seconds for run in ours), median(run.seconds for run in theirs)
            )
            results[f"peers_{workload}_{kind}_accuracy_{name}_vs_{peer}"] = measurement(
                mean(run.accuracy for run in ours), mean(run.accuracy for run in theirs)
            )
    return results


def python_of(contestant: str, environments: Path) -> Path:
    """The Python that a contestant runs in: its own environment's, or this one.

    Raises:
        BadParameter: If it has no environment in the folder.
    """
    if contestant not in _OWN_ENVIRONMENTS:
        return Path(sys.executable)
    python = environments / contestant / "bin" / "python"
    if not python.exists():
        raise typer.BadParameter(f"there is no {python}: CONTRIBUTING.md says how to make the environments")
    return python


def _run(python: Path, contestant: str, workload: str, kind: str, options: Options) -> Run:
    """Run a contestant, and show what it says, with the load of the machine before."""
    arguments = [str(python), *_COMMANDS[contestant], *options.as_arguments()]
    load, start_s = os.getloadavg()[0], perf_counter()
    done = subprocess.run(arguments, stdout=subprocess.PIPE, check=True, env=os.environ | _VARIABLES)  # noqa: S603
    job_s = perf_counter() - start_s
    # Ray's actors may write after us.
    lines = done.stdout.decode().splitlines()
    told: dict[str, Any] = json.loads(next(line for line in lines if line.startswith(REPORT_STARTS)))
    run = Run(contestant, workload, kind, job_s if kind == "job" else told["round_s"], told["accuracy"])
    line = asdict(run) | {"seed": options.seed, "load": load, "versions": told["versions"]}
    sys.stderr.write(json.dumps(line) + "\n")
    return run


def _chosen(text: str, known: Sequence[str]) -> list[str]:
    names = text.split(",")
    if strange := set(names).difference(known):
        raise typer.BadParameter(f"there is no {min(strange)!r}; there are {', '.join(known)}")
    return names


def _options(workload: str, kind: str, data: Path, rounds: int, seed: int) -> Options:
    model, _, epochs = workload.rpartition("_e")
    if model not in MODELS or not epochs.isdigit():
        raise typer.BadParameter(
            f"a workload is MODEL_eEPOCHS, with {', '.join(MODELS)} for MODEL; got {workload!r}"
        )
    return Options(data, model, int(epochs), rounds, seed, evaluate=kind == "job", bfloat16=False)


def main(
    environments: Annotated[Path, typer.Argument(help="Folder of environments, as in CONTRIBUTING.md.")],
    contestants: Annotated[str, typer.Option(help=", ".join(_COMMANDS))] = "ours,loop,pfl,flower",
    workloads: Annotated[str, typer.Option(help="MODEL_eEPOCHS.")] = ",".join(_WORKLOADS),
    kinds: Annotated[str, typer.Option(help=", ".join(_KINDS))] = "round",
    rounds: int = 20,
    repeats: Annotated[int, typer.Option(help="Each has a seed of its own, from 0.")] = 3,
) -> None:
    """Compare, one contestant after the other in every repeat; prints {name: {value, baseline, ratio}}."""
    pythons = {name: python_of(name, environments) for name in _chosen(contestants, tuple(_COMMANDS))}
    works = list(product(workloads.split(","), _chosen(kinds, _KINDS)))
    runs = []
    with TemporaryDirectory() as folder:
        for seed in range(repeats):
            tasks = [_options(*work, Path(folder) / f"{seed}.npz", rounds, seed) for work in works]
            write_data(tasks[0])
            for work, options in zip(works, tasks, strict=True):
                runs += [_run(python, name, *work, options) for name, python in pythons.items()]
            tasks[0].data.unlink()
    sys.stdout.write(json.dumps(compare(runs), indent=2) + "\n")
