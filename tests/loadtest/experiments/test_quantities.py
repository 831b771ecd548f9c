import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.experiments.quantities import QUANTITIES, Ratios, Spread, spread_of
from loadtest.experiments.results import summarise

CLIMB = [0.1, 0.3, 0.5, 0.7, 0.6, 0.8, 0.9]


@given(st.lists(st.none() | st.floats(-1e6, 1e6), min_size=1, max_size=5))
def test_the_mean_lies_between_the_extremes_of_the_values_that_there_are(values):
    spread = Spread(tuple(values))
    if not spread.known:
        assert (spread.mean, spread.min, spread.max) == (None, None, None)
    else:
        assert spread.min - 1e-6 <= spread.mean <= spread.max + 1e-6


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((1.25,), "1.2"),
        ((None,), "not reached"),
        ((1.0, 3.0), "2.0 (1.0 to 3.0)"),
        ((1.0, None, 3.0), "2.0 (1.0 to 3.0); not reached with 1 of 3 seeds"),
        ((None, 1.0), "1.0; not reached with 1 of 2 seeds"),
        ((2.0, 2.01), "2.0"),
        ((None, None), "not reached"),
    ],
)
def test_a_cell_counts_what_was_not_reached(values, text):
    assert Spread(values).text(".1f", "not reached") == text


@given(st.lists(st.none() | st.floats(1e-3, 1e3), min_size=1, max_size=5))
def test_the_mean_of_the_inverse_is_the_inverse_of_the_mean(values):
    ratios = Ratios(tuple(values))
    mean, inverse = ratios.mean, ratios.inverse.mean
    assert mean is None or inverse == pytest.approx(1 / mean)


def test_the_mean_with_a_ratio_of_nothing_is_nothing():
    assert Ratios((0.0, 4.0)).mean == 0.0


def test_without_a_ratio_there_is_no_mean():
    assert Ratios((None, None)).mean is None


def test_bytes_to_the_target_are_those_of_both_ways(make_run):
    summaries = [summarise(make_run("fedat", CLIMB), 0.6)]
    both, up, down = (
        spread_of(f"wire_{ways}to_target_mb", summaries).values[0] for ways in ("", "up_", "down_")
    )
    assert both == pytest.approx(up + down)
    assert up == pytest.approx(4 * 2 * 300 / 1e6)


@pytest.mark.parametrize("name", QUANTITIES)
def test_what_was_not_reached_is_more_than_any_value_so_far(name, make_run):
    rule = QUANTITIES[name]
    if rule.at_least is not None:
        reached, missed = (summarise(make_run("fedat", CLIMB), target) for target in (0.6, 1.0))
        assert rule.value(missed) is None
        assert rule.at_least(missed) >= rule.value(reached)
