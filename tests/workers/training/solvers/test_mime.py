import numpy as np
import pytest
import torch
from torch import nn

from fedat_service.wire.settings import Solver
from workers.models.state import params_of
from workers.training.torch_trainer import TorchTrainer
from workers.training.trainer import Sync

SIZES = (2,)
ASK = Sync(index=0, last=False, blocks=0, up={"gradient": ["parts.0.weight"]})


def test_a_round_of_two_syncs_is_the_golden_one(golden, quadratic, split, join):
    case = golden("mime_sgdm_round")
    given, expected = case["inputs"], case["outputs"]
    solver = Solver(name="mime", lr=given["eta"], momentum=given["beta"], steps=given["K"])
    clients = [quadratic(a, b) for a, b in zip(given["a"], given["b"], strict=True)]
    x = split(given["x"], SIZES)
    asked = [trainer.train(x, solver, 0, ASK) for trainer in clients]
    c = np.mean([join(result.slots["gradient"]) for result in asked], 0)
    np.testing.assert_allclose(c, expected["c"], rtol=case["rtol"])
    down = {"control": split(c, SIZES), "momentum": split(given["m"], SIZES)}
    sync = Sync(index=1, fetched=(), slots=down, up={"weights": ["parts.0.weight"]})
    results = [
        trainer.train(before.params, solver, 0, sync, before.kept)
        for trainer, before in zip(clients, asked, strict=True)
    ]
    y = [join(result.params) for result in results]
    np.testing.assert_allclose(y, [path[-1] for path in expected["y"]], rtol=case["rtol"])
    np.testing.assert_allclose(np.mean(y, 0), expected["x_new"], rtol=case["rtol"])


def test_asked_for_a_gradient_the_client_does_not_move(quadratic, split, join):
    result = quadratic([1, 2], [3, 4]).train(split([5, 6], SIZES), Solver(name="mime"), 0, ASK)
    assert join(result.params).tolist() == [5, 6]
    assert join(result.slots["gradient"]).tolist() == [2, 4]
    assert (result.num_examples, result.metrics) == (1, {})


@pytest.fixture
def images():
    """A model with buffers and dropout, and its start."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand((24, 1, 4, 4), generator=generator), torch.arange(24) % 3
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 3))
    return TorchTrainer(model, (x, y), (x, y)), params_of(model)


def _control(start, value):
    learning = ("0.weight", "0.bias", "3.weight", "3.bias")
    return {name: np.full_like(start[name], value) for name in learning}


def test_the_first_step_goes_along_the_control_alone(images):
    """At x both gradients of a batch are equal, dropout included."""
    trainer, start = images
    solver = Solver(name="mime", lr=0.1, momentum=0.0, steps=1)
    slots = {"control": _control(start, 0.5)}
    result = trainer.train(start, solver, 1, Sync(index=1, slots=slots))
    for name, control in slots["control"].items():
        np.testing.assert_allclose(result.params[name], start[name] - np.float32(0.1) * control, atol=1e-7)


def test_the_gradient_at_x_leaves_buffers_and_dropout_to_the_step(images):
    """With a learning rate of nearly nothing it sees the losses of SGD, and moves the buffers like SGD."""
    trainer, start = images
    fields = {"lr": 1e-30, "epochs": 2, "batch_size": 8}
    sync = Sync(index=1, slots={"control": _control(start, 0.0)})
    sgd = trainer.train(start, Solver(name="sgd", **fields), 1)
    mime = trainer.train(start, Solver(name="mime", **fields), 1, sync)
    buffers = ("0.running_mean", "0.running_var", "0.num_batches_tracked")
    assert all(np.array_equal(mime.params[name], sgd.params[name]) for name in buffers)
    assert mime.metrics == sgd.metrics


def test_weight_decay_is_part_of_both_gradients(quadratic, split, join):
    """So decaying is the same as the quadratic ``a/2 (w-b)^2 + d/2 w^2``, of curvature a + d."""
    start, solver = split([1.0, 2.0], SIZES), Solver(name="mime", lr=0.1, steps=2)
    decaying = solver.model_copy(update={"weight_decay": 0.5})
    sync = Sync(index=1, slots={"control": split([0.3, 0.4], SIZES)})
    for ask in (True, False):
        given, plain = (
            trainer.train(start, how, 0, ASK if ask else sync)
            for trainer, how in (
                (quadratic([1.0, 2.0], [3.0, 1.0]), decaying),
                (quadratic([1.5, 2.5], [3.0 / 1.5, 2.0 / 2.5]), solver),
            )
        )
        np.testing.assert_allclose(join(given.params), join(plain.params), rtol=1e-12)
        if ask:
            np.testing.assert_allclose(
                join(given.slots["gradient"]), join(plain.slots["gradient"]), rtol=1e-12
            )


def test_work_that_is_cut_by_a_sync_keeps_its_x_its_control_and_its_momentum(quadratic, split, join):
    trainer, x = quadratic([1.0, 2.0], [3.0, 1.0]), split([1.0, 2.0], SIZES)
    solver = Solver(name="mime", lr=0.1, steps=1)
    slots = {"control": split([0.3, 0.4], SIZES), "momentum": split([0.1, 0.2], SIZES)}
    whole = trainer.train(x, solver, 0, Sync(index=1, blocks=2, slots=slots))
    first = trainer.train(x, solver, 0, Sync(index=1, last=False, slots=slots))
    second = trainer.train(first.params, solver, 0, Sync(index=2, fetched=()), first.kept)
    assert np.array_equal(join(second.params), join(whole.params))


def test_without_a_control_the_first_step_is_none(quadratic, split, join):
    """As when a client is profiled before the first round."""
    solver = Solver(name="mime", steps=1)
    result = quadratic([1, 1], [0, 0]).train(split([3, 4], SIZES), solver, 0)
    assert join(result.params).tolist() == [3, 4]
