"""Clients trained as stacks against the same clients one by one, on the same work.

A cohort of 10 clients, each with 120 images of 1x28x28, Adam, batches of 10, one local epoch; one process,
one thread. The baseline is `TorchTrainer`, which is faster than a plain loop itself (see `training`). Ours
are the stacks that a fleet makes (`cohort_engine`): two of 5 clients, so that a cohort of ten keeps two
processes busy. Both keep freed memory (`keep_freed_memory`), therefore in a process of their own.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch
from torch import Tensor

from fedat_service.errors import ConfigError
from fedat_service.wire.settings import Solver
from loadtest.benchmarks.run import Measurement, Results, measurement
from loadtest.benchmarks.timing import medians_s
from loadtest.benchmarks.training import our_round
from workers.models.networks import build
from workers.models.state import params_of
from workers.training.devices import CPU
from workers.training.memory import keep_freed_memory
from workers.training.stacked.job import Job, stack_key
from workers.training.stacked.planning import plan_stacks, stack_width
from workers.training.stacked.stack_trainer import train_stack
from workers.training.stacked.stacking import NotStackable, stack

_SHAPE = (1, 28, 28)
_CLASSES = 10
_COHORT = 10
_EXAMPLES = 120
_SOLVER = Solver(name="adam", lr=1e-3, batch_size=10)
_REPEATS = 7

_Round = Callable[[], None]


def measure() -> Results:
    """Seconds a round by model: medians of interleaved repetitions."""
    with ProcessPoolExecutor(1, get_context("spawn"), keep_freed_memory) as process:
        return {
            f"stacking_{name}_vs_one_by_one": process.submit(compare, name, _EXAMPLES, _REPEATS).result()
            for name in ("cnn", "mlp", "logistic")
        }


def compare(name: str, num_examples: int, repeats: int) -> Measurement:
    """Train a cohort in both ways, by turns, and take the medians.

    Raises:
        ConfigError: If the model cannot be stacked.
    """
    generator = torch.Generator().manual_seed(0)
    clients = [
        (
            torch.rand((num_examples, *_SHAPE), generator=generator),
            torch.randint(_CLASSES, (num_examples,), generator=generator),
        )
        for _ in range(_COHORT)
    ]
    rounds = {"stacked": _stacked_round(name, clients), "one by one": our_round(name, clients, _SOLVER)}
    times_s = medians_s(rounds, repeats)
    return measurement(times_s["stacked"], times_s["one by one"])


def _stacked_round(name: str, clients: Sequence[tuple[Tensor, Tensor]]) -> _Round:
    module = build(name, _SHAPE, _CLASSES, seed=0)
    model = stack(module, clients[0][0])
    if isinstance(model, NotStackable):
        raise ConfigError(f"model {name!r} cannot be stacked: {model.reason}")
    start = params_of(module)
    jobs = [Job(x, y, start, _SOLVER, seed) for seed, (x, y) in enumerate(clients)]
    keys = [stack_key(job, mixes_examples=model.mixes_examples) for job in jobs]
    stacks = plan_stacks(keys, stack_width(module, _SOLVER.batch_size, CPU))

    def run() -> None:
        for places in stacks:
            train_stack(model, [jobs[place] for place in places])

    return run
