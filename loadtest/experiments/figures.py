"""Figures of a report, drawn off screen. Colours are those of Okabe & Ito, legible to colour-blind readers.

A method keeps its colour and its line style in every figure. Tiers run from dark (tier 1, the fastest) to
light.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedat_service.wire.views import VersionPoint
from loadtest.experiments.results import SMOOTHING, Curve, centred_means
from loadtest.experiments.what_if import Prediction

_STYLES = tuple(
    zip(("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"), cycle(("-", "--", "-.")))
)
_MEGABYTE = 1e6
_GRID = 400
"""Points at which the curves of several seeds are compared."""

Curves = Mapping[str, Sequence[Curve]]
"""By method, one curve a seed."""


def draw_accuracy_over_time(curves: Curves, target: float) -> bytes:
    """Accuracy of every method over simulated time, with the target: a PNG."""
    return _draw_curves("simulated time (s)", curves, lambda curve: curve.at_s, target)


def draw_accuracy_over_bytes(curves: Curves, target: float) -> bytes:
    """Accuracy of every method over the wire bytes of its training, both directions: a PNG."""
    return _draw_curves(
        "updates and models on the wire (MB)",
        curves,
        lambda curve: [wire_bytes / _MEGABYTE for wire_bytes in curve.wire_bytes],
        target,
    )


def draw_tier_counts(versions: Sequence[VersionPoint]) -> bytes:
    """Rounds that each tier has closed (`T_m`) over simulated time: a PNG."""
    return _draw_tiers("rounds closed", versions, [version.update_counts for version in versions])


def draw_mixing_weights(versions: Sequence[VersionPoint]) -> bytes:
    """Share of each tier's model in the global model over simulated time: a PNG."""
    return _draw_tiers("share in the global model", versions, [version.weights for version in versions])


def _draw_curves(
    xlabel: str, curves: Curves, along: Callable[[Curve], Sequence[float]], target: float
) -> bytes:
    """Centred means, which the target is held against: the mean over seeds, in a band of their extremes.

    A single seed's raw line is drawn thin beneath its means.
    """
    figure, axes = _blank(xlabel, "accuracy over clients' test splits")
    for (name, seeds), (colour, style) in zip(curves.items(), cycle(_STYLES)):
        smooth = [
            (along(one)[SMOOTHING // 2 :][: len(means)], means)
            for one in seeds
            if (means := centred_means(one.accuracy))
        ]
        if len(seeds) == 1:
            axes.plot(along(seeds[0]), seeds[0].accuracy, color=colour, alpha=0.3, linewidth=0.8)
        elif smooth:
            x, rows = _common(smooth)
            axes.fill_between(x, rows.min(axis=0), rows.max(axis=0), color=colour, alpha=0.2, linewidth=0)
            smooth = [(x.tolist(), rows.mean(axis=0).tolist())]
        for x_middles, means in smooth or [([], [])]:
            axes.plot(x_middles, means, color=colour, linestyle=style, linewidth=1.8, label=name)
    axes.axhline(target, color="black", linestyle=":", linewidth=1.2, label=f"target {target:g}")
    axes.set_ylim(0, 1)
    axes.set_xlim(left=0)
    axes.legend(loc="lower right")
    return _png(figure)


def _common(
    lines: Sequence[tuple[Sequence[float], Sequence[float]]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lines at common points, where all of them are there: x of shape ``(n,)``, rows of ``(lines, n)``."""
    first, last = max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines)
    grid = np.linspace(first, max(first, last), _GRID)
    return grid, np.array([np.interp(grid, x, y) for x, y in lines])


def draw_what_if(predictions: Sequence[Prediction]) -> bytes:
    """Predicted seconds a version, and of the slowest tier's round, for every number of tiers: a PNG."""
    figure, axes = _blank("tiers", "simulated seconds")
    tiers = [one.num_tiers for one in predictions]
    (version, _), (slowest, style) = _STYLES[:2]
    axes.plot(tiers, [one.version_s for one in predictions], color=version, marker="o", label="a version")
    rounds = [max(one.round_s) for one in predictions]
    axes.plot(tiers, rounds, color=slowest, linestyle=style, marker="s", label="a round of the slowest tier")
    axes.set_ylim(bottom=0)
    axes.legend(loc="best")
    return _png(figure)


def _draw_tiers(label: str, versions: Sequence[VersionPoint], rows: Sequence[Sequence[float]]) -> bytes:
    figure, axes = _blank("simulated time (s)", label)
    at_s = [version.at_s for version in versions]
    num_tiers = len(rows[0])
    for m in range(num_tiers):
        colour = colormaps["viridis"](0.9 * m / max(1, num_tiers - 1))
        name = f"tier {m + 1}" + (" (fastest)" if m == 0 else " (slowest)" if m == num_tiers - 1 else "")
        # A value holds from its version until the next one.
        axes.step(at_s, [row[m] for row in rows], where="post", color=colour, linewidth=1.8, label=name)
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.legend(loc="best")
    return _png(figure)


def _blank(xlabel: str, ylabel: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()
