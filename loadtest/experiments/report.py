"""The report of an experiment: report.json for programs, report.md and figures for people."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from loadtest.experiments.figures import (
    draw_accuracy_over_bytes,
    draw_accuracy_over_time,
    draw_mixing_weights,
    draw_tier_counts,
)
from loadtest.experiments.files import write_atomically
from loadtest.experiments.markdown import to_markdown
from loadtest.experiments.results import (
    FINAL_SHARE,
    SMOOTHING,
    MethodRun,
    Summary,
    curve_of,
    speedup,
    summarise,
)
from loadtest.experiments.settings import ExperimentSettings

REFERENCE = "fedat"
"""The method that the others are held against, if it was run."""


@dataclass(frozen=True, slots=True)
class Report:
    """An experiment's settings and one summary a method, in the order they ran."""

    settings: ExperimentSettings
    methods: Mapping[str, Summary]

    @property
    def speedups(self) -> dict[str, float | None]:
        """How many times less simulated time to the target the reference took than each other method."""
        reference = self.methods.get(REFERENCE)
        if reference is None:
            return {}
        others = {name: one for name, one in self.methods.items() if name != REFERENCE}
        return {name: speedup(reference, one) for name, one in others.items()}


def make_report(settings: ExperimentSettings, runs: Sequence[MethodRun]) -> Report:
    """Reduce the runs to what is reported."""
    return Report(settings, {run.name: summarise(run, settings.target_accuracy) for run in runs})


def to_json(report: Report) -> dict[str, Any]:
    """The report as plain values: the settings at the top level, `methods` by name."""
    settings: dict[str, Any] = to_jsonable_python(asdict(report.settings))
    methods: dict[str, Any] = to_jsonable_python({name: asdict(one) for name, one in report.methods.items()})
    rules = {"smoothing_evaluations": SMOOTHING, "final_share_of_horizon": FINAL_SHARE}
    return {
        **settings,
        "rules": rules,
        "methods": methods,
        "times_less_simulated_time": {REFERENCE: report.speedups},
    }


def write_report(settings: ExperimentSettings, runs: Sequence[MethodRun]) -> Path:
    """Write report.json, report.md and the figures into the experiment's folder.

    Returns:
        The path of report.md.

    Raises:
        OSError: If the folder cannot be written to.
    """
    report = make_report(settings, runs)
    figures = _figures(settings, runs)
    for name, png in figures.items():
        write_atomically(settings.out / name, png)
    text = json.dumps(to_json(report), indent=2, allow_nan=False) + "\n"
    write_atomically(settings.out / "report.json", text.encode())
    path = settings.out / "report.md"
    write_atomically(path, to_markdown(report.settings, report.methods, report.speedups, figures).encode())
    return path


def _figures(settings: ExperimentSettings, runs: Sequence[MethodRun]) -> dict[str, bytes]:
    curves = {run.name: curve_of(run) for run in runs}
    figures = {
        "accuracy-over-time.png": draw_accuracy_over_time(curves, settings.target_accuracy),
        "accuracy-over-bytes.png": draw_accuracy_over_bytes(curves, settings.target_accuracy),
    }
    for run in runs:
        if len(run.federation.update_counts) > 1 and run.metrics.versions:
            figures[f"tier-counts-{run.name}.png"] = draw_tier_counts(run.metrics.versions)
            figures[f"mixing-weights-{run.name}.png"] = draw_mixing_weights(run.metrics.versions)
    return figures
