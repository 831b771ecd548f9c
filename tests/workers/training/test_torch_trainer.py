import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fedat_service.errors import ManifestError, TrainingError
from fedat_service.wire.settings import Solver
from workers.data.digits import load_digits
from workers.data.partition import local_split
from workers.models.networks import build
from workers.models.state import params_of
from workers.training.torch_trainer import TorchTrainer
from workers.training.trainer import Sync

SOLVERS = ("sgd", "momentum", "adam", "adamw")


@pytest.fixture(scope="module")
def digits():
    """Training and test pairs of the shipped digits."""
    dataset = load_digits()
    train, test = local_split(np.arange(len(dataset)), seed=0, test_fraction=0.2)
    return [(dataset.inputs(part), dataset.labels[part]) for part in (train, test)]


@pytest.fixture(scope="module")
def few(digits):
    """A client's worth of training digits: 48 of them."""
    x, y = digits[0]
    return x[:48], y[:48]


def _same(a, b):
    return list(a) == list(b) and all(np.array_equal(a[name], b[name]) for name in a)


def _distance(a, b):
    return max(float(np.abs(a[name] - b[name]).max()) for name in a)


def test_logistic_regression_learns_the_digits(digits):
    model = build("logistic", (1, 8, 8), 10, seed=0)
    trainer = TorchTrainer(model, *digits)
    before = trainer.evaluate(params_of(model))
    result = trainer.train(params_of(model), Solver(name="adam", lr=0.01, epochs=10), seed=1)
    after = trainer.evaluate(result.params)
    assert (result.num_examples, after.num_examples) == (1438, 359)
    assert before.correct / 359 < 0.3
    assert after.correct / 359 > 0.85
    assert after.loss < before.loss


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", ["logistic", "mlp", "cnn"])
def test_equal_seeds_give_equal_bits_and_others_do_not(few, name, solver):
    model = build(name, (1, 8, 8), 10, seed=0)
    start = params_of(model)
    trainer = TorchTrainer(model, few, few)
    settings = Solver(name=solver, lr=0.01, prox_mu=0.4, epochs=2)
    first, other, again = (trainer.train(start, settings, seed) for seed in (3, 4, 3))
    assert _same(first.params, again.params)
    assert first.metrics == again.metrics
    assert not _same(first.params, other.params)


@pytest.mark.parametrize("solver", ["adam", "mime"])
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_bfloat16_stays_near_float32(few, name, solver):
    model = build(name, (1, 8, 8), 10, seed=0)
    start = params_of(model)
    slots = {"gradient_mean": {n: np.zeros_like(start[n]) for n, _ in model.named_parameters()}}
    sync = Sync(slots=slots | {"momentum": slots["gradient_mean"]}) if solver == "mime" else Sync()
    losses, params = [], []
    for bfloat16 in (False, True, True):
        trainer = TorchTrainer(model, few, few, bfloat16=bfloat16)
        result = trainer.train(start, Solver(name=solver, lr=0.01, epochs=2), 1, sync)
        losses.append(result.metrics["train_loss"])
        params.append(result.params)
    assert losses[0] != losses[1] == losses[2]
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
    assert _same(params[1], params[2])
    assert all(array.dtype == np.float32 for array in params[1].values())


def test_a_loss_of_ones_own_is_in_float32_too(few):
    seen = []

    def loss_fn(scores, labels):
        seen.append(scores.dtype)
        return (scores - nn.functional.one_hot(labels, 10)).square().mean()

    model = build("mlp", (1, 8, 8), 10, seed=0)
    TorchTrainer(model, few, few, loss_fn, bfloat16=True).train(params_of(model), Solver(), 1)
    assert set(seen) == {torch.float32}


def test_a_round_begins_afresh_whatever_the_module_did_before(few):
    shared, fresh = (build("mlp", (1, 8, 8), 10, seed=0) for _ in range(2))
    start = params_of(fresh)
    used = TorchTrainer(shared, few, few)
    used.evaluate(used.train(start, Solver(name="momentum"), seed=9).params)
    expected = TorchTrainer(fresh, few, few).train(start, Solver(), seed=1)
    assert _same(used.train(start, Solver(), seed=1).params, expected.params)


