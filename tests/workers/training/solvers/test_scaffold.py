import numpy as np
import pytest
import torch
from torch import nn

from fedat_service.errors import TrainingError
from fedat_service.wire.settings import Solver
from workers.models.state import params_of
from workers.training.torch_trainer import TorchTrainer
from workers.training.trainer import Kept, Sync

SIZES = (2,)


def _solver(option="II", **fields):
    return Solver(**{"name": "scaffold", "lr": 0.1, "option": option, "steps": 2, **fields})


@pytest.mark.parametrize(("case_id", "option"), [("scaffold_optionI", "I"), ("scaffold_optionII", "II")])
def test_three_rounds_with_everybody_are_the_golden_ones(golden, quadratic, split, join, case_id, option):
    case = golden(case_id)
    given = case["inputs"]
    assert (given["eta_l"], given["K"]) == (0.1, 2)
    clients = [quadratic(a, b) for a, b in zip(given["a"], given["b"], strict=True)]
    x, c, kept = np.array(given["x0"], float), np.zeros(2), [Kept(), Kept()]
    for expected in case["outputs"]["rounds"]:
        sync = Sync(slots={"control": split(c, SIZES)})
        results = [
            trainer.train(split(x, SIZES), _solver(option), 0, sync, k)
            for trainer, k in zip(clients, kept, strict=True)
        ]
        kept = [result.kept for result in results]
        for result, client in zip(results, expected["clients"], strict=True):
            np.testing.assert_allclose(join(result.params), client["y"][-1], rtol=case["rtol"])
            np.testing.assert_allclose(
                join(result.kept.client["control"]), client["c_plus"], rtol=case["rtol"]
            )
        x = np.mean([join(result.params) for result in results], 0)
        c = c + np.mean([join(result.slots["control"]) for result in results], 0)
        np.testing.assert_allclose(x, expected["x"], rtol=case["rtol"])
        np.testing.assert_allclose(c, expected["c"], rtol=case["rtol"])


def test_of_three_clients_one_takes_part_as_in_the_golden_round(golden, quadratic, split, join):
    case = golden("scaffold_partial")
    given, expected = case["inputs"], case["outputs"]
    (i,) = given["S"]
    result = quadratic(given["a"][i], given["b"][i]).train(
        split(given["x0"], SIZES),
        _solver(),
        0,
        Sync(slots={"control": split(given["c"], SIZES)}),
        Kept(client={"control": split(given["c_i"][i], SIZES)}),
    )
    c = np.array(given["c"]) + join(result.slots["control"]) / given["N"]
    np.testing.assert_allclose(join(result.params), expected["x"], rtol=case["rtol"])
    np.testing.assert_allclose(join(result.kept.client["control"]), expected["c_i"][i], rtol=case["rtol"])
    np.testing.assert_allclose(c, expected["c"], rtol=case["rtol"])


def test_with_everybody_its_variates_lie_as_far_apart_as_the_golden_tracking_variable(
    golden, linear, split, join
):
    """FedGATE (FedCOMGATE without its quantiser) steps by ``g - delta_i``: ``delta_i`` is our ``c_i - c``."""
    case = golden("fedcomgate_tracking")
    given = {name: np.array(value) for name, value in case["inputs"].items()}
    eta, tau = float(given["eta"]), int(given["tau"])
    # A client with this gradient goes as far as d_i; the other one makes d_bar the mean.
    deltas, moves = [given["delta"], -given["delta"]], [given["d_i"], 2 * given["d_bar"] - given["d_i"]]
    solver, sync = _solver(steps=tau, lr=eta), Sync(slots={"control": split([0, 0], SIZES)})
    c_i = []
    for delta, d in zip(deltas, moves, strict=True):
        gradient = d / (eta * tau) + delta
        kept = Kept(client={"control": split(delta, SIZES)})
        result = linear([gradient] * tau, SIZES).train(split([0, 0], SIZES), solver, 0, sync, kept)
        np.testing.assert_allclose(-join(result.params), d, rtol=case["rtol"], atol=1e-15)
        c_i.append(join(result.kept.client["control"]))
    np.testing.assert_allclose(c_i[0] - np.mean(c_i, 0), case["outputs"]["delta"], rtol=case["rtol"])


def test_parts_with_intervals_of_their_own_are_fedals_with_scaffold(golden, quadratic, split, join):
    case = golden("fedals_scaffold")
    given, sizes = case["inputs"], (1, 1)
    assert (given["eta"], given["tau"], given["alpha"]) == (0.1, 1, 2)
    clients = [quadratic(a, b, sizes) for a, b in zip(given["a"], given["b"], strict=True)]
    phi, h = split([0, 0], sizes)
    fetched = [phi, h]
    x, c, kept = [split([0, 0], sizes)] * 2, split([0, 0], sizes), [Kept()] * 2
    for expected in case["outputs"]["steps"]:
        index = expected["step"] % 2
        due = [phi, h] if index else [h]
        slots = {"control": {name: c[name] for name in fetched}}
        sync = Sync(index, index == 1, 1, fetched, slots, {"weights": due, "control": due})
        results = [
            trainer.train(start, _solver(steps=1), 0, sync, k)
            for trainer, start, k in zip(clients, x, kept, strict=True)
        ]
        assert all(list(result.slots["control"]) == due for result in results)
        mean = {name: np.mean([result.params[name] for result in results], 0) for name in due}
        c = c | {name: c[name] + np.mean([r.slots["control"][name] for r in results], 0) for name in due}
        x, kept, fetched = [result.params | mean for result in results], [r.kept for r in results], due
        np.testing.assert_allclose([join(params) for params in x], expected["x"], rtol=case["rtol"])
        c_k = [join(k.client["control"]) for k in kept]
        np.testing.assert_allclose(c_k, expected["c"], rtol=case["rtol"], atol=1e-300)


