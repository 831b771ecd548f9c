"""A simulation's pool of processes against the standard library's, which sends everything through pipes.

The work is none: two stacks of 5 clients come back as they went, as those of a cohort of ten do in two
processes.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray

from loadtest.benchmarks.run import Measurement, Results, measurement
from loadtest.benchmarks.timing import medians_s
from workers.fleet.pools import open_pool

_PROCESSES = 2
_CLIENTS = 5
_PARAMETERS = {"cnn": 93_322, "mlp": 159_010}
_REPEATS = 30

_Models = list[NDArray[np.float32]]


def measure() -> Results:
    """Seconds there and back, by the size of the model: medians of interleaved repetitions."""
    return {f"pool_{name}_vs_pipes": compare(size, _REPEATS) for name, size in _PARAMETERS.items()}


def compare(num_parameters: int, repeats: int) -> Measurement:
    """Send stacks of models through both pools, by turns, and take the medians."""
    models = [np.full(num_parameters, client, np.float32) for client in range(_CLIENTS)]
    pipes = ProcessPoolExecutor(_PROCESSES, get_context("spawn"))
    with pipes, open_pool("processes", _PROCESSES) as ours:
        times_s = medians_s({"ours": _exchange(ours, models), "pipes": _exchange(pipes, models)}, repeats)
    return measurement(times_s["ours"], times_s["pipes"])


def _exchange(pool: Executor, models: _Models) -> Callable[[], Sequence[_Models]]:
    def exchange() -> Sequence[_Models]:
        sent = [pool.submit(_returned, models) for _ in range(_PROCESSES)]
        return [future.result() for future in sent]

    return exchange


def _returned(models: _Models) -> _Models:
    return models
