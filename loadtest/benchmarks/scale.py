"""Virtual time at scale: what a simulated hour, a simulated round and a registered client cost.

The clients' training returns its start model, so that nothing but service, protocol, codec and worker loop is
measured. Each simulation is a process of its own: memory is its own, too.

`scale_round_of_the_cnn_s` is a round of FedAvg with 10 of 100 clients and FedAT's CNN. Its tensors travel as
float32, not as polyline, and the event log stays in memory: nothing is written to disk.
"""

import asyncio
import json
import resource
import subprocess
import sys
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from fedat_service.clock import LoopClock
from fedat_service.coordinator.limits import Limits
from fedat_service.coordinator.offload import inline
from fedat_service.errors import ServiceRefused
from fedat_service.http.app import create_app
from fedat_service.params import Manifest, Params, TensorSpec
from fedat_service.virtual import run_virtual
from fedat_service.wire.messages import CreateFederation, ManifestMessage
from fedat_service.wire.settings import Rounds, Solver, Stop
from loadtest.benchmarks.run import Results, measurement
from loadtest.in_process import LONGEST_POLL_S, URL
from workers.client import AppConnection, FedATClient, ModelCache
from workers.latency import parse_latency
from workers.training.jobs import DueFirst, ExecutorTraining, InlineExecutor
from workers.training.trainer import NOTHING_KEPT, ONLY_SYNC, EvaluationResult, Kept, Sync, TrainResult
from workers.worker import Pace, Worker

_MANY, _FEW = 10_000, 1_000
_HOUR_S = 3600.0
_COMPUTE_S = 20.0
_NUM_EXAMPLES = 100
_TARGET_HOUR_S, _TARGET_MEMORY_BYTES, _TARGET_ROUND_S = 60.0, 600e6, 0.020
"""What this project set itself; other baselines are measured in the same run."""

_SMALL = Manifest(
    (TensorSpec("fc.weight", (10, 64), "float32", "fc"), TensorSpec("fc.bias", (10,), "float32", "fc"))
)


class _Echo:
    """A trainer that returns what it was given."""

    def train(
        self, start: Params, solver: Solver, seed: int, sync: Sync = ONLY_SYNC, kept: Kept = NOTHING_KEPT
    ) -> TrainResult:
        return TrainResult(dict(start), _NUM_EXAMPLES, {})

    def evaluate(self, params: Params) -> EvaluationResult:
        return EvaluationResult(0, 0, 0.0)


def measure() -> Results:
    """Seconds of a simulated hour of FedAT; seconds of a round of the CNN; growth with registered clients."""
    many = _in_a_process("fedat", _MANY, _HOUR_S)
    few = _in_a_process("fedat", _FEW, _HOUR_S)
    rounds = _in_a_process("fedavg", 100, _HOUR_S / 3)
    return {
        "scale_hour_of_many_clients_s": measurement(
            many["start_s"] + many["rounds_s"] + many["end_s"], _TARGET_HOUR_S
        ),
        "scale_memory_of_many_clients": measurement(many["memory_bytes"], _TARGET_MEMORY_BYTES),
        "scale_round_many_vs_few_clients": measurement(_round_s(many), _round_s(few)),
        "scale_round_of_the_cnn_s": measurement(_round_s(rounds), _TARGET_ROUND_S),
    }


def _round_s(costs: dict[str, float]) -> float:
    return costs["rounds_s"] / costs["versions"]


def _in_a_process(method: str, num_clients: int, horizon_s: float) -> dict[str, float]:
    command = [sys.executable, "-m", "loadtest.benchmarks.scale", method, str(num_clients), str(horizon_s)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603 - our own
    costs: dict[str, float] = json.loads(told)
    return costs


async def _simulate(method: str, num_clients: int, horizon_s: float) -> dict[str, float]:
    clock = LoopClock()
    manifest = _SMALL if method == "fedat" else _cnn()
    app = create_app(Limits(max_wait_s=LONGEST_POLL_S), offload=inline)
    async with app.router.lifespan_context(app):
        operator = FedATClient(AppConnection(app, URL), "scale", jitter=np.random.default_rng(0))
        await operator.create_federation(
            CreateFederation(
                name="scale",
                method=method,
                manifest=ManifestMessage.of(manifest),
                rounds=Rounds(start_clients=num_clients, cohort_size=10),
                stop=Stop(max_time_s=horizon_s),
            )
        )
        workers = _workers(app, manifest, num_clients)
        start_s = perf_counter()
        async with asyncio.TaskGroup() as group:
            for worker in workers:
                group.create_task(worker.run())
            first_s = await _first_version_s(operator)
            await clock.sleep(horizon_s - clock.now())
            last_s = perf_counter()
        end_s = perf_counter()
        versions = (await operator.view()).version
    return {
        "start_s": first_s - start_s,
        "rounds_s": last_s - first_s,
        "end_s": end_s - last_s,
        "versions": versions,
        "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _cnn() -> Manifest:
    # Imported where it is needed: torch is no part of the memory of many clients.
    from workers.models import networks
    from workers.models.state import manifest_of

    return manifest_of(networks.build("cnn", (1, 28, 28), 10, seed=0))


def _workers(app: Any, manifest: Manifest, num_clients: int) -> list[Worker]:  # noqa: ANN401 - an ASGI app
    training = ExecutorTraining(_Echo(), DueFirst(InlineExecutor()))
    models = ModelCache("scale", manifest, InlineExecutor())
    latency = parse_latency("fedat", num_clients, 0, _COMPUTE_S)
    return [
        Worker(
            f"c{k:05d}",
            _NUM_EXAMPLES,
            training,
            client=FedATClient(AppConnection(app, URL), "scale", jitter=np.random.default_rng(k)),
            models=models,
            clock=LoopClock(),
            pace=Pace(partial(latency.sample, k)),
            wait_s=LONGEST_POLL_S,
        )
        for k in range(num_clients)
    ]


async def _first_version_s(operator: FedATClient) -> float:
    """The real time when the first version is there.

    Raises:
        ServiceRefused: If the federation ends without one.
    """
    while (view := await operator.view()).version == 0:
        if view.status == "finished":
            raise ServiceRefused("the federation made no version", 410, "gone")
        await LoopClock().sleep(1.0)
    return perf_counter()


if __name__ == "__main__":
    _method, _clients, _horizon = sys.argv[1:]
    sys.stdout.write(json.dumps(run_virtual(_simulate(_method, int(_clients), float(_horizon)))))
