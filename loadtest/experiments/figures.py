"""Figures of a report, drawn off screen. Colours are those of Okabe & Ito, legible to colour-blind readers.

A method keeps its colour and its line style in every figure. Tiers run from dark (tier 1, the fastest) to
light.
"""

import io
from collections.abc import Mapping, Sequence
from itertools import cycle

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fedat_service.wire.views import VersionPoint
from loadtest.experiments.results import SMOOTHING, Curve, centred_means

_STYLES = tuple(
    zip(("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"), cycle(("-", "--", "-.")))
)
_MEGABYTE = 1e6


def draw_accuracy_over_time(curves: Mapping[str, Curve], target: float) -> bytes:
    """Accuracy of every method over simulated time, with the target: a PNG."""
    figure, axes = _blank("simulated time (s)", "accuracy over clients' test splits")
    _draw_curves(axes, curves, {name: curve.at_s for name, curve in curves.items()}, target)
    return _png(figure)


def draw_accuracy_over_bytes(curves: Mapping[str, Curve], target: float) -> bytes:
    """Accuracy of every method over the wire bytes of its training, both directions: a PNG."""
    figure, axes = _blank("updates and models on the wire (MB)", "accuracy over clients' test splits")
    megabytes = {name: [b / _MEGABYTE for b in curve.wire_bytes] for name, curve in curves.items()}
    _draw_curves(axes, curves, megabytes, target)
    return _png(figure)


def draw_tier_counts(versions: Sequence[VersionPoint]) -> bytes:
    """Rounds that each tier has closed (`T_m`) over simulated time: a PNG."""
    return _draw_tiers("rounds closed", versions, [version.update_counts for version in versions])


def draw_mixing_weights(versions: Sequence[VersionPoint]) -> bytes:
    """Share of each tier's model in the global model over simulated time: a PNG."""
    return _draw_tiers("share in the global model", versions, [version.weights for version in versions])


def _draw_curves(
    axes: Axes, curves: Mapping[str, Curve], along: Mapping[str, Sequence[float]], target: float
) -> None:
    """Thin raw lines, and over them the centred means that the target is held against."""
    for (name, curve), (colour, style) in zip(curves.items(), cycle(_STYLES)):
        axes.plot(along[name], curve.accuracy, color=colour, alpha=0.3, linewidth=0.8)
        smooth = centred_means(curve.accuracy)
        middles = along[name][SMOOTHING // 2 :][: len(smooth)]
        axes.plot(middles, smooth, color=colour, linestyle=style, linewidth=1.8, label=name)
    axes.axhline(target, color="black", linestyle=":", linewidth=1.2, label=f"target {target:g}")
    axes.set_ylim(0, 1)
    axes.set_xlim(left=0)
    axes.legend(loc="lower right")


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