@pytest.fixture
def images():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand((30, 1, 8, 8), generator=generator), torch.arange(30) % 10
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 10))
    return TorchTrainer(model, (x, y), (x, y)), params_of(model)


@pytest.mark.parametrize("fields", [{}, {"prox_mu": 0.3}, {"weight_decay": 0.01}, {"option": "I"}])
def test_with_zero_variates_it_is_sgd_bit_for_bit(images, fields):
    trainer, start = images
    plain = {key: value for key, value in fields.items() if key != "option"}
    expected = trainer.train(start, Solver(name="sgd", lr=0.1, epochs=2, **plain), seed=3)
    result = trainer.train(start, Solver(name="scaffold", lr=0.1, epochs=2, **fields), seed=3)
    assert all(np.array_equal(result.params[name], expected.params[name]) for name in start)
    assert result.metrics == expected.metrics


def test_buffers_have_no_variates_and_travel_like_weights(images):
    trainer, start = images
    result = trainer.train(start, _solver(option="I"), seed=0)
    learning = ["0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"]
    assert list(result.slots["control"]) == list(result.kept.client["control"]) == learning
    assert result.params["1.num_batches_tracked"] == 2
    assert (result.params["1.running_mean"] != start["1.running_mean"]).all()


def test_the_variate_is_the_mean_gradient_of_the_steps(quadratic, split, join):
    """Option II, whatever c and c_i; with the gradients of what the client adds to its loss."""
    solver = _solver(steps=3, prox_mu=0.5, weight_decay=0.2)
    sync = Sync(slots={"control": split([0.3, -0.7], SIZES)})
    kept = Kept(client={"control": split([-1.0, 0.4], SIZES)})
    result = quadratic([1.0, 2.0], [1.0, -1.0]).train(split([0.5, 0.5], SIZES), solver, 0, sync, kept)
    y = x = np.array([0.5, 0.5])
    gradients = []
    for _ in range(3):
        gradients.append(np.array([1.0, 2.0]) * (y - [1.0, -1.0]) + 0.5 * (y - x) + 0.2 * y)
        y = y - 0.1 * (gradients[-1] - [-1.0, 0.4] + [0.3, -0.7])
    np.testing.assert_allclose(join(result.params), y, rtol=1e-12)
    np.testing.assert_allclose(join(result.kept.client["control"]), np.mean(gradients, 0), rtol=1e-12)


def test_option_i_has_the_gradient_of_what_the_client_adds_to_its_loss(quadratic, split, join):
    """Also of a tensor that went on by itself, away from where it was last fetched."""
    solver = _solver("I", prox_mu=0.5, weight_decay=0.2)
    trainer, x = quadratic([1.0, 2.0], [1.0, -1.0]), np.array([0.5, 0.5])
    first = trainer.train(split(x, SIZES), solver, 0, Sync(last=False, up={"weights": ()}))
    second = trainer.train(first.params, solver, 0, Sync(1, fetched=()), first.kept)
    y = join(first.params)
    gradient = np.array([1.0, 2.0]) * (y - [1.0, -1.0]) + 0.5 * (y - x) + 0.2 * y
    assert not np.allclose(y, x)
    np.testing.assert_allclose(join(second.kept.client["control"]), gradient, rtol=1e-12)


def test_work_that_is_cut_by_a_sync_at_which_nothing_is_due_is_one_work(quadratic, split, join):
    trainer, start = quadratic([1.0, 2.0], [1.0, -1.0]), split([0.5, 0.5], SIZES)
    slots = {"control": split([0.3, -0.7], SIZES)}
    kept = Kept(client={"control": split([-1.0, 0.4], SIZES)})
    whole = trainer.train(start, _solver(), 0, Sync(blocks=2, slots=slots), kept)
    first = trainer.train(start, _solver(), 0, Sync(last=False, slots=slots, up={"weights": ()}), kept)
    second = trainer.train(first.params, _solver(), 0, Sync(1, fetched=()), first.kept)
    assert np.array_equal(join(first.kept.client["control"]), [-1.0, 0.4])
    assert np.array_equal(join(second.params), join(whole.params))
    assert np.array_equal(join(second.slots["control"]), join(whole.slots["control"]))


class HalfUsed(nn.Module):
    def __init__(self):
        super().__init__()
        self.used = nn.Parameter(torch.zeros(1))
        self.unused = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x * self.used


def test_a_tensor_that_gets_no_gradient_follows_the_other_clients():
    batch = (torch.ones(1, 1), torch.zeros(1))
    trainer = TorchTrainer(HalfUsed(), [batch], [], loss_fn=lambda scores, _: scores.sum())
    start = {"used": np.zeros(1, np.float32), "unused": np.ones(1, np.float32)}
    control = {"used": np.zeros(1, np.float32), "unused": np.full(1, 0.5, np.float32)}
    result = trainer.train(start, _solver(), 0, Sync(slots={"control": control}))
    assert result.params["unused"] == pytest.approx([1 - 2 * 0.1 * 0.5])
    assert result.kept.client["control"]["unused"] == pytest.approx([0.0], abs=1e-6)


def test_a_variate_of_another_shape_is_refused(quadratic, split):
    sync = Sync(slots={"control": {"parts.0.weight": np.zeros(1)}})
    with pytest.raises(TrainingError, match=r"control of 'parts\.0\.weight' has shape \[1\], not \[2\]"):
        quadratic([1, 1], [0, 0]).train(split([0, 0], SIZES), _solver(), 0, sync)
