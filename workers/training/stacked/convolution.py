"""One grouped convolution for K clients: the clients are the groups, or the groups of groups."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from workers.training.contexts import as_they_are, type_of_layers
from workers.training.stacked.layer import (
    Back,
    Layer,
    Layout,
    Pooled,
    Tensors,
    Trace,
    add_gradient,
    by_torch,
    names_of,
)
from workers.training.stacked.pooled_convolution import MOST_TAPS, pooled_conv2d
from workers.training.stacked.windows import window_of

_VALUES, _WEIGHTS = 0, 1
"""Places of their gradients in what torch's way back gives."""
_PLACES_PER_CHANNEL = 2
"""With no more results for each output channel, laying out what each saw costs less than it gains."""


def conv2d(prefix: str, module: nn.Conv2d) -> Layer | None:
    """``(B, K C, H, W)`` convolved with ``(K, O, C / groups, h, w)``, plus ``(K, O)``; None if not known."""
    if module.padding_mode != "zeros":
        return None
    names = names_of(prefix, module)
    window = window_of(module.kernel_size, module.stride, module.padding, module.dilation)
    if isinstance(module.padding, str):

        def apply(h: Tensor, tensors: Tensors) -> Tensor:
            weight, *biases = (tensors[name] for name in names)
            return _convolved(module, *_rounded(h, weight), biases)

        return Layer(by_torch(apply), Layout.CHANNELS, names, window=window)
    rows, columns = module.padding
    pooled = _pooled(names, (columns, columns, rows, rows)) if _is_little_work(module) else None
    return Layer(_by_hand(module, names), Layout.CHANNELS, names, window=window, pooled=pooled)


def _by_hand(module: nn.Conv2d, names: tuple[str, ...]) -> Trace:
    def trace(h: Tensor, tensors: Tensors, wanted: bool) -> tuple[Tensor, Back]:
        weight, *biases = (tensors[name] for name in names)
        given, (values, kernels) = h.dtype, _rounded(h, weight)

        def back(gradient: Tensor) -> Tensor | None:
            for bias in biases:
                if bias.requires_grad:  # torch's own way takes as long as a convolution of one channel
                    add_gradient(bias, gradient.sum((0, 2, 3)).view_as(bias))
            if weight.requires_grad:
                add_gradient(weight, _to_kernels(module, values, kernels, gradient).view_as(weight))
            return _way_back(_VALUES, module, values, kernels, gradient).to(given) if wanted else None

        return _convolved(module, values, kernels, biases), back

    return trace


def _is_little_work(module: nn.Conv2d) -> bool:
    """Whether writing its results takes longer than their arithmetic: then it had better pool at once."""
    rows, columns = module.kernel_size
    plain = module.stride == module.dilation == (1, 1)
    return module.in_channels == 1 and plain and rows * columns <= MOST_TAPS


def _pooled(names: tuple[str, ...], padding: tuple[int, ...]) -> Pooled:
    def pooled(h: Tensor, tensors: Tensors, relu: bool) -> tuple[Tensor, Back] | None:
        weight, *biases = (tensors[name] for name in names)
        known = h.device.type == "cpu" and h.dtype is weight.dtype is torch.float32
        if not known or h.shape[2] != 1:
            return None
        padded = F.pad(h, padding) if any(padding) else h
        if any(n <= extent for n, extent in zip(padded.shape[3:], weight.shape[3:], strict=True)):
            return None
        return pooled_conv2d(padded, weight, biases[0] if biases else None, relu)

    return pooled


def _rounded(h: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The values and the kernels ``(K, O, C / groups, h, w)``, in the type in which they are convolved."""
    # On one channel the kernels for bfloat16 take longer than those for float32, the way back twice.
    exact = weight.shape[2] == 1 and h.device.type == "cpu"
    dtype = weight.dtype if exact else type_of_layers(weight)
    return h.to(dtype), weight.to(dtype)


def _convolved(module: nn.Conv2d, values: Tensor, kernels: Tensor, biases: Sequence[Tensor]) -> Tensor:
    flat = biases[0].flatten().to(values.dtype) if biases else None
    groups = len(kernels) * module.groups
    with as_they_are(values.device):
        return F.conv2d(
            values, kernels.flatten(0, 1), flat, module.stride, module.padding, module.dilation, groups
        )


def _way_back(which: int, module: nn.Conv2d, values: Tensor, kernels: Tensor, gradient: Tensor) -> Tensor:
    """The gradient of the values or of the kernels, these as ``(K O, C / groups, h, w)``, in their type."""
    gradients: tuple[Tensor, ...] = torch.ops.aten.convolution_backward(
        gradient, values, kernels.detach().flatten(0, 1), None,
        module.stride, module.padding, module.dilation, False, (0, 0), len(kernels) * module.groups,
        (which == _VALUES, which == _WEIGHTS, False),
    )  # fmt: skip
    return gradients[which]


def _to_kernels(module: nn.Conv2d, values: Tensor, kernels: Tensor, gradient: Tensor) -> Tensor:
    """The kernels' gradient: for small images one product a client, which is faster there."""
    places = len(values) * gradient.shape[2] * gradient.shape[3]
    plain = module.groups == 1 and module.dilation == (1, 1) and module.padding == (0, 0)
    if not plain or places > _PLACES_PER_CHANNEL * kernels.shape[1] or gradient.device.type != "cpu":
        return _way_back(_WEIGHTS, module, values, kernels, gradient)
    num_clients, out_channels, in_channels, height, width = kernels.shape
    seen = values.permute(0, 2, 3, 1).reshape(len(values), *values.shape[2:], num_clients, in_channels)
    seen = seen.unfold(1, height, module.stride[0]).unfold(2, width, module.stride[1])
    seen = seen.permute(3, 0, 1, 2, 5, 6, 4).reshape(num_clients, places, -1)
    gradient = gradient.permute(0, 2, 3, 1).reshape(places, num_clients, out_channels)
    product = torch.bmm(gradient.permute(1, 2, 0), seen)
    return product.view(num_clients, out_channels, height, width, in_channels).permute(0, 1, 4, 2, 3)
