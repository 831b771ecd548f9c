"""Training as work on its way: started when a client begins, joined when its latency is over."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, Protocol, TypeVar

from fedat_service.params import Params
from fedat_service.wire.settings import Solver
from workers.training.trainer import EvaluationResult, LocalTrainer, TrainResult

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


class ClientTraining(Protocol):
    """One client's model and data, wherever they are worked on."""

    def train(self, start: Params, solver: Solver, seed: int) -> Job[TrainResult]:
        """Start training: see `LocalTrainer.train`."""
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


class ExecutorTraining:
    """A trainer whose work an executor does, each piece as soon as it can.

    Args:
        trainer: The client's model and data.
        executor: Where they are worked on: never on the event loop.
    """

    def __init__(self, trainer: LocalTrainer, executor: Executor) -> None:
        self._trainer = trainer
        self._executor = executor

    def train(self, start: Params, solver: Solver, seed: int) -> Job[TrainResult]:
        """See `ClientTraining`."""
        return FutureJob(self._executor.submit(self._trainer.train, start, solver, seed))

    def evaluate(self, params: Params) -> Job[EvaluationResult]:
        """See `ClientTraining`."""
        return FutureJob(self._executor.submit(self._trainer.evaluate, params))


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
