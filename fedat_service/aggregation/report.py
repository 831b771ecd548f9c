"""What one evaluation over many clients says."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedat_service.errors import RuleError, Unprocessable

_Values = Sequence[float] | NDArray[np.int64] | NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Summary:
    """One model's quality over the test splits of many clients."""

    num_clients: int
    num_examples: int
    accuracy: float
    loss: float
    client_accuracy_variance: float


def summarise(num_examples: _Values, correct: _Values, loss: _Values) -> Summary:
    """Accuracy and loss over all test examples, and how evenly the accuracy is spread over the clients.

    Accuracy and loss weigh every example alike. The variance is FedAT's robustness (SC '21, Def. 3.1):
    ``mean_c (P_c - mean P)**2``, the population variance of the clients' accuracies, every client alike.

    Args:
        num_examples: Shape `(C,)`, examples of each client's test split.
        correct: Shape `(C,)`, how many of them were classified correctly.
        loss: Shape `(C,)`, mean loss per example.

    Raises:
        RuleError: If there is no client, or the shapes differ.
        Unprocessable: If a client has no examples, or more correct ones than it has.
    """
    n, right, mean_loss = (np.asarray(values, np.float64) for values in (num_examples, correct, loss))
    if n.ndim != 1 or n.size == 0 or not n.shape == right.shape == mean_loss.shape:
        raise RuleError(
            f"one number per client is needed, got shapes {n.shape}, {right.shape}, {mean_loss.shape}"
        )
    if bool((n < 1).any()):
        raise Unprocessable(f"a client must have at least one example, got {n.min():g}", "num_examples")
    impossible = (right < 0) | (right > n)
    if bool(impossible.any()):
        at = int(np.argmax(impossible))
        raise Unprocessable(f"{right[at]:g} correct of {n[at]:g} examples", "correct")
    total = n.sum()
    return Summary(
        num_clients=n.size,
        num_examples=int(total),
        accuracy=float(right.sum() / total),
        loss=float((n * mean_loss).sum() / total),
        client_accuracy_variance=float(np.var(right / n)),
    )
