from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import dropout, max_pool2d, relu

from fedat_service.errors import ManifestError
from workers.models.networks import build
from workers.models.state import params_of
from workers.training.contexts import rounding
from workers.training.devices import CPU
from workers.training.stacked import convolution, max_pool, stacking
from workers.training.stacked.layer import by_torch
from workers.training.stacked.stacking import NotStackable, StackedModel, stack

IMAGES = torch.zeros(4, 2, 8, 8)
FEATURES = 2 * 8 * 8


class Written(nn.Module):
    """A network whose forward is given as a function."""

    def __init__(self, forward, **layers):
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self._written = forward

    def forward(self, x):
        return self._written(self, x)


def classifier(features=FEATURES):
    return nn.Linear(features, 3)


STACKABLE = {
    "view by -1": Written(lambda m, x: m.fc(x.view(-1, FEATURES)), fc=classifier()),
    "view by size": Written(lambda m, x: m.fc(x.view(x.size(0), -1)), fc=classifier()),
    "reshape by shape": Written(lambda m, x: m.fc(torch.reshape(x, (x.shape[0], -1))), fc=classifier()),
    "flatten": Written(lambda m, x: m.fc(torch.flatten(x, 1).tanh()), fc=classifier()),
    "layers": nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, dilation=2, padding=2, bias=False), nn.LeakyReLU(inplace=True),
        nn.AvgPool2d(2), nn.Conv2d(4, 4, 3, padding="same", groups=2), nn.GELU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3, bias=False),
    ),
    "batch normalisation": nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.BatchNorm2d(4, affine=False), nn.MaxPool2d(2),
        nn.Flatten(), classifier(4 * 9),
    ),
    "reuse": Written(lambda m, x: m.fc(relu(m.a(m.a(x))).flatten(1)), a=nn.Conv2d(2, 2, 1), fc=classifier()),
    "reuse of a linear layer": Written(
        lambda m, x: m.fc(m.a(relu(m.a(x.flatten(1))))), a=nn.Linear(FEATURES, FEATURES), fc=classifier()
    ),
    "in place before a convolution": nn.Sequential(
        nn.ELU(inplace=True), nn.Conv2d(2, 2, 3), nn.Flatten(), classifier(2 * 36)
    ),
    "in place": nn.Sequential(nn.LeakyReLU(inplace=True), nn.Flatten(), nn.ELU(), classifier()),
    "images behind a linear layer": Written(
        lambda m, x: m.fc(m.c(m.a(x.flatten(1)).reshape(-1, 2, 8, 8)).flatten(1)),
        a=nn.Linear(FEATURES, FEATURES), c=nn.Conv2d(2, 2, 1), fc=classifier(),
    ),
    "elementwise behind a convolution": nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ELU(), nn.Flatten(), nn.GELU(), nn.Linear(144, 5),
        nn.ReLU(), nn.Linear(5, 3),
    ),
    "rows that nothing looks at": nn.Sequential(
        nn.Conv2d(2, 4, 2), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(4, 4, 2), nn.AvgPool2d(2), nn.Flatten(),
        classifier(4),
    ),
    "functional pooling": Written(
        lambda m, x: m.fc(max_pool2d(m.c(x).relu(), 2, ceil_mode=True).flatten(1)),
        c=nn.Conv2d(2, 2, 4), fc=classifier(2 * 9),
    ),
    "one channel": Written(
        lambda m, x: m.fc(m.b(max_pool2d(relu(m.a(x.reshape(-1, 1, 8, 16))), 2)).flatten(1)),
        a=nn.Conv2d(1, 4, 3), b=nn.Conv2d(4, 4, 3), fc=classifier(4 * 5),
    ),
    "one channel, padded": Written(
        lambda m, x: m.fc(max_pool2d(m.a(x.reshape(-1, 1, 8, 16)), 2).flatten(1)),
        a=nn.Conv2d(1, 4, (3, 4), padding=(2, 1), bias=False), fc=classifier(4 * 5 * 7),
    ),
    "one channel before a convolution": Written(
        lambda m, x: m.fc(m.b(m.a(x.reshape(-1, 1, 8, 16))).flatten(1)),
        a=nn.Conv2d(1, 4, 3), b=nn.Conv2d(4, 4, 3, stride=2), fc=classifier(4 * 12),
    ),
    "depthwise": nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3, groups=4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 1, padding="same", groups=4), nn.Flatten(), classifier(8 * 4),
    ),
    "pooling behind an activation": nn.Sequential(
        nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), classifier(2 * 16)
    ),
    "few results for each channel": nn.Sequential(
        nn.Conv2d(2, 48, (2, 3), stride=(1, 2), bias=False), nn.ReLU(), nn.Conv2d(48, 24, 3),
        nn.Conv2d(24, 24, (2, 1), groups=2), nn.Conv2d(24, 24, (2, 1), dilation=(2, 1)), nn.Flatten(),
        classifier(24 * 2),
    ),
    "frozen": nn.Sequential(nn.Conv2d(2, 2, 1).requires_grad_(False), nn.Flatten(), classifier()),
}  # fmt: skip


