"""What a client is given and has kept, as tensors of its parameters."""

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from fedat_service.errors import TrainingError
from fedat_service.params import Params
from workers.training.trainer import Kept, Sync

K = TypeVar("K")
Parameters = Mapping[str, Tensor]


def recall(what: str, parameters: Parameters, *sources: Params, default: float = 0.0) -> list[Tensor]:
    """A new tensor for every parameter: from the first of `sources` that has one, else of the `default`.

    Raises:
        TrainingError: If one is of another shape than its parameter.
    """
    tensors = []
    for name, parameter in parameters.items():
        tensor = torch.full_like(parameter, default, requires_grad=False)
        source = next((source for source in sources if name in source), None)
        if source is not None:
            shape = list(source[name].shape)
            if shape != list(parameter.shape):
                raise TrainingError(f"{what} of {name!r} has shape {shape}, not {list(parameter.shape)}")
            tensor.copy_(torch.tensor(source[name]))
        tensors.append(tensor)
    return tensors


def recall_references(parameters: Parameters, sync: Sync, kept: Kept) -> list[Tensor]:
    """Copies of the parameters as they were when they were last fetched, some of them just now."""
    old = kept.round.get("reference", {})
    stale = {} if sync.fetched is None else {n: a for n, a in old.items() if n not in sync.fetched}
    now = {name: parameter.numpy(force=True) for name, parameter in parameters.items()}
    return recall("reference", parameters, stale, now)


def named(parameters: Parameters, tensors: list[Tensor]) -> dict[str, Tensor]:
    """`tensors`, which are in the order of `parameters`, by name."""
    return dict(zip(parameters, tensors, strict=True))


def to_arrays(tensors: Mapping[K, Parameters]) -> dict[K, Params]:
    """Copies that can be kept, sent and pickled."""
    return {
        what: {name: np.array(tensor.numpy(force=True), order="C") for name, tensor in part.items()}
        for what, part in tensors.items()
    }
