"""The local optimizers without a server half: proximal term, then SGD, momentum, Adam or AdamW."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedat_service.errors import ConfigError
from fedat_service.wire.settings import Solver
from workers.training.adam import adam_by_torch, adam_on_cpu


def _count(parameter: Tensor) -> Tensor:
    """How many steps a parameter has taken: one may get its first gradient late."""
    return torch.zeros((), device=parameter.device)


_MOMENTS = (("exp_avg", torch.zeros_like), ("exp_avg_sq", torch.zeros_like), ("step", _count))
_STATES: Mapping[str, tuple[tuple[str, Callable[[Tensor], Tensor]], ...]] = {
    "sgd": (),
    "momentum": (("momentum_buffer", torch.zeros_like),),
    "adam": _MOMENTS,
    "adamw": _MOMENTS,
}
"""What each solver keeps of a parameter, as torch calls it, and how that begins."""

PLAIN = tuple(_STATES)
"""Names of the solvers that `LocalOptimizer` is."""

_ADAMS = ("adam", "adamw")

State = Mapping[str, Sequence[Tensor]]
"""An optimizer's tensors, by name, in the order of its parameters."""


class LocalOptimizer:
    """Moves parameters by their gradients, with state that begins with it (FedAT clients keep none).

    All are kernels, without torch's optimizers around them, which take several times as long for a small
    model: for Adam and AdamW on a CPU our own (`adam_on_cpu`), else torch's fused ones.

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
        if solver.name not in PLAIN:
            raise ConfigError(f"solver {solver.name!r} is none of {', '.join(PLAIN)}")
        self._parameters = list(parameters)
        if centre is None and solver.prox_mu:
            centre = [p.detach().clone() for p in self._parameters]
        self._centre = centre or ()
        self._solver = solver
        self._in_one_pass = solver.name in _ADAMS and _on_cpu(self._parameters)
        self._keep({name: [make(p) for p in self._parameters] for name, make in _STATES[solver.name]})
        self.steps = 0
        self._clear()

    @torch.no_grad()
    def step(self) -> None:
        """Take one step by the gradients of the parameters, and clear them; who has none stays."""
        self.steps += 1
        if moved := [i for i, p in enumerate(self._parameters) if p.grad is not None]:
            self._move(moved)
        self._clear()

    def _move(self, moved: Sequence[int]) -> None:
        solver = self._solver
        if solver.prox_mu:
            add_proximal_gradient(self._parameters, self._centre, solver.prox_mu)
        parameters = [self._parameters[i] for i in moved]
        gradients = [_in_memory(_lying_as(p, p.grad)) for p in parameters if p.grad is not None]
        state = [[tensors[i] for i in moved] for tensors in self._views]
        parameters = [_in_memory(p) for p in parameters]
        if self._in_one_pass:
            adam_on_cpu(parameters, gradients, state, solver)
        elif solver.name in _ADAMS:
            adam_by_torch(parameters, gradients, state, solver, self.steps)
        else:
            _sgd(parameters, gradients, state, solver)

    def state(self) -> State:
        """The tensors that the next step depends on."""
        return self._state

    def resume(self, state: State, steps: int) -> None:
        """Go on as the optimizer that had `state` after `steps` steps would."""
        self.steps = steps
        self._keep({name: list(map(_lying_as, self._parameters, state[name])) for name in self._state})

    def _keep(self, state: State) -> None:
        self._state = state
        views = [list(map(_in_memory, tensors)) for tensors in state.values()]
        if self._in_one_pass:
            self._views: list[list[Any]] = [[view.numpy() for view in part] for part in views]
        else:
            self._views = views

    def _clear(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None


def _on_cpu(tensors: Iterable[Tensor]) -> bool:
    return all(tensor.device.type == "cpu" for tensor in tensors)


def _in_memory(tensor: Tensor) -> Tensor:
    """A view with the dimensions in the order in which they lie in memory.

    torch's fused kernels go through memory: what is not contiguous they copy, and do not use the copy.
    """
    if tensor.is_contiguous():
        return tensor
    strides = tensor.stride()
    return tensor.permute(sorted(range(tensor.dim()), key=lambda d: -strides[d]))


def _lying_as(parameter: Tensor, tensor: Tensor) -> Tensor:
    """What belongs to a parameter, as that lies: torch's fused kernels do not look, and would mix values up.

    A counter lies in no order.
    """
    if tensor.stride() == parameter.stride() or tensor.shape != parameter.shape:
        return tensor
    return torch.empty_like(parameter, dtype=tensor.dtype, requires_grad=False).copy_(tensor)


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


def _sgd(
    parameters: list[Tensor], gradients: list[Tensor], state: Sequence[list[Tensor]], solver: Solver
) -> None:
    """``b = beta b + g; w -= lr b``, or ``w -= lr g`` without momentum: a GPU then takes no b."""
    momentum = solver.momentum if state else 0.0
    torch._fused_sgd_(
        parameters,
        gradients,
        *(state if momentum else [[]]),
        weight_decay=solver.weight_decay,
        momentum=momentum,
        lr=solver.lr,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=False,
    )
