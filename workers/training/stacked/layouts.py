"""Between the layouts of a stack: images side by side for convolutions, clients apart for the rest."""

from collections.abc import Sequence

import torch
from torch import Tensor

from workers.training.stacked.layer import Back, Layer, Layout, Tensors


def laid_out(layers: Sequence[Layer]) -> list[Layer]:
    """Put changes of layout between layers, where one is needed; values begin and end by clients."""
    steps: list[Layer] = []
    layout = Layout.CLIENTS
    for layer in layers:
        if layer.layout is not None and layer.layout is not layout:
            steps.append(_CHANGES[layer.layout])
        steps.append(layer)
        layout = layer.gives or layer.layout or layout
    return steps if layout is Layout.CLIENTS else [*steps, _CHANGES[Layout.CLIENTS]]


def _to_channels(values: Tensor) -> Tensor:
    """From ``(K, B, C, H, W)`` to ``(B, K C, H, W)`` in channels-last, the fast format of a CPU."""
    grouped = values.transpose(0, 1).flatten(1, 2)
    return grouped.contiguous(memory_format=torch.channels_last)


def _to_clients(values: Tensor, num_clients: int) -> Tensor:
    """From ``(B, K C, H, W)`` to ``(K, B, C, H, W)``."""
    num_examples, _, height, width = values.shape
    return values.reshape(num_examples, num_clients, -1, height, width).transpose(0, 1)


def _channels(h: Tensor, _: Tensors, _wanted: bool) -> tuple[Tensor, Back]:
    num_clients = len(h)
    return _to_channels(h), lambda gradient: _to_clients(gradient, num_clients)


def _clients(h: Tensor, tensors: Tensors, _: bool) -> tuple[Tensor, Back]:
    num_clients = len(next(iter(tensors.values())))
    return _to_clients(h, num_clients), _to_channels


TO_CHANNELS = Layer(_channels, Layout.CLIENTS, gives=Layout.CHANNELS)
"""From the layout in which clients are apart to that of convolutions."""

_TO_CLIENTS = Layer(_clients, Layout.CHANNELS, gives=Layout.CLIENTS)
_CHANGES = {Layout.CHANNELS: TO_CHANNELS, Layout.CLIENTS: _TO_CLIENTS}
