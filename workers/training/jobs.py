"""Training as work on its way: started when a client begins, joined when its latency is over."""

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import Executor, Future
from heapq import heappop, heappush
from itertools import count
from threading import Lock
from typing import NamedTuple, ParamSpec, Protocol, TypeVar

from fedat_service.params import Params
from fedat_service.wire.settings import Solver
from workers.training.trainer import (
    NOTHING_KEPT,
    ONLY_SYNC,
    EvaluationResult,
    Kept,
    LocalTrainer,
    Sync,
    TrainResult,
)

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Job(Protocol[T_co]):
    """Work that was started."""

    def done(self) -> bool:
        """Whether its result is there."""
        ...

    async def result(self) -> T_co:
        """Wait for the result, or raise what the work raised."""
        ...

    def cancel(self) -> None:
        """Say that nobody wants the result any more."""
        ...


class Work(NamedTuple):
    """What a client is given to train: the arguments of `LocalTrainer.train`."""

    start: Params
    solver: Solver
    seed: int
    sync: Sync = ONLY_SYNC
    kept: Kept = NOTHING_KEPT


class ClientTraining(Protocol):
    """One client's model and data, wherever they are worked on."""

    def train(self, work: Work, due_s: float) -> Job[TrainResult]:
        """Start training: see `LocalTrainer.train`; wanted at `due_s`, in federation seconds."""
        ...

    def evaluate(self, params: Params) -> Job[EvaluationResult]:
        """Start an evaluation on the client's own test set."""
        ...


class FutureJob(Job[T]):
    """Work that an executor was given."""

    def __init__(self, future: Future[T]) -> None:
        self._future = future

    def done(self) -> bool:
        """See `Job`."""
        return self._future.done()

    async def result(self) -> T:
        """See `Job`."""
        return await asyncio.wrap_future(self._future)

    def cancel(self) -> None:
        """See `Job`."""
        self._future.cancel()


class DueFirst:
    """Work for an executor that many clients share: what is due first is done first.

    So a fast client does not wait for the trainings of slow ones, which have time.

    Args:
        executor: Does the work: never on the event loop.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._given = count()
        self._lock = Lock()

    def submit(self, due_s: float, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have `fn` called; its result is wanted at `due_s`."""
        future: Future[T] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - it is the future's, as in every executor
                future.set_exception(error)

        with self._lock:
            heappush(self._waiting, (due_s, next(self._given), work))
        self._executor.submit(self._work_on_first)
        return future

    def _work_on_first(self) -> None:
        with self._lock:
            _, _, work = heappop(self._waiting)
        work()


class ExecutorTraining:
    """A trainer whose work is done beside the event loop.

    Args:
        trainer: The client's model and data.
        queue: Where they are worked on.
    """

    def __init__(self, trainer: LocalTrainer, queue: DueFirst) -> None:
        self._trainer = trainer
        self._queue = queue

    def train(self, work: Work, due_s: float) -> Job[TrainResult]:
        """See `ClientTraining`."""
        return FutureJob(self._queue.submit(due_s, self._trainer.train, *work))

    def evaluate(self, params: Params) -> Job[EvaluationResult]:
        """See `ClientTraining`: it comes before the client's training, and so before all training."""
        return FutureJob(self._queue.submit(-math.inf, self._trainer.evaluate, params))


class InlineExecutor(Executor):
    """Runs work at once in the thread that submits it: for virtual time, which knows no threads."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `fn` now; the future is done."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it is the future's, as in every executor
            future.set_exception(error)
        return future
