"""One grouped convolution for K clients: the clients are the groups, or the groups of groups."""

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from workers.training.stacked.layer import Back, Layer, Layout, Tensors, add_gradient, by_torch, names_of
from workers.training.stacked.windows import window_of

_FEW_PLACES = 2
"""Times as many as output channels: so few that laying out what each saw costs less than it gains."""


def conv2d(prefix: str, module: nn.Conv2d) -> Layer | None:
    """``(B, K C, H, W)`` convolved with ``(K, O, C / groups, h, w)``, plus ``(K, O)``; None if not known."""
    if module.padding_mode != "zeros":
        return None
    names = names_of(prefix, module)

    def apply(h: Tensor, tensors: Tensors) -> Tensor:
        weight, *biases = (tensors[name] for name in names)
        bias = biases[0].flatten() if biases else None
        groups = len(weight) * module.groups
        # On one channel the kernels for bfloat16 take longer than those for float32, the way back twice.
        exact = weight.shape[2] == 1 and h.device.type == "cpu"
        with torch.autocast("cpu", enabled=False) if exact else nullcontext():
            return F.conv2d(
                h, weight.flatten(0, 1), bias, module.stride, module.padding, module.dilation, groups
            )

    def trace(h: Tensor, tensors: Tensors) -> tuple[Tensor, Back]:
        weight, *biases = (tensors[name] for name in names)

        def back(gradient: Tensor, wanted: bool) -> Tensor | None:
            for bias in biases:
                if bias.requires_grad:  # torch's own way takes as long as a convolution of one channel
                    add_gradient(bias, gradient.sum((0, 2, 3), dtype=bias.dtype).view_as(bias))
            to_weight = _by_product(module, h, weight, gradient) if weight.requires_grad else None
            left = weight.requires_grad and to_weight is None
            before: Tensor | None
            before, by_convolution = _by_convolution(module, h, weight.detach(), gradient, wanted, left)
            if weight.requires_grad:
                add_gradient(weight, by_convolution if to_weight is None else to_weight)
            return before

        return apply(h, tensors), back

    window = window_of(module.kernel_size, module.stride, module.padding, module.dilation)
    is_known = not isinstance(module.padding, str)
    return Layer(trace if is_known else by_torch(apply), Layout.CHANNELS, names, window=window)


def _by_convolution(
    module: nn.Conv2d, h: Tensor, weight: Tensor, gradient: Tensor, to_values: bool, to_weight: bool
) -> Any:  # noqa: ANN401 - two tensors, of which either may be None
    """Gradients of the values and of the weights, as far as they are wanted."""
    dtype = gradient.dtype
    if not (to_values or to_weight):
        return None, None
    values, weights, _ = torch.ops.aten.convolution_backward(
        gradient.to(dtype), h.to(dtype), weight.flatten(0, 1).to(dtype), None,
        module.stride, module.padding, module.dilation, False, (0, 0), len(weight) * module.groups,
        (to_values, to_weight, False),
    )  # fmt: skip
    return values.to(gradient.dtype) if to_values else None, weights.view_as(weight) if to_weight else None


def _by_product(module: nn.Conv2d, h: Tensor, weight: Tensor, gradient: Tensor) -> Tensor | None:
    """The weights' gradient as one product a client, where that is faster: for small images; else None."""
    places = len(h) * gradient.shape[2] * gradient.shape[3]
    plain = module.groups == 1 and module.dilation == (1, 1) and module.padding == (0, 0)
    if not plain or places > _FEW_PLACES * weight.shape[1] or gradient.device.type != "cpu":
        return None
    num_clients, out_channels, in_channels, height, width = weight.shape
    seen = h.to(gradient.dtype).permute(0, 2, 3, 1).reshape(len(h), *h.shape[2:], num_clients, in_channels)
    seen = seen.unfold(1, height, module.stride[0]).unfold(2, width, module.stride[1])
    seen = seen.permute(3, 0, 1, 2, 5, 6, 4).reshape(num_clients, places, -1)
    gradient = gradient.permute(0, 2, 3, 1).reshape(places, num_clients, out_channels)
    product = torch.bmm(gradient.permute(1, 2, 0), seen)
    return product.view(num_clients, out_channels, height, width, in_channels).permute(0, 1, 4, 2, 3)
