"""What goes on from sync to sync: laws of all solvers without a server half."""

import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from fedat_service.wire.settings import Solver
from workers.models.state import params_of
from workers.training.torch_trainer import TorchTrainer
from workers.training.trainer import Kept, Sync

NAMES = ("sgd", "momentum", "adam", "adamw")
BATCHES = 4
"""Of 10, 10, 10 and 7 examples."""


class Noisy(Dataset):
    """Examples that are augmented when they are read."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i] + 0.1 * torch.rand(()), self.y[i]


def _data(kind):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand((37, 1, 8, 8), generator=generator), torch.arange(37) % 10
    return (x, y) if kind == "pair" else DataLoader(Noisy(x, y), batch_size=10, shuffle=True)


@pytest.fixture(params=["pair", "loader"])
def client(request):
    """A trainer of a model with buffers and dropout, and its start."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Dropout(0.3), nn.Linear(144, 10)
    model = nn.Sequential(*layers).to(memory_format=torch.channels_last)
    data = _data(request.param)
    return TorchTrainer(model, data, data), params_of(model)


def _same(a, b):
    return list(a) == list(b) and all(np.array_equal(a[name], b[name]) for name in a)


def _syncs(trainer, start, solver, count, seed=7):
    """Work in `count` syncs at which nothing travels, with what is kept pickled as between processes."""
    params, kept = start, Kept()
    for index in range(count):
        sync = Sync(index, last=index == count - 1, fetched=() if index else None)
        result = trainer.train(params, solver, seed, sync, pickle.loads(pickle.dumps(kept)))  # noqa: S301
        params, kept = result.params, result.kept
    return result


def _solver(name, **fields):
    return Solver(**{"name": name, "lr": 0.05, "weight_decay": 0.01, **fields})


@pytest.mark.parametrize("prox_mu", [0.0, 0.4])
@pytest.mark.parametrize("steps", [1, 3, BATCHES, 5])
@pytest.mark.parametrize("name", NAMES)
def test_two_syncs_of_s_steps_equal_one_of_2s_bit_for_bit(client, name, steps, prox_mu):
    trainer, start = client
    twice = _syncs(trainer, start, _solver(name, steps=steps, prox_mu=prox_mu), 2)
    once = trainer.train(start, _solver(name, steps=2 * steps, prox_mu=prox_mu), 7)
    assert _same(twice.params, once.params)


@pytest.mark.parametrize("name", NAMES)
def test_two_syncs_of_an_epoch_equal_one_of_two_epochs_bit_for_bit(client, name):
    trainer, start = client
    twice = _syncs(trainer, start, _solver(name, prox_mu=0.4), 2)
    assert _same(twice.params, trainer.train(start, _solver(name, epochs=2, prox_mu=0.4), 7).params)


@pytest.mark.parametrize("work", [{"epochs": 1}, {"steps": 3}])
def test_a_sync_of_three_blocks_equals_three_syncs(client, work):
    trainer, start = client
    thrice = _syncs(trainer, start, _solver("adam", **work), 3)
    assert _same(thrice.params, trainer.train(start, _solver("adam", **work), 7, Sync(blocks=3)).params)


def test_steps_that_fill_epochs_are_epochs(client):
    trainer, start = client
    steps = trainer.train(start, _solver("momentum", steps=2 * BATCHES), 7)
    epochs = trainer.train(start, _solver("momentum", epochs=2), 7)
    assert _same(steps.params, epochs.params)
    assert (steps.num_examples, steps.metrics) == (epochs.num_examples, epochs.metrics)


def test_steps_train_on_less_than_an_epoch_but_count_all_examples(client):
    trainer, start = client
    assert trainer.train(start, _solver("sgd", steps=1), 7).num_examples == 37


@pytest.mark.parametrize("name", ["momentum", "adam", "adamw"])
def test_a_round_forgets_the_optimizer_unless_it_is_never_reset(client, name):
    trainer, start = client
    for reset in ("round", "never"):
        solver = _solver(name, steps=3, reset=reset)
        first = trainer.train(start, solver, 1)
        fresh = trainer.train(first.params, solver, 2)
        second = trainer.train(first.params, solver, 2, kept=first.kept)
        assert _same(second.params, fresh.params) == (reset == "round")


@pytest.mark.parametrize("steps", [BATCHES, 3])
def test_never_reset_the_momentum_of_two_rounds_is_that_of_one(quadratic, split, join, steps):
    """On one batch, where the order of the batches says nothing."""
    trainer, start = quadratic([1.0, 2.0], [3.0, 4.0]), split([0, 0], (2,))
    for name in NAMES:
        solver = _solver(name, steps=steps, reset="never")
        first = trainer.train(start, solver, 1)
        second = trainer.train(first.params, solver, 2, kept=first.kept)
        once = trainer.train(start, _solver(name, steps=2 * steps), 3)
        assert np.array_equal(join(second.params), join(once.params))


def test_a_client_that_lost_what_it_kept_begins_its_round_again(client):
    trainer, start = client
    solver = _solver("momentum", steps=3)
    lost = trainer.train(start, solver, 7, Sync(index=1, fetched=()), Kept())
    assert _same(lost.params, trainer.train(start, solver, 7).params)


def test_a_new_round_does_not_go_on_with_what_an_abandoned_one_left(client):
    trainer, start = client
    solver = _solver("adam", steps=3, prox_mu=0.4)
    left = trainer.train(start, solver, 1, Sync(last=False)).kept
    assert _same(trainer.train(start, solver, 2, kept=left).params, trainer.train(start, solver, 2).params)


def test_at_the_end_of_a_round_nothing_is_kept(client):
    trainer, start = client
    assert trainer.train(start, _solver("adam", prox_mu=0.4), 7).kept == Kept()


@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_is_of_the_size_of_a_model_by_name(client, name):
    trainer, start = client
    kept = trainer.train(start, _solver(name, prox_mu=0.4, steps=3), 7, Sync(last=False)).kept
    model = sum(array.size for array in start.values())
    generators = 2 * torch.get_rng_state().numel()
    for arrays in (*kept.round.values(), *kept.client.values()):
        assert sum(array.size for array in arrays.values()) <= model + generators


def test_the_proximal_term_pulls_to_where_a_tensor_was_last_fetched(quadratic, split, join):
    """The second part travels after the first step, the first does not; both lie at 1 in between."""
    sizes = (1, 1)
    trainer, solver = quadratic([1, 1], [0, 0], sizes), Solver(name="sgd", lr=0.5, prox_mu=1.0, steps=1)
    first = trainer.train(split([2, 2], sizes), solver, 0, Sync(last=False))
    assert join(first.params).tolist() == [1, 1]
    second = trainer.train(first.params, solver, 0, Sync(1, fetched=["parts.1.weight"]), first.kept)
    assert join(second.params).tolist() == [1 - 0.5 * (1 + (1 - 2)), 1 - 0.5 * (1 + (1 - 1))]
