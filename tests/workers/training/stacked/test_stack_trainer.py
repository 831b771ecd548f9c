from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from fedat_service.errors import ConfigError, ManifestError, TrainingError
from fedat_service.wire.settings import Solver
from workers.models.networks import build
from workers.models.state import params_of
from workers.training.optimizer import PLAIN
from workers.training.stacked import stacking
from workers.training.stacked.batches import StackedBatch
from workers.training.stacked.job import Job
from workers.training.stacked.stack_trainer import _losses, train_stack
from workers.training.stacked.stacking import StackedModel, stack
from workers.training.torch_trainer import TorchTrainer

SHAPE = (1, 8, 8)
UNEQUAL = (17, 20, 11)
SOLVER = Solver(lr=0.01, epochs=2)


def normalised():
    """Without a bias before the normalisation: its gradient would be nothing but rounding."""
    convolution = nn.Conv2d(1, 4, 3, bias=False)
    return nn.Sequential(
        convolution, nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 10)
    )


def jobs_for(model, solver, sizes):
    """Jobs with other examples, starts and seeds each."""
    generator = torch.Generator().manual_seed(0)
    jobs = []
    for seed, size in enumerate(sizes):
        start = {
            name: array + np.float32(0.01 * seed) if array.dtype == np.float32 else array + seed
            for name, array in params_of(model).items()
        }
        inputs = torch.rand((size, *SHAPE), generator=generator)
        labels = torch.randint(10, (size,), generator=generator)
        jobs.append(Job(inputs, labels, start, solver, seed + 7))
    return jobs


def stacked(model):
    result = stack(model, torch.zeros(1, *SHAPE))
    assert isinstance(result, StackedModel), result
    return result


def alone(model, job):
    data = job.inputs, job.labels
    return TorchTrainer(model, data, data).train(job.start, job.solver, job.seed)


def assert_same_results(together, one_by_one):
    for mine, expected in zip(together, one_by_one, strict=True):
        assert list(mine.params) == list(expected.params)
        for name, array in expected.params.items():
            assert mine.params[name].dtype == array.dtype
            # Adam makes of the rounding of a small gradient a part of a step, which is 0.01.
            np.testing.assert_allclose(mine.params[name], array, rtol=1e-4, atol=5e-5, err_msg=name)
        assert mine.num_examples == expected.num_examples
        assert mine.metrics == pytest.approx(expected.metrics, rel=1e-5)


@pytest.fixture(scope="module")
def mlp():
    return build("mlp", SHAPE, 10, seed=0)


@pytest.mark.parametrize("prox_mu", [0.0, 0.4])
@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("network", ["logistic", "mlp", "cnn"])
def test_a_stack_gives_each_client_what_it_gets_alone(network, name, prox_mu):
    model = build(network, SHAPE, 10, seed=0)
    solver = Solver(name=name, lr=0.01, prox_mu=prox_mu, weight_decay=0.01, epochs=2)
    jobs = jobs_for(model, solver, UNEQUAL)
    assert_same_results(train_stack(stacked(model), jobs), [alone(model, job) for job in jobs])


@pytest.mark.parametrize("name", PLAIN)
def test_the_memory_order_of_a_start_does_not_matter(mlp, name):
    jobs = jobs_for(mlp, Solver(name=name, lr=0.01, epochs=2), UNEQUAL)
    across = [replace(job, start={n: np.asfortranarray(a) for n, a in job.start.items()}) for job in jobs]
    assert_same_bits(train_stack(stacked(mlp), across), train_stack(stacked(mlp), jobs))


def test_a_start_of_other_types_is_rounded_to_those_of_the_model():
    model = normalised()
    jobs = jobs_for(model, SOLVER, (20, 20))
    wide = [replace(job, start={n: a.astype(np.float64) for n, a in job.start.items()}) for job in jobs]
    assert_same_bits(train_stack(stacked(model), wide), train_stack(stacked(model), jobs))


@pytest.mark.parametrize("sizes", [(3, 7), (1, 1), (30, 30, 30), (23,)])
def test_clients_of_any_size_fill_their_batches_exactly(mlp, sizes):
    jobs = jobs_for(mlp, SOLVER, sizes)
    assert_same_results(train_stack(stacked(mlp), jobs), [alone(mlp, job) for job in jobs])


