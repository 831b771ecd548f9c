"""On a real GPU, if there is one: near the CPU, equal bits for equal arguments, stacks as good as alone."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from fedat_service.wire.settings import Solver
from workers.models.networks import build
from workers.models.state import params_of
from workers.training.optimizer import PLAIN
from workers.training.solvers.registry import SOLVERS
from workers.training.stacked.job import Job
from workers.training.stacked.stack_trainer import train_stack
from workers.training.stacked.stacking import stack
from workers.training.torch_trainer import TorchTrainer
from workers.training.trainer import Sync

SHAPE = (1, 20, 20)
STACKED = ("logistic", "mlp", "cnn")


def data(seed=0, size=23):
    generator = np.random.default_rng(seed)
    return generator.random((size, *SHAPE), np.float32), generator.integers(0, 4, size)


def normalised():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten()
        return nn.Sequential(*layers, nn.Linear(588, 4))


def dropping():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(256, 64), nn.Dropout(0.5), nn.Linear(64, 4))


def jobs_for(model, solver):
    start = params_of(model)
    pairs = [map(torch.as_tensor, data(seed, size)) for seed, size in enumerate((23, 30, 21))]
    return [Job(*pair, start, solver, seed) for seed, pair in enumerate(pairs)]


def assert_near(params, others, start=None):
    """As a whole, held against how far it is from the start: Adam makes a step of what was only rounding."""
    zero = {name: np.zeros_like(array) for name, array in params.items()} if start is None else start
    assert list(params) == list(others)
    assert distance(params, others) <= 0.01 * distance(others, zero)


def distance(one, other):
    return np.sqrt(sum(float(np.square(array - other[name]).sum()) for name, array in one.items()))


@pytest.mark.parametrize("name", sorted(SOLVERS))
def test_every_solver_is_near_the_cpu(gpu, name):
    solver = Solver(name=name, lr=0.01, epochs=2)
    here, there = (TorchTrainer(normalised(), data(), data(), device=device) for device in ("cpu", gpu))
    start = params_of(normalised())
    expected, found = here.train(start, solver, 3), there.train(start, solver, 3)
    assert_near(found.params, expected.params, start)
    for slot, arrays in expected.slots.items():
        assert_near(found.slots[slot], arrays)
    assert found.metrics == pytest.approx(expected.metrics, rel=1e-3)
    mine, others = there.evaluate(expected.params), here.evaluate(expected.params)
    assert (mine.num_examples, mine.loss) == (others.num_examples, pytest.approx(others.loss, rel=1e-4))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_momentum_may_be_nothing(gpu, momentum):
    solver = Solver(name="momentum", lr=0.01, momentum=momentum, epochs=2)
    start = params_of(normalised())
    here, there = (
        TorchTrainer(normalised(), data(), data(), device=device).train(start, solver, 3)
        for device in ("cpu", gpu)
    )
    assert_near(there.params, here.params, start)


@pytest.mark.parametrize("name", [*STACKED, "mnist-cnn", "resnet20-lama", "resnet20-als"])
def test_equal_arguments_give_equal_bits(gpu, name):
    model = build(name, SHAPE, 4, 0)
    start = params_of(model)
    trainer = TorchTrainer(model, data(), data(), device=gpu)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, again = (trainer.train(start, Solver(lr=0.01, epochs=2), 3) for _ in range(2))
    assert all(np.array_equal(first.params[n], again.params[n]) for n in start)
    assert trainer.evaluate(first.params) == trainer.evaluate(first.params)


def test_dropout_goes_on_over_a_sync_at_which_nothing_travels(gpu):
    start = params_of(dropping())
    trainer = TorchTrainer(dropping(), data(), data(), device=gpu)
    whole = trainer.train(start, Solver(steps=6, batch_size=10), 3)
    first = trainer.train(start, Solver(steps=3, batch_size=10), 3, Sync(0, last=False))
    second = trainer.train(first.params, Solver(steps=3, batch_size=10), 3, Sync(1, fetched=()), first.kept)
    assert all(np.array_equal(second.params[n], whole.params[n]) for n in start)


@pytest.mark.parametrize("prox_mu", [0.0, 0.4])
@pytest.mark.parametrize("solver", PLAIN)
@pytest.mark.parametrize("name", STACKED)
def test_a_stack_gives_each_client_what_it_gets_alone(gpu, name, solver, prox_mu):
    model = build(name, SHAPE, 4, 0)
    jobs = jobs_for(model, Solver(name=solver, lr=0.01, epochs=2, prox_mu=prox_mu))
    stacked = stack(build(name, SHAPE, 4, 0), jobs[0].inputs)
    first, again = (train_stack(stacked, jobs, device=gpu) for _ in range(2))
    for job, mine, same in zip(jobs, first, again, strict=True):
        pair = job.inputs, job.labels
        alone = TorchTrainer(model, pair, pair, device=gpu).train(job.start, job.solver, job.seed)
        assert_near(mine.params, alone.params, job.start)
        assert mine.metrics == pytest.approx(alone.metrics, rel=1e-3)
        assert all(np.array_equal(mine.params[n], array) for n, array in same.params.items())


def test_bfloat16_stays_near_float32(gpu):
    jobs = jobs_for(build("cnn", SHAPE, 4, 0), Solver(lr=0.01, epochs=2))
    stacked = stack(build("cnn", SHAPE, 4, 0), jobs[0].inputs)
    exact, rough = (train_stack(stacked, jobs, bfloat16=bfloat16, device=gpu) for bfloat16 in (False, True))
    for one, other in zip(exact, rough, strict=True):
        assert one.metrics["train_loss"] != other.metrics["train_loss"]
        assert one.metrics["train_loss"] == pytest.approx(other.metrics["train_loss"], rel=0.05)


def test_auto_is_the_gpu(gpu):
    model = build("logistic", SHAPE, 4, 0)
    TorchTrainer(model, data(), data())
    assert model.fc.weight.device == gpu
