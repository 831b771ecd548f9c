"""One client's local training as data, and which of them can share a stack."""

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedat_service.params import Params
from fedat_service.wire.settings import Solver
from workers.training.optimizer import PLAIN


@dataclass(frozen=True, slots=True)
class Job:
    """What `TorchTrainer.train` is given, with the client's examples.

    Args:
        inputs: All inputs of the client, ``(n, ...)``.
        labels: Their classes, ``(n,)``; the loss is the cross-entropy.
        start: Where training starts; also the centre of the proximal term.
        solver: How to train.
        seed: Orders the examples, epoch by epoch.
    """

    inputs: Tensor
    labels: Tensor
    start: Params
    solver: Solver
    seed: int


def work_key(solver: Solver, num_examples: int, *, mixes_examples: bool) -> Hashable:
    """Equal for clients whose work can be done as one stack, if their examples are alike; None if alone.

    A stack takes its steps together, so the solver and the number of batches must agree. A shorter last batch
    is filled up with examples of no weight, unless the model `mixes_examples`: then all must be as long.
    Alone are solvers with a server half, with state that outlives the round, or with work counted in steps,
    and clients without examples.
    """
    plain = solver.name in PLAIN and solver.reset == "round" and solver.steps is None
    if not plain or num_examples == 0:
        return None
    num_batches = -(-num_examples // solver.batch_size)
    return solver, num_examples if mixes_examples else num_batches


def stack_key(job: Job, *, mixes_examples: bool) -> Hashable:
    """Equal for jobs that can be trained as one stack; None if the job must train alone.

    That is `work_key`, for examples of one kind whose labels are classes: -100 stands for no label.
    """
    inputs, labels = job.inputs, job.labels
    work = work_key(job.solver, len(labels), mixes_examples=mixes_examples)
    if work is None or len(inputs) != len(labels) or labels.dim() != 1 or labels.dtype != torch.int64:
        return None
    return None if int(labels.min()) < 0 else (work, inputs.dtype, tuple(inputs.shape[1:]))
