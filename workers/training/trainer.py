"""What a worker needs of whatever trains a client's model."""

from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from fedat_service.params import Params
from fedat_service.wire.settings import Solver


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a client's training gave.

    Args:
        params: The trained `state_dict`, in the order of the start parameters.
        num_examples: Size of the client's training set, its weight in the round.
        metrics: Further numbers, such as `train_loss`.
    """

    params: dict[str, NDArray[Any]]
    num_examples: int
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """How a model does on a client's test set; `loss` is the mean over its examples, 0 if it has none."""

    num_examples: int
    correct: int
    loss: float


class LocalTrainer(Protocol):
    """One client's model and data."""

    def train(self, start: Params, solver: Solver, seed: int) -> TrainResult:
        """Train from `start` as `solver` says; `start` is also the centre of the proximal term.

        Raises:
            TrainingError: If the result must not be sent.
        """
        ...

    def evaluate(self, params: Params) -> EvaluationResult:
        """Evaluate `params` on the client's own test set."""
        ...
