from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedat_service.aggregation.asynchronous import (
    REPLACE,
    Blend,
    blended,
    constant,
    fedasync,
    fedbuff,
    hinge,
    polynomial,
)
from fedat_service.aggregation.chunks import CHUNK
from fedat_service.aggregation.mean import RunningMean
from fedat_service.errors import ManifestError, RuleError
from fedat_service.params import Manifest, Model, TensorSpec

FACTORS = st.sampled_from([constant, hinge, polynomial, partial(hinge, a=0.5, b=0), partial(polynomial, a=2)])
VALUES = st.floats(-100, 100, width=32)


def manifest(num_weights, num_statistics=0, num_integers=0):
    return Manifest(
        (
            TensorSpec("fc.weight", (num_weights,), "float32", "fc"),
            TensorSpec("norm.var", (num_statistics,), "float32", "norm", trainable=False),
            TensorSpec("norm.count", (num_integers,), "int64", "norm", trainable=False),
        )
    )


def model(floats, integers=()):
    return Model(np.array(floats, np.float32), np.array(integers, np.int64))


def mean_of(of, *updates, scale=1):
    mean = RunningMean(of, scale)
    for update, weight in updates:
        mean.add(update, weight)
    return mean


def test_staleness_factors_are_the_golden_ones(golden):
    case = golden("fedasync_staleness")
    inputs, outputs = case["inputs"], case["outputs"]
    factors = {
        "constant": constant,
        "hinge": partial(hinge, a=inputs["hinge_a"], b=inputs["hinge_b"]),
        "poly": partial(polynomial, a=inputs["poly_a"]),
    }
    for name, s in factors.items():
        assert [s(age) for age in inputs["delta"]] == pytest.approx(outputs[name], rel=case["rtol"])


@given(FACTORS, st.integers(0, 10**6))
def test_an_older_update_never_counts_more(s, age):
    assert s(0) == 1.0
    assert 0 < s(age + 1) <= s(age) <= 1.0


@pytest.mark.parametrize("s", [constant, hinge, polynomial])
def test_an_update_from_the_future_is_refused(s):
    with pytest.raises(RuleError, match="from 2 versions ahead"):
        s(-2)


@pytest.mark.parametrize(
    ("expected", "s", "age"),
    [("poly3", polynomial, 3), ("hinge5", hinge, 5), ("constant", constant, 9)],
)
def test_fedasync_mixes_as_the_golden_case_does(golden, expected, s, age):
    case = golden("fedasync_mix")
    x, x_new, alpha = (case["inputs"][name] for name in ("x", "x_new", "alpha"))
    blend = fedasync(s, alpha, version=20, bases=[20 - age])
    mixed = [blend.own * a + blend.share * b for a, b in zip(x, x_new, strict=True)]
    assert mixed == pytest.approx(case["outputs"][expected], rel=case["rtol"])
    mean = mean_of(manifest(2), (model(x_new), 7))
    moved = blended(blend, mean, model(x), {}, manifest(2))
    assert moved.floats.tolist() == np.float32(case["outputs"][expected]).tolist()


@pytest.mark.parametrize("bases", [[], [1, 2]])
def test_fedasync_takes_one_update_at_a_time(bases):
    with pytest.raises(RuleError, match="one update at a time"):
        fedasync(constant, 0.6, 3, bases)


def test_fedbuff_goes_the_mean_way_of_its_updates():
    # Two updates of age 0 and 3, s = 1 and 1/2: x + ((x_1 - x_7) + (x_2 - x_4) / 2) / 2.
    x, old = model([1.0, 10.0]), model([2.0, 0.0])
    blend = fedbuff(polynomial, version=7, bases=[7, 4])
    mean = mean_of(manifest(2), (model([5.0, 10.0]), polynomial(0)), (model([4.0, 8.0]), polynomial(3)))
    moved = blended(blend, mean, x, {7: x, 4: old}, manifest(2))
    assert moved.floats.tolist() == [1 + (4 + 1) / 2, 10 + (0 + 4) / 2]


@given(
    FACTORS,
    st.lists(st.tuples(st.integers(0, 9), st.lists(VALUES, min_size=3, max_size=3)), min_size=1, max_size=8),
)
def test_fedbuff_is_the_sum_that_the_paper_writes(s, updates):
    versions = {v: model(np.random.default_rng(v).standard_normal(3)) for v in range(10)}
    mean = mean_of(manifest(3), *((model(values), s(9 - base)) for base, values in updates))
    blend = fedbuff(s, version=9, bases=[base for base, _ in updates])
    moved = blended(blend, mean, versions[9], versions, manifest(3))
    way = sum(s(9 - base) * (np.array(values) - versions[base].floats) for base, values in updates)
    np.testing.assert_allclose(moved.floats, versions[9].floats + way / len(updates), rtol=1e-6, atol=1e-4)


