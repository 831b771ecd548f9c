"""What a layer of a stack is: values of K clients forward, and gradients back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor, nn

from workers.training.stacked.windows import Window

Tensors = Mapping[str, Tensor]
"""A `state_dict` of K clients: every tensor has K in front of its own shape."""

Back = Callable[[Tensor], Tensor | None]
"""From the gradient of a result: sets those of parameters, gives that of the values before in their type."""

Trace = Callable[[Tensor, Tensors, bool], tuple[Tensor, Back]]
"""From the values before and the tensors of the stack to the values after and the way back.

It is told whether the gradient of the values before is wanted, and called where torch records nothing.
"""

Pooled = Callable[[Tensor, Tensors, bool], tuple[Tensor, Back] | None]
"""As a `Trace`, but with 2x2 max-pooling, and with ReLU if that is told; None for values it is not known for.

It takes values by clients, gives them by channels, and its way back gives None.
"""


class Layout(Enum):
    """How the values of K clients with B examples each lie in one tensor."""

    CLIENTS = "(K, B, ...)"
    CHANNELS = "(B, K C, H, W), channels-last"


@dataclass(frozen=True, slots=True)
class Layer:
    """One step of a stacked forward.

    Args:
        trace: What it does; values before and after lie in the same layout, if it does not say otherwise.
        layout: The one it works in; None if that does not matter.
        parameters: Names of the tensors that its way back may set gradients of.
        mixes_examples: Whether an example's result depends on the rest of its batch.
        window: What one of its results looks at, in rows and columns; None if that may be all.
        gives: The layout of the values after, if that is another one.
        pooled: What it does at once with pooling behind it; None if one by one is faster.
    """

    trace: Trace
    layout: Layout | None
    parameters: tuple[str, ...] = ()
    mixes_examples: bool = False
    window: Window | None = None
    gives: Layout | None = None
    pooled: Pooled | None = None

    def learns(self, tensors: Tensors) -> bool:
        """Whether its way back sets gradients."""
        return any(tensors[name].requires_grad for name in self.parameters)


def chained(layers: Sequence[Layer]) -> Trace:
    """One layer after the other."""

    def trace(h: Tensor, tensors: Tensors, wanted: bool) -> tuple[Tensor, Back]:
        backs: list[Back] = []
        for layer in layers:
            h, back = layer.trace(h, tensors, wanted)
            wanted = wanted or layer.learns(tensors)
            if wanted:
                backs.append(back)

        def take(gradient: Tensor) -> Tensor | None:
            before: Tensor | None = gradient
            while backs and before is not None:
                # Each goes with its activations: none may be alive beside the next batch's.
                before = backs.pop()(before)
            return before

        return h, take

    return trace


def by_torch(apply: Callable[[Tensor, Tensors], Tensor]) -> Trace:
    """Have torch record one layer, which must not write over its values.

    That takes longer than the arithmetic of a small model: what is used much has its way back by hand.
    """

    def trace(h: Tensor, tensors: Tensors, wanted: bool) -> tuple[Tensor, Back]:
        with torch.enable_grad():
            start = h.detach().requires_grad_(wanted)
            result = apply(start, tensors)

        def back(gradient: Tensor) -> Tensor | None:
            # As that of a sum: given as it is, torch would import an algebra system to compare two shapes.
            (result * gradient).sum().backward()  # type: ignore[no-untyped-call]
            return start.grad

        return result.detach(), back

    return trace


def names_of(prefix: str, module: nn.Module) -> tuple[str, ...]:
    """What the parameters of a module in another are called: first its weight, then its bias, if any."""
    return tuple(f"{prefix}{name}" for name, _ in module.named_parameters())


def add_gradient(parameter: Tensor, gradient: Tensor) -> None:
    """As torch does: a layer may be used twice, and compute in another type."""
    gradient = gradient.to(parameter.dtype)
    parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
