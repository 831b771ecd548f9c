"""Who trains and evaluates for a process's clients: its own thread, or a pool that stacks cohorts."""

from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Protocol

from fedat_service.params import Params
from fedat_service.wire.messages import ClientEvaluation
from fedat_service.wire.settings import Solver
from workers.fleet.evaluation import FleetEvaluator
from workers.fleet.population import Population
from workers.models.state import params_of
from workers.training.devices import find_device
from workers.training.jobs import ClientTraining, DueFirst, ExecutorTraining, FutureJob, Job
from workers.training.torch_trainer import TorchTrainer


class Engine(Protocol):
    """The arithmetic of a fleet's clients."""

    def training_of(self, client: int) -> ClientTraining:
        """What trains one client."""
        ...

    def evaluate_all(self, params: Params, due_s: float) -> Job[Sequence[ClientEvaluation]]:
        """Start evaluating a model on all clients' test sets; wanted at `due_s`, in federation seconds."""
        ...


class LocalEngine:
    """All clients share one torch module, one after the other.

    Args:
        population: The fleet's clients.
        executor: Where the module is worked with. It must do one thing at a time.

    Raises:
        ConfigError: If the device that the fleet's settings ask for is not there.
    """

    def __init__(self, population: Population, executor: Executor) -> None:
        self._population = population
        self._queue = DueFirst(executor)
        self._device = find_device(population.settings.device)
        self._model = population.build_model()
        self._evaluate = FleetEvaluator(self._model, population, device=self._device)
        # torch's first step takes seconds, which are no client's latency.
        once = Solver(batch_size=population.num_examples(0))
        self._trainer(0).train(params_of(self._model), once, seed=0)

    def training_of(self, client: int) -> ClientTraining:
        """See `Engine`."""
        return ExecutorTraining(self._trainer(client), self._queue)

    def evaluate_all(self, params: Params, due_s: float) -> Job[Sequence[ClientEvaluation]]:
        """See `Engine`."""
        return FutureJob(self._queue.submit(due_s, self._evaluate, params))

    def _trainer(self, client: int) -> TorchTrainer:
        train, test = self._population.train_data(client), self._population.test_data(client)
        settings = self._population.settings
        return TorchTrainer(self._model, train, test, device=self._device, bfloat16=settings.bfloat16)
