import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedat_service.aggregation.chunks import CHUNK
from fedat_service.aggregation.mean import RunningMean, update_weight
from fedat_service.errors import ManifestError, RuleError
from fedat_service.params import Manifest, Model, TensorSpec, to_params

SIZE = 3
WEIGHTS = st.integers(1, 2**20)
GRID = st.lists(st.integers(1 - 2**24, 2**24 - 1), min_size=SIZE, max_size=SIZE)
FLOATS = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=SIZE, max_size=SIZE)
PRECISION = st.integers(3, 6)


def manifest(num_floats, num_integers=0):
    return Manifest(
        (
            TensorSpec("body.weight", (num_floats,), "float32", "body"),
            TensorSpec("body.steps", (num_integers,), "int64", "body", trainable=False),
        )
    )


def model(floats, integers=()):
    return Model(np.array(floats, np.float32), np.array(integers, np.int64))


def mean_of(updates, scale=1):
    mean = RunningMean(manifest(len(updates[0][0])), scale)
    for floats, weight in updates:
        mean.add(model(floats), weight)
    return mean.mean().floats


def mean_on_grid(updates, precision):
    mean = RunningMean(manifest(SIZE), 10**precision)
    for q, weight in updates:
        mean.admit(np.empty(0, np.int64), weight)
        mean.total += np.multiply(q, weight, dtype=np.float64)
    return mean.mean()


def test_weighted_mean_is_the_golden_one(golden):
    case = golden("fedavg_weighted_mean")
    weights = [update_weight(n, "samples") for n in case["inputs"]["n"]]
    updates = list(zip(case["inputs"]["client_models"], weights, strict=True))
    assert mean_of(updates).tolist() == np.float32(case["outputs"]["w"]).tolist()


def test_uniform_mean_is_the_golden_one(golden):
    case = golden("fedavg_uniform_mean")
    updates = [(w_k, update_weight(17, "uniform")) for w_k in case["inputs"]["client_models"]]
    assert mean_of(updates).tolist() == np.float32(case["outputs"]["w"]).tolist()


def test_tier_average_is_the_golden_one(golden):
    case = golden("fedat_tier_average")
    updates = list(zip(case["inputs"]["models"], case["inputs"]["n"], strict=True))
    assert mean_of(updates).tolist() == np.float32(case["outputs"]["w_tier"]).tolist()


@given(st.lists(st.tuples(GRID, WEIGHTS), min_size=1, max_size=8), PRECISION, st.randoms())
def test_order_of_arrival_never_changes_a_bit_on_the_grid(updates, precision, random):
    shuffled = random.sample(updates, len(updates))
    assert mean_on_grid(shuffled, precision).digest() == mean_on_grid(updates, precision).digest()


@given(GRID, st.lists(WEIGHTS, min_size=1, max_size=8), PRECISION)
def test_equal_grid_models_average_to_what_a_decoder_gives(q, weights, precision):
    decoded = np.divide(q, 10**precision).astype(np.float32)
    mean = mean_on_grid([(q, weight) for weight in weights], precision)
    assert mean.floats.tolist() == decoded.tolist()


@given(FLOATS, st.lists(WEIGHTS, min_size=1, max_size=8), st.sampled_from([1, 10**4]))
def test_equal_plain_models_average_to_themselves(values, weights, scale):
    assert mean_of([(values, weight) for weight in weights], scale).tolist() == values


@given(st.lists(st.tuples(FLOATS, WEIGHTS), min_size=1, max_size=8))
def test_the_mean_lies_between_least_and_largest(updates):
    values = np.array([floats for floats, _ in updates], np.float32)
    mean = mean_of(updates)
    assert (values.min(axis=0) <= mean).all()
    assert (mean <= values.max(axis=0)).all()


def test_grid_payloads_and_plain_models_meet_in_one_sum():
    mean = RunningMean(manifest(1), scale=1000)
    mean.admit(np.empty(0, np.int64), 1)
    mean.total += 1 * np.array([1500.0])
    mean.add(model([2.5]), 3)
    assert mean.mean().floats.tolist() == [2.25]


def test_a_model_of_many_chunks_is_averaged_throughout():
    rng = np.random.default_rng(0)
    updates = [(rng.standard_normal(2 * CHUNK + 5).astype(np.float32), n) for n in (1, 3)]
    expected = (updates[0][0].astype(np.float64) + 3 * updates[1][0].astype(np.float64)) / 4
    assert np.array_equal(mean_of(updates), expected.astype(np.float32))


def test_integer_buffers_take_the_largest_value():
    mean = RunningMean(manifest(1, 2))
    mean.add(model([0], [5, -7]), 1)
    mean.add(model([0], [2, -3]), 100)
    assert mean.mean().integers.tolist() == [5, -3]


def test_weight_and_number_of_updates_are_counted():
    mean = RunningMean(manifest(1))
    mean.add(model([0]), 30)
    mean.add(model([0]), 12)
    assert (mean.weight_sum, mean.num_updates) == (42, 2)


def test_a_mean_taken_early_does_not_change_later():
    mean = RunningMean(manifest(1, 1))
    mean.add(model([1], [1]), 1)
    early = mean.mean()
    mean.add(model([9], [9]), 1)
    assert (early.floats.tolist(), early.integers.tolist()) == ([1], [1])


def test_some_layers_are_averaged_over_a_manifest_of_these_layers():
    whole = Manifest(
        (
            TensorSpec("body.weight", (2,), "float32", "body"),
            TensorSpec("head.weight", (1,), "float32", "head"),
        )
    )
    head = Manifest(whole.select(["head"]))
    mean = RunningMean(head)
    mean.add(model([1]), 1)
    mean.add(model([4]), 2)
    assert to_params(mean.mean(), head)["head.weight"].tolist() == [3]


def test_a_round_without_updates_has_no_mean():
    with pytest.raises(RuleError, match="without updates"):
        RunningMean(manifest(1)).mean()


@pytest.mark.parametrize("weight", [0, -9, float("nan"), float("inf")])
def test_an_impossible_weight_is_refused_and_leaves_the_mean_alone(weight):
    mean = RunningMean(manifest(1))
    mean.add(model([2]), 1)
    with pytest.raises(RuleError, match=f"got {weight}"):
        mean.add(model([50]), weight)
    assert mean.mean().floats.tolist() == [2]


@pytest.mark.parametrize(("update", "named"), [(model([1, 2], [0]), "floats"), (model([1], []), "integers")])
def test_a_model_of_another_size_is_refused_and_leaves_the_mean_alone(update, named):
    mean = RunningMean(manifest(1, 1))
    mean.add(model([2], [3]), 1)
    with pytest.raises(ManifestError, match=named):
        mean.add(update, 1)
    assert mean.mean().floats.tolist() == [2]


def test_a_scale_under_one_is_refused():
    with pytest.raises(RuleError, match="got 0"):
        RunningMean(manifest(1), scale=0)


@pytest.mark.parametrize(("weighting", "weight"), [("samples", 120), ("uniform", 1)])
def test_an_update_weighs_its_examples_or_one(weighting, weight):
    assert update_weight(120, weighting) == weight
