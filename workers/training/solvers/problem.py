"""A client's learning problem and a solver's half of it, as they see each other."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor, nn

from fedat_service.errors import TrainingError
from fedat_service.wire.settings import Slot
from workers.training.batches import PASS_BATCH, Batch, Batches
from workers.training.contexts import random_state, rounding, set_random_state

Named = Mapping[str, Mapping[str, Tensor]]
Sent = Mapping[Slot, Mapping[str, Tensor]]
"""Tensors by slot or purpose, and by the name of their parameter."""


class Problem:
    """A module with data and a loss: gradients for a solver that moves the module's parameters.

    Args:
        model: In training mode, with the start parameters.
        batches: The client's data.
        loss_fn: Mean loss of a batch.
        bfloat16: Whether layers compute in it.
    """

    def __init__(
        self,
        model: nn.Module,
        batches: Batches,
        loss_fn: Callable[[Tensor, Tensor], Tensor],
        *,
        bfloat16: bool = False,
    ) -> None:
        self._model = model
        self._bfloat16 = bfloat16
        self._batches = batches
        self._loss_fn = loss_fn
        self.parameters: Mapping[str, Tensor] = {
            name: p for name, p in model.named_parameters() if p.requires_grad
        }
        """What learns, by name; solvers move it in place."""
        model.zero_grad()

    def backward(self, batch: Batch) -> Tensor:
        """Add the gradient of the mean loss of `batch` to the parameters' gradients; return that loss."""
        loss = self._loss(*batch)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        with rounding(self._batches.device, self._bfloat16):
            scores = self._model(x)
        return self._loss_fn(scores.float() if self._bfloat16 else scores, y)

    def take_gradients(self) -> list[Tensor]:
        """Take the gradients away from the parameters; what had none has zeros."""
        gradients = [
            torch.zeros_like(p) if p.grad is None else p.grad.detach() for p in self.parameters.values()
        ]
        for parameter in self.parameters.values():
            parameter.grad = None
        return gradients

    def full_gradient(self, weight_decay: float = 0.0) -> list[Tensor]:
        """The gradient of the mean loss over all examples and of ``weight_decay/2 ||w||^2``, by parameter.

        Raises:
            TrainingError: If there is no example.
        """
        num_examples = 0
        with self.aside():
            for x, y in self._batches.in_order(PASS_BATCH):
                (self._loss(x, y) * len(y)).backward()  # type: ignore[no-untyped-call]
                num_examples += len(y)
        if num_examples == 0:
            raise TrainingError("a full gradient of no examples was asked for")
        gradients = self.take_gradients()
        torch._foreach_div_(gradients, num_examples)
        self.add_decay(gradients, weight_decay)
        return gradients

    @torch.no_grad()
    def add_decay(self, gradients: list[Tensor], weight_decay: float) -> None:
        """Add ``weight_decay w``, w being the parameters as they are now."""
        if weight_decay:
            torch._foreach_add_(gradients, list(self.parameters.values()), alpha=weight_decay)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Work that leaves buffers and torch's generators as they were, for the step that follows."""
        buffers = [(buffer, buffer.clone()) for buffer in self._model.buffers()]
        generators = random_state(self._batches.device)
        try:
            yield
        finally:
            set_random_state(generators, self._batches.device)
            for buffer, before in buffers:
                buffer.copy_(before)


class LocalSolver(Protocol):
    """The client's half of a solver, during the work of one sync.

    It is made from the problem, the settings, the sync, and what the client kept.
    """

    def step(self, batch: Batch) -> Tensor:
        """Take one step, and return the mean loss of `batch` before it."""
        ...

    def slots(self) -> Sent:
        """What goes up beside the weights."""
        ...

    def for_round(self) -> Named:
        """What the next sync of the round needs."""
        ...

    def for_good(self) -> Named:
        """What the client's next round needs too."""
        ...