def test_running_statistics_are_those_of_each_client():
    model = normalised()
    jobs = jobs_for(model, Solver(lr=0.01, epochs=3), (25, 25))
    results = train_stack(stacked(model), jobs)
    assert_same_results(results, [alone(model, job) for job in jobs])
    assert [int(result.params["1.num_batches_tracked"]) for result in results] == [9, 10]


def test_what_does_not_learn_stays_as_it_started():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 8).requires_grad_(False), nn.Linear(8, 10))
    jobs = jobs_for(model, SOLVER, UNEQUAL)
    results = train_stack(stacked(model), jobs)
    assert_same_results(results, [alone(model, job) for job in jobs])
    for job, result in zip(jobs, results, strict=True):
        assert np.array_equal(result.params["1.weight"], job.start["1.weight"])
        assert not np.array_equal(result.params["2.weight"], job.start["2.weight"])


@pytest.mark.parametrize("network", ["mlp", "cnn"])
def test_equal_stacks_give_equal_bits_whatever_the_process_did_before(network):
    model = build(network, SHAPE, 10, seed=0)
    jobs = jobs_for(model, SOLVER, UNEQUAL)
    first = train_stack(stacked(model), jobs)
    torch.rand(3)
    train_stack(stacked(model), jobs[:2])
    other = build(network, SHAPE, 10, seed=5)
    again = train_stack(stacked(other), jobs)
    for one, two in zip(first, again, strict=True):
        assert one.metrics == two.metrics
        assert all(np.array_equal(array, two.params[name]) for name, array in one.params.items())


def test_another_seed_is_another_order_of_the_examples(mlp):
    job = jobs_for(mlp, SOLVER, (20,))[0]
    one, other = train_stack(stacked(mlp), [job, replace(job, seed=99)])
    assert not np.array_equal(one.params["fc1.weight"], other.params["fc1.weight"])


def test_training_leaves_starts_torchs_generator_and_threads_alone(mlp):
    jobs = jobs_for(mlp, SOLVER, UNEQUAL)
    kept = [{name: array.copy() for name, array in job.start.items()} for job in jobs]
    generator, threads = torch.get_rng_state(), torch.get_num_threads()
    train_stack(stacked(mlp), jobs)
    for job, start in zip(jobs, kept, strict=True):
        assert all(np.array_equal(job.start[name], array) for name, array in start.items())
    assert torch.equal(torch.get_rng_state(), generator)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("network", ["mlp", "cnn"])
def test_results_are_arrays_of_their_own(network):
    model = build(network, SHAPE, 10, seed=0)
    one, other = train_stack(stacked(model), jobs_for(model, SOLVER, (20, 20)))
    for name, array in one.params.items():
        assert array.flags.c_contiguous
        assert array.base is None
        assert not np.shares_memory(array, other.params[name])


def wide(hidden):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))


@pytest.mark.parametrize("network", ["wide", "cnn"])
def test_bfloat16_stays_near_float32(network):
    model = wide(626) if network == "wide" else build("cnn", SHAPE, 10, seed=0)
    jobs = jobs_for(model, SOLVER, UNEQUAL)
    exact = train_stack(stacked(model), jobs)
    rough = train_stack(stacked(model), jobs, bfloat16=True)
    for one, other in zip(exact, rough, strict=True):
        assert one.metrics["train_loss"] != other.metrics["train_loss"]
        assert one.metrics["train_loss"] == pytest.approx(other.metrics["train_loss"], rel=0.02)
        assert all(array.dtype == np.float32 for array in other.params.values())


def test_small_linear_layers_stay_in_float32():
    model = wide(625)
    jobs = jobs_for(model, SOLVER, UNEQUAL)
    assert_same_bits(train_stack(stacked(model), jobs, bfloat16=True), train_stack(stacked(model), jobs))


def test_what_is_rounded_does_not_depend_on_who_else_is_in_the_stack():
    model = wide(700)
    short, *others = jobs_for(model, Solver(name="sgd", lr=0.01, epochs=2), (11, 12, 20))
    first, second = (train_stack(stacked(model), [short, other], bfloat16=True)[0] for other in others)
    for name, array in first.params.items():
        np.testing.assert_allclose(array, second.params[name], rtol=0, atol=1e-6, err_msg=name)


