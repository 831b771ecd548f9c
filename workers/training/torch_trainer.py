"""Local training of any torch module on one client's examples."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from fedat_service.errors import TrainingError
from fedat_service.params import Params
from fedat_service.wire.settings import Solver
from workers.models.state import load_params, params_of
from workers.training.batches import Batches, Data
from workers.training.contexts import one_thread, seeded
from workers.training.optimizer import LocalOptimizer
from workers.training.trainer import EvaluationResult, TrainResult

EVALUATION_BATCH = 100
"""Larger batches leave the cache of a CPU core and are slower."""


class TorchTrainer:
    """Trains a plain torch module; many clients may share one module, one after the other.

    Works on the CPU, on one thread: workers run in parallel as processes. Equal arguments and seeds give
    equal results bit for bit, also for dropout and for a shuffling DataLoader without its own generator.

    Args:
        model: Any module that maps a batch of inputs to what `loss_fn` takes; its values are overwritten.
        train_data: All inputs and all labels as a pair, which is shuffled every epoch and cut by the
            solver's batch size; or a DataLoader or another re-iterable of batches, which does so itself.
        test_data: The same, for `evaluate`.
        loss_fn: Mean loss of a batch.
    """

    def __init__(
        self,
        model: nn.Module,
        train_data: Data,
        test_data: Data,
        loss_fn: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
    ) -> None:
        self._model = model
        self._train_data = Batches(train_data)
        self._test_data = Batches(test_data)
        self._loss_fn = loss_fn

    def train(self, start: Params, solver: Solver, seed: int) -> TrainResult:
        """Train for `solver.epochs` epochs from `start`.

        Returns:
            All tensors of the module, buffers included, the number of examples of an epoch, and the metric
            `train_loss`: the mean over all examples and epochs, each at the time of its step.

        Raises:
            ManifestError: If `start` does not fit the module.
            TrainingError: If an epoch has no batch, or the result is not finite.
        """
        load_params(self._model, start)
        self._model.train()
        learning = [parameter for parameter in self._model.parameters() if parameter.requires_grad]
        optimizer = LocalOptimizer(learning, solver)
        loss = torch.zeros((), dtype=torch.float64)
        num_examples = 0
        with one_thread(), seeded(seed):
            for epoch in range(solver.epochs):
                num_examples = self._epoch(optimizer, solver.batch_size, loss)
                if num_examples == 0:
                    raise TrainingError(
                        f"epoch {epoch + 1} has no batch: no examples, or data that ends after one pass"
                    )
        params = params_of(self._model)
        for name, array in params.items():
            if not np.isfinite(array).all():
                raise TrainingError(f"training with {solver} made tensor {name!r} infinite or NaN")
        return TrainResult(params, num_examples, {"train_loss": loss.item() / num_examples / solver.epochs})

    def evaluate(self, params: Params) -> EvaluationResult:
        """Count the right answers (largest score) and take the mean loss on the test data.

        Raises:
            ManifestError: If `params` do not fit the module.
        """
        load_params(self._model, params)
        self._model.eval()
        correct, loss, num_examples = 0, 0.0, 0
        with one_thread(), torch.inference_mode():
            for x, y in self._test_data.in_order(EVALUATION_BATCH):
                scores = self._model(x)
                correct += int((scores.argmax(1) == y).sum())
                loss += self._loss_fn(scores, y).item() * len(y)
                num_examples += len(y)
        return EvaluationResult(num_examples, correct, loss / max(num_examples, 1))

    def _epoch(self, optimizer: LocalOptimizer, batch_size: int, loss_sum: Tensor) -> int:
        """Train one epoch; add the loss of its examples to `loss_sum` and return their number."""
        num_examples = 0
        for x, y in self._train_data.shuffled(batch_size):
            loss = self._loss_fn(self._model(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            loss_sum += loss.detach() * len(y)
            num_examples += len(y)
        return num_examples
