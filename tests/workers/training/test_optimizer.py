import numpy as np
import pytest
import torch

from fedat_service.errors import ConfigError
from fedat_service.wire.settings import Solver
from workers.training.optimizer import LocalOptimizer, _on_cpu, add_proximal_gradient

NAMES = ("sgd", "momentum", "adam", "adamw")


def _double(values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def _steps(solver, start, grads):
    """Values after each step with the given gradients."""
    w = _double(start)
    optimizer = LocalOptimizer([w], solver)
    path = []
    for grad in grads:
        w.grad = torch.tensor(grad, dtype=torch.float64)
        optimizer.step()
        path.append(w.detach().tolist())
    return np.array(path)


def test_a_fedprox_step_is_the_golden_one(golden):
    case = golden("fedprox_sgd_step")
    given = case["inputs"]
    w_k = _double(given["w_global"])
    optimizer = LocalOptimizer([w_k], Solver(name="sgd", lr=given["eta"], prox_mu=given["mu"]))
    w_k.data = _double(given["w_k"]).detach()
    w_k.grad = torch.tensor(given["grad"], dtype=torch.float64)
    optimizer.step()
    np.testing.assert_allclose(w_k.detach(), case["outputs"]["w_k"], rtol=case["rtol"])


def test_fedats_client_takes_the_golden_keras_steps(golden):
    case = golden("fedat_client_adam_keras")
    given = case["inputs"]
    assert given["w_k0"] == given["w_global"]
    solver = Solver(
        name="adam",
        lr=given["lr"],
        beta1=given["b1"],
        beta2=given["b2"],
        eps=given["eps"],
        prox_mu=given["lam"],
    )
    path = _steps(solver, given["w_k0"], given["grads"])
    np.testing.assert_allclose(path, case["outputs"]["w_k"], rtol=case["rtol"])


def test_sgd_moves_by_the_gradient_and_the_weight_decay():
    path = _steps(Solver(name="sgd", lr=0.1, weight_decay=0.5), [1.0], [[2.0]])
    assert path[0] == pytest.approx(1 - 0.1 * (2 + 0.5))


def test_momentum_accumulates():
    path = _steps(Solver(name="momentum", lr=0.1, momentum=0.5), [0.0], [[1.0], [1.0]])
    assert path.ravel() == pytest.approx([-0.1, -0.1 - 0.15])


def test_adamw_decays_weights_apart_from_the_gradient():
    solver = Solver(name="adamw", lr=0.1, weight_decay=0.5)
    path = _steps(solver, [2.0], [[1.0]])
    assert path[0] == pytest.approx(2 * (1 - 0.1 * 0.5) - 0.1, rel=1e-5)


def test_a_large_eps_is_added_outside_the_root():
    path = _steps(Solver(name="adam", lr=0.1, eps=1.0), [0.0], [[1.0]])
    lr_1 = 0.1 * np.sqrt(1 - 0.999) / (1 - 0.9)
    assert path[0] == pytest.approx(-lr_1 * 0.1 / (np.sqrt(0.001) + 1))


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_cleared_at_the_start_and_after_a_step(name):
    w = _double([1.0])
    w.grad = torch.ones(1, dtype=torch.float64)
    optimizer = LocalOptimizer([w], Solver(name=name))
    assert w.grad is None
    w.grad = torch.ones(1, dtype=torch.float64)
    optimizer.step()
    assert w.grad is None


@pytest.mark.parametrize("name", NAMES)
def test_a_parameter_without_a_gradient_stays(name):
    used, unused = _double([1.0]), _double([3.0])
    optimizer = LocalOptimizer([unused, used], Solver(name=name, prox_mu=0.4))
    for _ in range(2):
        used.grad = torch.ones(1, dtype=torch.float64)
        optimizer.step()
    assert unused.item() == 3
    assert used.item() < 1


@pytest.mark.parametrize("name", NAMES)
def test_without_any_gradient_nothing_moves(name):
    w = _double([3.0])
    optimizer = LocalOptimizer([w], Solver(name=name, prox_mu=0.4, weight_decay=0.1))
    optimizer.step()
    assert w.item() == 3


def test_the_proximal_gradient_pulls_to_the_centre_and_is_zero_there():
    away, there = _double([2.0, -1.0]), _double([5.0])
    for parameter in (away, there):
        parameter.grad = torch.zeros_like(parameter)
    add_proximal_gradient([away, there], [_double([1.0, 1.0]), _double([5.0])], mu=0.5)
    assert away.grad.tolist() == [0.5, -1.0]
    assert there.grad.tolist() == [0.0]


def test_the_centre_may_lie_elsewhere():
    w = _double([2.0])
    optimizer = LocalOptimizer([w], Solver(name="sgd", lr=0.1, prox_mu=0.5), [_double([1.0])])
    w.grad = torch.zeros(1, dtype=torch.float64)
    optimizer.step()
    assert w.item() == pytest.approx(2 - 0.1 * 0.5)


@pytest.mark.parametrize("name", NAMES)
def test_it_goes_on_from_its_state(name):
    """A parameter may get its first gradient late."""
    grads = [[1.0, None], [2.0, None], [-1.0, 3.0], [0.5, 2.0]]
    solver = Solver(name=name, lr=0.1, weight_decay=0.1)
    whole, cut = ([_double([1.0]), _double([2.0])] for _ in range(2))
    one, other = LocalOptimizer(whole, solver), LocalOptimizer(cut, solver)
    for step, grad in enumerate(grads):
        for parameters, optimizer in ((whole, one), (cut, other)):
            for parameter, value in zip(parameters, grad, strict=True):
                parameter.grad = None if value is None else torch.tensor([value], dtype=torch.float64)
            optimizer.step()
        state, other = other.state(), LocalOptimizer(cut, solver)
        other.resume(state, step + 1)
    assert [w.item() for w in cut] == [w.item() for w in whole]


@pytest.mark.parametrize("name", NAMES)
def test_a_parameter_that_comes_late_moves_as_one_that_begins_then(name):
    solver = Solver(name=name, lr=0.1, weight_decay=0.1)
    late, other, alone = _double([1.0]), _double([2.0]), _double([1.0])
    one, own = LocalOptimizer([late, other], solver), LocalOptimizer([alone], solver)
    for step in range(6):
        other.grad = torch.full((1,), 5.0 - step, dtype=torch.float64)
        if step > 2:
            late.grad, alone.grad = (torch.full((1,), 1.0 + step, dtype=torch.float64) for _ in range(2))
            own.step()
        one.step()
    assert late.item() == alone.item()


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_on_a_cpu_and_only_there_adam_is_our_own(name, monkeypatch):
    monkeypatch.setattr("workers.training.optimizer.adam_by_torch", None)
    _steps(Solver(name=name), [1.0], [[2.0]])
    here, there = torch.zeros(1), torch.zeros(1, device="meta")
    assert [_on_cpu(tensors) for tensors in ([here], [there], [here, there])] == [
        True,
        False,
        False,
    ]


def test_a_solver_with_a_half_of_its_own_is_refused():
    with pytest.raises(ConfigError, match="solver 'scaffold' is none of sgd, momentum, adam, adamw"):
        LocalOptimizer([_double([1.0])], Solver(name="scaffold"))


def test_no_momentum_is_plain_sgd():
    grads = [[2.0], [-1.0], [0.5]]
    none, plain = (
        _steps(Solver(name=name, lr=0.1, weight_decay=0.5, **fields), [1.0], grads)
        for name, fields in (("momentum", {"momentum": 0.0}), ("sgd", {}))
    )
    assert (none == plain).all()


def lying(tensor, order):
    """The same values, with the dimensions in another order in memory."""
    back = [order.index(dimension) for dimension in range(tensor.dim())]
    return tensor.permute(order).clone(memory_format=torch.contiguous_format).permute(back)


ORDERS = ((0, 1, 2, 3, 4), (0, 1, 3, 4, 2), (4, 3, 2, 1, 0))


@pytest.mark.parametrize("gradient_lies", ORDERS)
@pytest.mark.parametrize("parameter_lies", ORDERS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(2, 4, 3, 2, 5), (1, 3, 1, 2, 2)])
def test_how_tensors_lie_in_memory_does_not_matter(name, parameter_lies, gradient_lies, shape):
    generator = torch.Generator().manual_seed(0)
    start, gradient = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    moved = []
    for lies, lie in [(ORDERS[0], ORDERS[0]), (parameter_lies, gradient_lies)]:
        w = lying(start, lies).requires_grad_()
        solver = Solver(name=name, lr=0.1, prox_mu=0.4, weight_decay=0.01)
        optimizer = LocalOptimizer([w], solver)
        for step in range(4):
            if step == 2:
                kept = {
                    what: [tensor.contiguous() for tensor in part] for what, part in optimizer.state().items()
                }
                optimizer = LocalOptimizer([w], solver, [start])
                optimizer.resume(kept, 2)
            w.grad = lying(gradient, lie)
            optimizer.step()
        moved.append(w.detach())
    torch.testing.assert_close(*moved)
