"""An engine for virtual time: clients that work at the same time are trained as stacks, in processes."""

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Generic, TypeVar

import torch

from fedat_service.errors import TrainingError
from fedat_service.params import Params
from fedat_service.wire.messages import ClientEvaluation
from workers.fleet.evaluation import FleetEvaluator, cut
from workers.fleet.population import Population
from workers.fleet.settings import FleetSettings
from workers.training.devices import find_device
from workers.training.jobs import ClientTraining, Job, Work
from workers.training.stacked.job import Job as StackedJob
from workers.training.stacked.job import work_key
from workers.training.stacked.planning import plan_stacks, stack_width
from workers.training.stacked.stack_trainer import train_stack
from workers.training.stacked.stacking import NotStackable, stack
from workers.training.torch_trainer import TorchTrainer
from workers.training.trainer import NOTHING_KEPT, EvaluationResult, TrainResult

P = TypeVar("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one client has to train."""

    client: int
    work: Work


class _Workplace:
    """What a process trains and evaluates with, as the fleet's settings and the data say when it is made."""

    def __init__(self, settings: FleetSettings) -> None:
        self.population = Population(settings)
        self._device = find_device(settings.device)
        self._bfloat16 = settings.bfloat16
        self._model = self.population.build_model()
        self._evaluators: dict[int, FleetEvaluator] = {}
        self.pieces = cut(
            [self.population.num_test_examples(client) for client in range(settings.num_clients)]
        )
        first, _ = self.population.train_data(0)
        self._stacked = stack(self.population.build_model(), torch.as_tensor(first[:1]))

    def plan(self, assignments: Sequence[Assignment]) -> list[list[int]]:
        """Which assignments are trained together, by their places."""
        if not assignments:
            return []
        width = stack_width(self._model, assignments[0].work.solver.batch_size, self._device)
        return plan_stacks([self._key(one) for one in assignments], width)

    def _key(self, one: Assignment) -> Hashable:
        # A stack does whole rounds that depend on nothing but the model they start from.
        sync, kept = one.work.sync, one.work.kept
        whole = sync.index == 0 and sync.last and sync.blocks == 1 and not sync.slots and kept == NOTHING_KEPT
        if isinstance(self._stacked, NotStackable) or not whole:
            return None
        size = self.population.num_examples(one.client)
        return work_key(one.work.solver, size, mixes_examples=self._stacked.mixes_examples)

    def train(self, cohort: Sequence[Assignment]) -> list[TrainResult]:
        if len(cohort) == 1 or isinstance(self._stacked, NotStackable):
            return [self._trainer(one.client).train(*one.work) for one in cohort]
        jobs = [self._job(one) for one in cohort]
        return train_stack(self._stacked, jobs, device=self._device, bfloat16=self._bfloat16)

    def _job(self, one: Assignment) -> StackedJob:
        inputs, labels = (torch.as_tensor(part) for part in self.population.train_data(one.client))
        return StackedJob(inputs, labels, one.work.start, one.work.solver, one.work.seed)

    def evaluate(self, client: int, params: Params) -> EvaluationResult:
        return self._trainer(client).evaluate(params)

    def evaluate_piece(self, piece: int, params: Params) -> Sequence[ClientEvaluation]:
        if piece not in self._evaluators:
            clients = self.pieces[piece]
            self._evaluators[piece] = FleetEvaluator(self._model, self.population, clients, self._device)
        return self._evaluators[piece](params)

    def _trainer(self, client: int) -> TorchTrainer:
        train, test = self.population.train_data(client), self.population.test_data(client)
        return TorchTrainer(self._model, train, test, device=self._device, bfloat16=self._bfloat16)


@lru_cache(maxsize=1)
def _workplace(settings: FleetSettings) -> _Workplace:
    """A process's workplace, made when its first work arrives."""
    return _Workplace(settings)


def _train(settings: FleetSettings, cohort: Sequence[Assignment]) -> list[TrainResult]:
    return _workplace(settings).train(cohort)


def _evaluate(settings: FleetSettings, client: int, params: Params) -> EvaluationResult:
    return _workplace(settings).evaluate(client, params)


def _evaluate_piece(settings: FleetSettings, piece: int, params: Params) -> Sequence[ClientEvaluation]:
    return _workplace(settings).evaluate_piece(piece, params)


def _prepare(settings: FleetSettings) -> None:
    _workplace(settings)


class CohortEngine:
    """Collects what clients begin, and trains all of it together as soon as the first of them is through.

    On virtual time nothing happens between two instants, so which clients are trained together depends on
    the simulated latencies alone: the results are the same bits for every pool and number of processes.
    Joining blocks the event loop, whose time stands still meanwhile.

    Args:
        settings: The fleet; every process of the pool builds its clients from them.
        pool: Where training and evaluation run.
    """

    def __init__(self, settings: FleetSettings, pool: Executor) -> None:
        self._settings = settings
        self._pool = pool
        self._waiting: list[_TrainingJob] = []
        # The data may have changed since another run of this process.
        _workplace.cache_clear()

    def prepare(self, pool: Executor, num_processes: int) -> None:
        """Have the processes of a pool start and load what they train, while nobody waits for them yet.

        Args:
            pool: The processes themselves, for nothing comes of this that could be kept.
            num_processes: How many there are.
        """
        for _ in range(num_processes):
            pool.submit(_prepare, self._settings)

    @property
    def population(self) -> Population:
        """The clients that it trains."""
        return _workplace(self._settings).population

    def training_of(self, client: int) -> ClientTraining:
        """See `Engine`."""
        return _CohortMember(self, client)

    def evaluate_all(self, params: Params, due_s: float) -> Job[Sequence[ClientEvaluation]]:
        """See `Engine`."""
        pieces = range(len(_workplace(self._settings).pieces))
        futures = [self._pool.submit(_evaluate_piece, self._settings, piece, params) for piece in pieces]
        return _BlockingJob(futures, _joined)

    def evaluate(self, client: int, params: Params) -> Job[EvaluationResult]:
        """Start an evaluation on one client's own test set."""
        return _BlockingJob([self._pool.submit(_evaluate, self._settings, client, params)], itemgetter(0))

    def train(self, assignment: Assignment) -> Job[TrainResult]:
        """Put one client's training beside those that are waiting to be done together."""
        job = _TrainingJob(self, assignment)
        self._waiting.append(job)
        return job

    def leave_out(self, job: "_TrainingJob") -> None:
        """Do not train for somebody who has dropped out."""
        if job in self._waiting:
            self._waiting.remove(job)

    def begin(self) -> None:
        """Send everything that waits to the pool, in stacks."""
        # Clients that begin at one instant may do so in any order: how long an answer was does not matter.
        jobs, self._waiting = sorted(self._waiting, key=lambda job: job.assignment.client), []
        for places in _workplace(self._settings).plan([job.assignment for job in jobs]):
            together = [jobs[place] for place in places]
            assignments = [job.assignment for job in together]
            future = self._pool.submit(_train, self._settings, assignments)
            for place, job in enumerate(together):
                job.stack, job.place = future, place


def _joined(pieces: Sequence[Sequence[ClientEvaluation]]) -> Sequence[ClientEvaluation]:
    return tuple(chain.from_iterable(pieces))


class _CohortMember:
    """One client's share in an engine."""

    def __init__(self, engine: CohortEngine, client: int) -> None:
        self._engine = engine
        self._client = client

    def train(self, work: Work, due_s: float) -> Job[TrainResult]:
        return self._engine.train(Assignment(self._client, work))

    def evaluate(self, params: Params) -> Job[EvaluationResult]:
        return self._engine.evaluate(self._client, params)


class _BlockingJob(Generic[P, T]):
    """Work in a pool, in one piece or several, waited for while virtual time stands still."""

    def __init__(self, pieces: Sequence[Future[P]], join: Callable[[Sequence[P]], T]) -> None:
        self._pieces = pieces
        self._join = join

    def done(self) -> bool:
        """A simulated client has done its work when its latency is over."""
        return True

    async def result(self) -> T:
        return self._join([piece.result() for piece in self._pieces])

    def cancel(self) -> None:
        for piece in self._pieces:
            piece.cancel()


class _TrainingJob:
    """One client's place in a stack; `stack` is None until its training begins."""

    def __init__(self, engine: CohortEngine, assignment: Assignment) -> None:
        self.assignment = assignment
        self.stack: Future[list[TrainResult]] | None = None
        self.place = 0
        self._engine = engine

    def done(self) -> bool:
        """A simulated client has done its work when its latency is over."""
        return True

    async def result(self) -> TrainResult:
        if self.stack is None:
            self._engine.begin()
        if self.stack is None:
            raise TrainingError(f"client {self.assignment.client} was left out of training")
        return self.stack.result()[self.place]

    def cancel(self) -> None:
        self._engine.leave_out(self)
