"""pfl-research's simulation of federated averaging; every process runs this module.

Cohorts come from its `random` sampler, which may draw a client twice; it does not shuffle a client's examples
between epochs. Its processes share the central evaluation.
"""

# mypy: disable-error-code="import-not-found,misc"

from time import perf_counter
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from loadtest.benchmarks.peers import workload


class _Network(workload.Network):
    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        self.train()
        return F.cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        self.eval()
        return {"accuracy": Weighted(int((self(x).argmax(1) == y).sum()), len(y))}


class _Marks(TrainingProcessCallback):
    """Notes when rounds end."""

    def __init__(self) -> None:
        self.marks_s = [perf_counter()]

    def after_central_iteration(self, *_: object, central_iteration: int) -> tuple[bool, Metrics]:
        del central_iteration
        self.marks_s.append(perf_counter())
        return False, Metrics()


def main() -> None:
    """Run it; the first process reports."""
    options = workload.read_options()
    torch.set_num_threads(1)
    np.random.seed(options.seed)  # noqa: TID251 - where pfl takes its seeds from
    torch.manual_seed(options.seed)
    examples = workload.load_examples(options.data)
    network = _Network(options.model)
    network.load_state_dict(workload.start_of(examples, options.model))
    users = list(zip(examples["x"], examples["y"], strict=True))
    data = FederatedDataset.from_slices(users, get_user_sampler("random", range(workload.CLIENTS)))
    evaluation = NNEvalHyperParams(local_batch_size=workload.EVALUATION_BATCH)
    tests = Dataset((examples["test_x"], examples["test_y"]))
    marks = _Marks()
    FederatedAveraging().run(
        NNAlgorithmParams(options.rounds, options.rounds + 1, workload.COHORT, val_cohort_size=0),
        SimulatedBackend(data, data),
        PyTorchModel(network, torch.optim.Adam, torch.optim.SGD(network.parameters(), lr=1.0)),
        NNTrainHyperParams(
            local_num_epochs=options.epochs,
            local_learning_rate=workload.LR,
            local_batch_size=workload.BATCH,
        ),
        evaluation,
        [marks, CentralEvaluationCallback(tests, evaluation)] if options.evaluate else [marks],
    )
    if torch.distributed.get_rank() == 0:
        workload.report(marks.marks_s, workload.accuracy(network, examples), "pfl")
    # Otherwise its threads are still at work when the interpreter ends, and now and then abort the process.
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
