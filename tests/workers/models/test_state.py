import numpy as np
import pytest
import torch
from torch import nn

from fedat_service.errors import ManifestError
from workers.models.networks import build
from workers.models.state import load_params, manifest_of, move, params_of


def _normalised():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))


def test_tensors_stand_in_state_dict_order_buffers_included():
    module = _normalised()
    assert list(params_of(module)) == list(module.state_dict())


def test_buffers_and_frozen_parameters_are_not_trainable():
    module = _normalised()
    module[0].bias.requires_grad_(False)
    trainable = {tensor.name for tensor in manifest_of(module).tensors if tensor.trainable}
    assert trainable == {"0.weight", "1.weight", "1.bias"}


def test_layers_are_the_modules():
    assert manifest_of(build("cnn", (1, 8, 8), 10, 0)).layers == ("conv1", "conv2", "conv3", "fc1", "fc2")


def test_a_module_of_another_dtype_cannot_be_described():
    with pytest.raises(ManifestError, match="float64"):
        manifest_of(nn.Linear(2, 2).double())


def test_params_are_contiguous_copies_in_any_memory_format():
    module = build("cnn", (3, 16, 16), 10, 0)
    params = params_of(module)
    before = {name: array.copy() for name, array in params.items()}
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(1)
    assert all(array.flags.c_contiguous for array in params.values())
    assert all((params[name] == before[name]).all() for name in params)


def test_loading_is_the_inverse_of_taking_and_keeps_the_memory_format():
    source, target = (build("cnn", (3, 16, 16), 10, seed) for seed in (0, 1))
    load_params(target, params_of(source))
    for name, array in params_of(target).items():
        np.testing.assert_array_equal(array, params_of(source)[name])
    assert target.conv2.weight.is_contiguous(memory_format=torch.channels_last)


def test_arrays_that_must_not_be_written_to_are_loaded():
    module = nn.Linear(2, 1)
    params = {"weight": np.ones((1, 2), np.float32), "bias": np.ones(1, np.float32)}
    for array in params.values():
        array.flags.writeable = False
    load_params(module, params)
    assert module.weight.tolist() == [[1, 1]]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"bias": None}, "tensor 'bias' is missing"),
        ({"more": np.zeros(1)}, "tensor 'more' is unknown to the module"),
        ({"bias": np.zeros(3)}, r"tensor 'bias' must have shape \[1\], got \[3\]"),
    ],
)
def test_params_that_do_not_fit_are_named(change, complaint):
    params = {**params_of(nn.Linear(2, 1)), **change}
    with pytest.raises(ManifestError, match=complaint):
        load_params(nn.Linear(2, 1), {name: a for name, a in params.items() if a is not None})


def test_a_module_is_moved_whole_also_if_a_part_of_it_is_there_already(away):
    module = nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1))
    module[0].to(away)
    module[1].weight = nn.Parameter(module[1].weight.to(away))
    module[1].bias = nn.Parameter(module[1].bias.to(away))
    move(module, away)
    assert {tensor.device for tensor in module.state_dict().values()} == {away}
