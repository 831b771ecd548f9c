"""The layers that K clients can run at once, each with parameters of its own, and exactly."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from workers.training.stacked.max_pool import max_pool_2x2
from workers.training.stacked.pooling import POOLING, call_of, window_of_pooling
from workers.training.stacked.windows import ELEMENT, Window, window_of

Tensors = Mapping[str, Tensor]
"""A `state_dict` of K clients: every tensor has K in front of its own shape."""

Back = Callable[[Tensor, bool], Tensor | None]
"""Sets the gradients of a layer's parameters by that of its result; gives that of its values, if asked."""


class Layout(Enum):
    """How the values of K clients with B examples each lie in one tensor."""

    CLIENTS = "(K, B, ...)"
    CHANNELS = "(B, K C, H, W), channels-last"


@dataclass(frozen=True, slots=True)
class Layer:
    """One step of a stacked forward.

    Args:
        apply: From the values before and the tensors of the stack to the values after, in the same layout.
        layout: The layout it works in; None if either will do.
        mixes_examples: Whether an example's result depends on the rest of its batch.
        learns: Whether its way back sets gradients.
        trace: As `apply`, with the way back, for values ``(K, B, ...)``; None if only torch knows the way.
        window: What one of its results looks at, in rows and columns; None if that may be all.
    """

    apply: Callable[[Tensor, Tensors], Tensor]
    layout: Layout | None
    mixes_examples: bool = False
    learns: bool = False
    trace: Callable[[Tensor, Tensors], tuple[Tensor, Back]] | None = None
    window: Window | None = None


def traced(layer: Layer, h: Tensor, tensors: Tensors) -> tuple[Tensor, Back]:
    """Apply a layer, and give its way back.

    By hand where that is known: torch's recording takes longer than the arithmetic of a small model. Else
    torch records this one layer, which has no parameters.
    """
    if layer.trace is not None:
        return layer.trace(h, tensors)
    with torch.enable_grad():
        start = h.detach().requires_grad_()
        # A copy, for it may write over its values.
        result = layer.apply(start.clone(), tensors)

    def back(gradient: Tensor, _: bool) -> Tensor | None:
        take_back(result, gradient)
        return start.grad

    return result.detach(), back


def take_back(values: Tensor, gradient: Tensor) -> None:
    """Have torch take a gradient back from recorded values.

    As that of a sum: given as it is, torch would import an algebra system to compare two shapes.
    """
    (values * gradient).sum().backward()  # type: ignore[no-untyped-call]


def to_channels(values: Tensor) -> Tensor:
    """From ``(K, B, C, H, W)`` to ``(B, K C, H, W)`` in channels-last, the fast format of a CPU."""
    grouped = values.transpose(0, 1).flatten(1, 2)
    return grouped.contiguous(memory_format=torch.channels_last)


def to_clients(values: Tensor, num_clients: int) -> Tensor:
    """From ``(B, K C, H, W)`` to ``(K, B, C, H, W)``."""
    num_examples, _, height, width = values.shape
    return values.reshape(num_examples, num_clients, -1, height, width).transpose(0, 1)


def module_layer(prefix: str, module: nn.Module) -> Layer | None:
    """The stacked form of a module whose tensors have names that start with `prefix`; None if not known.

    Subclasses are not known, for they may do anything.
    """
    kind = type(module)
    if kind is nn.ReLU:
        return _relu()
    if kind in _ELEMENTWISE_MODULES:
        return Layer(lambda h, _: module(h), None, window=ELEMENT)
    if (pooling := call_of(module)) is not None:
        return _pooling(pooling[0], (), pooling[1])
    build = _WITH_PARAMETERS.get(kind)
    return None if build is None else build(prefix, module)


