"""2x2 max-pooling in C: see `workers.training.stacked.max_pool` for what it does."""

from typing import Any

from numpy.typing import NDArray

def forward(
    images: NDArray[Any],
    results: NDArray[Any],
    winners: NDArray[Any],
    item_bytes: int,
    height: int,
    width: int,
    channels: int,
    /,
) -> None: ...
def backward(
    images: NDArray[Any],
    results: NDArray[Any],
    winners: NDArray[Any],
    item_bytes: int,
    height: int,
    width: int,
    channels: int,
    /,
) -> None: ...
