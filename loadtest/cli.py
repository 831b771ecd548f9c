"""Commands of the load tests: `demo` and `bench`."""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from loadtest.experiments.settings import ExperimentSettings, default_rate

_DEFAULT = ExperimentSettings()
_TERMINATED = 128 + signal.SIGTERM


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(demo)
    app.command()(bench)


def demo(
    data: Annotated[
        str, typer.Option(help="digits, fashion-mnist, mnist, or the path of an image folder or zip.")
    ] = _DEFAULT.data,
    data_dir: Annotated[Path | None, typer.Option(help="The only folder to look in for data.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = _DEFAULT.out,
    limit_per_class: Annotated[
        int | None, typer.Option(help="Use only so many images of every class.")
    ] = _DEFAULT.limit_per_class,
    model: Annotated[str, typer.Option(help="logistic, mlp or cnn (FedAT's).")] = _DEFAULT.model,
    clients: Annotated[int, typer.Option(help="Simulated clients.")] = _DEFAULT.num_clients,
    tiers: Annotated[int, typer.Option(help="Tiers of FedAT.")] = _DEFAULT.num_tiers,
    cohort: Annotated[
        int, typer.Option(help="Most clients in one round of one tier.")
    ] = _DEFAULT.cohort_size,
    deadline: Annotated[
        float, typer.Option(help="Simulated seconds after which a round goes on without the missing.")
    ] = _DEFAULT.deadline_s,
    partition: Annotated[
        str, typer.Option(help="iid, shards:2, classes:2 (classes a client), dirichlet:0.1 ...")
    ] = _DEFAULT.partition,
    latency: Annotated[
        str, typer.Option(help="Delay of every round: fedat (the paper's), uniform:0:5, lognormal:1:0.5 ...")
    ] = _DEFAULT.latency,
    compute_s: Annotated[
        float, typer.Option(help="Simulated seconds of computing in every round, before the delay.")
    ] = _DEFAULT.compute_s,
    unstable: Annotated[int, typer.Option(help="Clients that drop out for good.")] = _DEFAULT.num_unstable,
    horizon: Annotated[
        float, typer.Option(help="Simulated seconds that each method runs.")
    ] = _DEFAULT.horizon_s,
    rate: Annotated[
        float | None, typer.Option(help="Simulated seconds in a real one; 30 for digits, else 15.")
    ] = None,
    epochs: Annotated[int, typer.Option(help="Local epochs of a round.")] = _DEFAULT.epochs,
    batch_size: Annotated[int, typer.Option(help="Examples in a local step.")] = _DEFAULT.batch_size,
    lr: Annotated[float, typer.Option(help="Local learning rate.")] = _DEFAULT.lr,
    prox_mu: Annotated[float, typer.Option(help="Proximal term of FedAT.")] = _DEFAULT.prox_mu,
    target_accuracy: Annotated[
        float, typer.Option(help="What the time to target counts to, 0 to 1; the default suits digits.")
    ] = _DEFAULT.target_accuracy,
    evaluate_every: Annotated[
        float, typer.Option(help="Simulated seconds between two evaluations.")
    ] = _DEFAULT.evaluate_every_s,
    seed: Annotated[int, typer.Option(help="Of everything that is random.")] = _DEFAULT.seed,
    processes: Annotated[int, typer.Option(help="Processes that share the clients.")] = _DEFAULT.processes,
) -> None:
    """Run FedAvg and FedAT on real services with real stragglers, and write a report.

    Both methods get the same data, latencies and seed. Events, metrics, figures and logs land in --out.
    """
    settings = ExperimentSettings(
        data=data,
        data_dir=data_dir,
        limit_per_class=limit_per_class,
        model=model,
        num_clients=clients,
        num_tiers=tiers,
        cohort_size=cohort,
        deadline_s=deadline,
        partition=partition,
        latency=latency,
        compute_s=compute_s,
        num_unstable=unstable,
        horizon_s=horizon,
        rate=default_rate(data) if rate is None else rate,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        prox_mu=prox_mu,
        target_accuracy=target_accuracy,
        evaluate_every_s=evaluate_every,
        seed=seed,
        processes=processes,
        out=out,
    )
    from loadtest.experiments.demo import run_demo

    console = Console(stderr=True)
    with _terminable():
        report = run_demo(settings, console)
    console.print(f"Report: [bold]{report}[/bold]", highlight=False)


def bench(
    only: Annotated[
        str, typer.Option(help="Run only measurements whose name starts like this: codec, upload ...")
    ] = "",
) -> None:
    """Measure this build against its baselines; prints one JSON object {name: {value, baseline, ratio}}."""
    from loadtest.benchmarks.run import run_benchmarks

    results = run_benchmarks(only, Console(stderr=True))
    sys.stdout.write(json.dumps(results, indent=2, allow_nan=False) + "\n")


@contextmanager
def _terminable() -> Iterator[None]:
    """Let a termination unwind like an interrupt: whoever started processes ends them."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
