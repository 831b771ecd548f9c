"""Which jobs are trained together: a pure function of their keys, in the order given."""

from collections.abc import Hashable, Sequence
from itertools import pairwise

import torch
from torch import nn

from fedat_service.errors import ConfigError

_WIDTH = 5
"""As wide as pays with convolutions, and so that a cohort of ten keeps two processes busy.

Never the number of processes: the last bits of the results would depend on it.
"""
_CONVOLUTIONAL_BATCH = 32
_MAX_PARAMETERS = 500_000
_PARAMETERS_ON_A_GPU = 100_000_000
"""In a stack: with gradients, moments and a centre they take 2 GB."""


def plan_stacks(keys: Sequence[Hashable], width: int) -> list[list[int]]:
    """Put the jobs with equal keys into as few stacks of at most `width` as possible, of even sizes.

    Args:
        keys: A key for every job; None for one that trains alone.
        width: Largest number of jobs in a stack.

    Returns:
        The indices of each stack's jobs, ascending; the stacks in the order of their first jobs.

    Raises:
        ConfigError: If the width is not 1 or more.
    """
    if width < 1:
        raise ConfigError(f"the width of a stack must be 1 or more, got {width}")
    groups: dict[Hashable, list[int]] = {}
    stacks = []
    for index, key in enumerate(keys):
        if key is None:
            stacks.append([index])
        else:
            groups.setdefault(key, []).append(index)
    for group in groups.values():
        stacks += _split_evenly(group, width)
    return sorted(stacks)


def stack_width(module: nn.Module, batch_size: int, device: torch.device) -> int:
    """How many clients a process trains as one stack; 1 if each is faster alone.

    On a core neither large models nor large batches of convolutions need company, as measured. A GPU takes a
    whole cohort, as far as memory goes: a step of one small model leaves it idle, and a step of many takes as
    many calls.
    """
    num_parameters = sum(parameter.numel() for parameter in module.parameters())
    if device.type != "cpu":
        return max(1, _PARAMETERS_ON_A_GPU // max(1, num_parameters))
    convolves = any(isinstance(part, nn.Conv2d) for part in module.modules())
    alone = num_parameters > _MAX_PARAMETERS or (convolves and batch_size >= _CONVOLUTIONAL_BATCH)
    return 1 if alone else _WIDTH


def _split_evenly(group: list[int], width: int) -> list[list[int]]:
    num_stacks = -(-len(group) // width)
    cuts = [part * len(group) // num_stacks for part in range(num_stacks + 1)]
    return [group[start:end] for start, end in pairwise(cuts)]
