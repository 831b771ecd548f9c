"""A pooled convolution in C: see `workers.training.stacked.pooled_convolution` for what it does."""

from typing import Any

from numpy.typing import NDArray

def forward(
    images: NDArray[Any],
    kernels: NDArray[Any],
    biases: NDArray[Any],
    results: NDArray[Any],
    winners: NDArray[Any],
    relu: bool,
    /,
) -> None: ...
def backward(
    images: NDArray[Any],
    kernels: NDArray[Any],
    biases: NDArray[Any],
    gradient: NDArray[Any],
    winners: NDArray[Any],
    /,
) -> None: ...
