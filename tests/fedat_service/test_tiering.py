from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedat_service.errors import RuleError
from fedat_service.tiering import (
    assign_by_quantiles,
    assign_tiers,
    equal_borders,
    place,
    quantile_borders,
    retier,
    smoothed_latency,
    tier_chances,
)

NAMES = st.text("abc", min_size=1, max_size=4)
LATENCIES = st.dictionaries(NAMES, st.integers(0, 5000).map(lambda ms: ms / 1000), max_size=30)
SOME_LATENCIES = st.dictionaries(NAMES, st.floats(0, 5000), min_size=1, max_size=30)
DISTINCT = st.lists(st.integers(1, 10**6), unique=True, max_size=30).map(
    lambda values: {f"c{value}": value / 1000 for value in values}
)
NUM_TIERS = st.integers(1, 7)
QUANTILES = st.lists(st.floats(0.01, 0.99), unique=True, max_size=5).map(sorted)
BORDERS = st.lists(st.floats(0.1, 1000), unique=True, max_size=6).map(sorted)
HYSTERESIS = st.floats(0, 10)
ACCURACIES = st.lists(st.none() | st.floats(0, 1), min_size=1, max_size=8)


def test_clients_are_cut_into_equal_parts_fastest_first():
    latencies = {"e": 25.0, "a": 0.1, "c": 8.0, "b": 3.0, "f": 29.0, "d": 13.0}
    assert assign_tiers(latencies, 3) == {"a": 1, "b": 1, "c": 2, "d": 2, "e": 3, "f": 3}


@given(LATENCIES, NUM_TIERS)
def test_sizes_differ_by_one_at_most_and_no_tier_is_skipped(latencies, num_tiers):
    sizes = Counter(assign_tiers(latencies, num_tiers).values())
    assert sorted(sizes) == list(range(1, min(num_tiers, len(latencies)) + 1))
    assert not sizes or max(sizes.values()) - min(sizes.values()) <= 1


@given(LATENCIES, NUM_TIERS)
def test_a_faster_client_is_never_in_a_slower_tier(latencies, num_tiers):
    tiers = assign_tiers(latencies, num_tiers)
    by_latency = sorted(latencies, key=lambda client: (latencies[client], tiers[client]))
    assert [tiers[client] for client in by_latency] == sorted(tiers.values())


@given(LATENCIES, NUM_TIERS, st.randoms())
def test_the_order_of_registration_does_not_matter(latencies, num_tiers, random):
    shuffled = dict(random.sample(list(latencies.items()), len(latencies)))
    assert assign_tiers(shuffled, num_tiers) == assign_tiers(latencies, num_tiers)


def test_equal_latencies_are_ordered_by_name():
    assert assign_tiers({"b": 1.0, "a": 1.0}, 2) == {"a": 1, "b": 2}


def test_with_few_clients_the_slowest_tiers_are_empty():
    assert assign_tiers({"slow": 9.0, "fast": 1.0}, 5) == {"fast": 1, "slow": 2}


@given(DISTINCT, NUM_TIERS)
def test_borders_of_equal_parts_place_every_client_in_its_tier(latencies, num_tiers):
    borders = equal_borders(latencies, num_tiers)
    placed = {client: place(latency_s, borders) for client, latency_s in latencies.items()}
    assert placed == assign_tiers(latencies, num_tiers)


@given(LATENCIES, NUM_TIERS)
def test_borders_of_equal_parts_ascend_and_are_one_fewer_than_the_tiers(latencies, num_tiers):
    borders = equal_borders(latencies, num_tiers)
    assert list(borders) == sorted(borders)
    assert len(borders) == max(min(num_tiers, len(latencies)) - 1, 0)


def test_a_border_of_equal_parts_is_half_way_between_its_neighbours():
    assert equal_borders({"a": 1.0, "b": 2.0, "c": 4.0, "d": 9.0}, 2) == (3.0,)


def test_quantiles_cut_by_latency_not_by_size():
    latencies = {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0, "e": 11.0}
    assert quantile_borders(latencies, (0.5, 0.9)) == pytest.approx((1.0, 7.0))
    assert assign_by_quantiles(latencies, (0.5, 0.9)) == {"a": 1, "b": 1, "c": 1, "d": 1, "e": 3}


@given(SOME_LATENCIES, QUANTILES)
def test_by_quantiles_tiers_follow_the_latency(latencies, quantiles):
    tiers = assign_by_quantiles(latencies, quantiles)
    by_latency = [tiers[client] for client in sorted(latencies, key=latencies.__getitem__)]
    assert by_latency == sorted(by_latency)
    assert set(by_latency) <= set(range(1, len(quantiles) + 2))


def test_without_quantiles_there_is_one_tier():
    assert assign_by_quantiles({"a": 1.0, "b": 50.0}, ()) == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("latency_s", "tier"), [(0.0, 1), (5.0, 1), (5.1, 2), (10.0, 2), (10.1, 3), (1e9, 3)]
)
def test_a_late_client_is_placed_between_the_borders(latency_s, tier):
    assert place(latency_s, (5.0, 10.0)) == tier


