"""Training and evaluation elsewhere: every tensor where it belongs, and the same results."""

import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fedat_service.errors import ConfigError
from fedat_service.wire.settings import Solver
from workers.models.language import CausalLanguageModel, LanguageShape
from workers.models.networks import NAMES, build
from workers.models.state import params_of
from workers.training.solvers.registry import SOLVERS
from workers.training.torch_trainer import TorchTrainer
from workers.training.trainer import Kept, Sync

SHAPE, CLASSES = (1, 16, 16), 4
BUILT = sorted(set(NAMES) - {"smollm2-135m", "llama-6-64", "wrn-28-10"})
"""Language models have a test of their own; a large WideResNet is a small one, only slower."""
TINY = LanguageShape(width=8, depth=1, heads=2, key_heads=1, hidden=8)


def data():
    generator = np.random.default_rng(0)
    return generator.random((13, *SHAPE), np.float32), generator.integers(0, CLASSES, 13)


def normalised():
    """With buffers and dropout."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Dropout(0.3), nn.Linear(588, CLASSES)
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)


def assert_same_everywhere(train, device):
    """`train(device)` gives training results, or evaluations."""
    for mine, expected in zip(train(device), train("cpu"), strict=True):
        if not hasattr(expected, "params"):
            assert mine == expected
            continue
        for given, wanted in ((mine.params, expected.params), *slots(mine, expected)):
            assert all(type(array) is np.ndarray for array in given.values())
            assert list(given) == list(wanted)
            assert all(np.array_equal(given[name], wanted[name]) for name in wanted)
        assert mine.metrics == expected.metrics


def slots(mine, expected):
    assert list(mine.slots) == list(expected.slots)
    return [(mine.slots[slot], arrays) for slot, arrays in expected.slots.items()]


def trained(model, solver, device, *args):
    trainer = TorchTrainer(model, data(), data(), device=device)
    result = trainer.train(params_of(model), solver, 3, *args)
    return result, trainer.evaluate(result.params)


@pytest.mark.parametrize("name", BUILT)
def test_every_network_trains_and_is_evaluated_elsewhere(away, name):
    solver = Solver(lr=0.01, steps=2, batch_size=5, prox_mu=0.4)
    assert_same_everywhere(lambda device: trained(build(name, SHAPE, CLASSES, 0), solver, device), away)


def test_a_language_model_trains_elsewhere(away):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        start = params_of(CausalLanguageModel(CLASSES, TINY))
    tokens = np.random.default_rng(0).integers(0, CLASSES, (13, 6)).astype(np.float32), data()[1]

    def train(device):
        trainer = TorchTrainer(CausalLanguageModel(CLASSES, TINY), tokens, tokens, device=device)
        return trainer.train(start, Solver(name="sgd", lr=0.1, epochs=1), 3).params

    # Its attention is another kernel there.
    here, elsewhere = train("cpu"), train(away)
    assert all(np.allclose(elsewhere[name], here[name], atol=1e-5) for name in start)


@pytest.mark.parametrize("name", sorted(SOLVERS))
def test_every_solver_works_elsewhere(away, name):
    solver = Solver(name=name, lr=0.01, epochs=2, batch_size=5, weight_decay=0.01)
    assert_same_everywhere(lambda device: trained(normalised(), solver, device), away)


@pytest.mark.parametrize("name", sorted(SOLVERS))
def test_what_a_client_keeps_goes_back_to_where_it_trains(away, name):
    plain = name in ("momentum", "adam", "adamw")
    fields = {"reset": "never", "prox_mu": 0.4} if plain else {}
    solver = Solver(name=name, lr=0.01, steps=2, batch_size=5, **fields)

    def train(device):
        model = normalised()
        trainer = TorchTrainer(model, data(), data(), device=device)
        results, params, kept = [], params_of(model), Kept()
        for index in (0, 1, 0):
            sync = Sync(index, last=index == 1, fetched=() if index else None)
            kept = pickle.loads(pickle.dumps(kept))  # noqa: S301
            results.append(trainer.train(params, solver, 7, sync, kept))
            params, kept = results[-1].params, results[-1].kept
        return results

    assert_same_everywhere(train, away)


def test_the_first_sync_of_mime_asks_for_a_gradient_elsewhere(away):
    sync = Sync(last=False, blocks=0, up={"gradient": list(params_of(normalised()))[:1]})
    solver = Solver(name="mime", batch_size=5)
    assert_same_everywhere(lambda device: trained(normalised(), solver, device, sync)[:1], away)


def test_batches_of_a_loader_and_a_loss_with_weights_are_moved_too(away):
    def train(device):
        loader = DataLoader(TensorDataset(*map(torch.as_tensor, data())), batch_size=5)
        loss = nn.CrossEntropyLoss(weight=torch.arange(1.0, 1 + CLASSES))
        model = build("mlp", SHAPE, CLASSES, 0)
        trainer = TorchTrainer(model, loader, loader, loss, device=device)
        result = trainer.train(params_of(model), Solver(epochs=1), 0)
        return result, trainer.evaluate(result.params)

    assert_same_everywhere(train, away)


def test_a_device_that_is_not_there_is_refused_at_once():
    with pytest.raises(ConfigError, match="device 'cuda' is not there"):
        TorchTrainer(build("logistic", SHAPE, CLASSES, 0), data(), data(), device="cuda")


def test_nothing_is_moved_without_a_gpu():
    model = build("logistic", SHAPE, CLASSES, 0)
    weight, storage = model.fc.weight, model.fc.weight.data_ptr()
    TorchTrainer(model, data(), data())
    assert model.fc.weight is weight
    assert weight.data_ptr() == storage
