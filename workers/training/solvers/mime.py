"""Mime: SGD with the server's momentum and a gradient that is corrected like SVRG's."""

import torch
from torch import Tensor

from fedat_service.wire.settings import Solver
from workers.training.batches import Batch
from workers.training.solvers.problem import Named, Problem, Sent
from workers.training.solvers.recall import named, recall
from workers.training.trainer import Kept, Sync


class Mime:
    """``y <- y - eta (beta m + (1-beta) (g_B(y) - g_B(x) + c))`` with the server's m and c, frozen.

    Karimireddy et al., "Mime" (NeurIPS 2021), Algorithm 1, with momentum as the base optimizer. A round
    begins with a sync of no work, at which the full `gradient` at x goes up; c, their mean over the
    cohort, then comes down as `control`, and m as `momentum`. Both gradients of a step see the same batch,
    the same buffers and the same dropout. Weight decay belongs to the client's objective. What never came
    down is zero.

    Raises:
        TrainingError: If what came down or was kept does not fit the model.
    """

    def __init__(self, problem: Problem, solver: Solver, sync: Sync, kept: Kept) -> None:
        self._problem = problem
        self._solver = solver
        self._gradient: list[Tensor] = []
        if sync.blocks == 0:
            self._gradient = problem.full_gradient(solver.weight_decay)
            return
        parameters = problem.parameters
        now = {name: parameter.numpy(force=True) for name, parameter in parameters.items()}
        sources = {
            "reference": (kept.round.get("reference", {}), now),
            "control": (sync.slots.get("control", {}), kept.round.get("control", {})),
            "momentum": (sync.slots.get("momentum", {}), kept.round.get("momentum", {})),
        }
        self._x, self._c, self._m = (recall(what, parameters, *given) for what, given in sources.items())

    def step(self, batch: Batch) -> Tensor:
        """See `LocalSolver`."""
        at_x = self._gradient_at_x(batch)
        loss, direction = self._gradient_of(batch)
        beta, lr = self._solver.momentum, self._solver.lr
        with torch.no_grad():
            torch._foreach_sub_(direction, at_x)
            torch._foreach_add_(direction, self._c)
            torch._foreach_mul_(direction, 1 - beta)
            torch._foreach_add_(direction, self._m, alpha=beta)
            torch._foreach_add_(list(self._problem.parameters.values()), direction, alpha=-lr)
        return loss

    def slots(self) -> Sent:
        """See `LocalSolver`."""
        return {"gradient": named(self._problem.parameters, self._gradient)} if self._gradient else {}

    def for_round(self) -> Named:
        """See `LocalSolver`."""
        if self._gradient:
            return {}
        kept = {"reference": self._x, "control": self._c, "momentum": self._m}
        return {what: named(self._problem.parameters, tensors) for what, tensors in kept.items()}

    def for_good(self) -> Named:
        """See `LocalSolver`."""
        return {}

    def _gradient_at_x(self, batch: Batch) -> list[Tensor]:
        parameters = self._problem.parameters.values()
        y = [parameter.data for parameter in parameters]
        with self._problem.aside():
            for parameter, x in zip(parameters, self._x, strict=True):
                parameter.data = x
            _, gradient = self._gradient_of(batch)
            for parameter, values in zip(parameters, y, strict=True):
                parameter.data = values
        return gradient

    def _gradient_of(self, batch: Batch) -> tuple[Tensor, list[Tensor]]:
        """Loss and gradient of a batch where the parameters are now."""
        loss = self._problem.backward(batch)
        gradient = self._problem.take_gradients()
        self._problem.add_decay(gradient, self._solver.weight_decay)
        return loss, gradient
