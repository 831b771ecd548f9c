import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedat_service.errors import ConfigError
from fedat_service.params import initial_model, to_params
from workers.models.networks import NAMES, build
from workers.models.state import manifest_of, params_of

FAST = tuple(name for name in NAMES if name not in ("smollm2-135m", "wrn-28-10"))


@pytest.mark.parametrize(
    ("name", "input_shape", "num_classes", "num_parameters"),
    [
        ("logistic", (1, 28, 28), 10, 7_850),
        ("logistic", (1, 1, 1000), 2, 2_002),
        ("mlp", (1, 28, 28), 10, 159_010),
        ("cnn", (1, 28, 28), 10, 93_322),
        ("cnn", (3, 32, 32), 10, 122_570),
        ("mnist-cnn", (1, 28, 28), 10, 21_840),
        ("leaf-cnn", (1, 28, 28), 62, 6_603_710),
        ("leaf-cnn", (1, 28, 28), 10, 6_497_162),
        ("resnet20-lama", (3, 32, 32), 10, 272_762),
        ("resnet20-als", (3, 32, 32), 10, 292_954),
        ("resnet20-als", (3, 32, 32), 100, 298_804),
        ("wrn-10-2", (3, 32, 32), 10, 303_706),
    ],
)
def test_parameters_are_as_many_as_published(name, input_shape, num_classes, num_parameters):
    tensors = manifest_of(build(name, input_shape, num_classes, seed=0)).tensors
    assert sum(tensor.size for tensor in tensors if tensor.trainable) == num_parameters


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("input_shape", [(1, 16, 16), (1, 28, 28), (3, 32, 32)])
def test_images_of_any_size_get_one_score_per_class(name, input_shape):
    scores = build(name, input_shape, 7, seed=0)(torch.rand(5, *input_shape))
    assert scores.shape == (5, 7)


@pytest.mark.parametrize("size", [(18, 18), (28, 28), (32, 18), (18, 32)])
def test_the_cnn_is_two_convolutions_with_pooling_one_without_then_two_dense_layers(size):
    model = build("cnn", (3, *size), 10, seed=3)
    x = h = torch.rand(4, 3, *size)
    for conv in (model.conv1, model.conv2):
        h = functional.max_pool2d(functional.relu(functional.conv2d(h, conv.weight, conv.bias)), 2)
    h = functional.relu(functional.conv2d(h, model.conv3.weight, model.conv3.bias))
    expected = model.fc2(functional.relu(model.fc1(h.flatten(1))))
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize("size", [(8, 8), (17, 17), (32, 17), (17, 32)])
def test_for_small_images_the_cnn_pads_and_pools_three_times(size):
    model = build("cnn", (3, *size), 10, seed=3)
    x = h = torch.rand(4, 3, *size)
    for conv in (model.conv1, model.conv2, model.conv3):
        h = functional.max_pool2d(functional.relu(functional.conv2d(h, conv.weight, conv.bias, padding=1)), 2)
    expected = model.fc2(functional.relu(model.fc1(h.flatten(1))))
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize("name", FAST)
def test_weights_are_those_of_a_service_with_the_same_seed(name):
    module = build(name, (1, 16, 16), 10, seed=5)
    manifest = manifest_of(module)
    expected = to_params(initial_model(manifest, seed=5), manifest)
    assert all((array == expected[tensor]).all() for tensor, array in params_of(module).items())


def test_weights_are_glorot_uniform_and_biases_zero():
    model = build("mlp", (1, 28, 28), 10, seed=0)
    limit = math.sqrt(6 / (784 + 200))
    weights = model.fc1.weight.detach().numpy()
    assert np.abs(weights).max() == pytest.approx(limit, rel=1e-3)
    assert weights.std() == pytest.approx(limit / math.sqrt(3), rel=0.01)
    assert not model.fc1.bias.any()


def test_building_leaves_torchs_generator_alone():
    before = torch.get_rng_state()
    build("mlp", (1, 8, 8), 10, seed=0)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("name", "input_shape", "num_classes", "complaint"),
    [
        ("resnet", (1, 8, 8), 10, "unknown model 'resnet': one of logistic, mlp, cnn, mnist-cnn"),
        ("cnn", (1, 7, 8), 10, r"8x8 pixels or more, got 10 and \(1, 7, 8\)"),
        ("mnist-cnn", (1, 16, 15), 10, r"16x16 pixels or more, got 10 and \(1, 16, 15\)"),
        ("leaf-cnn", (1, 3, 4), 10, r"4x4 pixels or more, got 10 and \(1, 3, 4\)"),
        ("resnet20-lama", (3, 4, 5), 10, r"5x5 pixels or more, got 10 and \(3, 4, 5\)"),
        ("wrn-28-10", (3, 5, 4), 100, r"5x5 pixels or more, got 100 and \(3, 5, 4\)"),
        ("mlp", (0, 8, 8), 10, r"got 10 and \(0, 8, 8\)"),
        ("mlp", (1, 8, 8), 1, "needs 2 classes .* got 1 and"),
    ],
)
def test_what_cannot_be_built_is_named(name, input_shape, num_classes, complaint):
    with pytest.raises(ConfigError, match=complaint):
        build(name, input_shape, num_classes, seed=0)
