"""The batches of several clients side by side, in the order in which each would see its own."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from workers.training.devices import CPU
from workers.training.stacked.job import Job


@dataclass(frozen=True, slots=True)
class StackedBatch:
    """One batch of every client.

    Args:
        inputs: ``(K, B, ...)``.
        labels: ``(K, B, 1)``.
        label_gradients: Those of each client's loss by the log-probabilities of its labels: -1 for each
            example that it really has in the batch, divided by their number, 0 for others; ``(K, B, 1)``.
    """

    inputs: Tensor
    labels: Tensor
    label_gradients: Tensor


class StackedBatches:
    """The examples of jobs with equal keys (`stack_key`), shuffled anew every epoch.

    Every client has its own generator and so its own order: that of `TorchTrainer` for the same seed. The
    examples are put on the device once.
    """

    def __init__(self, jobs: Sequence[Job], device: torch.device = CPU) -> None:
        self._device = device
        self._examples = [(job.inputs.to(device), job.labels.to(device)) for job in jobs]
        self._generators = [torch.Generator().manual_seed(job.seed) for job in jobs]
        sizes = torch.tensor([len(job.labels) for job in jobs])
        longest = int(sizes.max())
        inputs, labels = self._examples[0]
        self._inputs = inputs.new_zeros((len(jobs), longest, *inputs.shape[1:]))
        self._labels = labels.new_zeros((len(jobs), longest))
        self.real = (torch.arange(longest) < sizes.unsqueeze(1)).to(device, torch.float32)
        """1 for each example of a client, 0 for what fills it up to the longest; ``(K, longest)``."""
        self._batches = []
        for start in range(0, longest, jobs[0].solver.batch_size):
            part = slice(start, start + jobs[0].solver.batch_size)
            real = self.real[:, part]
            by_label = (-real / real.sum(1, keepdim=True)).unsqueeze(2)
            labels = self._labels[:, part].unsqueeze(2)
            self._batches.append(StackedBatch(self._inputs[:, part], labels, by_label))

    def epoch(self) -> Iterator[StackedBatch]:
        """Shuffle, and go through the batches; they are views that the next epoch overwrites."""
        for k, ((inputs, labels), generator) in enumerate(zip(self._examples, self._generators, strict=True)):
            size = len(labels)
            order = torch.randperm(size, generator=generator).to(self._device)
            torch.index_select(inputs, 0, order, out=self._inputs[k, :size])
            torch.index_select(labels, 0, order, out=self._labels[k, :size])
        return iter(self._batches)
