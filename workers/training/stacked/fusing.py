"""Layers that follow each other as one, where that is faster."""

from collections.abc import Sequence

from torch import Tensor

from workers.training.stacked.known_layers import MAX_POOL_2X2, RELU
from workers.training.stacked.layer import Back, Layer, Layout, Pooled, Tensors, chained
from workers.training.stacked.layouts import TO_CHANNELS

_POOLINGS = ((MAX_POOL_2X2, RELU), (RELU, MAX_POOL_2X2), (MAX_POOL_2X2,))


def fused(layers: Sequence[Layer]) -> list[Layer]:
    """Have every convolution that can pool at once do so, with the same results but for the order of sums."""
    steps: list[Layer] = []
    rest = list(layers)
    while rest:
        layer = rest.pop(0)
        behind = next((p for p in _POOLINGS if tuple(rest[: len(p)]) == p), ())
        if layer.pooled is not None and behind:
            layer = _at_once(layer, layer.pooled, behind)
            del rest[: len(behind)]
        steps.append(layer)
    return steps


def _at_once(convolution: Layer, pooled: Pooled, behind: Sequence[Layer]) -> Layer:
    relu = RELU in behind
    one_by_one = chained((TO_CHANNELS, convolution, *behind))

    def trace(h: Tensor, tensors: Tensors, wanted: bool) -> tuple[Tensor, Back]:
        done = None if wanted else pooled(h, tensors, relu)
        return done or one_by_one(h, tensors, wanted)

    return Layer(trace, Layout.CLIENTS, convolution.parameters, gives=Layout.CHANNELS)
