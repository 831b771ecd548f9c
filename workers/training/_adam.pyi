"""A step of Adam in C: see `workers.training.adam` for what it does."""

import numpy as np
from numpy.typing import NDArray

def step(
    parameter: NDArray[np.float32],
    gradient: NDArray[np.float32],
    exp_avg: NDArray[np.float32],
    exp_avg_sq: NDArray[np.float32],
    decay: float,
    shrink: float,
    lr: float,
    one_minus_beta1: float,
    one_minus_beta2: float,
    eps: float,
    /,
) -> None: ...
