import numpy as np
import pytest
import torch

from fedat_service.errors import TrainingError
from workers.training.solvers.recall import recall, recall_references, to_arrays
from workers.training.trainer import Kept, Sync

ONE, TWO = np.ones(2, np.float32), np.full(2, 2, np.float32)


@pytest.fixture
def parameters():
    return {name: torch.zeros(2, requires_grad=True) for name in ("a", "b", "c")}


def test_the_first_source_that_has_a_tensor_gives_it(parameters):
    found = recall("control", parameters, {"b": ONE}, {"b": TWO, "c": TWO}, default=7.0)
    assert [tensor.tolist() for tensor in found] == [[7, 7], [1, 1], [2, 2]]
    assert not any(tensor.requires_grad for tensor in found)


def test_a_tensor_lies_in_memory_as_its_parameter_does():
    parameter = torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last)
    array = np.arange(96, dtype=np.float32).reshape(2, 3, 4, 4)
    (found,) = recall("control", {"w": parameter}, {"w": array})
    assert found.stride() == parameter.stride()
    assert np.array_equal(to_arrays({"control": {"w": found}})["control"]["w"], array)


def test_another_shape_is_named(parameters):
    with pytest.raises(TrainingError, match=r"momentum of 'b' has shape \[2, 1\], not \[2\]"):
        recall("momentum", parameters, {"b": ONE.reshape(2, 1)})


def test_a_reference_is_the_parameter_as_it_was_last_fetched(parameters):
    kept = Kept({"reference": {"a": ONE, "b": ONE}})
    for sync, expected in (
        (Sync(1, fetched=["b"]), [[1, 1], [0, 0], [0, 0]]),
        (Sync(1, fetched=()), [[1, 1], [1, 1], [0, 0]]),
        (Sync(1), [[0, 0], [0, 0], [0, 0]]),
    ):
        found = recall_references(parameters, sync, kept)
        assert [tensor.tolist() for tensor in found] == expected


def test_arrays_are_copies(parameters):
    arrays = to_arrays({"x": parameters})
    arrays["x"]["a"][:] = 5
    assert parameters["a"].tolist() == [0, 0]
