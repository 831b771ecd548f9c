import pytest

from loadtest.experiments.figures import draw_accuracy_over_bytes, draw_accuracy_over_time
from loadtest.experiments.results import curve_of

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


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


def test_seeds_that_agree_are_drawn_like_their_mean(curves_of):
    one = [0.1, 0.2, 0.3, 0.4, 0.5]
    agree, differ = curves_of(one, one), curves_of(one, [0.5, 0.6, 0.7, 0.8, 0.9])
    assert draw_accuracy_over_time(agree, 0.5) != draw_accuracy_over_time(differ, 0.5)
