"""Commands of the load tests: `demo`, `simulate`, `compare`, `what-if` and `bench`."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape

from fedat_service.errors import FleetFailed
from loadtest.experiments import Experiment, load_experiment, suite_names
from loadtest.experiments.options import FILE, given, with_options
from loadtest.experiments.settings import default_rate

if TYPE_CHECKING:
    from loadtest.experiments.compare import Simulate

_TERMINATED = 128 + signal.SIGTERM
_INTERRUPTED = 128 + signal.SIGINT
_INSTEAD = "Instead of what the file says"
_SOURCE = f"A TOML file, or one of {', '.join(suite_names())}."

Engine = Annotated[
    Literal["inline", "processes", "ray"],
    typer.Option(help="Where training runs; the results do not depend on it."),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Run again what an earlier call has finished or begun.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(demo)
    app.command()(simulate)
    app.command()(compare)
    app.command()(what_if)
    app.command()(bench)


@with_options({"rate": None})
def demo(**fields: Any) -> None:  # noqa: ANN401 - values of options
    """Run FedAvg and FedAT on real services with real stragglers, and write a report.

    All methods get the same data, latencies and seed. Events, metrics, figures and logs land in --out.
    """
    experiment = Experiment(name="demo", **{"rate": default_rate(fields["data"]), **given(fields)})
    from loadtest.experiments.demo import run_demo

    console = _console()
    with terminable():
        report = run_demo(experiment, console)
    _tell(console, report)


@with_options(FILE, "rate", panel=_INSTEAD)
def simulate(
    experiment: Annotated[str, typer.Argument(help=_SOURCE)],
    engine: Engine = "processes",
    fresh: Fresh = False,
    **fields: Any,  # noqa: ANN401 - values of options
) -> None:
    """Run a whole federation for every method of an experiment in virtual time, and write a report.

    The same seed gives the same event log. What was interrupted goes on where it stopped: --out keeps
    finished methods, and what an unfinished one has trained.
    """
    chosen = load_experiment(experiment, **given(fields))
    from loadtest.experiments.compare import simulate_all

    console = _console()
    with _resumable(console):
        report = simulate_all(chosen, simulate=_on(engine), console=console, fresh=fresh)
    _tell(console, report)


@with_options(FILE, "rate", "seed", "out", panel=_INSTEAD)
def compare(
    experiments: Annotated[list[str], typer.Argument(help=_SOURCE)],
    seeds: Annotated[int, typer.Option(help="How many: 0, 1, 2 ...", min=1)] = 3,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("runs/compare"),
    engine: Engine = "processes",
    fresh: Fresh = False,
    **fields: Any,  # noqa: ANN401 - values of options
) -> None:
    """Run the methods of several experiments in virtual time with several seeds, and write one report.

    All methods have the same data, latencies and drop-outs with one seed. What was interrupted goes on
    where it stopped: --out keeps finished runs, and what an unfinished one has trained.
    """
    chosen = [load_experiment(one, **given(fields)) for one in experiments]
    from loadtest.experiments.compare import compare as run

    console = _console()
    with _resumable(console):
        done = run(chosen, range(seeds), out, simulate=_on(engine), console=console, fresh=fresh)
    _tell(console, done.report)


def what_if(
    log: Annotated[Path, typer.Argument(help="An event log, ....events.jsonl.", exists=True, dir_okay=False)],
    tiers: Annotated[int, typer.Option(help="Largest number of tiers.", min=1)] = 10,
    cohort: Annotated[int, typer.Option(help="Clients in a round of one tier.", min=1)] = 10,
    out: Annotated[
        Path | None, typer.Option(help="Where to draw a figure, FILE.png.", dir_okay=False)
    ] = None,
) -> None:
    """Predict how fast a federation would go with other numbers of tiers, from the latencies in its log."""
    from loadtest.experiments.what_if import predict, recorded, to_table

    predictions = predict(recorded(log), tiers, cohort)
    sys.stdout.write(to_table(predictions))
    if out is not None:
        from loadtest.experiments.figures import draw_what_if
        from loadtest.experiments.files import write_atomically

        write_atomically(out, draw_what_if(predictions))


def bench(
    only: Annotated[
        str, typer.Option(help="Run only measurements whose name starts like this: codec, peers ...")
    ] = "",
) -> None:
    """Measure this build against its baselines; prints one JSON object {name: {value, baseline, ratio}}.

    Most of the time goes to other frameworks on our work (peers), whose environments it makes in .venv-peers.
    """
    from loadtest.benchmarks.run import run_benchmarks, show

    with terminable():
        show(partial(run_benchmarks, only, _console()))


def _on(engine: Literal["inline", "processes", "ray"]) -> "Simulate":
    from loadtest.experiments.simulation import simulate as run
    from workers.fleet.pools import require_engine

    require_engine(engine)
    return partial(run, engine=engine)


def _console() -> Console:
    return Console(stderr=True, emoji=False, highlight=False)


def _tell(console: Console, report: Path) -> None:
    console.print(f"Report: [bold]{escape(str(report))}[/bold]", soft_wrap=True)


@contextmanager
def _resumable(console: Console) -> Iterator[None]:
    """Say that nothing is lost by an interrupt, or with a process that trained."""
    try:
        with terminable():
            yield
    except KeyboardInterrupt:
        console.print("interrupted: the same command goes on from there")
        raise typer.Exit(_INTERRUPTED) from None
    except FleetFailed as error:
        raise FleetFailed(f"{error}; the same command goes on from there") from error


@contextmanager
def terminable() -> Iterator[None]:
    """Let a termination unwind as an interrupt does: whoever started processes ends them.

    Raises:
        SystemExit: At a termination, with its status.
    """
    terminated = False

    def interrupt(*_: object) -> None:
        nonlocal terminated
        terminated = True
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a script
            sys.exit(_TERMINATED)
        # An event loop cancels its tasks in order at this, and calls all else an error of one of them.
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        if terminated:
            sys.exit(_TERMINATED)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
