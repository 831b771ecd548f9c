"""Local training of any torch module on one client's examples."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from fedat_service.errors import TrainingError
from fedat_service.params import Params
from fedat_service.wire.settings import Slot, Solver
from workers.models.state import load_params, move, params_of
from workers.training.batches import PASS_BATCH, Batch, Batches, Course, Data
from workers.training.contexts import computing_on, seeded
from workers.training.devices import find_device
from workers.training.solvers.problem import LocalSolver, Problem
from workers.training.solvers.recall import to_arrays
from workers.training.solvers.registry import local_solver
from workers.training.trainer import (
    NOTHING_KEPT,
    ONLY_SYNC,
    EvaluationResult,
    Kept,
    Sync,
    TrainResult,
)

EVALUATION_BATCH = PASS_BATCH


class TorchTrainer:
    """Trains a plain torch module; many clients may share one module, one after the other.

    On the CPU it works on one thread: workers run in parallel as processes. Equal arguments and seeds give
    equal results bit for bit on one kind of device, also for dropout and for a shuffling DataLoader without
    its own generator. Results are NumPy arrays wherever they come from.

    Args:
        model: Any module that maps a batch of inputs to what `loss_fn` takes. It is moved to the device, and
            its values are overwritten.
        train_data: All inputs and all labels as a pair, which is shuffled every epoch and cut by the
            solver's batch size; or a DataLoader or another re-iterable of batches, which does so itself.
        test_data: The same, for `evaluate`.
        loss_fn: Mean loss of a batch; a module is moved, too.
        device: Where to work: see `find_device`.
        bfloat16: Whether layers compute in it when they train: faster where the device has it, else slower.

    Raises:
        ConfigError: If there is no such device, or inputs and labels differ in number.
    """

    def __init__(
        self,
        model: nn.Module,
        train_data: Data,
        test_data: Data,
        loss_fn: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
        *,
        device: str | torch.device = "auto",
        bfloat16: bool = False,
    ) -> None:
        self._bfloat16 = bfloat16
        self._device = find_device(device)
        self._model = model
        move(model, self._device)
        self._train_data = Batches(train_data, self._device)
        self._test_data = Batches(test_data, self._device)
        self._loss_fn = loss_fn.to(self._device) if isinstance(loss_fn, nn.Module) else loss_fn

    def train(
        self,
        start: Params,
        solver: Solver,
        seed: int,
        sync: Sync = ONLY_SYNC,
        kept: Kept = NOTHING_KEPT,
    ) -> TrainResult:
        """Do the local work of one sync from `start`: see `LocalTrainer.train`.

        Work that is cut by syncs at which nothing travels gives the bits of the work in one piece.

        Returns:
            All tensors of the module, buffers included, the number of examples, what the solver sends
            beside the weights, and the metric `train_loss`: the mean over the examples of all steps, each
            at the time of its step; without a step there is none.

        Raises:
            ManifestError: If `start` does not fit the module.
            TrainingError: If an epoch has no batch, what came down does not fit the solver, what is asked
                for is not what it sends, or the result is not finite.
        """
        load_params(self._model, start)
        self._model.train()
        kept = kept if sync.index else Kept(client=kept.client)
        problem = Problem(self._model, self._train_data, self._loss_fn, bfloat16=self._bfloat16)
        loss, seen = torch.zeros((), dtype=torch.float64, device=self._device), 0
        with computing_on(self._device), seeded(seed, self._device):
            course = Course(self._train_data, solver.batch_size, kept.round.get("batches", {}))
            local = local_solver(problem, solver, sync, kept)
            for batch in _work(course, solver, sync):
                loss += local.step(batch) * len(batch[1])
                seen += len(batch[1])
            kept = _kept(local, course, sync)
            num_examples = self._num_examples(solver, sync, seen)
        params, slots = params_of(self._model), _asked(to_arrays(local.slots()), sync)
        for what, arrays in [("tensor", params), *slots.items()]:
            _require_finite(what, arrays, solver)
        metrics = {"train_loss": loss.item() / seen} if seen else {}
        return TrainResult(params, num_examples, metrics, slots, kept)

    def evaluate(self, params: Params) -> EvaluationResult:
        """Count the right answers (largest score) and take the mean loss on the test data.

        Raises:
            ManifestError: If `params` do not fit the module.
        """
        load_params(self._model, params)
        self._model.eval()
        correct, loss, num_examples = 0, 0.0, 0
        with computing_on(self._device), torch.inference_mode():
            for x, y in self._test_data.in_order(EVALUATION_BATCH):
                scores = self._model(x)
                correct += int((scores.argmax(1) == y).sum())
                loss += self._loss_fn(scores, y).item() * len(y)
                num_examples += len(y)
        return EvaluationResult(num_examples, correct, loss / max(num_examples, 1))

    def _num_examples(self, solver: Solver, sync: Sync, seen: int) -> int:
        """Size of the data: that of an epoch, if the work was epochs."""
        if solver.steps is None and sync.blocks:
            return seen // (solver.epochs * sync.blocks)
        return self._train_data.num_examples()


def _work(course: Course, solver: Solver, sync: Sync) -> Iterator[Batch]:
    if solver.steps is None:
        return course.epochs(solver.epochs * sync.blocks)
    return course.steps(solver.steps * sync.blocks)


def _kept(local: LocalSolver, course: Course, sync: Sync) -> Kept:
    for_good = to_arrays(local.for_good())
    if sync.last:
        return Kept(client=for_good)
    return Kept({"batches": course.kept(), **to_arrays(local.for_round())}, for_good)


def _asked(slots: Mapping[Slot, Params], sync: Sync) -> dict[Slot, Params]:
    """Of what the solver sends, the tensors that are asked for."""
    if sync.up is None:
        return dict(slots)
    asked: dict[Slot, Params] = {}
    for slot in (slot for slot in sync.up if slot != "weights"):
        if slot not in slots:
            raise TrainingError(f"slot {slot!r} is asked for, but the solver sends {sorted(slots) or 'none'}")
        if strange := set(sync.up[slot]).difference(slots[slot]):
            raise TrainingError(f"{slot} of {min(strange)!r} is asked for, but that tensor does not learn")
        asked[slot] = {name: array for name, array in slots[slot].items() if name in sync.up[slot]}
    return asked


def _require_finite(what: str, arrays: Params, solver: Solver) -> None:
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise TrainingError(f"training with {solver} made {what} {name!r} infinite or NaN")
