"""An unchanged Flower `NumPyClient` as a local trainer. Flower itself is not needed."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedat_service.errors import TrainingError
from fedat_service.params import Params
from fedat_service.wire.settings import Solver
from workers.training.optimizer import PLAIN
from workers.training.trainer import (
    NOTHING_KEPT,
    ONLY_SYNC,
    EvaluationResult,
    Kept,
    Sync,
    TrainResult,
)

Arrays = list[NDArray[Any]]


class NumPyClient(Protocol):
    """The two methods of Flower's `NumPyClient` that are called; arrays are in `state_dict` order."""

    def fit(self, parameters: Arrays, config: dict[str, Any]) -> tuple[Sequence[Any], int, dict[str, Any]]:
        """Train from `parameters`; return arrays, number of examples, metrics."""
        ...

    def evaluate(self, parameters: Arrays, config: dict[str, Any]) -> tuple[float, int, dict[str, Any]]:
        """Return loss, number of examples, metrics."""
        ...


class NumPyClientTrainer:
    """Calls a `NumPyClient`'s `fit` and `evaluate`.

    `fit` gets the solver under the names that Flower code uses: `local_epochs`, `lr`, `batch_size`,
    `proximal_mu`, each also with hyphens, and `seed`. What it makes of them is its own affair; above all,
    only its own code can add the proximal term. Therefore a solver with `prox_mu` is refused unless the
    client is said to do so; and so is what nothing but the solver's own loop can do: to count steps, to
    keep an optimizer's state, to send more than weights.

    Args:
        client: The `NumPyClient`.
        applies_prox: Whether its `fit` adds the proximal term when the config has a `proximal_mu`.
    """

    def __init__(self, client: NumPyClient, *, applies_prox: bool = False) -> None:
        self._client = client
        self._applies_prox = applies_prox

    def train(
        self,
        start: Params,
        solver: Solver,
        seed: int,
        sync: Sync = ONLY_SYNC,
        kept: Kept = NOTHING_KEPT,
    ) -> TrainResult:
        """Call `fit`; the epochs of all blocks of the sync are one call, and nothing is kept.

        Raises:
            TrainingError: If the solver cannot be left to `fit`, or the client returns other arrays than it
                got, no examples, or values that are not finite.
        """
        _require_plain(solver, sync)
        if solver.prox_mu:
            self._require_prox(start, solver, sync)
        arrays, num_examples, metrics = self._client.fit(_copies(start), _config(solver, seed, sync))
        if len(arrays) != len(start):
            raise TrainingError(f"fit returned {len(arrays)} arrays for {len(start)} tensors")
        if num_examples < 1:
            raise TrainingError(f"fit returned {num_examples} examples")
        params = {name: _like(name, array, start[name]) for name, array in zip(start, arrays, strict=True)}
        numbers = {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}
        return TrainResult(params, int(num_examples), numbers)

    def evaluate(self, params: Params) -> EvaluationResult:
        """Call `evaluate`; the client's metrics must have the `accuracy` (0..1).

        Raises:
            TrainingError: If they have not.
        """
        loss, num_examples, metrics = self._client.evaluate(_copies(params), {})
        accuracy = metrics.get("accuracy")
        if not isinstance(accuracy, int | float) or not 0 <= accuracy <= 1:
            raise TrainingError(f"evaluate must return an accuracy of 0..1 in its metrics, got {metrics!r}")
        return EvaluationResult(int(num_examples), round(accuracy * num_examples), float(loss))

    def _require_prox(self, start: Params, solver: Solver, sync: Sync) -> None:
        asks = f"the round asks for prox_mu {solver.prox_mu}"
        if not self._applies_prox:
            raise TrainingError(
                f"{asks}, which only the client's own fit can add: "
                "pass applies_prox=True if it does, or set prox_mu to 0"
            )
        if sync.fetched is not None and not set(start) <= set(sync.fetched):
            raise TrainingError(f"{asks} around tensors as they were last fetched, which fit is not given")


def _copies(params: Params) -> Arrays:
    return [array.copy() for array in params.values()]


def _require_plain(solver: Solver, sync: Sync) -> None:
    for asked, what in (
        (solver.name not in PLAIN or sync.blocks == 0, f"solver {solver.name}"),
        (solver.steps is not None, "a number of steps"),
        (solver.reset == "never", "an optimizer that is never reset"),
    ):
        if asked:
            raise TrainingError(f"the round asks for {what}, which a NumPyClient cannot be told")


def _config(solver: Solver, seed: int, sync: Sync) -> dict[str, Any]:
    config = {
        "local_epochs": solver.epochs * sync.blocks,
        "lr": solver.lr,
        "batch_size": solver.batch_size,
        "proximal_mu": solver.prox_mu,
    }
    hyphened = {name.replace("_", "-"): value for name, value in config.items()}
    return {**config, **hyphened, "seed": (seed + sync.index) % 2**63}


def _like(name: str, array: object, start: NDArray[Any]) -> NDArray[Any]:
    result = np.array(array, dtype=start.dtype)
    if result.shape != start.shape:
        raise TrainingError(f"fit returned shape {list(result.shape)} for {name!r}, not {list(start.shape)}")
    if not np.isfinite(result).all():
        raise TrainingError(f"fit returned infinite or NaN values for {name!r}")
    return result
