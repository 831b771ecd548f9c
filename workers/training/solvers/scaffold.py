"""SCAFFOLD: SGD whose drift to the client's own optimum is taken back by control variates."""

import torch
from torch import Tensor

from fedat_service.params import Params
from fedat_service.wire.settings import Solver
from workers.training.batches import Batch
from workers.training.optimizer import LocalOptimizer
from workers.training.solvers.problem import Named, Problem, Sent
from workers.training.solvers.recall import named, recall, recall_references
from workers.training.trainer import Kept, Sync


class Scaffold:
    """``y <- y - eta (g(y) - c_i + c)``, then a new ``c_i``; ``dc = c_i+ - c_i`` goes up as `control`.

    Karimireddy et al., "SCAFFOLD" (ICML 2020), Algorithm 1. Option I: ``c_i+ = g_i(x)``, the full gradient
    where the work of the sync begins. Option II: ``c_i+ = c_i - c + (x - y) / (K eta)``.

    If only a part of the model is due, only its variates change, with x as that part was last fetched and K
    the steps since: FedALS, Algorithm 4 (FedALS+SCAFFOLD). A proximal term and weight decay belong to the
    client's own objective, so the variates hold them.

    Raises:
        TrainingError: If a variate that came down or was kept does not fit the model.
    """

    def __init__(self, problem: Problem, solver: Solver, sync: Sync, kept: Kept) -> None:
        self._problem = problem
        self._solver = solver
        self._sync = sync
        parameters = problem.parameters
        came, kept_c = sync.slots.get("control", {}), kept.round.get("control", {})
        self._c = recall("control", parameters, came, kept_c)
        self._c_i = recall("control", parameters, kept.client.get("control", {}))
        self._x = recall_references(parameters, sync, kept)
        self._steps = {name: _steps_since_fetched(name, sync, kept) for name in parameters}
        self._gradient = self._own_gradient() if solver.option == "I" else []
        self._correction = torch._foreach_sub(self._c, self._c_i)
        sgd = solver.model_copy(update={"name": "sgd"})
        self._optimizer = LocalOptimizer(parameters.values(), sgd, self._x)

    def step(self, batch: Batch) -> Tensor:
        """See `LocalSolver`."""
        loss = self._problem.backward(batch)
        parameters = self._problem.parameters.values()
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        torch._foreach_add_([p.grad for p in parameters if p.grad is not None], self._correction)
        self._optimizer.step()
        return loss

    def slots(self) -> Sent:
        """See `LocalSolver`."""
        change = torch._foreach_sub(self._new_c_i(), self._c_i)
        return {"control": self._of_due(named(self._problem.parameters, list(change)))}

    def for_round(self) -> Named:
        """See `LocalSolver`."""
        parameters = self._problem.parameters
        steps = {name: torch.tensor(self._taken(name)) for name in parameters}
        return {
            "control": named(parameters, self._c),
            "reference": named(parameters, self._x),
            "steps": steps,
        }

    def for_good(self) -> Named:
        """See `LocalSolver`."""
        parameters = self._problem.parameters
        renewed = self._of_due(named(parameters, self._new_c_i()))
        return {"control": named(parameters, self._c_i) | renewed}

    def _own_gradient(self) -> list[Tensor]:
        """The full gradient of the client's own objective, with its proximal term."""
        gradient = self._problem.full_gradient(self._solver.weight_decay)
        with torch.no_grad():
            away = torch._foreach_sub(list(self._problem.parameters.values()), self._x)
            torch._foreach_add_(gradient, away, alpha=self._solver.prox_mu)
        return gradient

    def _new_c_i(self) -> list[Tensor]:
        """``c_i+`` of every parameter, whether due or not."""
        if self._solver.option == "I":
            return self._gradient
        new = []
        for (name, y), x, c, c_i in zip(
            self._problem.parameters.items(), self._x, self._c, self._c_i, strict=True
        ):
            new.append(c_i - c + (x - y.detach()) / (self._taken(name) * self._solver.lr))
        return new

    def _of_due(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        if self._sync.up is None:
            return tensors
        due = self._sync.up.get("control", ())
        return {name: tensor for name, tensor in tensors.items() if name in due}

    def _taken(self, name: str) -> int:
        return self._steps[name] + self._optimizer.steps


def _steps_since_fetched(name: str, sync: Sync, kept: Kept) -> int:
    """Steps that a parameter had taken since it was last fetched, when the work of this sync began."""
    steps: Params = kept.round.get("steps", {})
    if sync.fetched is None or name in sync.fetched or name not in steps:
        return 0
    return int(steps[name])
