"""Figures of a report, drawn off screen. Colours are those of Okabe & Ito, legible to colour-blind readers.

A method keeps its look in all figures of its report. Tiers run from dark (tier 1, the fastest) to light.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedat_service.wire.views import VersionPoint
from loadtest.experiments.quantities import MEGABYTE
from loadtest.experiments.results import SMOOTHING, Curve, centred_means
from loadtest.experiments.what_if import Prediction

# A grey in place of their yellow, and of black, which the target has. The three lengths have no common
# divisor: two of a look's parts tell it from the next 34.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6E6E6E")
_DASHES: tuple[str | tuple[float, tuple[float, ...]], ...] = (
    *("-", "--", "-."),
    (0, (1, 1)),
    (0, (8, 2, 1, 2, 1, 2)),
)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "*", "h")
_MARKERS_A_LINE = 8
_MOST_INSIDE = 8
"""Methods whose legend leaves room for the curves; that of more stands beside them."""

_BESIDE_INCHES = 9.4
"""Width of a figure with its legend beside it."""

_GRID = 400
"""Points at which the curves of several seeds are compared."""

Curves = Mapping[str, Sequence[Curve]]
"""By method, one curve a seed."""


class Look(NamedTuple):
    """How a method's line is told from others, also in grey or where it is too short for its dashes."""

    colour: str
    dashes: str | tuple[float, tuple[float, ...]]
    marker: str


def look_of(place: int) -> Look:
    """The look of the method in this place, counted from 0."""
    return Look(
        _COLOURS[place % len(_COLOURS)], _DASHES[place % len(_DASHES)], _MARKERS[place % len(_MARKERS)]
    )


def draw_accuracy_over_time(curves: Curves, target: float) -> bytes:
    """Accuracy of every method over simulated time, with the target: a PNG."""
    return _png(plot_curves("simulated time (s)", curves, lambda curve: curve.at_s, target))


def draw_accuracy_over_bytes(curves: Curves, target: float) -> bytes:
    """Accuracy of every method over the wire bytes of its training, both directions: a PNG."""
    return _png(
        plot_curves(
            "updates and models on the wire (MB)",
            curves,
            lambda curve: [wire_bytes / MEGABYTE for wire_bytes in curve.wire_bytes],
            target,
        )
    )


def draw_tier_counts(versions: Sequence[VersionPoint]) -> bytes:
    """Rounds that each tier has closed (`T_m`) over simulated time: a PNG."""
    return _draw_tiers("rounds closed", versions, [version.update_counts for version in versions])


def draw_mixing_weights(versions: Sequence[VersionPoint]) -> bytes:
    """Share of each tier's model in the global model over simulated time: a PNG."""
    return _draw_tiers("share in the global model", versions, [version.weights for version in versions])


def plot_curves(
    xlabel: str, curves: Curves, along: Callable[[Curve], Sequence[float]], target: float
) -> Figure:
    """Centred means, which the target is held against: the mean over seeds, in a band of their extremes.

    A single seed's raw line is drawn thin beneath its means.

    Args:
        xlabel: What `along` is.
        curves: By method.
        along: Where on the axis a curve's evaluations stand.
        target: Drawn as a line across.
    """
    figure, axes = _blank(xlabel, "accuracy over clients' test splits")
    for place, (name, seeds) in enumerate(curves.items()):
        colour, dashes, marker = look_of(place)
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
            every = max(1, len(means) // _MARKERS_A_LINE)
            (line,) = axes.plot(x_middles, means, color=colour, linestyle=dashes, linewidth=1.8, label=name)
            line.set(marker=marker, markersize=5, markevery=(place % every, every))
    axes.axhline(target, color="black", linestyle=":", linewidth=1.2, label=f"target {target:g}")
    axes.set_ylim(0, 1)
    axes.set_xlim(left=0)
    if len(curves) <= _MOST_INSIDE:
        axes.legend(loc="lower right")
    else:
        figure.set_figwidth(_BESIDE_INCHES)
        figure.legend(loc="outside right upper", fontsize="x-small", handlelength=4)
    return figure


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
    rows = {
        "a version": [one.version_s for one in predictions],
        "a round of the slowest tier": [max(one.round_s) for one in predictions],
    }
    for place, (name, seconds) in enumerate(rows.items()):
        colour, dashes, marker = look_of(place)
        axes.plot(tiers, seconds, color=colour, linestyle=dashes, marker=marker, label=name)
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
