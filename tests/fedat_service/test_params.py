import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedat_service.errors import ManifestError
from fedat_service.params import Manifest, Model, TensorSpec, initial_model, to_model, to_params

ARRAYS = st.sampled_from([np.float32, np.int64]).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
)
STATE_DICTS = st.lists(ARRAYS, min_size=1, max_size=6).map(
    lambda arrays: {f"layer{i // 2}.t{i}": array for i, array in enumerate(arrays)}
)


@pytest.fixture
def params():
    return {
        "conv.weight": np.arange(8, dtype=np.float32).reshape(2, 1, 2, 2),
        "conv.bias": np.array([8, 9], np.float32),
        "norm.weight": np.array([10], np.float32),
        "norm.num_batches_tracked": np.array(11, np.int64),
        "scale": np.array(12, np.float32),
    }


def weight(name="a.weight", shape=(1,), layer="a", **others):
    return TensorSpec(name, shape, "float32", layer, **others)


@given(STATE_DICTS)
def test_a_state_dict_survives_the_round_trip_bit_for_bit(state_dict):
    manifest = Manifest.of(state_dict)
    back = to_params(to_model(state_dict, manifest), manifest)
    assert list(back) == list(state_dict)
    for name, array in state_dict.items():
        assert (back[name].shape, back[name].dtype) == (array.shape, array.dtype)
        assert back[name].tobytes() == array.tobytes()


def test_parameters_are_views_of_the_model(params):
    manifest = Manifest.of(params)
    model = to_model(params, manifest)
    for array in to_params(model, manifest).values():
        assert np.shares_memory(array, model.floats) or np.shares_memory(array, model.integers)


def test_a_manifest_describes_tensors_and_layers(params):
    manifest = Manifest.of(params)
    assert manifest.layers == ("conv", "norm", "scale")
    assert (manifest.num_floats, manifest.num_integers) == (12, 1)
    assert manifest.tensors[0] == TensorSpec("conv.weight", (2, 1, 2, 2), "float32", "conv")
    assert manifest.tensors[3] == TensorSpec("norm.num_batches_tracked", (), "int64", "norm", trainable=False)


def test_only_the_chosen_float_tensors_are_trainable(params):
    manifest = Manifest.of(params, trainable=["conv.weight", "norm.num_batches_tracked"])
    assert [t.name for t in manifest.tensors if t.trainable] == ["conv.weight"]


@given(STATE_DICTS)
def test_spans_tile_the_vector_of_each_dtype(state_dict):
    manifest = Manifest.of(state_dict)
    for dtype, size in (("float32", manifest.num_floats), ("int64", manifest.num_integers)):
        spans = [manifest.spans[t.name] for t in manifest.tensors if t.dtype == dtype]
        assert [i for span in spans for i in range(size)[span]] == list(range(size))


def test_layers_are_selected_in_manifest_order(params):
    chosen = Manifest.of(params).select(["scale", "conv"])
    assert [t.name for t in chosen] == ["conv.weight", "conv.bias", "scale"]


def test_an_unknown_layer_is_named(params):
    with pytest.raises(ManifestError, match="unknown layer 'head'; the model has conv, norm, scale"):
        Manifest.of(params).select(["conv", "head"])


def test_equal_manifests_have_equal_digests(params):
    assert Manifest.of(params).digest == Manifest.of(dict(params)).digest


@pytest.mark.parametrize(
    "other",
    [
        weight("b.weight"),
        weight(shape=(1, 1)),
        weight(layer="b"),
        weight(trainable=False),
        TensorSpec("a.weight", (1,), "int64", "a", trainable=False),
    ],
)
def test_manifests_that_differ_anywhere_have_other_digests(other):
    assert Manifest((weight(),)).digest != Manifest((other,)).digest


