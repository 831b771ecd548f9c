"""What a worker needs of whatever trains a client's model."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray

from fedat_service.params import Params
from fedat_service.wire.settings import Slot, Solver


@dataclass(frozen=True, slots=True)
class Sync:
    """One sync of a round as a client sees it: what came down before its work, what goes up after it.

    The defaults are a round of one sync in which the whole model travels.

    Args:
        index: Number of the sync in its round, from 0.
        last: Whether the round ends with it.
        blocks: How often the solver's local work is done; 0 where only a gradient is asked for.
        fetched: Tensors of the start parameters that were fetched for this sync; None if all were.
        slots: What came down beside the weights, by slot. What did not is as in the first round.
        up: Tensors that are asked for, by slot; None asks for all that the solver sends.
    """

    index: int = 0
    last: bool = True
    blocks: int = 1
    fetched: Collection[str] | None = None
    slots: Mapping[Slot, Params] = field(default_factory=dict)
    up: Mapping[Slot, Collection[str]] | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """What a client carries from one sync to its next beside its model: arrays by purpose and name.

    It can be pickled, and no purpose takes more room than a model. It is valid only after the update that
    it came with was accepted; otherwise the client goes on with what it kept before. A client that has lost
    it goes on with `Kept()`, as in its first round.

    Args:
        round: What ends with the round.
        client: What does not.
    """

    round: Mapping[str, Params] = field(default_factory=dict)
    client: Mapping[str, Params] = field(default_factory=dict)


ONLY_SYNC = Sync()
NOTHING_KEPT = Kept()


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a client's training gave.

    Args:
        params: The client's `state_dict` after its work, in the order of the start parameters.
        num_examples: Size of the client's training set, its weight in the round.
        metrics: Further numbers, such as `train_loss`.
        slots: What goes up beside the weights, by slot: exactly the tensors that were asked for.
        kept: What the client's next training is given.
    """

    params: dict[str, NDArray[Any]]
    num_examples: int
    metrics: dict[str, float]
    slots: Mapping[Slot, Params] = field(default_factory=dict)
    kept: Kept = NOTHING_KEPT


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """How a model does on a client's test set; `loss` is the mean over its examples, 0 if it has none."""

    num_examples: int
    correct: int
    loss: float


class LocalTrainer(Protocol):
    """One client's model and data."""

    def train(
        self,
        start: Params,
        solver: Solver,
        seed: int,
        sync: Sync = ONLY_SYNC,
        kept: Kept = NOTHING_KEPT,
    ) -> TrainResult:
        """Train from `start` as `solver` says: equal arguments give equal results.

        Args:
            start: The client's whole model, with what was fetched for this sync written over it. The
                proximal term pulls every tensor to its value when it was last fetched.
            solver: How to train.
            seed: Of the round; the same at all of its syncs.
            sync: Where in the round this is.
            kept: What the client's last training returned.

        Raises:
            TrainingError: If the result must not be sent.
        """
        ...

    def evaluate(self, params: Params) -> EvaluationResult:
        """Evaluate `params` on the client's own test set."""
        ...
