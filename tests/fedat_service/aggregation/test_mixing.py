import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedat_service.aggregation.chunks import CHUNK
from fedat_service.aggregation.mixing import mix_tiers, tier_weights
from fedat_service.errors import ManifestError, RuleError
from fedat_service.params import Model

COLD_STARTS = ("literal", "smoothed", "reported")
MIXINGS = ("inverse-frequency", "uniform")
TIERS = st.lists(st.tuples(st.integers(0, 2**60), st.booleans()), min_size=1, max_size=20)
COUNTS = st.lists(st.integers(0, 1000), min_size=1, max_size=20)
VALUES = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=4)


def model(floats, integers=()):
    return Model(np.array(floats, np.float32), np.array(integers, np.int64))


@pytest.mark.parametrize(
    "case_id",
    [
        "fedat_weights_5_3_2",
        "fedat_weights_1_0_0_0_0",
        "fedat_weights_10_2_1_0_0",
        "fedat_weights_40_9_4_3_1",
        "fedat_weights_7",
        "fedat_weights_4_4",
    ],
)
def test_weights_are_the_golden_ones(golden, case_id):
    case = golden(case_id)
    expected = pytest.approx(case["outputs"]["weights"], rel=case["rtol"])
    assert tier_weights(case["inputs"]["counts"]).tolist() == expected


def test_before_the_first_update_the_mix_is_the_initial_model_to_the_bit(golden):
    counts = golden("fedat_weights_0_0_0")["inputs"]["counts"]
    w0 = model(np.random.default_rng(0).standard_normal(1000) * 1e-3, [4])
    assert mix_tiers([w0] * len(counts), tier_weights(counts)).digest() == w0.digest()


def test_reported_weights_are_the_golden_ones(golden):
    case = golden("fedat_weights_active_variant")
    for counts, weights in zip(case["inputs"]["counts"], case["outputs"]["weights"], strict=True):
        assert tier_weights(counts, "reported").tolist() == pytest.approx(weights, rel=case["rtol"])


def test_arrivals_give_the_golden_global_models(golden):
    case = golden("fedat_arrival_sequence")
    tier_models = [model(case["inputs"]["w0"])] * 3
    counts = [0, 0, 0]
    for arrival, step in zip(case["inputs"]["arrivals"], case["outputs"]["steps"], strict=True):
        tier_models[arrival["tier"] - 1] = model(arrival["w_tier"])
        counts[arrival["tier"] - 1] += 1
        weights = tier_weights(counts)
        assert counts == step["counts"]
        assert weights.tolist() == pytest.approx(step["weights"], rel=case["rtol"])
        assert mix_tiers(tier_models, weights).floats.tolist() == np.float32(step["w_global"]).tolist()


@given(TIERS, st.sampled_from(COLD_STARTS), st.sampled_from(MIXINGS))
def test_weights_are_a_distribution(tiers, cold_start, mixing):
    counts, parked = zip(*tiers, strict=True)
    p = tier_weights(counts, cold_start, parked, mixing)
    assert p.shape == (len(tiers),)
    assert (p >= 0).all()
    assert abs(p.sum() - 1) <= 1e-9


@given(TIERS, st.sampled_from(COLD_STARTS), st.sampled_from(MIXINGS))
def test_the_rule_holds_among_the_tiers_that_are_not_parked(tiers, cold_start, mixing):
    counts, parked = zip(*tiers, strict=True)
    live = [m for m, is_parked in enumerate(parked) if not is_parked]
    expected = np.zeros(len(tiers))
    if live:
        expected[live] = tier_weights([counts[m] for m in live], cold_start, mixing=mixing)
    else:
        expected = tier_weights(counts, cold_start, mixing=mixing)
    assert tier_weights(counts, cold_start, parked, mixing).tolist() == expected.tolist()


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=20))
def test_reported_is_the_printed_rule_once_every_tier_has_reported(counts):
    assert tier_weights(counts, "reported").tolist() == tier_weights(counts).tolist()


@given(COUNTS)
def test_smoothed_is_the_printed_rule_with_one_more_update_everywhere(counts):
    assert tier_weights(counts, "smoothed").tolist() == tier_weights([n + 1 for n in counts]).tolist()


