"""A client's examples as batches, from tensors or from anything that can be iterated again and again."""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedat_service.errors import ConfigError, TrainingError
from fedat_service.params import Params
from workers.training.contexts import random_state, set_random_state
from workers.training.devices import CPU

Batch = tuple[Tensor, Tensor]
Data = tuple[Tensor | NDArray[Any], Tensor | NDArray[Any]] | Iterable[Batch]
"""A pair of all inputs and all labels, or an iterable of such pairs, such as a DataLoader."""

PASS_BATCH = 100
"""Batch size of a pass that takes no step. Larger ones leave the cache of a CPU core and are slower."""


class Batches:
    """A data set that is gone through batch by batch, once an epoch.

    Args:
        data: All of it, which is put on the device once, or a loader, whose batches are put there one by one.
        device: Where the batches are wanted.

    Raises:
        ConfigError: If inputs and labels differ in number.
    """

    def __init__(self, data: Data, device: torch.device = CPU) -> None:
        self.device = device
        self._whole: Batch | None = None
        self._loader: Iterable[Any] = ()
        if isinstance(data, tuple) and len(data) == 2 and not isinstance(data[0], tuple):
            x, y = (torch.as_tensor(part).to(device) for part in data)
            if len(x) != len(y):
                raise ConfigError(f"{len(x)} inputs do not match {len(y)} labels")
            self._whole = x, y
        else:
            self._loader = data

    def shuffled(self, batch_size: int, first: int = 0, count: int | None = None) -> Iterator[Batch]:
        """One epoch in random order (torch's generator), the last batch as short as it comes out.

        The examples are gathered once, and batches are views. A loader keeps its own order and batch size.

        Args:
            batch_size: Examples a batch.
            first: Batches of the epoch to pass over. The rest is as if they had been taken, bit for bit.
            count: Batches to return at most.
        """
        if self._whole is None:
            loader = self._loaded()
            deque(islice(loader, first), maxlen=0)
            return islice(loader, count)
        n = len(self._whole[1])
        begin, end = first * batch_size, n if count is None else min(n, (first + count) * batch_size)
        chosen = torch.randperm(n)[begin:end].to(self.device)
        x, y = (_gathered(part, chosen, begin) for part in self._whole)
        return _cut(x, y, batch_size)

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        """One pass in the order of the data. A loader keeps its own order and batch size."""
        return self._loaded() if self._whole is None else _cut(*self._whole, batch_size)

    def num_examples(self) -> int:
        """Count the examples; a loader is gone through for it."""
        if self._whole is None:
            return sum(len(y) for _, y in self._loader)
        return len(self._whole[1])

    def _loaded(self) -> Iterator[Batch]:
        return ((x.to(self.device), y.to(self.device)) for x, y in self._loader)


class Course:
    """A client's way through its batches in one round, which can be left after any batch.

    It draws from torch's generators, as training on the batches may do too, for dropout. Going on later, from
    what was kept, gives the same bits as going on at once.

    Args:
        batches: The client's data.
        batch_size: Examples a batch.
        kept: What `kept` returned where the course was left; empty at its beginning. It sets the generators.
    """

    def __init__(self, batches: Batches, batch_size: int, kept: Params) -> None:
        self._batches = batches
        self._batch_size = batch_size
        self._position = int(kept["position"]) if kept else 0
        if kept:
            self._set_generators(torch.tensor(kept["generator"]))
        self._begun = torch.tensor(kept["epoch_generator"]) if kept else self._generators()

    def epochs(self, count: int) -> Iterator[Batch]:
        """Go on to the end of an epoch, `count` times.

        Raises:
            TrainingError: If an epoch has no batch.
        """
        for epoch in range(1, count + 1):
            yield from self._rest(None)
            self._end_epoch(f"epoch {epoch}")

    def steps(self, count: int) -> Iterator[Batch]:
        """Go on for `count` batches, over the ends of epochs.

        Raises:
            TrainingError: If an epoch has no batch.
        """
        while count > 0:
            for batch in self._rest(count):
                count -= 1
                yield batch
            if count > 0:
                self._end_epoch("an epoch")

    def kept(self) -> Params:
        """Where the course is: batches taken of the epoch, and the generators, at its start and now."""
        return {
            "position": np.array(self._position),
            "epoch_generator": self._begun.numpy().copy(),
            "generator": self._generators().numpy(),
        }

    def _rest(self, count: int | None) -> Iterator[Batch]:
        now = self._generators()
        if self._position == 0:
            self._begun = now
            rest = self._batches.shuffled(self._batch_size, 0, count)
        else:
            self._set_generators(self._begun)
            rest = self._batches.shuffled(self._batch_size, self._position, count)
            self._set_generators(now)
        for batch in rest:
            self._position += 1
            yield batch

    def _end_epoch(self, which: str) -> None:
        if self._position == 0:
            raise TrainingError(f"{which} has no batch: no examples, or data that ends after one pass")
        self._position = 0

    def _generators(self) -> Tensor:
        return random_state(self._batches.device)

    def _set_generators(self, state: Tensor) -> None:
        set_random_state(state, self._batches.device)


def _gathered(part: Tensor, chosen: Tensor, begin: int) -> Tensor:
    """Rows `chosen`, at the place in memory that they have in a whole epoch: sums may depend on it."""
    rows = part.new_empty(part.shape)[begin : begin + len(chosen)]
    return torch.index_select(part, 0, chosen, out=rows)


def _cut(x: Tensor, y: Tensor, batch_size: int) -> Iterator[Batch]:
    if len(y) == 0:
        return iter(())
    return zip(torch.split(x, batch_size), torch.split(y, batch_size), strict=True)