def test_a_result_that_is_not_finite_is_refused_with_its_job_and_tensor(mlp):
    jobs = jobs_for(mlp, SOLVER, UNEQUAL)
    jobs[1].inputs[4] = torch.inf
    with pytest.raises(TrainingError, match=r"job 1 .*'fc1.weight'"):
        train_stack(stacked(mlp), jobs)


def test_jobs_of_different_stacks_are_refused(mlp):
    short, long = jobs_for(mlp, SOLVER, (10, 11))
    with pytest.raises(ConfigError, match="job 1"):
        train_stack(stacked(mlp), [short, long])


def test_a_job_that_must_train_alone_is_refused(mlp):
    with pytest.raises(ConfigError, match="job 0"):
        train_stack(stacked(mlp), jobs_for(mlp, Solver(steps=3), (10,)))


def test_a_shorter_batch_is_refused_where_examples_mix():
    model = normalised()
    with pytest.raises(ConfigError, match="job 1"):
        train_stack(stacked(model), jobs_for(model, SOLVER, (20, 19)))


def test_a_stack_without_jobs_is_refused(mlp):
    with pytest.raises(ConfigError, match="none"):
        train_stack(stacked(mlp), [])


def test_a_start_of_another_model_is_refused(mlp):
    job = jobs_for(mlp, SOLVER, (10,))[0]
    other = replace(job, start=params_of(build("logistic", SHAPE, 10, seed=0)))
    with pytest.raises(ManifestError):
        train_stack(stacked(mlp), [job, other])


@pytest.mark.parametrize("prox_mu", [0.0, 0.4])
@pytest.mark.parametrize("name", PLAIN)
def test_every_optimizer_moves_a_stack_elsewhere(away, name, prox_mu, monkeypatch):
    model = build("cnn", SHAPE, 10, seed=0)
    jobs = jobs_for(model, Solver(name=name, lr=0.01, prox_mu=prox_mu, epochs=2), UNEQUAL)
    elsewhere = train_stack(stacked(model), jobs, device=away)
    monkeypatch.setattr(stacking, "fused", list)  # which only a CPU does, adding up in another order
    assert_same_bits(elsewhere, train_stack(stacked(model), jobs))


@pytest.mark.parametrize("build_model", [normalised, lambda: build("mlp", SHAPE, 10, seed=0)])
def test_buffers_and_what_does_not_learn_are_elsewhere_too(away, build_model):
    model = build_model()
    next(model.parameters()).requires_grad_(False)
    jobs = jobs_for(model, SOLVER, (20, 20))
    assert_same_bits(train_stack(stacked(model), jobs, device=away), train_stack(stacked(model), jobs))


def assert_same_bits(elsewhere, here):
    for mine, expected in zip(elsewhere, here, strict=True):
        assert mine.metrics == expected.metrics
        for name, array in expected.params.items():
            assert type(mine.params[name]) is np.ndarray
            assert mine.params[name].shape == array.shape
            assert np.array_equal(mine.params[name], array), name


@pytest.mark.parametrize(("num_clients", "counts", "num_classes"), [(1, (3,), 2), (3, (4, 4, 2), 7)])
def test_the_loss_and_its_gradient_are_those_of_cross_entropy(num_clients, counts, num_classes):
    generator = torch.Generator().manual_seed(0)
    shape = (num_clients, max(counts), num_classes)
    scores = torch.randn(shape, generator=generator, dtype=torch.float64).mul_(9).requires_grad_()
    labels = torch.randint(num_classes, shape[:2], generator=generator)
    real = torch.arange(max(counts)) < torch.tensor(counts).unsqueeze(1)
    label_gradients = (-real.float() / torch.tensor(counts).unsqueeze(1)).unsqueeze(2)
    means = [F.cross_entropy(scores[k, :n], labels[k, :n]) for k, n in enumerate(counts)]
    sum(means).backward()
    batch = StackedBatch(torch.empty(0), labels.unsqueeze(2), label_gradients)
    losses, gradient = _losses(scores.detach().float(), batch)
    found = -(losses * label_gradients).sum((1, 2))
    torch.testing.assert_close(found.double(), torch.stack(means).detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient.double(), scores.grad, rtol=1e-5, atol=1e-6)
    assert not gradient[~real].any()
    rounded = scores.detach().float().requires_grad_()
    sum(F.cross_entropy(rounded[k, :n], labels[k, :n]) for k, n in enumerate(counts)).backward()
    assert torch.equal(gradient, rounded.grad)
