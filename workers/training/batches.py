"""A client's examples as batches, from tensors or from anything that can be iterated again and again."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from fedat_service.errors import ConfigError

Batch = tuple[Tensor, Tensor]
Data = tuple[Tensor | NDArray[Any], Tensor | NDArray[Any]] | Iterable[Batch]
"""A pair of all inputs and all labels, or an iterable of such pairs, such as a DataLoader."""


class Batches:
    """A data set that is gone through batch by batch, once an epoch.

    Raises:
        ConfigError: If inputs and labels differ in number.
    """

    def __init__(self, data: Data) -> None:
        self._whole: Batch | None = None
        self._loader: Iterable[Any] = ()
        if isinstance(data, tuple) and len(data) == 2 and not isinstance(data[0], tuple):
            x, y = (torch.as_tensor(part) for part in data)
            if len(x) != len(y):
                raise ConfigError(f"{len(x)} inputs do not match {len(y)} labels")
            self._whole = x, y
        else:
            self._loader = data

    def shuffled(self, batch_size: int) -> Iterator[Batch]:
        """One epoch in random order (torch's generator), the last batch as short as it comes out.

        The examples are gathered once, and batches are views. A loader keeps its own order and batch size.
        """
        if self._whole is None:
            return iter(self._loader)
        order = torch.randperm(len(self._whole[1]))
        return _cut(self._whole[0][order], self._whole[1][order], batch_size)

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        """One pass in the order of the data. A loader keeps its own order and batch size."""
        return iter(self._loader) if self._whole is None else _cut(*self._whole, batch_size)


def _cut(x: Tensor, y: Tensor, batch_size: int) -> Iterator[Batch]:
    if len(y) == 0:
        return iter(())
    return zip(torch.split(x, batch_size), torch.split(y, batch_size), strict=True)
