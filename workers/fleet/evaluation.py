"""One model on the test sets of many clients, in one pass."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from fedat_service.params import Params
from fedat_service.wire.messages import ClientEvaluation
from workers.fleet.population import Population
from workers.models.state import load_params, move
from workers.training.batches import Batches
from workers.training.contexts import computing_on
from workers.training.devices import CPU
from workers.training.torch_trainer import EVALUATION_BATCH
from workers.training.trainer import EvaluationResult
from workers.worker import reportable

_PIECE, _MOST_PIECES = 500, 8
"""Test examples that are evaluated in one go, at least, and in how many goes all of them are, at most."""


def cut(sizes: Sequence[int]) -> list[range]:
    """Clients in pieces, by the sizes of their test sets, so that several processes can share an evaluation.

    Never by the number of processes: the last bits of a loss depend on who shares a batch.
    """
    before = np.cumsum(sizes) - sizes
    length = max(_PIECE, -(-sum(sizes) // _MOST_PIECES))
    starts = [0, *(np.flatnonzero(np.diff(before // length)) + 1).tolist(), len(sizes)]
    return [range(start, end) for start, end in pairwise(starts)]


class FleetEvaluator:
    """Clients' test sets, one after the other, so that a small test set costs no batch of its own.

    Args:
        model: What evaluates them; its values are overwritten.
        population: Whose clients they are.
        clients: Numbers of those that are evaluated, all if not given; who has no test example is left out.
        device: Where it computes.
    """

    def __init__(
        self,
        model: nn.Module,
        population: Population,
        clients: Sequence[int] | None = None,
        device: torch.device = CPU,
    ) -> None:
        self._device = device
        self._model = model
        move(model, device)
        clients = range(population.settings.num_clients) if clients is None else clients
        tests = [population.test_data(client) for client in clients]
        self._names = [
            population.settings.client_name(client)
            for client, (_, y) in zip(clients, tests, strict=True)
            if len(y)
        ]
        self._sizes = np.array([len(y) for _, y in tests if len(y)], np.int64)
        inputs, labels = (np.concatenate(parts) for parts in zip(*tests, strict=True))
        self._tests = Batches((inputs, labels), device)

    def __call__(self, params: Params) -> Sequence[ClientEvaluation]:
        """Evaluate `params` for every client: right answers, and mean cross-entropy.

        Raises:
            TrainingError: If the loss of a client is infinite, NaN or too large to be reported.
        """
        if not self._names:
            return ()
        load_params(self._model, params)
        self._model.eval()
        correct, losses = self._pass()
        starts = np.cumsum(self._sizes) - self._sizes
        rights = np.add.reduceat(correct, starts)
        means = np.add.reduceat(losses, starts) / self._sizes
        rows = zip(self._names, self._sizes, rights, means, strict=True)
        return tuple(
            _named(name, EvaluationResult(int(n), int(right), float(loss))) for name, n, right, loss in rows
        )

    def _pass(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Whether each example is right, as int64, and its loss, as float64: both of shape ``(N,)``."""
        correct, losses = [], []
        with computing_on(self._device), torch.inference_mode():
            for x, y in self._tests.in_order(EVALUATION_BATCH):
                scores = self._model(x)
                correct.append((scores.argmax(1) == y).long())
                losses.append(F.cross_entropy(scores, y, reduction="none").double())
        return torch.cat(correct).numpy(force=True), torch.cat(losses).numpy(force=True)


def _named(client: str, found: EvaluationResult) -> ClientEvaluation:
    return ClientEvaluation(client=client, **reportable(client, found).model_dump())
