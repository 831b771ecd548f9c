"""How pooling of images is called, and what its results look at."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from workers.training.stacked.windows import Window, window_of

_COMMON = ("kernel_size", "stride", "padding")
_MAX = (*_COMMON, "dilation", "ceil_mode", "return_indices")
_AVG = (*_COMMON, "ceil_mode", "count_include_pad", "divisor_override")
POOLING: Mapping[object, tuple[str, ...]] = {
    F.max_pool2d: _MAX,
    torch.max_pool2d: _MAX[:-1],
    F.avg_pool2d: _AVG,
    F.adaptive_avg_pool2d: ("output_size",),
}
"""Functions that pool images, with the names of the settings behind the values."""

_OF_MODULES: Mapping[type, Callable[..., Tensor]] = {
    nn.MaxPool2d: F.max_pool2d,
    nn.AvgPool2d: F.avg_pool2d,
    nn.AdaptiveAvgPool2d: F.adaptive_avg_pool2d,
}


def call_of(module: nn.Module) -> tuple[object, dict[str, Any]] | None:
    """The function in `POOLING` that a module calls, and its settings; None if it is another module."""
    function = _OF_MODULES.get(type(module))
    return (
        None if function is None else (function, {name: getattr(module, name) for name in POOLING[function]})
    )


def window_of_pooling(function: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Window | None:
    """What a result of ``function(values, *args, **kwargs)`` looks at; None if that may be all."""
    settings = dict(zip(POOLING[function], args, strict=False)) | kwargs
    if "kernel_size" not in settings or settings.get("ceil_mode"):
        return None
    stride = settings.get("stride") or settings["kernel_size"]
    return window_of(settings["kernel_size"], stride, settings.get("padding", 0), settings.get("dilation", 1))
