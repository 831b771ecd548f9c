"""The files of a report: report.json and evaluations.csv for programs, report.md and figures for people."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from loadtest.experiments.claims import judge
from loadtest.experiments.figures import (
    draw_accuracy_over_bytes,
    draw_accuracy_over_time,
    draw_mixing_weights,
    draw_tier_counts,
)
from loadtest.experiments.files import write_atomically
from loadtest.experiments.markdown import compare_in_markdown, to_markdown
from loadtest.experiments.outcome import Outcome
from loadtest.experiments.quantities import QUANTITIES, Spread
from loadtest.experiments.results import FINAL_SHARE, SMOOTHING, curve_of

_RULES = {"smoothing_evaluations": SMOOTHING, "final_share_of_horizon": FINAL_SHARE}
_CURVE_COLUMNS = ("at_s", "wire_bytes", "accuracy", "loss", "variance")


def write_report(outcome: Outcome) -> Path:
    """Write the report of one experiment with one seed into the experiment's folder.

    Returns:
        The path of report.md.

    Raises:
        OSError: If the folder cannot be written to.
    """
    figures = _figures(outcome)
    text = to_markdown(outcome, figures)
    return _write(outcome.experiment.out, text, to_json(outcome), [outcome], figures)


def write_comparison(outcomes: Sequence[Outcome], out: Path) -> Path:
    """Write the report of several experiments; each one's figures go into a folder of its name.

    Returns:
        The path of report.md.

    Raises:
        OSError: If `out` cannot be written to.
    """
    drawn = {one.experiment.name: _figures(one, f"{one.experiment.name}/") for one in outcomes}
    text = compare_in_markdown(outcomes, drawn)
    figures = {file: png for by_file in drawn.values() for file, png in by_file.items()}
    return _write(out, text, compare_in_json(outcomes), outcomes, figures)


def to_json(outcome: Outcome) -> dict[str, Any]:
    """An outcome with one seed as plain values: the experiment at the top level, `methods` by name."""
    return _plain(
        {
            **outcome.experiment.model_dump(mode="json"),
            "rules": _RULES,
            "methods": {name: asdict(one) for name, (one,) in outcome.summaries.items()},
            "times_less_simulated_time": {
                outcome.experiment.reference: {name: one.values[0] for name, one in outcome.speedups.items()}
            },
            "by_layer": {name: one.metrics.by_layer for name, (one,) in outcome.runs.items()},
            "verdicts": _verdicts(outcome),
        }
    )


def compare_in_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Outcomes as plain values: by experiment the verdicts, the spread, and every seed as in `to_json`."""
    return {"experiments": {one.experiment.name: _over_seeds(one) for one in outcomes}}


def _over_seeds(outcome: Outcome) -> dict[str, Any]:
    spread = {
        method: {name: _spread(outcome.spread(method, name)) for name in QUANTITIES}
        for method in outcome.runs
    }
    seeds = [to_json(one) for one in outcome.by_seed()]
    return _plain({"verdicts": _verdicts(outcome), "spread": spread, "seeds": seeds})


def _spread(over: Spread) -> dict[str, Any]:
    return {"mean": over.mean, "min": over.min, "max": over.max, "seeds_with_a_value": len(over.known)}


def _verdicts(outcome: Outcome) -> list[dict[str, Any]]:
    return [{**asdict(one), "holds": one.holds} for one in judge(outcome)]


def _plain(values: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever a report holds
    plain: dict[str, Any] = to_jsonable_python(values)
    return plain


def _figures(outcome: Outcome, folder: str = "") -> dict[str, bytes]:
    """By file name; the tiers are those of the first seed."""
    curves = {name: [curve_of(run) for run in runs] for name, runs in outcome.runs.items()}
    target = outcome.experiment.target_accuracy
    figures = {
        f"{folder}accuracy-over-time.png": draw_accuracy_over_time(curves, target),
        f"{folder}accuracy-over-bytes.png": draw_accuracy_over_bytes(curves, target),
    }
    for name, (first, *_) in outcome.runs.items():
        if len(first.federation.update_counts) > 1 and first.metrics.versions:
            figures[f"{folder}tier-counts-{name}.png"] = draw_tier_counts(first.metrics.versions)
            if outcome.experiment.method_of(name).participation.name == "fedat":
                figures[f"{folder}mixing-weights-{name}.png"] = draw_mixing_weights(first.metrics.versions)
    return figures


def _write(
    out: Path, text: str, values: dict[str, Any], outcomes: Sequence[Outcome], figures: Mapping[str, bytes]
) -> Path:
    for name, png in figures.items():
        write_atomically(out / name, png)
    write_atomically(out / "evaluations.csv", _to_csv(outcomes).encode())
    write_atomically(out / "report.json", (json.dumps(values, indent=2, allow_nan=False) + "\n").encode())
    write_atomically(out / "report.md", text.encode())
    return out / "report.md"


def _to_csv(outcomes: Sequence[Outcome]) -> str:
    """One row an evaluation."""
    lines = StringIO()
    table = csv.writer(lines, lineterminator="\n")
    table.writerow(("experiment", "method", "seed", "version", *_CURVE_COLUMNS))
    for outcome in outcomes:
        for name, runs in outcome.runs.items():
            for seed, run in zip(outcome.seeds, runs, strict=True):
                curve = curve_of(run)
                columns = (getattr(curve, column) for column in ("version", *_CURVE_COLUMNS))
                table.writerows(
                    (outcome.experiment.name, name, seed, *row) for row in zip(*columns, strict=True)
                )
    return lines.getvalue()
