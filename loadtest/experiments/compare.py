"""Experiments in virtual time, over methods and seeds: run what is missing, report on all of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from fedat_service.errors import ConfigError
from loadtest.experiments.experiment import Experiment
from loadtest.experiments.kept import find_run, keep_run
from loadtest.experiments.markdown import results_table
from loadtest.experiments.outcome import Outcome
from loadtest.experiments.results import MethodRun
from loadtest.experiments.settings import ExperimentSettings
from loadtest.experiments.unfinished import forget

if TYPE_CHECKING:
    from loadtest.experiments.progress import Watch

Simulate = Callable[[str, ExperimentSettings, "Watch"], MethodRun]
"""Runs one method of some settings, leaves its event log, and returns what came out."""

_LOOKS = 200
"""How often progress looks at a federation: every look costs real time, and no simulated time."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came out of several experiments.

    Attributes:
        outcomes: By the experiment's name.
        report: The path of report.md.
    """

    outcomes: dict[str, Outcome]
    report: Path

    def table(self) -> str:
        """All results, a table in Markdown for each experiment."""
        return "\n\n".join(
            f"{one.experiment.named_heading}\n\n{results_table(one)}" for one in self.outcomes.values()
        )


def simulate_all(
    experiment: Experiment,
    *,
    simulate: Simulate | None = None,
    console: Console | None = None,
    fresh: bool = False,
) -> Path:
    """Run all methods of an experiment with its own seed, and write the report into its folder.

    Finished runs are kept in `runs` there, and what an unfinished one computed beside it: what was
    interrupted goes on where it stopped.

    Args:
        experiment: What to run.
        simulate: How to run one method; in virtual time, in processes, if None.
        console: Where progress is shown; nowhere, if None.
        fresh: Run again what was kept, from the start.

    Returns:
        The path of report.md.

    Raises:
        FedATError: If a setting makes no sense, the folder cannot be written to, or a federation fails.
    """
    from loadtest.experiments.federations import make_room
    from loadtest.experiments.report import write_report

    make_room(experiment.out, experiment)
    runs = _run_methods(experiment, experiment.out / "runs", simulate, console, fresh)
    single = {name: (run,) for name, run in runs.items()}
    return write_report(Outcome(experiment, (experiment.seed,), single, virtual=True))


def compare(
    experiments: Sequence[Experiment],
    seeds: Sequence[int] = (0, 1, 2),
    out: Path | str = "runs/compare",
    *,
    simulate: Simulate | None = None,
    console: Console | None = None,
    fresh: bool = False,
) -> Comparison:
    """Run every method of every experiment with every seed, and write one report on all of them.

    All methods have the same data, latencies and drop-outs with one seed. Finished runs are kept in
    `out/runs`, with their event logs: what was interrupted goes on where it stopped.

    Args:
        experiments: What to run; their own seeds and folders play no part.
        seeds: With which seeds.
        out: Folder of the results.
        simulate: How to run one method; in virtual time, in processes, if None.
        console: Where progress is shown; nowhere, if None.
        fresh: Run again what was kept, from the start.

    Raises:
        FedATError: If a setting makes no sense, the folder cannot be written to, or a federation fails.
    """
    from loadtest.experiments.federations import make_room
    from loadtest.experiments.report import write_comparison

    names = [experiment.name for experiment in experiments]
    if not names or not seeds or len(set(names)) < len(names) or len(set(seeds)) < len(seeds):
        raise ConfigError(
            f"a comparison needs different experiments and seeds, got {names} and {list(seeds)}"
        )
    make_room(Path(out), *experiments)
    outcomes = {
        experiment.name: _over_seeds(experiment, seeds, Path(out) / "runs", simulate, console, fresh)
        for experiment in experiments
    }
    return Comparison(outcomes, write_comparison(list(outcomes.values()), Path(out)))


def _over_seeds(
    experiment: Experiment,
    seeds: Sequence[int],
    runs_in: Path,
    simulate: Simulate | None,
    console: Console | None,
    fresh: bool,
) -> Outcome:
    by_seed = []
    for seed in seeds:
        if console is not None:
            console.print(f"[bold]{experiment.name}, seed {seed}[/bold]", highlight=False)
        folder = runs_in / experiment.name / f"seed-{seed}"
        seeded = experiment.changed(seed=seed, out=folder)
        by_seed.append(_run_methods(seeded, folder, simulate, console, fresh))
    runs = {name: tuple(runs[name] for runs in by_seed) for name in experiment.methods}
    return Outcome(experiment, tuple(seeds), runs, virtual=True)


def _run_methods(
    experiment: Experiment, kept_in: Path, simulate: Simulate | None, console: Console | None, fresh: bool
) -> dict[str, MethodRun]:
    from loadtest.experiments.content import content_of, require_same_content
    from loadtest.experiments.progress import Progress

    runs = {}
    with Progress(experiment, console or Console(quiet=True), experiment.horizon_s / _LOOKS) as progress:
        for name in experiment.methods:
            path, content = kept_in / f"{name}.json", content_of(experiment)
            conditions = experiment.conditions_of(name, content)
            log, begun = experiment.log_of(name), experiment.unfinished_of(name)
            if fresh:
                forget(begun)
            run = None if fresh else find_run(path, conditions, log)
            if run is not None:
                progress.keep(name)
            else:
                watch = progress.watch(name, is_begun=begun.exists())
                run = (simulate or _in_processes())(name, experiment, watch)
                require_same_content(experiment, content)
                keep_run(path, conditions, log, run)
            runs[name] = run
    return runs


def _in_processes() -> Simulate:
    from loadtest.experiments.simulation import simulate

    return simulate