class Sharing(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = classifier()
        self.again = self.fc

    def forward(self, x):
        return self.again(x.flatten(1))


class Doubling(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def hooked():
    model = nn.Sequential(nn.Flatten(), classifier())
    model[1].register_forward_hook(lambda _module, _inputs, output: 2 * output)
    return model


def with_fc(forward, **layers):
    return Written(forward, fc=classifier(), **layers)


NOT_STACKABLE = {
    "dropout": (nn.Sequential(nn.Flatten(), nn.Dropout(0.5), classifier()), "1 is not known"),
    "functional dropout": (with_fc(lambda m, x: m.fc(dropout(x.flatten(1)))), "dropout is not known"),
    "control flow": (with_fc(lambda m, x: m.fc(x.flatten(1)) if x.sum() > 0 else x), "control flow"),
    "length": (with_fc(lambda m, x: m.fc(x.reshape(len(x), -1))), "cannot be traced"),
    "branches": (with_fc(lambda m, x: m.fc(x.flatten(1)) + m.b(x.flatten(1)), b=classifier()), "not follow"),
    "residual": (with_fc(lambda m, x: m.fc((m.a(x) + x).flatten(1)), a=nn.Conv2d(2, 2, 1)), "more than one"),
    "shared parameters": (Sharing(), "share parameters"),
    "subclass": (Written(lambda m, x: m.fc(x.flatten(1)), fc=Doubling(FEATURES, 3)), "not follow"),
    "hook": (hooked(), "scores would have other values"),
    "circular padding": (nn.Sequential(nn.Conv2d(2, 2, 3, padding_mode="circular")), "0 is not known"),
    "cumulative statistics": (nn.Sequential(nn.BatchNorm2d(2, momentum=None)), "0 is not known"),
    "images out": (nn.Sequential(nn.Conv2d(2, 4, 1)), "output for 3 examples is [3, 4, 8, 8]"),
    "mixed up batch": (Written(lambda m, x: m.fc(x.view(-1, 64)), fc=nn.Linear(64, 3)), "cannot be traced"),
    "flattened batch": (Written(lambda m, x: m.fc(x.flatten(0)), fc=classifier()), "flatten is not known"),
    "two outputs": (with_fc(lambda m, x: (m.fc(x.flatten(1)), 1)), "output does not follow"),
}  # fmt: skip


def stacked(model, example=IMAGES):
    result = stack(model, example)
    assert isinstance(result, StackedModel), result
    return result


@pytest.mark.parametrize("pixels", [8, 28])
@pytest.mark.parametrize("name", ["logistic", "mlp", "cnn"])
def test_the_papers_networks_are_stacked(name, pixels):
    stacked(build(name, (1, pixels, pixels), 10, seed=0), torch.zeros(2, 1, pixels, pixels))


@pytest.mark.parametrize("name", STACKABLE)
def test_each_client_gets_the_scores_of_its_own_parameters(name):
    model = STACKABLE[name]
    together = stacked(model)
    torch.manual_seed(0)
    inputs = torch.randn(3, *IMAGES.shape)
    alone, starts = [], []
    for client in inputs:
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.3)
        starts.append(params_of(model))
        alone.append(model(client.clone()))
    scores, _ = together(together.load(starts), inputs)
    torch.testing.assert_close(scores, torch.stack(alone), rtol=1e-5, atol=1e-5)


def recorded_by_torch(model):
    """The same layers, each with the way back that torch records."""
    for place, step in enumerate(model._steps):
        if not step.trace.__qualname__.startswith("by_torch"):
            apply = partial(lambda step, h, tensors: step.trace(h, tensors, True)[0], step)
            model._steps[place] = replace(step, trace=by_torch(apply))
    return model


@pytest.mark.parametrize("bfloat16", [False, True])
@pytest.mark.parametrize("name", STACKABLE)
def test_gradients_by_hand_are_those_that_torch_records(name, bfloat16, monkeypatch):
    monkeypatch.setattr(max_pool, "BUILT", False)  # torch cannot record the C half, which has its own law
    torch.manual_seed(0)
    inputs, direction = torch.randn(3, *IMAGES.shape), torch.randn(3, len(IMAGES), 3)
    by_hand = stacked(STACKABLE[name])
    monkeypatch.setattr(stacking, "fused", list)  # nor what is done at once, which has one as well
    found = []
    for model in (by_hand, recorded_by_torch(stacked(STACKABLE[name]))):
        tensors = model.load([params_of(STACKABLE[name])] * 3)
        with rounding(CPU, bfloat16):
            scores, back = model(tensors, inputs)
        back(direction.to(scores.dtype))
        found.append({"scores": scores, **{n: t.grad for n, t in tensors.items() if t.requires_grad}})
    mine, torchs = found
    assert None not in mine.values()
    # Which sums are in one order depends on the machine, too.
    tolerance = 2e-2 if bfloat16 else 1e-5
    for n, tensor in mine.items():
        torch.testing.assert_close(tensor, torchs[n], rtol=tolerance, atol=tolerance)


def test_a_convolution_with_few_results_for_each_channel_has_its_weights_gradient_as_a_product(monkeypatch):
    model = STACKABLE["few results for each channel"]
    together, calls, real = stacked(model), [], convolution._way_back
    monkeypatch.setattr(convolution, "_way_back", lambda *given: calls.append(given[0]) or real(*given))
    scores, back = together(together.load([params_of(model)] * 3), torch.randn(3, *IMAGES.shape))
    back(torch.ones_like(scores))
    values, weights = convolution._VALUES, convolution._WEIGHTS
    assert calls == [weights, values, weights, values, values]


def test_weights_of_images_lie_as_images_do():
    model = STACKABLE["few results for each channel"]
    tensors = stacked(model).load([params_of(model)] * 3)
    assert tensors["0.weight"].flatten(0, 1).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("channels", "dtype"), [(1, torch.float32), (2, torch.bfloat16)])
