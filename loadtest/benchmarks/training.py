"""Local training against the loop that one would write by hand, on the same work.

A round of FedAT (SC '21): a cohort of 10 clients, each with 120 images of 1x28x28 and a proximal term of
0.4, Adam, batches of 10; one process, one thread. The loop is plain torch: default Adam, default memory
format, the proximal term in the loss, one index per batch; its model is kept from client to client, as ours.
Ours is the trainer with the package's own networks, so the ratio of the CNN includes its channels-last form.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from fedat_service.wire.settings import Solver
from loadtest.benchmarks.peers.workload import Network
from loadtest.benchmarks.run import Measurement, Results, measurement
from loadtest.benchmarks.timing import medians_s
from workers.models.networks import build
from workers.models.state import params_of
from workers.training.torch_trainer import TorchTrainer

_SHAPE = (1, 28, 28)
_CLASSES = 10
_COHORT = 10
_EXAMPLES = 120
_SOLVER = Solver(name="adam", lr=1e-3, prox_mu=0.4, batch_size=10)
_REPEATS = 5

_Client = tuple[Tensor, Tensor]
_Round = Callable[[], None]


def measure() -> Results:
    """Seconds a round by model and number of local epochs E: medians of interleaved repetitions."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return {
            f"training_{name}_e{epochs}_vs_plain_loop": _compare(
                name, _SOLVER.model_copy(update={"epochs": epochs})
            )
            for name, epochs in (("cnn", 1), ("cnn", 3), ("mlp", 1), ("mlp", 3), ("logistic", 1))
        }
    finally:
        torch.set_num_threads(threads)


def _compare(name: str, solver: Solver) -> Measurement:
    generator = torch.Generator().manual_seed(0)
    cohort = [
        (
            torch.rand((_EXAMPLES, *_SHAPE), generator=generator),
            torch.randint(_CLASSES, (_EXAMPLES,), generator=generator),
        )
        for _ in range(_COHORT)
    ]
    rounds = {"ours": our_round(name, cohort, solver), "loop": _loop_round(name, cohort, solver)}
    times_s = medians_s(rounds, _REPEATS)
    return measurement(times_s["ours"], times_s["loop"])


def our_round(name: str, cohort: list[_Client], solver: Solver) -> _Round:
    """One client after the other, each by the trainer of the package."""
    model = build(name, _SHAPE, _CLASSES, seed=0)
    start = params_of(model)
    trainers = [TorchTrainer(model, client, client, device="cpu") for client in cohort]

    def run() -> None:
        for seed, trainer in enumerate(trainers):
            trainer.train(start, solver, seed)

    return run


def _loop_round(name: str, cohort: list[_Client], solver: Solver) -> _Round:
    model = Network(name)
    start = {key: value.clone() for key, value in model.state_dict().items()}

    def run() -> None:
        for seed, (x, y) in enumerate(cohort):
            torch.manual_seed(seed)
            model.load_state_dict(start)
            _train_plainly(model, x, y, solver)
            _ = {key: value.numpy().copy() for key, value in model.state_dict().items()}

    return run


def _train_plainly(model: nn.Module, x: Tensor, y: Tensor, solver: Solver) -> None:
    centre = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.Adam(model.parameters(), lr=solver.lr, eps=solver.eps)
    for _ in range(solver.epochs):
        for batch in torch.split(torch.randperm(len(y)), solver.batch_size):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[batch]), y[batch])
            away = [((p - c) ** 2).sum() for p, c in zip(model.parameters(), centre, strict=True)]
            loss = loss + solver.prox_mu / 2 * torch.stack(away).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
