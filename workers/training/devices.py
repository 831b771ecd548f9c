"""Where a client's tensors lie while it trains: on the CPU, or on a GPU."""

import os
import re

import torch

from fedat_service.errors import ConfigError

CPU = torch.device("cpu")

_GPU = re.compile(r"cuda(:(?P<index>0|[1-9][0-9]*))?")


def find_device(name: str | torch.device) -> torch.device:
    """The device that a setting means: `auto` is the first GPU if torch sees one, else the CPU.

    Args:
        name: `auto`, `cpu`, `cuda` (the first GPU) or `cuda:N`; or one of torch's own.

    Raises:
        ConfigError: If there is no such name, or no such GPU.
    """
    if isinstance(name, torch.device) and name.type != "cuda":
        return name
    name = str(name)
    num_gpus = torch.cuda.device_count()
    if name == "cpu" or (name == "auto" and num_gpus == 0):
        return CPU
    gpu = _GPU.fullmatch("cuda" if name == "auto" else name)
    if gpu is None:
        raise ConfigError(f"device {name!r} is none of auto, cpu, cuda, cuda:N")
    index = int(gpu["index"] or 0)
    if index >= num_gpus:
        raise ConfigError(f"device {name!r} is not there: torch {torch.__version__} sees {num_gpus} GPUs")
    # cuBLAS asks for it before its first product: without it, torch says that sums may differ in order.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    return torch.device("cuda", index)


def kind_of(device: torch.device) -> str:
    """What its bits depend on: `cpu`, or which GPU it is."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