def test_a_models_digest_is_of_its_bits():
    zero = Model(np.zeros(2, np.float32), np.zeros(1, np.int64))
    assert zero.digest() == Model(np.zeros(2, np.float32), np.zeros(1, np.int64)).digest()
    assert zero.digest() != Model(np.array([0.0, -0.0], np.float32), np.zeros(1, np.int64)).digest()
    assert zero.digest() != Model(np.zeros(2, np.float32), np.ones(1, np.int64)).digest()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head.weight": np.zeros(1, np.float32)}, "'head.weight' is not in the manifest"),
        ({"conv.bias": None}, "'conv.bias' is missing"),
        ({"conv.bias": np.zeros(3, np.float32)}, r"'conv.bias' must be float32\[2\], got float32\[3\]"),
        ({"conv.bias": np.zeros(2)}, r"'conv.bias' must be float32\[2\], got float64\[2\]"),
        ({"conv.weight": None, "conv.bias": None}, "'conv.weight' is missing"),
        ({"conv.weight": np.zeros((1, 2, 2, 2), np.float32)}, "'conv.weight' must be"),
    ],
)
def test_the_first_tensor_that_does_not_fit_is_named(params, change, message):
    changed = {name: array for name, array in (params | change).items() if array is not None}
    with pytest.raises(ManifestError, match=message):
        to_model(changed, Manifest.of(params))


def test_an_array_of_another_dtype_cannot_be_described():
    with pytest.raises(ManifestError, match=r"'a\.weight': dtype must be float32 or int64, got float64"):
        Manifest.of({"a.weight": np.zeros(1)})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (("a weight", (1,), "float32", "a"), "tensor name 'a weight'"),
        (("a.weight", (1,), "float32", ""), "layer name ''"),
        (("a" * 129, (1,), "float32", "a"), "tensor name 'a"),
        (("a.weight", (1,), "float64", "a"), "dtype must be float32 or int64, got 'float64'"),
        (("a.weight", (1, -1), "float32", "a"), r"shape \(1, -1\)"),
        (("a.weight", (1,) * 9, "float32", "a"), "up to 8 sizes"),
        (("a.steps", (), "int64", "a"), "integer tensor cannot be trainable"),
    ],
)
def test_a_tensor_that_cannot_be_carried_is_refused(fields, message):
    with pytest.raises(ManifestError, match=message):
        TensorSpec(*fields)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ((), "got 0"),
        ((weight(), weight("b"), weight()), "tensor 'a.weight' stands twice"),
        ((weight("a.w"), weight("b.w", layer="b"), weight("a.b")), "layer 'a' must be neighbours"),
        ((weight(shape=(2**17, 2**17)), weight("a.bias")), "elements, over 2"),
    ],
)
def test_tensors_that_are_no_model_are_refused(tensors, message):
    with pytest.raises(ManifestError, match=message):
        Manifest(tensors)


def test_equal_seeds_give_equal_initial_models(params):
    manifest = Manifest.of(params)
    assert initial_model(manifest, 7).digest() == initial_model(manifest, 7).digest()
    assert initial_model(manifest, 7).digest() != initial_model(manifest, 8).digest()


@pytest.mark.parametrize(
    ("shape", "fans"), [((300, 100), 400), ((32, 16, 3, 3), (32 + 16) * 9), ((64, 8, 5), (64 + 8) * 5)]
)
def test_initial_weights_fill_glorots_range(shape, fans):
    values = initial_model(Manifest((weight(shape=shape),)), 0).floats
    limit = math.sqrt(6 / fans)
    assert 0.98 * limit < np.abs(values).max() <= np.float32(limit)
    assert abs(values.mean()) < 0.05 * limit
    assert values.std() == pytest.approx(limit / math.sqrt(3), rel=0.05)


def test_initial_biases_are_zero_and_scales_and_variances_one():
    shapes = {"weight": 2, "bias": 2, "running_mean": 2, "running_var": 2}
    manifest = Manifest.of(
        {f"norm.{name}": np.empty(size, np.float32) for name, size in shapes.items()}
        | {"norm.num_batches_tracked": np.array(5, np.int64)}
    )
    initial = to_params(initial_model(manifest, 0), manifest)
    assert {name: array.tolist() for name, array in initial.items()} == {
        "norm.weight": [1, 1],
        "norm.bias": [0, 0],
        "norm.running_mean": [0, 0],
        "norm.running_var": [1, 1],
        "norm.num_batches_tracked": 0,
    }


def test_a_tensor_without_elements_has_an_initial_model():
    assert initial_model(Manifest((weight(shape=(0, 0)),)), 0).floats.size == 0
