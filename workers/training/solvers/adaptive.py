"""Fed-AMS, Fed-LAMB, Mime-AMS and Mime-LAMB: local AMSGrad with a second moment that all clients share."""

import torch
from torch import Tensor

from fedat_service.wire.settings import Slot, Solver
from workers.training.batches import Batch
from workers.training.solvers.problem import Named, Problem, Sent
from workers.training.solvers.recall import named, recall
from workers.training.trainer import Kept, Sync

_LAYERWISE = ("fedlamb", "mimelamb")
_SENDS_MOMENT = ("fedams", "fedlamb")


class Adaptive:
    """``m <- b1 m + (1-b1) g``, ``psi = m / sqrt(vhat)``, and a step against ``u = psi + lambda theta``.

    Karimi et al., "Layer-wise and Dimension-wise Locally Adaptive Federated Learning" (Fed-LAMB),
    Algorithm 1. vhat is the server's, frozen for the round; before it ever came down it is eps, as in the
    paper's first round, and there is no other eps. m goes on from round to round. The LAMB solvers move
    every layer by ``alpha ||theta_l|| u_l / ||u_l||`` (line 13), the AMS solvers by ``alpha u``.

    Fed-AMS and Fed-LAMB send their `second_moment` ``v <- b2 v + (1-b2) g^2``, which starts the round at
    vhat (line 11, its time index mended). The Mime solvers send the full `gradient` where the round began
    (line 17).

    Raises:
        TrainingError: If what came down or was kept does not fit the model.
    """

    def __init__(self, problem: Problem, solver: Solver, sync: Sync, kept: Kept) -> None:
        self._problem = problem
        self._solver = solver
        parameters = problem.parameters
        self._m = recall("momentum", parameters, kept.client.get("momentum", {}))
        came, kept_vhat = sync.slots.get("second_moment", {}), kept.round.get("vhat", {})
        self._vhat = recall("second_moment", parameters, came, kept_vhat, default=solver.eps)
        # It starts at eps and never falls: what is less was rounded on its way.
        torch._foreach_clamp_min_(self._vhat, solver.eps)
        self._root = list(torch._foreach_sqrt(self._vhat))
        self._v: list[Tensor] = []
        self._gradient: list[Tensor] = []
        if solver.name in _SENDS_MOMENT:
            kept_v = kept.round.get("second_moment", {})
            own = recall("second_moment", parameters, kept_v)
            self._v = own if kept_v else [vhat.clone() for vhat in self._vhat]
        elif "gradient" in kept.round:
            self._gradient = recall("gradient", parameters, kept.round["gradient"])
        elif not sync.last or sync.up is None or "gradient" in sync.up:
            self._gradient = problem.full_gradient()
        self._layers = _layers(list(parameters))

    @torch.no_grad()
    def step(self, batch: Batch) -> Tensor:
        """See `LocalSolver`."""
        solver = self._solver
        with torch.enable_grad():
            loss = self._problem.backward(batch)
        g = self._problem.take_gradients()
        theta = list(self._problem.parameters.values())
        torch._foreach_mul_(self._m, solver.beta1)
        torch._foreach_add_(self._m, g, alpha=1 - solver.beta1)
        if self._v:
            torch._foreach_mul_(self._v, solver.beta2)
            torch._foreach_addcmul_(self._v, g, g, 1 - solver.beta2)
        u = torch._foreach_div(self._m, self._root)
        if solver.weight_decay:
            torch._foreach_add_(u, theta, alpha=solver.weight_decay)
        if solver.name in _LAYERWISE:
            torch._foreach_mul_(u, self._ratios(theta, u))
        torch._foreach_add_(theta, u, alpha=-solver.lr)
        return loss

    def slots(self) -> Sent:
        """See `LocalSolver`."""
        sent: dict[Slot, list[Tensor]] = {"second_moment": self._v, "gradient": self._gradient}
        return {slot: named(self._problem.parameters, tensors) for slot, tensors in sent.items() if tensors}

    def for_round(self) -> Named:
        """See `LocalSolver`."""
        return self._named(vhat=self._vhat, second_moment=self._v, gradient=self._gradient)

    def for_good(self) -> Named:
        """See `LocalSolver`."""
        return self._named(momentum=self._m)

    def _named(self, **lists: list[Tensor]) -> Named:
        return {what: named(self._problem.parameters, tensors) for what, tensors in lists.items() if tensors}

    def _ratios(self, theta: list[Tensor], u: tuple[Tensor, ...]) -> list[float]:
        """``||theta_l|| / ||u_l||`` of each tensor's layer; 1 if either is 0.

        A layer of zeros, such as a bias that starts there, would else stay so for ever.
        """
        norms = self._layer_norms(theta), self._layer_norms(list(u))
        ratios = torch.where((norms[0] > 0) & (norms[1] > 0), norms[0] / norms[1], 1.0)
        return list(ratios[self._layers].tolist())

    def _layer_norms(self, tensors: list[Tensor]) -> Tensor:
        # On the CPU, where the ratios are wanted as numbers.
        squares = torch.stack(torch._foreach_norm(tensors)).cpu().double().square()
        sums = torch.zeros(len(tensors), dtype=torch.float64)
        return sums.index_add_(0, self._layers, squares).sqrt()


def _layers(names: list[str]) -> Tensor:
    """The number of each tensor's layer: weight and bias, whatever stands before the last dot, are one."""
    numbers: dict[str, int] = {}
    return torch.tensor([numbers.setdefault(name.rpartition(".")[0] or name, len(numbers)) for name in names])