def test_training_leaves_torchs_generator_and_threads_alone(few):
    model = build("logistic", (1, 8, 8), 10, seed=0)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    TorchTrainer(model, few, few).train(params_of(model), Solver(), seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


def test_dropout_is_seeded_too(few):
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 10))
    trainer = TorchTrainer(model, few, few)
    start = params_of(model)
    first, again = (trainer.train(start, Solver(), seed=2) for _ in range(2))
    assert _same(first.params, again.params)


def test_a_huge_proximal_term_keeps_the_model_at_the_start(few):
    model = build("mlp", (1, 8, 8), 10, seed=0)
    start = params_of(model)
    trainer = TorchTrainer(model, few, few)
    free, bound = (
        trainer.train(start, Solver(name="sgd", lr=1e-5, prox_mu=mu, epochs=3), seed=0).params
        for mu in (0.0, 1e5)
    )
    assert 0 < _distance(bound, start) < _distance(free, start) / 5


def test_the_proximal_term_is_the_gradient_of_half_mu_times_the_squared_distance(few):
    model = build("logistic", (1, 8, 8), 10, seed=0)
    start = params_of(model)
    solver = Solver(name="sgd", lr=0.05, prox_mu=0.4, epochs=2, batch_size=48)
    result = TorchTrainer(model, few, few).train(start, solver, seed=0)
    x, y = (torch.as_tensor(part) for part in few)
    expected = {name: torch.tensor(array, requires_grad=True) for name, array in start.items()}
    for _ in range(2):
        loss = nn.functional.cross_entropy(x.flatten(1) @ expected["fc.weight"].T + expected["fc.bias"], y)
        loss += 0.2 * sum(((w - torch.tensor(start[name])) ** 2).sum() for name, w in expected.items())
        loss.backward()
        for w in expected.values():
            w.data -= 0.05 * w.grad
            w.grad = None
    for name, w in expected.items():
        np.testing.assert_allclose(result.params[name], w.detach(), atol=1e-6)


def test_the_start_is_not_written_to_and_the_result_is_a_copy(few):
    model = build("logistic", (1, 8, 8), 10, seed=0)
    start = params_of(model)
    kept = {name: array.copy() for name, array in start.items()}
    trainer = TorchTrainer(model, few, few)
    first = trainer.train(start, Solver(), seed=0)
    first_kept = {name: array.copy() for name, array in first.params.items()}
    trainer.train(start, Solver(), seed=1)
    assert _same(start, kept)
    assert _same(first.params, first_kept)


def test_more_epochs_go_on_from_where_the_first_ended(few):
    model = build("logistic", (1, 8, 8), 10, seed=0)
    trainer = TorchTrainer(model, few, few)
    one, three = (trainer.train(params_of(model), Solver(epochs=epochs), seed=0) for epochs in (1, 3))
    assert three.metrics["train_loss"] < one.metrics["train_loss"]
    assert one.num_examples == three.num_examples == 48


def test_train_loss_is_the_mean_over_examples_also_with_a_short_last_batch(few):
    model = build("logistic", (1, 8, 8), 10, seed=0)
    start = params_of(model)
    still = Solver(name="sgd", lr=1e-12, batch_size=7, epochs=2)
    trainer = TorchTrainer(model, few, few)
    expected = trainer.evaluate(start).loss
    assert trainer.train(start, still, seed=0).metrics["train_loss"] == pytest.approx(expected, rel=1e-5)


def test_batch_normalisation_travels_with_its_buffers(few):
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 10))
    start = params_of(model)
    result = TorchTrainer(model, few, few).train(start, Solver(epochs=2, batch_size=16), seed=0)
    assert list(result.params) == list(start)
    assert result.params["1.num_batches_tracked"] == 6
    assert (result.params["1.running_mean"] != start["1.running_mean"]).all()


def test_evaluation_does_not_touch_the_buffers(few):
    model = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(64, 10))
    params = params_of(model)
    trainer = TorchTrainer(model, few, few)
    assert trainer.evaluate(params) == trainer.evaluate(params)
    assert _same(params_of(model), params)


def test_frozen_parameters_stay(few):
    model = build("mlp", (1, 8, 8), 10, seed=0)
    model.fc1.weight.requires_grad_(False)
    start = params_of(model)
    result = TorchTrainer(model, few, few).train(start, Solver(prox_mu=0.1), seed=0)
    assert np.array_equal(result.params["fc1.weight"], start["fc1.weight"])
    assert not np.array_equal(result.params["fc2.weight"], start["fc2.weight"])