def test_on_a_cpu_a_convolution_of_one_channel_stays_in_float32(channels, dtype):
    module = nn.Conv2d(channels, 4, 3)
    tensors = {name: tensor.unsqueeze(0) for name, tensor in module.state_dict().items()}
    with rounding(CPU, bfloat16=True):
        result, _ = convolution.conv2d("", module).trace(torch.zeros(2, channels, 5, 5), tensors, True)
    assert result.dtype is dtype


def test_what_nothing_looks_at_is_not_calculated():
    model = STACKABLE["rows that nothing looks at"]
    together = stacked(model)
    inputs = torch.randn(1, *IMAGES.shape)
    inputs[..., -1, :] = inputs[..., -1] = torch.nan
    tensors = together.load([params_of(model)])
    scores, back = together(tensors, inputs)
    back(torch.ones_like(scores))
    assert all(tensor.grad.isfinite().all() for tensor in tensors.values())


@pytest.mark.parametrize("name", ["flatten", "batch normalisation"])
def test_a_way_back_is_gone_when_it_was_taken(name):
    model = stacked(STACKABLE[name])
    tensors = model.load([params_of(STACKABLE[name])])
    scores, back = model(tensors, torch.randn(1, *IMAGES.shape))
    back(torch.ones_like(scores))
    once = {n: tensor.grad.clone() for n, tensor in tensors.items() if tensor.requires_grad}
    back(torch.ones_like(scores))
    assert all(torch.equal(tensors[n].grad, gradient) for n, gradient in once.items())


@pytest.mark.parametrize("name", NOT_STACKABLE)
def test_what_cannot_be_stacked_is_reported_with_the_reason(name):
    model, reason = NOT_STACKABLE[name]
    result = stack(model, IMAGES)
    assert isinstance(result, NotStackable)
    assert reason in result.reason


def test_inputs_that_are_not_numbers_to_calculate_with_are_not_stackable():
    assert isinstance(stack(nn.Linear(4, 3), torch.zeros(2, 4, dtype=torch.int64)), NotStackable)


def test_a_module_that_does_not_fit_the_inputs_is_not_stackable():
    assert isinstance(stack(nn.Linear(4, 3), torch.zeros(2, 5)), NotStackable)


def test_stacking_leaves_values_gradients_and_torchs_generator_alone():
    model = STACKABLE["batch normalisation"]
    before, generator = params_of(model), torch.get_rng_state()
    stacked(model)
    assert all((params_of(model)[name] == array).all() for name, array in before.items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), generator)


def test_only_batch_normalisation_mixes_examples():
    assert stacked(STACKABLE["batch normalisation"]).mixes_examples
    assert not stacked(STACKABLE["layers"]).mixes_examples


def test_starts_of_another_model_are_refused():
    together = stacked(nn.Linear(4, 3), torch.zeros(2, 4))
    with pytest.raises(ManifestError, match="weight"):
        together.load([params_of(nn.Linear(4, 3)), params_of(nn.Linear(4, 2))])
