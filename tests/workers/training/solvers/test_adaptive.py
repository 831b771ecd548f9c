import numpy as np
import pytest
import torch
from torch import nn

from fedat_service.wire.settings import Solver
from workers.models.state import params_of
from workers.training.torch_trainer import TorchTrainer
from workers.training.trainer import Kept, Sync

SIZES = (2, 1)


def _solver(name, given, **fields):
    return Solver(
        **{
            "name": name,
            "lr": given["alpha"],
            "beta1": given["beta1"],
            "beta2": given["beta2"],
            "eps": given["eps"],
            "weight_decay": given.get("weight_decay", 0.0),
            "steps": 2,
            **fields,
        }
    )


@pytest.mark.parametrize(
    ("case_id", "name"),
    [
        ("fed_lamb_two_rounds", "fedlamb"),
        ("fed_lamb_wd_two_rounds", "fedlamb"),
        ("fed_ams_two_rounds", "fedams"),
    ],
)
def test_two_rounds_with_a_shared_second_moment_are_the_golden_ones(
    golden, linear, split, join, case_id, name
):
    case = golden(case_id)
    given = case["inputs"]
    assert tuple(given["layers"]) == SIZES
    clients = [linear(given["grads"][i]) for i in "01"]
    theta, vhat, kept = np.array(given["theta0"]), np.full(3, given["eps"]), [Kept()] * 2
    for number, expected in enumerate(case["outputs"]["rounds"]):
        # Before the first round there is nothing to send.
        sync = Sync(slots={"second_moment": split(vhat, SIZES)} if number else {})
        results = [
            trainer.train(split(theta, SIZES), _solver(name, given), 0, sync, k)
            for trainer, k in zip(clients, kept, strict=True)
        ]
        kept = [result.kept for result in results]
        for result, steps in zip(results, expected["clients"].values(), strict=True):
            last = steps[-1]
            np.testing.assert_allclose(join(result.params), last["theta"], rtol=case["rtol"])
            np.testing.assert_allclose(join(result.slots["second_moment"]), last["v"], rtol=case["rtol"])
            np.testing.assert_allclose(join(result.kept.client["momentum"]), last["m"], rtol=case["rtol"])
        theta = np.mean([join(result.params) for result in results], 0)
        vhat = np.maximum(vhat, np.mean([join(result.slots["second_moment"]) for result in results], 0))
        np.testing.assert_allclose(theta, expected["theta"], rtol=case["rtol"])
        np.testing.assert_allclose(vhat, expected["vhat"], rtol=case["rtol"])


def test_two_rounds_of_mime_lamb_are_the_golden_ones(golden, linear, split, join):
    case = golden("mime_lamb_two_rounds")
    given = case["inputs"]
    beta2, kept = given["beta2"], [Kept()] * 2
    clients = []
    for i in "01":
        # The two steps see two batches; a third one makes the mean over all data the golden full gradient.
        first, second = np.array(given["grads"][i])
        clients.append(linear([first, second, 3 * np.array(given["full_grads"][i]) - first - second]))
    theta, v, vhat = np.array(given["theta0"]), np.zeros(3), np.full(3, given["eps"])
    for expected in case["outputs"]["rounds"]:
        sync = Sync(slots={"second_moment": split(vhat, SIZES)})
        results = [
            trainer.train(split(theta, SIZES), _solver("mimelamb", given), 0, sync, k)
            for trainer, k in zip(clients, kept, strict=True)
        ]
        kept = [result.kept for result in results]
        theta = np.mean([join(result.params) for result in results], 0)
        gradient = np.mean([join(result.slots["gradient"]) for result in results], 0)
        v = beta2 * v + (1 - beta2) * gradient**2
        vhat = np.maximum(vhat, v)
        np.testing.assert_allclose(theta, expected["theta"], rtol=case["rtol"])
        np.testing.assert_allclose(v, expected["v"], rtol=case["rtol"])
        np.testing.assert_allclose(vhat, expected["vhat"], rtol=case["rtol"])


def test_mime_ams_moves_like_fed_ams_and_sends_a_gradient_instead(linear, split, join):
    given = {"alpha": 0.1, "beta1": 0.9, "beta2": 0.9, "eps": 0.01}
    sync = Sync(slots={"second_moment": split([0.04, 0.09, 0.5], SIZES)})
    start, trainer = split([1, 2, 3], SIZES), linear([[1, 2, 3], [4, 5, 9]])
    ams, mime = (trainer.train(start, _solver(name, given), 0, sync) for name in ("fedams", "mimeams"))
    assert np.array_equal(join(mime.params), join(ams.params))
    assert (list(ams.slots), list(mime.slots)) == (["second_moment"], ["gradient"])
    np.testing.assert_allclose(join(mime.slots["gradient"]), [2.5, 3.5, 6], rtol=1e-12)