def call_layer(function: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Layer | None:
    """The stacked form of ``function(values, *args, **kwargs)``; None if it is not known.

    Args:
        function: A function, or the name of a method of tensors.
        args: Constants after the values. In the shape of a `view`, None stands for the size of the batch.
        kwargs: More constants.
    """
    if function == "contiguous":
        return Layer(lambda h, _: h, None, window=ELEMENT)
    if function in _RELUS:
        return _relu()
    if function in _FLATTENINGS:
        return _flatten(*args, **kwargs)
    if function in _RESHAPES and not kwargs:
        return _reshape(args)
    if function in POOLING:
        return _pooling(function, args, kwargs)
    if function not in _ELEMENTWISE:
        return None
    call: Any = getattr(Tensor, function) if isinstance(function, str) else function
    return Layer(lambda h, _: call(h, *args, **kwargs), None, window=ELEMENT)


def _by_hand(
    trace: Callable[[Tensor, Tensors], tuple[Tensor, Back]],
    layout: Layout | None,
    *,
    learns: bool = False,
    window: Window | None = None,
) -> Layer:
    return Layer(lambda h, tensors: trace(h, tensors)[0], layout, learns=learns, trace=trace, window=window)


def _linear(prefix: str, _: nn.Linear) -> Layer:
    """``h W^T + b`` for K clients: from ``(K, B, F)`` to ``(K, B, G)``, with ``(K, G, F)`` and ``(K, G)``.

    By hand the gradient of ``W`` comes as ``W`` lies. Torch's own is transposed, and copied at every step,
    which takes as long as the rest: so it goes where a convolution follows, which is rare.
    """

    def trace(h: Tensor, tensors: Tensors) -> tuple[Tensor, Back]:
        weight, bias = tensors[f"{prefix}weight"], tensors.get(f"{prefix}bias")

        def back(gradient: Tensor, wanted: bool) -> Tensor | None:
            if weight.requires_grad:
                _add_gradient(weight, torch.bmm(gradient.transpose(1, 2), h.to(gradient.dtype)))
            if bias is not None and bias.requires_grad:
                _add_gradient(bias, gradient.sum(1))
            return torch.bmm(gradient, weight.detach().to(gradient.dtype)) if wanted else None

        if bias is None:
            return torch.bmm(h, weight.transpose(1, 2)), back
        return torch.baddbmm(bias.unsqueeze(1), h, weight.transpose(1, 2)), back

    return _by_hand(trace, Layout.CLIENTS, learns=True)


def _relu() -> Layer:
    def trace(h: Tensor, _: Tensors) -> tuple[Tensor, Back]:
        result = torch.relu(h)

        def back(gradient: Tensor, _: bool) -> Tensor:
            passed: Tensor = torch.ops.aten.threshold_backward(gradient, result, 0)
            return passed

        return result, back

    return _by_hand(trace, None, window=ELEMENT)


def _reshaped(reshape: Callable[[Tensor], Tensor]) -> Layer:
    def trace(h: Tensor, _: Tensors) -> tuple[Tensor, Back]:
        shape = h.shape
        return reshape(h), lambda gradient, _: gradient.reshape(shape)

    return _by_hand(trace, Layout.CLIENTS)


def _add_gradient(parameter: Tensor, gradient: Tensor) -> None:
    """As torch does: a layer may be used twice, and compute in another type."""
    gradient = gradient.to(parameter.dtype)
    parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient


def _conv2d(prefix: str, module: nn.Conv2d) -> Layer | None:
    """One grouped convolution: the clients are the groups, or the groups of groups."""
    if module.padding_mode != "zeros":
        return None

    def apply(h: Tensor, tensors: Tensors) -> Tensor:
        weight = tensors[f"{prefix}weight"]
        bias = tensors[f"{prefix}bias"].flatten() if f"{prefix}bias" in tensors else None
        groups = len(weight) * module.groups
        return F.conv2d(h, weight.flatten(0, 1), bias, module.stride, module.padding, module.dilation, groups)

    window = window_of(module.kernel_size, module.stride, module.padding, module.dilation)
    return Layer(apply, Layout.CHANNELS, window=window)


def _pooling(function: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Layer:
    call: Any = function
    window = window_of_pooling(function, args, kwargs)
    if window == Window((2, 2), (2, 2)) and function is not F.avg_pool2d:
        return Layer(lambda h, _: max_pool_2x2(h), Layout.CHANNELS, window=window)
    return Layer(lambda h, _: call(h, *args, **kwargs), Layout.CHANNELS, window=window)


def _batch_norm2d(prefix: str, module: nn.BatchNorm2d) -> Layer | None:
    """Channels are normalised one by one, so those of all clients are normalised together."""
    momentum = module.momentum
    if not (module.training and module.track_running_stats and momentum is not None):
        return None

    def apply(h: Tensor, tensors: Tensors) -> Tensor:
        tensors[f"{prefix}num_batches_tracked"].add_(1)
        mean, variance = (tensors[f"{prefix}running_{part}"].flatten() for part in ("mean", "var"))
        weight, bias = (
            tensors[f"{prefix}{part}"].flatten() if module.affine else None for part in ("weight", "bias")
        )
        return F.batch_norm(h, mean, variance, weight, bias, True, momentum, module.eps)

    return Layer(apply, Layout.CHANNELS, mixes_examples=True)


def _flatten(start_dim: int = 0, end_dim: int = -1) -> Layer | None:
    if (start_dim, end_dim) != (1, -1):
        return None
    return _reshaped(lambda h: h.flatten(2))


def _reshape(shape: tuple[Any, ...]) -> Layer | None:
    """A view that keeps the batch: its size, or -1, comes first."""
    if len(shape) == 1 and isinstance(shape[0], tuple | list):
        shape = tuple(shape[0])
    rest = shape[1:]
    if not rest or shape[0] not in (None, -1) or not all(isinstance(size, int) for size in rest):
        return None
    return _reshaped(lambda h: h.reshape(*h.shape[:2], *rest))


_WITH_PARAMETERS: dict[type, Callable[[str, Any], Layer | None]] = {
    nn.Linear: _linear,
    nn.Conv2d: _conv2d,
    nn.BatchNorm2d: _batch_norm2d,
    nn.Flatten: lambda _, module: _flatten(module.start_dim, module.end_dim),
}
_ELEMENTWISE_MODULES = frozenset({nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Tanh, nn.Identity})
_ELEMENTWISE: frozenset[object] = frozenset(
    {F.leaky_relu, F.elu, F.gelu, F.silu, F.sigmoid, F.tanh, torch.sigmoid, torch.tanh, "sigmoid", "tanh"}
)
_RELUS: frozenset[object] = frozenset({F.relu, torch.relu, "relu"})
_FLATTENINGS: frozenset[object] = frozenset({torch.flatten, "flatten"})
_RESHAPES: frozenset[object] = frozenset({torch.reshape, "reshape", "view"})
