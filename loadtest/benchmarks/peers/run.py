"""Ours against a hand-written loop, pfl-research and Flower's simulation engine: `python -m` this package.

The work is W1: Fashion-MNIST, 100 clients with 120 training images of two classes, 10 clients a round,
batches of 10, Adam. All start from the same models with the same examples, and every process computes on one
thread; ours, pfl and Flower have two that train. A `round` is the median without evaluation, the first left
out; a `job` is a whole process with an evaluation of the clients' 3,000 test images after every round.

Each of the others gets an environment of its own in a folder, made once by venv and pip, as by hand:
``python -m venv FOLDER/pfl && FOLDER/pfl/bin/python -m pip install pfl==0.6.0 torch==2.13.0``.
"""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated

import typer

from loadtest.benchmarks.peers.ours import write_data
from loadtest.benchmarks.peers.workload import PROCESSES
from loadtest.benchmarks.run import Results, measurement

_REQUIREMENTS = {
    "pfl": ("pfl==0.6.0", "torch==2.13.0"),
    "flower": ("flwr[simulation]==1.42.0", "torch==2.13.0"),
}
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


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a contestant; `seconds` are those of a round or of the whole job, as `what` says."""

    contestant: str
    workload: str
    what: str
    seconds: float


def ratios(runs: Sequence[Run]) -> Results:
    """Ours over each of the others: medians of the repeats; below one, ours is faster."""
    seconds: dict[tuple[str, str, str], list[float]] = {}
    for run in runs:
        seconds.setdefault((run.workload, run.what, run.contestant), []).append(run.seconds)
    medians = {key: median(values) for key, values in seconds.items()}
    return {
        f"peers_{workload}_{what}_{ours}_vs_{peer}": measurement(medians[workload, what, ours], baseline)
        for (workload, what, peer), baseline in medians.items()
        for ours in ("ours", "ours-bfloat16")
        if not peer.startswith("ours") and (workload, what, ours) in medians
    }


def set_up(contestant: str, folder: Path) -> Path:
    """Make a contestant's environment in `folder`, unless it is there; ours and the loop's is this one.

    Returns:
        Its Python.

    Raises:
        CalledProcessError: If pip cannot install what it needs.
    """
    if contestant not in _REQUIREMENTS:
        return Path(sys.executable)
    python, installed = folder / contestant / "bin" / "python", folder / contestant / "installed"
    if not installed.exists():
        venv.create(folder / contestant, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", *_REQUIREMENTS[contestant]], check=True)  # noqa: S603
        installed.touch()
    return python


def _run(python: Path, contestant: str, workload: str, what: str, options: Sequence[str]) -> Run:
    """Run a contestant, and show what it says, with the load of the machine before."""
    model, _, epochs = workload.rpartition("_e")
    command = [str(python), *_COMMANDS[contestant], "--model", model, "--epochs", epochs, *options]
    if what == "job":
        command.append("--evaluate")
    load, start_s = os.getloadavg()[0], perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=os.environ | _VARIABLES)  # noqa: S603
    job_s = perf_counter() - start_s
    # Ray's actors may write after us.
    line = json.loads(next(text for text in done.stdout.splitlines() if text.startswith(b'{"versions"')))
    round_s = line.pop("round_s")
    seconds = job_s if what == "job" else round_s
    told = {"contestant": contestant, "workload": workload, f"{what}_s": seconds, **line, "load": load}
    sys.stdout.write(json.dumps(told) + "\n")
    return Run(contestant, workload, what, seconds)


def main(
    environments: Annotated[Path | None, typer.Option(help="Folder of environments; else made anew.")] = None,
    contestants: Annotated[str, typer.Option(help="Separated by commas.")] = ",".join(_COMMANDS),
    workloads: Annotated[str, typer.Option(help="MODEL_eEPOCHS.")] = ",".join(_WORKLOADS),
    what: Annotated[str, typer.Option(help="round, job or both.")] = "round",
    rounds: int = 20,
    repeats: int = 2,
    seed: int = 0,
) -> None:
    """Compare, one contestant after the other in every repeat; the last line has the ratios."""
    names = contestants.split(",")
    with TemporaryDirectory() as folder:
        data = Path(folder) / "examples.npz"
        write_data(data, seed)
        pythons = {name: set_up(name, environments or Path(folder)) for name in names}
        options = ("--data", str(data), "--rounds", str(rounds), "--seed", str(seed))
        every = product(workloads.split(","), what.split(","), range(repeats), names)
        runs = [_run(pythons[name], name, work, kind, options) for work, kind, _, name in every]
    sys.stdout.write(json.dumps(ratios(runs)) + "\n")
