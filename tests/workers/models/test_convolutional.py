import pytest
import torch
from torch.nn import functional

from workers.models.networks import build


@pytest.fixture
def images():
    return torch.rand(4, 1, 20, 24, generator=torch.Generator().manual_seed(0))


def test_leafs_cnn_is_convolution_relu_pooling_twice_then_two_dense_layers(images):
    model = build("leaf-cnn", (1, 20, 24), 10, seed=3)
    h = images
    for conv in (model.conv1, model.conv2):
        h = functional.max_pool2d(functional.relu(functional.conv2d(h, conv.weight, conv.bias, padding=2)), 2)
    expected = model.fc2(functional.relu(model.fc1(h.flatten(1))))
    torch.testing.assert_close(model(images), expected)


def test_the_mnist_cnn_without_dropout_is_convolution_pooling_relu_twice_then_two_dense_layers(images):
    model = build("mnist-cnn", (1, 20, 24), 10, seed=3).eval()
    h = images
    for conv in (model.conv1, model.conv2):
        h = functional.relu(functional.max_pool2d(functional.conv2d(h, conv.weight, conv.bias), 2))
    expected = model.fc2(functional.relu(model.fc1(h.flatten(1))))
    torch.testing.assert_close(model(images), expected)


def test_the_mnist_cnn_drops_out_only_in_training(images):
    model = build("mnist-cnn", (1, 20, 24), 10, seed=3)
    with torch.random.fork_rng(devices=[]):
        assert not torch.equal(model(images), model(images))
        model.eval()
        assert torch.equal(model(images), model(images))
