"""The local optimizer of one round: proximal term, then SGD, momentum, Adam or AdamW."""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from fedat_service.wire.settings import Solver


class LocalOptimizer:
    """Moves parameters by their gradients, with state that begins with the round (FedAT clients keep none).

    SGD and momentum are torch's. Adam and AdamW are torch's fused kernels made to follow Keras, which the
    papers used: ``w -= lr_t m / (sqrt(v) + eps)`` with ``lr_t = lr sqrt(1 - b2^t) / (1 - b1^t)``. torch
    divides ``sqrt(v)`` by ``sqrt(1 - b2^t)`` before it adds eps; giving it ``eps / sqrt(1 - b2^t)`` in step
    t is the same equation.

    Args:
        parameters: What moves. Their values now are the centre of the proximal term.
        solver: Which optimizer, with its settings.
    """

    def __init__(self, parameters: Iterable[Tensor], solver: Solver) -> None:
        self._parameters = list(parameters)
        self._centre = [p.detach().clone() for p in self._parameters] if solver.prox_mu else []
        self._solver = solver
        self._steps = 0
        self._optimizer = _torch_optimizer(self._parameters, solver)
        self._optimizer.zero_grad()

    def step(self) -> None:
        """Take one step by the gradients of the parameters, and clear them."""
        solver = self._solver
        if solver.prox_mu:
            add_proximal_gradient(self._parameters, self._centre, solver.prox_mu)
        if solver.name in ("adam", "adamw"):
            self._steps += 1
            for group in self._optimizer.param_groups:
                group["eps"] = solver.eps / math.sqrt(1 - solver.beta2**self._steps)
        self._optimizer.step()
        self._optimizer.zero_grad()


@torch.no_grad()
def add_proximal_gradient(parameters: Sequence[Tensor], centre: Sequence[Tensor], mu: float) -> None:
    """Add ``mu (w_k - w)``, the gradient of ``mu/2 ||w_k - w||^2``, to the gradients of `parameters`.

    Li et al., "FedProx" (MLSys 2020), eq. 2; FedAT eq. 5 with lambda for mu. Parameters without a gradient
    stay where they are, so they are at the centre and the term is zero.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    pulled = [(p, c) for p, c in zip(parameters, centre, strict=True) if p.grad is not None]
    away = torch._foreach_sub([p for p, _ in pulled], [c for _, c in pulled])
    torch._foreach_add_(gradients, away, alpha=mu)


def _torch_optimizer(parameters: list[Tensor], solver: Solver) -> torch.optim.Optimizer:
    lr, weight_decay = solver.lr, solver.weight_decay
    if solver.name in ("sgd", "momentum"):
        momentum = solver.momentum if solver.name == "momentum" else 0.0
        return torch.optim.SGD(parameters, lr, momentum, weight_decay=weight_decay, fused=True)
    adam = torch.optim.Adam if solver.name == "adam" else torch.optim.AdamW
    betas = (solver.beta1, solver.beta2)
    return adam(parameters, lr, betas, solver.eps, weight_decay=weight_decay, fused=True)
