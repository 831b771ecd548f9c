"""One real client: your own model and data, at the pace of your own machine."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np

from fedat_service.clock import LoopClock
from workers.client import FedATClient, ModelCache, Retry, open_http
from workers.training.jobs import DueFirst, ExecutorTraining
from workers.training.trainer import LocalTrainer
from workers.worker import Tally, Worker


def run_client(
    url: str,
    federation: str,
    name: str,
    trainer: LocalTrainer,
    *,
    num_examples: int,
    evaluates: bool = True,
    retry: Retry | None = None,
) -> Tally:
    """Work for a federation until it is finished.

    It waits without a word while there is no work, as before `start_clients` of the federation have joined;
    `GET /v1/federations/{federation}` says how many there are.

    The trainer's first act is to load the federation's model, and it refuses one that is not its own.

    Args:
        url: Where the service is: ``http://host:port``.
        federation: Name of the federation.
        name: This client's name, lower-case; the same name again is the same client.
        trainer: Its model and data: a `TorchTrainer`, a `NumPyClientTrainer`, or your own.
        num_examples: Size of its training set.
        evaluates: Whether to report how each model it receives does on its own test data.
        retry: How long to insist when the service is out of reach.

    Returns:
        What it did; a real client has no planned latency, so none of its tasks is late.

    Raises:
        ManifestError: If the federation is about another model.
        ServiceRefused: If the service refuses the client.
        NotNow: If the service is out of reach for too long.
        TrainingError: If training or evaluation gave something that must not be sent.
    """
    with ThreadPoolExecutor(1) as executor:
        training = ExecutorTraining(trainer, DueFirst(executor))
        worker = partial(Worker, name, num_examples, training, evaluates=evaluates)
        return asyncio.run(_work(worker, url, federation, retry, executor))


async def _work(
    worker: Callable[..., Worker], url: str, federation: str, retry: Retry | None, executor: Executor
) -> Tally:
    async with open_http(url) as http:
        client = FedATClient(http, federation, jitter=np.random.default_rng(), retry=retry)
        manifest = (await client.view()).manifest.to_manifest()
        models = ModelCache(federation, manifest, executor, capacity=1)
        tally = await worker(client=client, models=models, clock=LoopClock()).run()
        return replace(tally, late=0)
