from itertools import pairwise

import pytest

from loadtest.experiments.figures import (
    draw_accuracy_over_bytes,
    draw_accuracy_over_time,
    look_of,
    plot_curves,
)
from loadtest.experiments.results import curve_of

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


MANY = 24


@pytest.fixture
def curves_of(make_run):
    """`curves_of(*lists)` are the curves of one method, a list of accuracies for each seed."""

    def build(*seeds):
        return {"fedat": [curve_of(make_run("fedat", accuracies)) for accuracies in seeds]}

    return build


@pytest.mark.parametrize("draw", [draw_accuracy_over_time, draw_accuracy_over_bytes])
@pytest.mark.parametrize(
    "seeds",
    [
        [[0.1, 0.2, 0.3, 0.4]],
        [[0.1, 0.2, 0.3, 0.4], [0.2, 0.3, 0.4, 0.5, 0.6]],
        [[0.1, 0.2, 0.3], []],
        [[0.1], [0.2]],
        [[], []],
    ],
)
def test_any_number_of_evaluations_can_be_drawn(draw, seeds, curves_of):
    assert draw(curves_of(*seeds), 0.5).startswith(PNG_MAGIC)


def lines_of(curves):
    """The lines over time that the legend names, without the target's."""
    (axes,) = plot_curves("time", curves, lambda curve: curve.at_s, 0.5).axes
    return {line.get_label(): line for line in axes.lines if line.get_label() in curves}


def test_looks_differ_in_grey_and_without_the_lines_as_well():
    looks = [look_of(place) for place in range(MANY)]
    assert len({(look.dashes, look.marker) for look in looks}) == MANY
    assert len({(look.colour, look.marker) for look in looks}) == MANY
    assert len({(look.colour, look.dashes) for look in looks}) == MANY


def test_neighbours_share_nothing():
    looks = [look_of(place) for place in range(MANY)]
    for one, other in pairwise(looks):
        assert not {one.colour, one.dashes, one.marker} & {other.colour, other.dashes, other.marker}


def test_each_of_many_methods_is_drawn_in_a_look_of_its_own(curves_of):
    (seeds,) = curves_of([0.1, 0.2, 0.3, 0.4]).values()
    lines = lines_of({f"method-{place}": seeds for place in range(MANY)})
    assert len(lines) == MANY
    assert len({(line.get_color(), line.get_marker()) for line in lines.values()}) == MANY


def test_a_legend_of_many_methods_covers_no_curve(curves_of):
    (seeds,) = curves_of([0.1, 0.2, 0.3, 0.4]).values()
    figure = plot_curves(
        "time", {f"method-{place}": seeds for place in range(MANY)}, lambda curve: curve.at_s, 0.5
    )
    figure.draw_without_rendering()
    (axes,), (legend,) = figure.axes, figure.legends
    box = legend.get_window_extent()
    assert not box.overlaps(axes.get_window_extent())
    assert figure.bbox.containsx(box.x1)
    assert figure.bbox.containsy(box.y0)
    assert len(legend.texts) == MANY + 1


def test_seeds_that_agree_are_drawn_like_their_mean(curves_of):
    one = [0.1, 0.2, 0.3, 0.4, 0.5]
    (line,) = lines_of(curves_of(one, one)).values()
    x, y = line.get_data()
    # Means of three belong to the versions at 200, 300 and 400 s.
    assert (x[0], x[-1]) == (200, 400)
    assert list(y) == pytest.approx([at_s / 1000 for at_s in x])


def test_seeds_that_differ_are_drawn_as_their_mean_in_a_band_of_their_extremes(curves_of):
    low, high = [0.1, 0.2, 0.3, 0.4, 0.5], [0.5, 0.6, 0.7, 0.8, 0.9]
    curves = curves_of(low, high)
    (line,) = lines_of(curves).values()
    assert (line.get_ydata()[0], line.get_ydata()[-1]) == pytest.approx((0.4, 0.6))
    (axes,) = plot_curves("time", curves, lambda curve: curve.at_s, 0.5).axes
    (band,) = axes.collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == pytest.approx((0.2, 0.8))
