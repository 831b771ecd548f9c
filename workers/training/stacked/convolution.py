"""One grouped convolution for K clients: the clients are the groups, or the groups of groups."""

from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from workers.training.stacked.layer import Back, Layer, Layout, Tensors, add_gradient, by_torch, names_of
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

    def apply(h: Tensor, tensors: Tensors) -> Tensor:
        weight, *biases = (tensors[name] for name in names)
        return _convolved(module, h, weight, biases[0] if biases else None)

    def trace(h: Tensor, tensors: Tensors, wanted: bool) -> tuple[Tensor, Back]:
        weight, *biases = (tensors[name] for name in names)

        def back(gradient: Tensor) -> Tensor | None:
            for bias in biases:
                if bias.requires_grad:  # torch's own way takes as long as a convolution of one channel
                    add_gradient(bias, gradient.sum((0, 2, 3), dtype=bias.dtype).view_as(bias))
            if weight.requires_grad:
                add_gradient(weight, _to_weight(module, h, weight, gradient))
            return _way_back(_VALUES, module, h, weight, gradient).to(h.dtype) if wanted else None

        return apply(h, tensors), back

    window = window_of(module.kernel_size, module.stride, module.padding, module.dilation)
    by_hand = not isinstance(module.padding, str)
    return Layer(trace if by_hand else by_torch(apply), Layout.CHANNELS, names, window=window)


def _convolved(module: nn.Conv2d, h: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    groups = len(weight) * module.groups
    flat = None if bias is None else bias.flatten()
    # On one channel the kernels for bfloat16 take longer than those for float32, the way back twice.
    exact = weight.shape[2] == 1 and h.device.type == "cpu"
    with torch.autocast("cpu", enabled=False) if exact else nullcontext():
        values = h.to(weight.dtype) if exact else h
        kernels = weight.flatten(0, 1)
        return F.conv2d(values, kernels, flat, module.stride, module.padding, module.dilation, groups)


def _way_back(which: int, module: nn.Conv2d, h: Tensor, weight: Tensor, gradient: Tensor) -> Tensor:
    """The gradient of the values or of the weights, in the type of that of the result."""
    kernels, groups = weight.detach().flatten(0, 1), len(weight) * module.groups
    gradients: tuple[Tensor, ...] = torch.ops.aten.convolution_backward(
        gradient, h.to(gradient.dtype), kernels.to(gradient.dtype), None,
        module.stride, module.padding, module.dilation, False, (0, 0), groups,
        (which == _VALUES, which == _WEIGHTS, False),
    )  # fmt: skip
    return gradients[which]


def _to_weight(module: nn.Conv2d, h: Tensor, weight: Tensor, gradient: Tensor) -> Tensor:
    """The weights' gradient: for small images one product a client, which is faster there."""
    places = len(h) * gradient.shape[2] * gradient.shape[3]
    plain = module.groups == 1 and module.dilation == (1, 1) and module.padding == (0, 0)
    if not plain or places > _PLACES_PER_CHANNEL * weight.shape[1] or gradient.device.type != "cpu":
        return _way_back(_WEIGHTS, module, h, weight, gradient).view_as(weight)
    num_clients, out_channels, in_channels, height, width = weight.shape
    seen = h.to(gradient.dtype).permute(0, 2, 3, 1).reshape(len(h), *h.shape[2:], num_clients, in_channels)
    seen = seen.unfold(1, height, module.stride[0]).unfold(2, width, module.stride[1])
    seen = seen.permute(3, 0, 1, 2, 5, 6, 4).reshape(num_clients, places, -1)
    gradient = gradient.permute(0, 2, 3, 1).reshape(places, num_clients, out_channels)
    product = torch.bmm(gradient.permute(1, 2, 0), seen)
    return product.view(num_clients, out_channels, height, width, in_channels).permute(0, 1, 4, 2, 3)