@given(COUNTS)
def test_uniform_weights_do_not_depend_on_the_counts(counts):
    assert tier_weights(counts, mixing="uniform").tolist() == [1 / len(counts)] * len(counts)


def test_uniform_weights_are_those_of_the_tiers_that_have_reported():
    weights = tier_weights([9, 0, 1, 0], "reported", [False, False, False, True], "uniform")
    assert weights.tolist() == [0.5, 0, 0.5, 0]


@pytest.mark.parametrize("cold_start", COLD_STARTS)
def test_before_the_first_update_all_tiers_weigh_the_same(cold_start):
    assert tier_weights([0, 0, 0, 0], cold_start).tolist() == [0.25] * 4


def test_the_mirror_is_by_index_not_by_rank():
    assert tier_weights([1, 5, 2]).tolist() == [0.25, 0.625, 0.125]


def test_a_parked_tier_gives_its_weight_to_the_others():
    assert tier_weights([6, 3, 1], parked=[False, True, False]).tolist() == [1 / 7, 0, 6 / 7]


@pytest.mark.parametrize(
    ("counts", "parked", "named"),
    [([], None, "one number"), ([3, -1], None, "-1"), ([1, 2], [True], "2 tiers need 2 parked flags")],
)
def test_counts_and_flags_that_fit_no_tiers_are_refused(counts, parked, named):
    with pytest.raises(RuleError, match=named):
        tier_weights(counts, parked=parked)


@given(VALUES, COUNTS, st.sampled_from(COLD_STARTS))
def test_equal_tier_models_mix_to_themselves(values, counts, cold_start):
    mixed = mix_tiers([model(values)] * len(counts), tier_weights(counts, cold_start))
    assert mixed.floats.tolist() == values


@given(st.lists(st.tuples(st.floats(-1e6, 1e6, width=32), st.integers(1, 1000)), min_size=1, max_size=8))
def test_the_mix_lies_between_least_and_largest(tiers):
    values, counts = zip(*tiers, strict=True)
    mixed = mix_tiers([model([value]) for value in values], tier_weights(counts)).floats[0]
    assert min(values) <= mixed <= max(values)


def test_a_weight_of_one_gives_that_model_to_the_bit():
    special = model([-0.0, 1e-45, 3e38, 0.1], [7])
    other = model([np.nan, np.inf, 1, 1], [99])
    assert mix_tiers([other, special, other], [0, 1, 0]).digest() == special.digest()


def test_a_tier_without_weight_takes_no_part():
    broken = model([np.nan], [99])
    mixed = mix_tiers([model([1], [3]), broken, model([2], [5])], [0.5, 0, 0.5])
    assert (mixed.floats.tolist(), mixed.integers.tolist()) == ([1.5], [5])


def test_models_of_many_chunks_are_mixed_throughout():
    rng = np.random.default_rng(0)
    tiers = [model(rng.standard_normal(2 * CHUNK + 5)) for _ in range(3)]
    p = [0.5, 0.25, 0.25]
    expected = sum(p_m * w_m.floats.astype(np.float64) for p_m, w_m in zip(p, tiers, strict=True))
    assert np.array_equal(mix_tiers(tiers, p).floats, expected.astype(np.float32))


def test_mixing_leaves_the_tier_models_alone():
    tiers = [model([1, 2], [1]), model([3, 4], [2])]
    before = [tier.digest() for tier in tiers]
    mix_tiers(tiers, [0.5, 0.5])
    assert [tier.digest() for tier in tiers] == before


@pytest.mark.parametrize("weights", [[1.0], [0.5, 0.6], [-0.5, 1.5], [np.nan, 1.0], [0.0, 0.0]])
def test_weights_that_are_no_distribution_are_refused(weights):
    with pytest.raises(RuleError, match="2 tiers need"):
        mix_tiers([model([1]), model([2])], weights)


@pytest.mark.parametrize("other", [model([1, 2]), model([1], [1])])
def test_models_of_different_size_are_refused(other):
    with pytest.raises(ManifestError, match="same size"):
        mix_tiers([model([1]), other], [0.5, 0.5])