def test_a_layer_of_zeros_takes_the_golden_step_and_is_not_frozen(golden, linear, split, join):
    case = golden("lamb_zero_layer")
    given = case["inputs"]
    solver = Solver(name="fedlamb", lr=given["alpha"], beta1=0.0, steps=1)
    sync = Sync(slots={"second_moment": split([1, 1], (2,))})
    result = linear([given["u"]], sizes=(2,)).train(split(given["theta"], (2,)), solver, 0, sync)
    np.testing.assert_allclose(join(result.params), case["outputs"]["guarded"], rtol=case["rtol"])


def test_a_layer_without_a_gradient_stays(linear, split, join):
    solver = Solver(name="fedlamb", lr=0.1, steps=2)
    result = linear([[0, 0, 1]] * 2).train(split([3, 4, 5], SIZES), solver, 0)
    assert join(result.params)[:2].tolist() == [3, 4]


def test_weight_and_bias_are_one_layer():
    """A zero bias moves with its weight, by the layer's own norm."""
    with torch.random.fork_rng(devices=[]):
        model = nn.Sequential(nn.Linear(2, 1))
    x, y = torch.tensor([[3.0, 4.0]]), torch.zeros(1)
    trainer = TorchTrainer(model, (x, y), (x, y), loss_fn=lambda scores, _: scores.sum())
    start = {"0.weight": np.array([[0.6, 0.8]], np.float32), "0.bias": np.zeros(1, np.float32)}
    result = trainer.train(start, Solver(name="fedlamb", lr=0.1, beta1=0.0, eps=1.0), 0)
    norm_u = np.sqrt(3**2 + 4**2 + 1)
    assert result.params["0.weight"] == pytest.approx(np.array([[0.6 - 0.3 / norm_u, 0.8 - 0.4 / norm_u]]))
    assert result.params["0.bias"] == pytest.approx([-0.1 / norm_u])


def test_the_second_moment_comes_up_in_every_zth_round_and_stays_meanwhile(golden, linear, split, join):
    case = golden("fedlamb_skip_sync")
    given = case["inputs"]
    vhat, seen, elements = np.array(given["vhat0"]), [], []
    for number, mean_v in enumerate(given["mean_v"], 1):
        up = {"weights": ["parts.0.weight"]}
        if number % given["Z"] == 0:
            up["second_moment"] = ["parts.0.weight"]
        # With beta2 = 0 the moment is the squared gradient of the last step.
        solver = Solver(name="fedlamb", beta2=0.0, steps=1, eps=1e-5, moment_every=given["Z"])
        sync = Sync(slots={"second_moment": split(vhat, (2,))}, up=up)
        result = linear([np.sqrt(mean_v)], sizes=(2,)).train(split([1, 1], (2,)), solver, 0, sync)
        if result.slots:
            vhat = np.maximum(vhat, join(result.slots["second_moment"]))
        seen.append(vhat)
        elements.append(1 + len(result.slots))
    np.testing.assert_allclose(seen, case["outputs"]["vhat"], rtol=case["rtol"])
    assert elements == case["outputs"]["elements_up_per_param"]


def test_a_second_moment_that_was_rounded_to_zero_is_its_least_value(linear, split, join):
    solver = Solver(name="fedams", lr=0.1, beta1=0.0, eps=0.01, steps=1)
    trainer, start = linear([[1, 1, 1]]), split([0, 0, 0], SIZES)
    result = trainer.train(start, solver, 0, Sync(slots={"second_moment": split([0, 0, 0.04], SIZES)}))
    np.testing.assert_allclose(join(result.params), [-1, -1, -0.5], rtol=1e-12)


def test_a_round_cut_in_two_sends_its_first_gradient_and_its_last_moment(quadratic, split, join):
    """The gradient is that where the round began, and v goes on from sync to sync."""
    for name, slot in (("mimelamb", "gradient"), ("fedlamb", "second_moment")):
        trainer, start = quadratic([1, 2, 3], [1, -1, 2], SIZES), split([1, 2, 3], SIZES)
        solver = Solver(name=name, lr=0.1, steps=1)
        moment = {"second_moment": split([0.5, 0.6, 0.7], SIZES)}
        whole = trainer.train(start, solver, 0, Sync(blocks=2, slots=moment))
        first = trainer.train(
            start, solver, 0, Sync(last=False, slots=moment, up={"weights": ["parts.1.weight"]})
        )
        second = trainer.train(first.params, solver, 0, Sync(index=1, fetched=()), first.kept)
        assert np.array_equal(join(second.params), join(whole.params))
        assert np.array_equal(join(second.slots[slot]), join(whole.slots[slot]))
        assert first.slots == {}


def test_buffers_are_touched_by_steps_only():
    x, y = torch.arange(48.0).reshape(12, 4) / 48, torch.arange(12) % 3
    with torch.random.fork_rng(devices=[]):
        model = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3))
    start = params_of(model)
    trainer = TorchTrainer(model, (x, y), (x, y))
    ams, mime = (
        trainer.train(start, Solver(name=name, steps=2, batch_size=4), 0) for name in ("fedams", "mimeams")
    )
    assert all(np.array_equal(mime.params[name], ams.params[name]) for name in start)
    assert mime.params["0.num_batches_tracked"] == 2
