import pytest
import torch
from torch import nn

from workers.models.networks import build
from workers.models.state import params_of
from workers.training.contexts import rounding
from workers.training.devices import CPU
from workers.training.stacked import convolution, stacking
from workers.training.stacked.stacking import NotStackable, StackedModel, stack

IMAGES = torch.zeros(4, 1, 12, 13)


def chain(*layers):
    model = nn.Sequential(*layers, nn.Flatten())
    features = model(torch.zeros(1, *IMAGES.shape[1:])).shape[1]
    return model.append(nn.Linear(features, 3))


AT_ONCE = {
    "pooling": chain(nn.Conv2d(1, 4, 3), nn.MaxPool2d(2)),
    "pooling, then ReLU": chain(nn.Conv2d(1, 4, (2, 3), bias=False), nn.MaxPool2d(2), nn.ReLU()),
    "ReLU, then pooling": chain(nn.Conv2d(1, 20, 5, padding=(2, 1)), nn.ReLU(), nn.MaxPool2d(2), nn.ReLU()),
    "frozen": chain(nn.Conv2d(1, 4, 3).requires_grad_(False), nn.MaxPool2d(2)),
    "twice": chain(nn.Conv2d(1, 1, 3), nn.MaxPool2d(2), nn.Conv2d(1, 2, 2), nn.MaxPool2d(2)),
}
ONE_BY_ONE = {
    "no pooling": chain(nn.Conv2d(1, 4, 3), nn.ReLU()),
    "something between": chain(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.MaxPool2d(2)),
    "another pooling": chain(nn.Conv2d(1, 4, 3), nn.AvgPool2d(2)),
    "a larger pooling": chain(nn.Conv2d(1, 4, 3), nn.MaxPool2d(3)),
    "a stride": chain(nn.Conv2d(1, 4, 3, stride=2), nn.MaxPool2d(2)),
    "holes": chain(nn.Conv2d(1, 4, 3, dilation=2), nn.MaxPool2d(2)),
    "padding by name": chain(nn.Conv2d(1, 4, 3, padding="same"), nn.MaxPool2d(2)),
    "too large a kernel": chain(nn.Conv2d(1, 1, (13, 5), padding=6), nn.MaxPool2d(2)),
    "three channels": chain(nn.Conv2d(1, 3, 1), nn.Conv2d(3, 4, 3), nn.MaxPool2d(2)),
}


@pytest.fixture
def calls(monkeypatch):
    """How many channels each call of `pooled_conv2d` gave, and whether with ReLU."""
    found, real = [], convolution.pooled_conv2d
    monkeypatch.setattr(
        convolution,
        "pooled_conv2d",
        lambda *given: found.append((given[1].shape[1], given[3])) or real(*given),
    )
    return found


def scores_and_gradients(model, dtype=torch.float32):
    together = stack(model, IMAGES.to(dtype))
    torch.manual_seed(0)
    inputs = torch.randn(3, *IMAGES.shape, dtype=dtype)
    tensors = together.load([params_of(model)] * 3)
    scores, back = together(tensors, inputs)
    back(torch.randn(scores.shape, dtype=dtype))
    return [scores, *(tensor.grad for tensor in tensors.values() if tensor.requires_grad)]


@pytest.mark.parametrize("name", AT_ONCE)
def test_a_convolution_of_one_channel_and_its_pooling_are_done_at_once_with_the_same_results(
    name, calls, monkeypatch
):
    mine = scores_and_gradients(AT_ONCE[name])
    assert {relu for _, relu in calls} == {"ReLU" in name}
    calls.clear()
    monkeypatch.setattr(stacking, "fused", list)
    its = scores_and_gradients(AT_ONCE[name])
    assert not calls
    for one, other in zip(mine, its, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_all_others_are_done_one_by_one(name, calls):
    assert isinstance(stack(ONE_BY_ONE[name], IMAGES), StackedModel)
    assert not calls


def test_too_small_images_are_refused_as_torch_does(calls):
    result = stack(nn.Sequential(nn.Conv2d(1, 4, 3), nn.MaxPool2d(2), nn.Flatten()), torch.zeros(2, 1, 9, 3))
    assert isinstance(result, NotStackable)
    assert "too small" in result.reason
    assert not calls


def test_values_whose_gradient_is_wanted_are_convolved_one_by_one(calls):
    scores_and_gradients(AT_ONCE["twice"])
    assert set(calls) == {(1, False)}


def test_other_types_are_done_one_by_one(calls):
    scores_and_gradients(chain(nn.Conv2d(1, 4, 3), nn.MaxPool2d(2)).double(), torch.float64)
    assert not calls


def test_rounded_values_are_done_one_by_one(calls):
    frozen = (nn.Conv2d(1, 2, 1).requires_grad_(False), nn.Conv2d(2, 1, 1).requires_grad_(False))
    model = chain(*frozen, nn.Conv2d(1, 4, 3), nn.MaxPool2d(2))
    together = stack(model, IMAGES)
    calls.clear()
    with rounding(CPU, bfloat16=True):
        together(together.load([params_of(model)] * 3), torch.zeros(3, *IMAGES.shape))
    assert not calls


def test_images_of_other_channels_are_refused_as_torch_does(calls):
    together = stack(AT_ONCE["pooling"], IMAGES)
    calls.clear()
    with pytest.raises(RuntimeError, match="channels"):
        together(together.load([params_of(AT_ONCE["pooling"])] * 2), torch.zeros(2, 3, 3, 12, 13))
    assert not calls


def test_fedats_cnn_begins_at_once(calls):
    stack(build("cnn", (1, 28, 28), 10, seed=0), torch.zeros(2, 1, 28, 28))
    assert set(calls) == {(32, True)}
