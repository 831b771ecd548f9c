"""A torch module as named NumPy arrays, in `state_dict` order, buffers included."""

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedat_service.errors import ManifestError
from fedat_service.params import Manifest, Params


def manifest_of(module: nn.Module) -> Manifest:
    """Describe a module: its tensors in `state_dict` order, parameters that learn marked as trainable.

    Raises:
        ManifestError: If a tensor is neither float32 nor int64.
    """
    trainable = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
    return Manifest.of(params_of(module), trainable)


def params_of(module: nn.Module) -> dict[str, NDArray[Any]]:
    """Copy the module's tensors; every array is C-contiguous, whatever the module's memory format."""
    state = module.state_dict()
    return {name: np.array(tensor.numpy(force=True), order="C") for name, tensor in state.items()}


def load_params(module: nn.Module, params: Params) -> None:
    """Copy `params` into the module's own tensors, which keep their memory format.

    Raises:
        ManifestError: If a tensor is missing, unknown to the module, or of another shape.
    """
    state = module.state_dict()
    require_fitting(state, params)
    for name, tensor in state.items():
        tensor.copy_(torch.tensor(params[name]))


def require_fitting(state: Mapping[str, Tensor], params: Params) -> None:
    """Check that parameters are those of a module with this `state_dict`.

    Raises:
        ManifestError: If a tensor is missing, unknown to the module, or of another shape.
    """
    if strange := set(params).symmetric_difference(state):
        where = "is missing" if min(strange) in state else "is unknown to the module"
        raise ManifestError(f"tensor {min(strange)!r} {where}")
    for name, tensor in state.items():
        if params[name].shape != tuple(tensor.shape):
            raise ManifestError(
                f"tensor {name!r} must have shape {list(tensor.shape)}, got {list(params[name].shape)}"
            )


def move(module: nn.Module, device: torch.device) -> None:
    """Put a module's tensors on a device; torch's own takes long to find that they are there already."""
    if any(tensor.device != device for tensor in chain(module.parameters(), module.buffers())):
        module.to(device)
