"""One client of a federation: it asks for work, trains, takes its time, and sends the result."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest

from pydantic import ValidationError

from fedat_service.clock import Clock
from fedat_service.errors import ManifestError, ServiceRefused, TrainingError
from fedat_service.params import Manifest, Params, TensorSpec
from fedat_service.wire.messages import Evaluation, RegisterClient, Task
from fedat_service.wire.settings import Slot
from workers.client import FedATClient, ModelCache
from workers.training.jobs import ClientTraining, Work
from workers.training.trainer import NOTHING_KEPT, EvaluationResult, Sync, TrainResult

LONG_POLL_S = 30.0
"""Longest long-poll over a network, in real seconds."""

_OVER = (404, 410)
"""HTTP status of a task whose time is over, and of one that a service forgot."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a simulated client takes, in federation seconds; a real client has `Pace()`.

    Args:
        latency_s: Seconds of the client's n-th participation, n from 0, from task to upload. What training
            really takes is part of it; only the rest is waited for.
        drop_at_s: When the client is gone for good, with whatever it is doing.
    """

    latency_s: Callable[[int], float] = lambda _: 0.0
    drop_at_s: float = math.inf


@dataclass(slots=True)
class Tally:
    """What a client did.

    Args:
        tasks: Tasks it was given, profiling included.
        late: Tasks that took longer than the client's latency: the machine is too slow for the clock's rate.
        refused: Tasks whose time was over before the result was there, or had arrived.
        finished: Whether it saw the end of the federation; else it dropped out.
    """

    tasks: int = 0
    late: int = 0
    refused: int = 0
    finished: bool = False

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.tasks + other.tasks,
            self.late + other.late,
            self.refused + other.refused,
            self.finished or other.finished,
        )


def check_manifest(own: Manifest, federation: Manifest) -> None:
    """Check that a client's model is the federation's.

    Raises:
        ManifestError: If not; the message names the first tensor that differs.
    """
    for mine, theirs in zip_longest(own.tensors, federation.tensors):
        if mine != theirs:
            raise ManifestError(
                f"this client's model has {_describe(mine)}, the federation's has {_describe(theirs)}"
            )


def _describe(tensor: TensorSpec | None) -> str:
    if tensor is None:
        return "no further tensor"
    learns = "trainable" if tensor.trainable else "frozen"
    return f"{tensor.name} of layer {tensor.layer}, {learns} {tensor.dtype}{list(tensor.shape)}"


def reportable(client: str, found: EvaluationResult) -> Evaluation:
    """Make what an evaluation found the message that reports it.

    A model can diverge and still be finite: then its loss is none that can travel, and nothing else may
    stand for it.

    Raises:
        TrainingError: If a number cannot be reported; the message names the client and the number.
    """
    try:
        return Evaluation(num_examples=found.num_examples, correct=found.correct, loss=found.loss)
    except ValidationError as error:
        first = error.errors()[0]
        raise TrainingError(
            f"client {client!r} evaluated a model and got {first['loc'][0]} {first['input']}: {first['msg']}"
        ) from error


class Worker:
    """The loop of one client.

    Args:
        name: The client's name; the same name again is the same client.
        num_examples: Size of its training set.
        training: Its model and data.
        client: Its way to the service.
        models: Where fetched models are decoded; may be shared.
        clock: The federation's time.
        pace: How long it takes.
        evaluates: Whether it reports how each model it receives does on its own test split.
        wait_s: Longest long-poll, in real seconds.
    """

    def __init__(
        self,
        name: str,
        num_examples: int,
        training: ClientTraining,
        *,
        client: FedATClient,
        models: ModelCache,
        clock: Clock,
        pace: Pace | None = None,
        evaluates: bool = False,
        wait_s: float = LONG_POLL_S,
    ) -> None:
        self._me = RegisterClient(name=name, num_examples=num_examples)
        self._training = training
        self._client = client
        self._models = models
        self._clock = clock
        self._pace = pace or Pace()
        self._evaluates = evaluates
        self._wait_s = wait_s
        self._tally = Tally()
        self._local: Params = {}
        self._kept = NOTHING_KEPT
        self._over: str | None = None

    async def run(self) -> Tally:
        """Work until the federation is finished, or the client drops out.

        Raises:
            ServiceRefused: If the service refuses what no new task can cure: a bug must be seen.
            NotNow: If the service is out of reach for too long.
            TrainingError: If training or evaluation gave something that must not be sent.
        """
        try:
            await self._register()
            stays = True
            while stays and self._left_s() > 0:
                task = await self._next_task()
                if task is not None:
                    stays = await self._work(task)
        except ServiceRefused as refusal:
            if refusal.status != 410:
                raise
            self._tally.finished = True
        return self._tally

    async def _register(self) -> None:
        self._over = None
        await self._client.register(self._me)

    async def _next_task(self) -> Task | None:
        wait_s = max(0.0, min(self._wait_s, self._left_s() / self._clock.rate))
        try:
            return await self._client.next_task(self._me.name, wait_s)
        except ServiceRefused as refusal:
            if refusal.status != 404:
                raise
        # The service has lost its memory of this client.
        await self._register()
        return None

    async def _work(self, task: Task) -> bool:
        """Do one task; False if the client drops out before it is done."""
        now_s = self._clock.now()
        due_s, over_s = now_s + self._pace.latency_s(self._tally.tasks), now_s + task.deadline_in_s
        self._tally.tasks += 1
        try:
            work = await self._begin(task)
            if self._evaluates and task.purpose == "train" and task.sync == 0:
                await self._evaluate(task, work.start)
            job = self._training.train(work, due_s)
            is_late = self._clock.now() > due_s
            if not await self._wait_until(due_s):
                job.cancel()
                return False
            self._tally.late += is_late or not job.done()
            # Training on would keep this machine's other clients waiting, for nothing.
            async with asyncio.timeout(max(0.0, over_s - self._clock.now()) / self._clock.rate):
                result = await job.result()
            slots: dict[Slot, Params] = {"weights": result.params}
            slots |= {slot: result.slots[slot] for slot in task.up if slot != "weights"}
            await self._client.put_update(task, slots, result.num_examples, self._models)
            self._keep(task, result)
        except ServiceRefused as refusal:
            if refusal.status not in _OVER or task.task == self._over:
                raise
            # Somebody else's round has closed, or the service has restarted. Given the same task again at
            # once, there is something wrong.
            self._over = task.task
            self._tally.refused += 1
        except TimeoutError:
            self._tally.refused += 1
        return True

    async def _begin(self, task: Task) -> Work:
        """Fetch what a task begins with, and write it over what the client has."""
        fetched = await self._client.fetch_model(task, self._models)
        mine = {**self._local, **fetched.params}
        if len(mine) < len(self._models.manifest.tensors):
            # A new client, or one that has lost its model, lacks what does not travel now.
            mine = {**(await self._client.fetch_base(task, self._models)).params, **mine}
        sync = Sync(
            index=task.sync,
            last=task.last,
            blocks=task.blocks,
            fetched=task.down.get("weights", ()) if task.sync else None,
            slots=fetched.slots,
            up=task.up,
        )
        start = {tensor.name: mine[tensor.name] for tensor in self._models.manifest.tensors}
        return Work(start, task.solver, task.seed, sync, self._kept)

    def _keep(self, task: Task, result: TrainResult) -> None:
        """Keep what the next task goes on with; what the service did not accept has not happened."""
        if task.purpose == "train":
            # What is sent comes back averaged; the rest is this client's own until it is due.
            sent = task.up.get("weights", ())
            self._local = {name: array for name, array in result.params.items() if name not in sent}
            self._kept = result.kept

    async def _evaluate(self, task: Task, params: Params) -> None:
        found = await self._training.evaluate(params).result()
        if found.num_examples:
            await self._client.put_evaluation(task, reportable(self._me.name, found))

    async def _wait_until(self, due_s: float) -> bool:
        """Wait; False if the client drops out first."""
        await self._clock.sleep(min(due_s, self._pace.drop_at_s) - self._clock.now())
        return due_s < self._pace.drop_at_s and self._left_s() > 0

    def _left_s(self) -> float:
        return self._pace.drop_at_s - self._clock.now()