@given(FACTORS, st.lists(st.integers(0, 20), min_size=1, max_size=20))
def test_whatever_is_blended_its_parts_sum_to_1(s, bases):
    for blend in (fedbuff(s, 20, bases), fedasync(s, 0.6, 20, bases[:1])):
        assert blend.share + blend.own + sum(c for _, c in blend.bases) == pytest.approx(1.0)


def test_updates_that_went_nowhere_leave_the_model_where_it_is():
    x, old = model([0.1, 0.7]), model([3.0, 5.0])
    mean = mean_of(manifest(2), (x, 1.0), (old, 0.5))
    moved = blended(fedbuff(polynomial, 8, [8, 5]), mean, x, {8: x, 5: old}, manifest(2))
    np.testing.assert_allclose(moved.floats, x.floats, rtol=1e-6)


def test_an_empty_buffer_moves_nothing_and_says_so():
    with pytest.raises(RuleError, match="without updates"):
        fedbuff(constant, 3, [])


def test_a_mean_that_replaces_is_taken_to_the_bit():
    rng = np.random.default_rng(0)
    of = manifest(2 * CHUNK + 5)
    updates = [(model(rng.standard_normal(of.num_floats)), weight) for weight in (3, 8, 1)]
    moved = blended(REPLACE, mean_of(of, *updates), updates[0][0], {}, of)
    assert moved.digest() == mean_of(of, *updates).mean().digest()


@pytest.mark.parametrize("num_weights", [1, CHUNK, 2 * CHUNK + 5])
def test_every_element_is_blended(num_weights):
    of = manifest(num_weights, num_statistics=3)
    x, update = (model(np.full(of.num_floats, value)) for value in (1.0, 3.0))
    moved = blended(Blend(0.5, 0.5), mean_of(of, (update, 2)), x, {}, of)
    assert (moved.floats == 2.0).all()


def test_it_is_rounded_once():
    # As float32 a third is too large by 1e-8: had the mean been rounded, that would be left over.
    mean = mean_of(manifest(1), (model([1.0]), 1), (model([0.0]), 2))
    assert blended(Blend(3.0, -1.0), mean, model([1.0]), {}, manifest(1)).floats[0] == 0.0


def test_statistics_are_values_and_not_ways():
    # A way would take the variance below 0: 0.1 + (0.2 - 2.0) / 2.
    of = manifest(1, num_statistics=1)
    x, old, update = model([0.0, 0.1]), model([0.0, 2.0]), model([0.0, 0.2])
    blend = fedbuff(lambda age: 1.0 if age == 0 else 0.5, 5, [4])
    moved = blended(blend, mean_of(of, (update, 0.5)), x, {4: old}, of)
    assert moved.floats.tolist() == [0.0, np.float32(0.5 * np.float32(0.1) + 0.5 * np.float32(0.2))]


def test_integers_take_the_largest_value():
    of = manifest(1, num_integers=2)
    mean = mean_of(of, (model([1.0], [3, 9]), 1), (model([1.0], [4, 1]), 1))
    assert blended(Blend(0.5, 0.5), mean, model([1.0], [8, 8]), {}, of).integers.tolist() == [8, 9]


def test_on_the_grid_fresh_updates_give_the_same_bits_in_any_order():
    of, rng = manifest(50), np.random.default_rng(1)
    x = model(rng.standard_normal(50))
    on_grid = rng.integers(-(10**4), 10**4, (5, 50))

    def moved(order):
        mean = RunningMean(of, 10**4)
        for at in order:
            mean.total += on_grid[at]
            mean.admit(x.integers, polynomial(0))
        return blended(fedbuff(polynomial, 2, [2] * 5), mean, x, {2: x}, of).digest()

    assert moved([0, 1, 2, 3, 4]) == moved([3, 1, 4, 0, 2])


def test_without_updates_there_is_nothing_to_blend():
    with pytest.raises(RuleError, match="nothing to blend"):
        blended(Blend(0.5, 0.5), RunningMean(manifest(1)), model([1.0]), {}, manifest(1))


def test_a_base_that_is_not_kept_is_named():
    mean = mean_of(manifest(1), (model([1.0]), 1))
    with pytest.raises(ManifestError, match="version 3"):
        blended(fedbuff(constant, 5, [3]), mean, model([1.0]), {5: model([1.0])}, manifest(1))


def test_a_model_of_another_size_is_refused():
    mean = mean_of(manifest(1), (model([1.0]), 1))
    with pytest.raises(ManifestError, match="must have 1 floats"):
        blended(Blend(0.5, 0.5), mean, model([1.0, 2.0]), {}, manifest(1))
