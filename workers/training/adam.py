"""Adam and AdamW as Keras has them: in one pass over memory on a CPU, by torch's kernels elsewhere."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedat_service.wire.settings import Solver

try:
    from workers.training import _adam
except ImportError:
    BUILT = False
else:
    BUILT = True

Array = NDArray[Any]


def adam_on_cpu(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    state: Sequence[Sequence[Array]],
    solver: Solver,
) -> None:
    """Take a step with each tensor: ``w -= lr_t m / (sqrt(v) + eps)``.

    Kingma and Ba, "Adam" (ICLR 2015), in the order at the end of section 2, as in Keras, which the papers
    used: ``m += (1 - b1)(g - m)``, ``v += (1 - b2)(g^2 - v)``, ``lr_t = lr sqrt(1 - b2^t) / (1 - b1^t)`` in a
    parameter's own step t. Weight decay is part of the gradient for Adam, and shrinks ``w`` by ``lr`` times
    itself for AdamW. Each operation rounds alone, as IEEE 754 says: equal numbers give equal bits everywhere.

    Args:
        parameters: ``w``; like all the others without gaps in memory.
        gradients: ``g``, each lying in memory as its parameter does.
        state: ``m``, ``v`` and the counts of steps before this one; all are moved in place.
        solver: Either optimizer, with its numbers.

    Raises:
        TypeError: If a float32 tensor has gaps in memory.
        ValueError: If it has another size than its parameter.
    """
    decay, shrink = solver.weight_decay, 1.0
    if solver.name == "adamw":
        decay, shrink = 0.0, 1 - solver.lr * solver.weight_decay
    for parameter, gradient, m, v, count in zip(parameters, gradients, *state, strict=True):
        w, g = parameter.detach().numpy(), gradient.numpy()
        t = float(count) + 1
        lr = solver.lr * math.sqrt(1 - solver.beta2**t) / (1 - solver.beta1**t)
        move = _adam.step if BUILT and w.dtype == np.float32 else step
        move(w, g, m, v, decay, shrink, lr, 1 - solver.beta1, 1 - solver.beta2, solver.eps)
        count[()] = t


def step(
    parameter: Array,
    gradient: Array,
    exp_avg: Array,
    exp_avg_sq: Array,
    decay: float,
    shrink: float,
    lr: float,
    one_minus_beta1: float,
    one_minus_beta2: float,
    eps: float,
) -> None:
    """Move a parameter and its moments by a gradient, all of one shape: as the C half, to the same bits."""
    # A value without dimensions would be a number of Python's precision before NumPy 2.
    w, g, m, v = map(np.atleast_1d, (parameter, gradient, exp_avg, exp_avg_sq))
    with np.errstate(all="ignore"):  # who diverges is found by its result
        g = g + w * decay
        m += (g - m) * one_minus_beta1
        v += (g * g - v) * one_minus_beta2
        w *= shrink
        w -= m * lr / (np.sqrt(v) + eps)


def adam_by_torch(
    parameters: list[Tensor], gradients: list[Tensor], state: Sequence[list[Tensor]], solver: Solver, t: int
) -> None:
    """The same by torch's kernels, in the optimizer's step t, for any device.

    They divide ``sqrt(v)`` by ``sqrt(1 - b2^t)`` before they add eps: so eps is divided by it, too.
    """
    m, v, counts = state
    torch._foreach_add_(counts, 1)
    kernel = torch._fused_adam_ if solver.name == "adam" else torch._fused_adamw_
    kernel(
        parameters,
        gradients,
        m,
        v,
        [],
        counts,
        lr=solver.lr,
        beta1=solver.beta1,
        beta2=solver.beta2,
        weight_decay=solver.weight_decay,
        eps=solver.eps / math.sqrt(1 - solver.beta2**t),
        amsgrad=False,
        maximize=False,
    )
