"""Walking the tensors of one model inside the vectors of another."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedat_service.aggregation.chunks import chunks
from fedat_service.errors import ManifestError
from fedat_service.params import Manifest, TensorSpec


def float_pieces(
    whole: Manifest, part: Manifest, tensors: Iterable[TensorSpec]
) -> Iterator[tuple[slice, slice]]:
    """Yield where float tensors lie in two models, in pieces that stay in the cache.

    Args:
        whole: A model that has the tensors.
        part: Another one that has them, say the tensors of one sync.
        tensors: Which ones to walk through, in the order of both models.

    Yields:
        A slice of the floats of `whole`, and the slice of the floats of `part` of the same elements.
    """
    start = other = size = 0
    for tensor in tensors:
        here, there = whole.spans[tensor.name], part.spans[tensor.name]
        if (here.start, there.start) != (start + size, other + size):
            yield from _cut(start, other, size)
            start, other, size = here.start, there.start, 0
        size += tensor.size
    yield from _cut(start, other, size)


def require_part(whole: Manifest, part: Manifest) -> None:
    """Check that a model has the tensors of a part of it.

    Raises:
        ManifestError: If one is missing or has another shape; it is named.
    """
    shapes = {tensor.name: tensor.shape for tensor in whole.tensors}
    for tensor in part.tensors:
        if shapes.get(tensor.name) != tensor.shape:
            raise ManifestError(f"there is no tensor {tensor.name!r} of shape {list(tensor.shape)} here")


def rounded(values: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Values in another type; those beyond its range become its largest, for nothing infinite can be sent."""
    most = float(np.finfo(dtype).max)
    return np.clip(values, -most, most).astype(dtype)


def _cut(start: int, other: int, size: int) -> Iterator[tuple[slice, slice]]:
    for chunk in chunks(size):
        stop = min(chunk.stop, size)
        yield slice(start + chunk.start, start + stop), slice(other + chunk.start, other + stop)
