"""A step of Adam in C: see `workers.training.adam.step` for what it takes and does."""

import numpy as np
from numpy.typing import NDArray

def step(
    parameter: NDArray[np.float32],
    gradient: NDArray[np.float32],
    exp_avg: NDArray[np.float32],
    exp_avg_sq: NDArray[np.float32],
    /,
    *numbers: float,
) -> None: ...
