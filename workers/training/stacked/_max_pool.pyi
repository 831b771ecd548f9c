"""2x2 max-pooling in C: see `workers.training.stacked.max_pool` for what it does."""

from typing import Any, Protocol

from numpy.typing import NDArray

class _Loop(Protocol):
    """Reads some of the arrays, as they lie in memory, and fills the others."""

    def __call__(
        self,
        images: NDArray[Any],
        results: NDArray[Any],
        winners: NDArray[Any],
        item_bytes: int,
        height: int,
        width: int,
        channels: int,
        /,
    ) -> None: ...

forward: _Loop
backward: _Loop
