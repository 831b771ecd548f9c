"""Adam and AdamW as Keras has them: in one pass over memory on a CPU, and by torch's kernels on a GPU."""

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
    """``m += (1 - b1)(g - m); v += (1 - b2)(g^2 - v); w -= lr_t m / (sqrt(v) + eps)`` for each tensor.

    ``lr_t = lr sqrt(1 - b2^t) / (1 - b1^t)`` in a parameter's step t: Kingma and Ba, "Adam" (ICLR 2015), in
    the order at the end of section 2, as in Keras, which the papers used. Weight decay is part of the
    gradient for Adam, and shrinks ``w`` by ``lr`` times itself for AdamW. Each operation rounds alone, as
    IEEE 754 says: equal numbers give equal bits on every machine.

    Args:
        parameters: ``w``; like all the others without gaps in memory.
        gradients: ``g``, each lying in memory as its parameter does.
        state: ``m``, ``v`` and the counts of steps before this one; all are moved in place.
        solver: Either optimizer, with its numbers.
    """
    keep, decay = 1.0, solver.weight_decay
    if solver.name == "adamw":
        keep, decay = 1 - solver.lr * decay, 0.0
    for parameter, gradient, m, v, count in zip(parameters, gradients, *state, strict=True):
        w, g = parameter.detach().numpy(), gradient.numpy()
        if decay:
            g += decay * w
        t = float(count) + 1
        count[()] = t
        lr = solver.lr * math.sqrt(1 - solver.beta2**t) / (1 - solver.beta1**t)
        move = _adam.step if BUILT and w.dtype == np.float32 else step
        move(w, g, m, v, keep, lr, 1 - solver.beta1, 1 - solver.beta2, solver.eps)


def step(
    w: Array, g: Array, m: Array, v: Array, keep: float, lr: float, rest1: float, rest2: float, eps: float
) -> None:
    """The C half in NumPy, to the same bits."""
    m += (g - m) * rest1
    v += (g * g - v) * rest2
    w *= keep
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
