"""Local training of several clients at once."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from fedat_service.errors import ConfigError, TrainingError
from workers.training.contexts import computing_on, rounding
from workers.training.devices import CPU
from workers.training.optimizer import LocalOptimizer
from workers.training.stacked.batches import StackedBatch, StackedBatches
from workers.training.stacked.job import Job, stack_key
from workers.training.stacked.stacking import StackedModel
from workers.training.trainer import TrainResult


def train_stack(
    model: StackedModel, jobs: Sequence[Job], *, bfloat16: bool = False, device: torch.device = CPU
) -> list[TrainResult]:
    """Train jobs with equal keys as one stack; on the CPU, on one thread.

    Every job gets what `TorchTrainer.train` would give it alone, but for the order of sums; starts and seeds
    may differ. Equal arguments give equal results bit for bit; in another stack or on another kind of device,
    the last bits may differ. Infinity or NaN where no layer looks spoils gradients only alone.

    Args:
        model: The stacked form of the module.
        jobs: One for each client.
        bfloat16: Whether layers compute in it; parameters, loss and optimizer stay in float32, and so do, on
            the CPU, convolutions of one channel and small linear layers, which are faster there.
        device: Where to work.

    Returns:
        What each job gave, in their order.

    Raises:
        ConfigError: If there is no job, or they cannot share a stack.
        ManifestError: If a start does not fit the module.
        TrainingError: If a result is not finite.
    """
    _require_one_key(model, jobs)
    epochs = jobs[0].solver.epochs
    tensors = model.load([job.start for job in jobs], device)
    with computing_on(device):
        losses = _train(model, tensors, jobs, bfloat16, device).cpu().tolist()
    _require_finite(tensors, jobs)
    arrays = {name: tensor.numpy(force=True) for name, tensor in tensors.items()}
    return [
        TrainResult(
            {name: np.array(array[k], order="C") for name, array in arrays.items()},
            len(job.labels),
            {"train_loss": losses[k] / len(job.labels) / epochs},
        )
        for k, job in enumerate(jobs)
    ]


def _train(
    model: StackedModel, tensors: dict[str, Tensor], jobs: Sequence[Job], bfloat16: bool, device: torch.device
) -> Tensor:
    """Move `tensors`; return the sum of each client's losses over all examples and epochs, ``(K,)``."""
    solver = jobs[0].solver
    optimizer = LocalOptimizer([tensor for tensor in tensors.values() if tensor.requires_grad], solver)
    batches = StackedBatches(jobs, device)
    total = torch.zeros(len(jobs), dtype=torch.float64, device=device)
    for _ in range(solver.epochs):
        losses = []
        for batch in batches.epoch():
            with rounding(device, bfloat16):
                scores, back = model(tensors, batch.inputs)
            each, gradient = _losses(scores.float(), batch)
            back(gradient.to(scores.dtype))
            optimizer.step()
            losses.append(each)
        total += (torch.cat(losses, 1).squeeze(2) * batches.real).sum(1, dtype=torch.float64)
    return total


def _losses(scores: Tensor, batch: StackedBatch) -> tuple[Tensor, Tensor]:
    """Each example's cross-entropy, ``(K, B, 1)``, and the gradient of each client's mean of them.

    The gradient is ``(softmax - one_hot) / n`` from the kernel of torch's own loss, to the same bits. The
    nodes of a loss around it would take as long as the rest of a small model's step.

    Args:
        scores: ``(K, B, num_classes)``.
        batch: Whose labels they are held against.
    """
    log_softmax = F.log_softmax(scores, 2)
    direction = torch.zeros_like(log_softmax).scatter_(2, batch.labels, batch.label_gradients)
    gradient = torch._log_softmax_backward_data(direction, log_softmax, 2, scores.dtype)
    return log_softmax.gather(2, batch.labels).neg_(), gradient


def _require_one_key(model: StackedModel, jobs: Sequence[Job]) -> None:
    if not jobs:
        raise ConfigError("a stack needs one job or more, got none")
    keys = [stack_key(job, mixes_examples=model.mixes_examples) for job in jobs]
    for k, key in enumerate(keys):
        if key is None or key != keys[0]:
            raise ConfigError(f"job {k} cannot be in one stack with job 0: {key} is not {keys[0]}")


def _require_finite(tensors: dict[str, Tensor], jobs: Sequence[Job]) -> None:
    for name, tensor in tensors.items():
        if tensor.detach().sum().isfinite():
            continue  # One value that is not would have made the sum so, too.
        finite = tensor.detach().reshape(len(jobs), -1).isfinite().all(1)
        if not finite.all():
            k = int(finite.int().argmin())
            raise TrainingError(
                f"training job {k} with {jobs[k].solver} made tensor {name!r} infinite or NaN"
            )
