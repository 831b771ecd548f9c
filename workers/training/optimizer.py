"""The local optimizers without a server half: proximal term, then SGD, momentum, Adam or AdamW."""

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from fedat_service.errors import ConfigError
from fedat_service.wire.settings import Solver

PLAIN = ("sgd", "momentum", "adam", "adamw")
"""Names of the solvers that `LocalOptimizer` is."""

State = Mapping[str, Mapping[int, Tensor]]
"""An optimizer's tensors, by name and number of their parameter."""


class LocalOptimizer:
    """Moves parameters by their gradients, with state that begins with it (FedAT clients keep none).

    SGD and momentum are torch's. Adam and AdamW are torch's fused kernels made to follow Keras, which the
    papers used: ``w -= lr_t m / (sqrt(v) + eps)`` with ``lr_t = lr sqrt(1 - b2^t) / (1 - b1^t)``. torch
    divides ``sqrt(v)`` by ``sqrt(1 - b2^t)`` before it adds eps; giving it ``eps / sqrt(1 - b2^t)`` in step
    t is the same equation.

    Args:
        parameters: What moves.
        solver: Which optimizer, with its settings.
        centre: Where the proximal term pulls them to; None for their values now.

    Raises:
        ConfigError: If the solver is another one.
    """

    def __init__(
        self, parameters: Iterable[Tensor], solver: Solver, centre: Sequence[Tensor] | None = None
    ) -> None:
        self._parameters = list(parameters)
        if centre is None and solver.prox_mu:
            centre = [p.detach().clone() for p in self._parameters]
        self._centre = centre or ()
        self._solver = solver
        self.steps = 0
        self._optimizer = _torch_optimizer(self._parameters, solver)
        self._optimizer.zero_grad()

    def step(self) -> None:
        """Take one step by the gradients of the parameters, and clear them."""
        solver = self._solver
        if solver.prox_mu:
            add_proximal_gradient(self._parameters, self._centre, solver.prox_mu)
        self.steps += 1
        if solver.name in ("adam", "adamw"):
            for group in self._optimizer.param_groups:
                group["eps"] = solver.eps / math.sqrt(1 - solver.beta2**self.steps)
        self._optimizer.step()
        self._optimizer.zero_grad()

    def state(self) -> State:
        """The tensors that the next step depends on; a parameter that had no gradient yet has none."""
        state: dict[str, dict[int, Tensor]] = {}
        for i, parameter in enumerate(self._parameters):
            for name, tensor in self._optimizer.state.get(parameter, {}).items():
                state.setdefault(name, {})[i] = tensor
        return state

    def resume(self, state: State, steps: int) -> None:
        """Go on as the optimizer that had `state` after `steps` steps would."""
        self.steps = steps
        for name, tensors in state.items():
            for i, tensor in tensors.items():
                self._optimizer.state[self._parameters[i]][name] = tensor


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
        sgd = torch.optim.SGD(parameters, lr, momentum, weight_decay=weight_decay, fused=True)
        if momentum:
            # Zeros are what the first step makes them; the fused kernel fails if only some are there yet.
            for parameter in parameters:
                sgd.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        return sgd
    if solver.name not in PLAIN:
        raise ConfigError(f"solver {solver.name!r} is none of {', '.join(PLAIN)}")
    adam = torch.optim.Adam if solver.name == "adam" else torch.optim.AdamW
    betas = (solver.beta1, solver.beta2)
    return adam(parameters, lr, betas, solver.eps, weight_decay=weight_decay, fused=True)
