"""SGD, momentum, Adam and AdamW: solvers that send nothing but weights."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fedat_service.params import Params
from fedat_service.wire.settings import Solver
from workers.training.batches import Batch
from workers.training.optimizer import LocalOptimizer
from workers.training.solvers.problem import Named, Problem, Sent
from workers.training.solvers.recall import named, recall_references
from workers.training.trainer import Kept, Sync

_STATE = "optimizer."
_STEPS = "steps"


class Plain:
    """A `LocalOptimizer`: its state goes on from sync to sync, and to the next round if it is never reset."""

    def __init__(self, problem: Problem, solver: Solver, sync: Sync, kept: Kept) -> None:
        self._problem = problem
        self._solver = solver
        self._centre = recall_references(problem.parameters, sync, kept) if solver.prox_mu else []
        self._optimizer = LocalOptimizer(problem.parameters.values(), solver, self._centre)
        self._resume(kept.client if solver.reset == "never" else kept.round)

    def step(self, batch: Batch) -> Tensor:
        """See `LocalSolver`."""
        loss = self._problem.backward(batch)
        self._optimizer.step()
        return loss

    def slots(self) -> Sent:
        """See `LocalSolver`."""
        return {}

    def for_round(self) -> Named:
        """See `LocalSolver`."""
        state = self._state() if self._solver.reset == "round" else {}
        return state | {"reference": named(self._problem.parameters, self._centre)} if self._centre else state

    def for_good(self) -> Named:
        """See `LocalSolver`."""
        return self._state() if self._solver.reset == "never" else {}

    def _state(self) -> dict[str, Mapping[str, Tensor]]:
        names = list(self._problem.parameters)
        state: dict[str, Mapping[str, Tensor]] = {
            _STATE + key: dict(zip(names, tensors, strict=True))
            for key, tensors in self._optimizer.state().items()
        }
        return state | {_STEPS: {"taken": torch.tensor(self._optimizer.steps)}}

    def _resume(self, kept: Mapping[str, Params]) -> None:
        if _STEPS not in kept:
            return
        state = {
            key.removeprefix(_STATE): [
                torch.tensor(kept[key][name], device=parameter.device)
                for name, parameter in self._problem.parameters.items()
            ]
            for key in kept
            if key.startswith(_STATE)
        }
        self._optimizer.resume(state, int(kept[_STEPS]["taken"]))
