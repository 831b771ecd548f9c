import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from fedat_service.errors import TrainingError
from workers.training.batches import Batches
from workers.training.solvers.problem import Problem

X = torch.linspace(0, 1, 250 * 3).reshape(250, 3)
Y = torch.arange(250) % 2


@pytest.fixture
def model():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)).train()


def test_the_full_gradient_is_that_of_the_mean_over_all_examples(model):
    problem = Problem(model, Batches((X, Y)), F.cross_entropy)
    found = problem.full_gradient(weight_decay=0.5)
    F.cross_entropy(model(X), Y).backward()
    for gradient, parameter in zip(found, model.parameters(), strict=True):
        np.testing.assert_allclose(gradient, parameter.grad + 0.5 * parameter.detach(), atol=1e-6)


def test_gradients_are_taken_once_and_what_had_none_is_zero(model):
    model[1].bias.requires_grad_(False)
    problem = Problem(model, Batches((X, Y)), F.cross_entropy)
    problem.backward((X, Y))
    assert list(problem.parameters) == ["0.weight", "0.bias", "1.weight"]
    assert any(gradient.any() for gradient in problem.take_gradients())
    assert not any(gradient.any() for gradient in problem.take_gradients())


def test_it_begins_without_what_the_module_had_of_gradients(model):
    F.cross_entropy(model(X), Y).backward()
    problem = Problem(model, Batches((X, Y)), F.cross_entropy)
    assert not any(gradient.any() for gradient in problem.take_gradients())


def test_what_is_done_aside_moves_neither_buffers_nor_the_generator():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5)).train()
    problem = Problem(model, Batches((X, Y)), F.cross_entropy)
    before, generator = model[0].running_mean.clone(), torch.get_rng_state()
    with problem.aside():
        model(X)
        assert not torch.equal(torch.get_rng_state(), generator)
    assert torch.equal(model[0].running_mean, before)
    assert torch.equal(torch.get_rng_state(), generator)


def test_of_no_examples_there_is_no_gradient(model):
    with pytest.raises(TrainingError, match="full gradient of no examples"):
        Problem(model, Batches((X[:0], Y[:0])), F.cross_entropy).full_gradient()