@pytest.mark.parametrize(
    ("latency_s", "tier"), [(11.9, 2), (12.1, 3), (24.1, 4), (100.0, 4), (8.4, 2), (8.3, 2), (4.1, 1)]
)
def test_a_client_moves_only_past_the_borders_it_has_clearly_passed(latency_s, tier):
    assert retier({"c": latency_s}, {"c": 2}, (5.0, 10.0, 20.0), 0.2) == {"c": tier}


@given(
    st.floats(0.1, 1000),
    st.floats(0.01, 10),
    st.sampled_from([1, 2]),
    st.lists(st.floats(-0.99, 0.99), max_size=10),
)
def test_a_client_that_swings_within_the_margin_never_moves(border, hysteresis, tier, swings):
    tiers = {"c": tier}
    for swing in swings:
        tiers = retier({"c": border * (1 + hysteresis) ** swing}, tiers, (border,), hysteresis)
    assert tiers == {"c": tier}


@given(LATENCIES, BORDERS, HYSTERESIS, st.integers(1, 7))
def test_a_second_look_at_the_same_latencies_moves_nobody(latencies, borders, hysteresis, tier):
    current = dict.fromkeys(latencies, min(tier, len(borders) + 1))
    once = retier(latencies, current, borders, hysteresis)
    assert retier(latencies, once, borders, hysteresis) == once


@given(SOME_LATENCIES, BORDERS, st.integers(1, 7))
def test_without_hysteresis_everybody_is_where_a_late_client_would_be_placed(latencies, borders, tier):
    current = dict.fromkeys(latencies, tier)
    off_border = {client: latency_s for client, latency_s in latencies.items() if latency_s not in borders}
    expected = {client: place(latency_s, borders) for client, latency_s in off_border.items()}
    assert retier(off_border, current, borders, 0.0) == expected


@pytest.mark.parametrize("tier", [1, 2])
def test_a_client_on_a_border_stays_on_its_side(tier):
    assert retier({"c": 5.0}, {"c": tier}, (5.0,), 0.0) == {"c": tier}


def test_a_client_without_a_tier_is_placed():
    assert retier({"new": 5.5}, {}, (5.0,), 0.2) == {"new": 2}


@pytest.mark.parametrize("hysteresis", [-0.1, float("nan"), float("inf")])
def test_a_hysteresis_that_is_no_share_is_refused(hysteresis):
    with pytest.raises(RuleError, match="hysteresis"):
        retier({"c": 1.0}, {"c": 1}, (), hysteresis)


@pytest.mark.parametrize("latency_s", [-1.0, float("nan"), float("inf")])
def test_a_latency_that_is_no_time_is_refused_by_client(latency_s):
    with pytest.raises(RuleError, match="client 'c'"):
        assign_tiers({"a": 1.0, "c": latency_s}, 1)


def test_less_than_one_tier_is_refused():
    with pytest.raises(RuleError, match="at least one tier, got 0"):
        assign_tiers({"a": 1.0}, 0)


@pytest.mark.parametrize("quantiles", [(0.5, 0.5), (0.7, 0.2), (0.0,), (1.0,), (float("nan"),)])
def test_quantiles_that_do_not_ascend_between_0_and_1_are_refused(quantiles):
    with pytest.raises(RuleError, match="ascend"):
        quantile_borders({"a": 1.0}, quantiles)


def test_nobody_has_no_quantiles():
    with pytest.raises(RuleError, match="no client"):
        quantile_borders({}, (0.5,))


def test_the_first_latency_counts_as_it_is():
    assert smoothed_latency(None, 8.0) == 8.0


def test_a_new_latency_moves_the_smoothed_one_by_its_weight():
    assert smoothed_latency(10.0, 20.0, weight=0.3) == pytest.approx(13.0)


def test_chances_are_the_golden_ones(golden):
    case = golden("tifl_change_probs")
    chances = tier_chances(case["inputs"]["acc"], case["inputs"]["credits"])
    assert chances == pytest.approx(tuple(case["outputs"]["probs"]), rel=case["rtol"])


@given(ACCURACIES, st.data())
def test_chances_are_a_distribution_over_the_tiers_with_credits(accuracies, data):
    left = data.draw(st.lists(st.integers(0, 3), min_size=len(accuracies), max_size=len(accuracies)))
    chances = tier_chances(accuracies, left)
    assert [chance > 0 for chance in chances] == [credit > 0 for credit in left]
    assert sum(chances) == pytest.approx(1.0 if any(left) else 0.0)


@given(ACCURACIES)
def test_a_tier_that_does_worse_is_never_less_likely(accuracies):
    chances = tier_chances(accuracies)
    known = sorted((a, chance) for a, chance in zip(accuracies, chances, strict=True) if a is not None)
    for (better, less), (worse, more) in zip(known[1:], known, strict=False):
        assert more >= less or worse == better


def test_while_nothing_is_known_all_tiers_are_alike():
    assert tier_chances([None] * 4) == (0.25,) * 4
    assert tier_chances([None, None, 0.5], [1, 1, 0]) == (0.5, 0.5, 0)


def test_a_tier_of_which_nothing_is_known_is_the_likeliest():
    assert tier_chances([0.1, None, 0.0]) == (1 / 6, 3 / 6, 2 / 6)


def test_credits_must_be_one_a_tier():
    with pytest.raises(RuleError, match="2 tiers need as many credits"):
        tier_chances([0.1, 0.2], [1])
