"""The layers that K clients can run at once, each with parameters of its own, and exactly."""

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from workers.training.contexts import as_they_are, type_of_layers
from workers.training.stacked.convolution import conv2d
from workers.training.stacked.layer import Back, Layer, Layout, Tensors, add_gradient, by_torch, names_of
from workers.training.stacked.max_pool import max_pool_2x2
from workers.training.stacked.pooling import POOLING, call_of, window_of_pooling
from workers.training.stacked.windows import ELEMENT, Window

RELU: Final = Layer(lambda h, _, _wanted: _relu(h), None, window=ELEMENT)
MAX_POOL_2X2: Final = Layer(
    lambda h, _, _wanted: max_pool_2x2(h), Layout.CHANNELS, window=Window((2, 2), (2, 2))
)

_FEW_WEIGHTS = 40_000
"""With no more of them a client, rounding a linear layer takes longer than it gains in batches of ten."""


def module_layer(prefix: str, module: nn.Module) -> Layer | None:
    """The stacked form of a module whose tensors have names that start with `prefix`; None if not known.

    Subclasses are not known, for they may do anything.
    """
    kind = type(module)
    if kind is nn.ReLU:
        return RELU
    if kind in _ELEMENTWISE_MODULES:
        return _elementwise(module)
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
        return Layer(lambda h, _, _wanted: (h, lambda gradient: gradient), None, window=ELEMENT)
    if function in _RELUS:
        return RELU
    if function in _FLATTENINGS:
        return _flatten(*args, **kwargs)
    if function in _RESHAPES and not kwargs:
        return _reshape(args)
    if function in POOLING:
        return _pooling(function, args, kwargs)
    if function not in _ELEMENTWISE:
        return None
    call: Any = getattr(Tensor, function) if isinstance(function, str) else function
    return _elementwise(lambda h: call(h, *args, **kwargs))


def _elementwise(function: Callable[[Tensor], Tensor]) -> Layer:
    # A copy, for it may write over its values.
    return Layer(by_torch(lambda h, _: function(h.clone())), None, window=ELEMENT)


def _linear(prefix: str, module: nn.Linear) -> Layer:
    """``h W^T + b`` for K clients: from ``(K, B, F)`` to ``(K, B, G)``, with ``(K, G, F)`` and ``(K, G)``.

    By hand the gradient of ``W`` comes as ``W`` lies. Torch's own is transposed, and copied at every step,
    which takes as long as the rest.
    """
    names = names_of(prefix, module)

    def trace(h: Tensor, tensors: Tensors, wanted: bool) -> tuple[Tensor, Back]:
        weight, *biases = (tensors[name] for name in names)
        # Not by the size of the batch: that depends on who else is in the stack.
        exact = h.device.type == "cpu" and weight[0].numel() <= _FEW_WEIGHTS
        dtype, given = weight.dtype if exact else type_of_layers(weight), h.dtype
        values, rounded = h.to(dtype), weight.to(dtype)

        def back(gradient: Tensor) -> Tensor | None:
            if weight.requires_grad:
                add_gradient(weight, torch.bmm(gradient.transpose(1, 2), values))
            for bias in biases:
                if bias.requires_grad:
                    add_gradient(bias, gradient.sum(1))
            return torch.bmm(gradient, rounded.detach()).to(given) if wanted else None

        with as_they_are(h.device):
            if not biases:
                return torch.bmm(values, rounded.transpose(1, 2)), back
            return torch.baddbmm(biases[0].unsqueeze(1).to(dtype), values, rounded.transpose(1, 2)), back

    return Layer(trace, Layout.CLIENTS, names)


def _relu(h: Tensor) -> tuple[Tensor, Back]:
    result = torch.relu(h)

    def back(gradient: Tensor) -> Tensor:
        passed: Tensor = torch.ops.aten.threshold_backward(gradient, result, 0)
        return passed

    return result, back


def _reshaped(reshape: Callable[[Tensor], Tensor]) -> Layer:
    def trace(h: Tensor, _: Tensors, _wanted: bool) -> tuple[Tensor, Back]:
        shape = h.shape
        return reshape(h), lambda gradient: gradient.reshape(shape)

    return Layer(trace, Layout.CLIENTS)


def _pooling(function: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Layer:
    call: Any = function
    window = window_of_pooling(function, args, kwargs)
    if window == MAX_POOL_2X2.window and function is not F.avg_pool2d:
        return MAX_POOL_2X2
    return Layer(by_torch(lambda h, _: call(h, *args, **kwargs)), Layout.CHANNELS, window=window)


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

    return Layer(by_torch(apply), Layout.CHANNELS, names_of(prefix, module), mixes_examples=True)


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
    nn.Conv2d: conv2d,
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