def test_a_plain_model_and_dataloader_plug_in(few):
    data = TensorDataset(*map(torch.as_tensor, few))
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    trainer = TorchTrainer(
        model, DataLoader(data, batch_size=7, shuffle=True), DataLoader(data, batch_size=20)
    )
    start = params_of(model)
    result = trainer.train(start, Solver(lr=0.01, epochs=5), seed=0)
    assert result.num_examples == 48
    assert trainer.evaluate(result.params).correct > trainer.evaluate(start).correct
    assert _same(trainer.train(start, Solver(lr=0.01, epochs=5), seed=0).params, result.params)


def test_another_loss_may_be_given(few):
    model = build("logistic", (1, 8, 8), 10, seed=0)
    trainer = TorchTrainer(model, few, few, loss_fn=nn.MultiMarginLoss())
    start = params_of(model)
    assert (
        trainer.evaluate(trainer.train(start, Solver(lr=0.01), 0).params).loss < trainer.evaluate(start).loss
    )


def test_no_test_examples_are_no_loss(few):
    model = build("logistic", (1, 8, 8), 10, seed=0)
    result = TorchTrainer(model, few, (few[0][:0], few[1][:0])).evaluate(params_of(model))
    assert (result.num_examples, result.correct, result.loss) == (0, 0, 0.0)


def test_a_result_that_is_not_finite_is_not_sent(few):
    model = build("mlp", (1, 8, 8), 10, seed=0)
    trainer = TorchTrainer(model, (few[0] * 1e30, few[1]), few)
    with pytest.raises(TrainingError, match=r"made tensor 'fc1\.weight' infinite or NaN"):
        trainer.train(params_of(model), Solver(name="sgd", lr=1000.0), seed=0)


@pytest.mark.parametrize("epochs", [1, 2])
def test_an_epoch_without_a_batch_is_named(few, epochs):
    model = build("logistic", (1, 8, 8), 10, seed=0)
    batches = [tuple(map(torch.as_tensor, few))] if epochs == 2 else []
    with pytest.raises(TrainingError, match=f"epoch {epochs} has no batch"):
        TorchTrainer(model, iter(batches), few).train(params_of(model), Solver(epochs=epochs), seed=0)


def test_a_start_that_does_not_fit_is_named(few):
    model = build("logistic", (1, 8, 8), 10, seed=0)
    with pytest.raises(ManifestError, match=r"'fc\.bias' is missing"):
        TorchTrainer(model, few, few).train({"fc.weight": params_of(model)["fc.weight"]}, Solver(), seed=0)


def test_only_what_is_asked_for_goes_up(few):
    model = build("logistic", (1, 8, 8), 10, seed=0)
    sync = Sync(up={"weights": ["fc.weight"], "control": ["fc.bias"]})
    result = TorchTrainer(model, few, few).train(params_of(model), Solver(name="scaffold"), 0, sync)
    assert {slot: list(arrays) for slot, arrays in result.slots.items()} == {"control": ["fc.bias"]}


@pytest.mark.parametrize(
    ("up", "complaint"),
    [
        ({"gradient": ["fc.bias"]}, r"'gradient' is asked for, but the solver sends \['control'\]"),
        ({"control": ["fc.bias", "gc"]}, "control of 'gc' is asked for, but that tensor does not learn"),
    ],
)
def test_what_the_solver_does_not_send_cannot_be_asked_for(few, up, complaint):
    model = build("logistic", (1, 8, 8), 10, seed=0)
    with pytest.raises(TrainingError, match=complaint):
        TorchTrainer(model, few, few).train(params_of(model), Solver(name="scaffold"), 0, Sync(up=up))


def test_a_slot_that_is_not_finite_is_not_sent(few):
    model = build("logistic", (1, 8, 8), 10, seed=0)
    trainer = TorchTrainer(model, (few[0] * 1e15, few[1]), few)
    solver = Solver(name="fedams", lr=1e-30, beta2=0.0, eps=1.0)
    trainer.train(params_of(model), solver, 0)
    too_large = TorchTrainer(model, (few[0] * 1e22, few[1]), few)
    with pytest.raises(TrainingError, match=r"made second_moment 'fc\.weight' infinite or NaN"):
        too_large.train(params_of(model), solver, 0)
