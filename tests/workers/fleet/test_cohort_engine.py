import asyncio
from concurrent.futures import Executor

import numpy as np
import pytest
import torch

from fedat_service.errors import ConfigError, TrainingError
from fedat_service.wire.settings import Solver
from workers.fleet import evaluation
from workers.fleet.cohort_engine import CohortEngine
from workers.fleet.engine import LocalEngine
from workers.fleet.pools import open_pool
from workers.fleet.population import Population
from workers.models.state import params_of
from workers.training.jobs import InlineExecutor, Work
from workers.training.stacked.stack_trainer import train_stack

SOLVER = Solver(lr=0.01, epochs=2, batch_size=5)


class CountingExecutor(InlineExecutor):
    """Notes how much work it was given at a time."""

    def __init__(self):
        self.sizes = []

    def submit(self, fn, /, *args, **kwargs):
        self.sizes.append(len(args[1]))
        return super().submit(fn, *args, **kwargs)


class ListingExecutor(InlineExecutor):
    """Lists what it was given to do."""

    def __init__(self):
        self.submitted = []

    def submit(self, fn, /, *args, **kwargs):
        self.submitted.append((fn, args))
        return super().submit(fn, *args, **kwargs)


@pytest.fixture(params=["logistic", "cnn"])
def settings(request, fleet):
    return fleet(num_processes=1, model=request.param)


@pytest.fixture
def start_of():
    return lambda settings: params_of(Population(settings).build_model())


@pytest.fixture
def start(settings, start_of):
    return start_of(settings)


def at_home(settings):
    return settings.model_copy(update={"device": "cpu"})


def results(engine, clients, start):
    async def join():
        jobs = [engine.training_of(client).train(Work(start, SOLVER, client), 0.0) for client in clients]
        return [await job.result() for job in jobs]

    return asyncio.run(join())


def test_a_cohort_trained_together_is_what_its_clients_would_have_trained_alone(settings, start):
    together = results(CohortEngine(settings, InlineExecutor()), range(6), start)
    alone = results(LocalEngine(Population(settings), InlineExecutor()), range(6), start)
    for one, other in zip(together, alone, strict=True):
        assert one.num_examples == other.num_examples
        for name, array in one.params.items():
            np.testing.assert_allclose(array, other.params[name], rtol=1e-3, atol=2e-5)


def test_bfloat16_is_for_stacks_and_for_clients_alone_and_for_fleets(settings, start):
    rounded = settings.model_copy(update={"bfloat16": True})
    cohort, alone = range(4), range(1)
    ways = [
        lambda fleet: results(CohortEngine(fleet, InlineExecutor()), cohort, start),
        lambda fleet: results(CohortEngine(fleet, InlineExecutor()), alone, start),
        lambda fleet: results(LocalEngine(Population(fleet), InlineExecutor()), alone, start),
    ]
    # A stack leaves small linear layers as they are.
    for train, rounds in zip(ways, (settings.model == "cnn", True, True), strict=True):
        exact, rough = (train(fleet)[0].metrics["train_loss"] for fleet in (settings, rounded))
        assert (exact != rough) == rounds
        assert rough == pytest.approx(exact, rel=0.02)


def test_what_begins_together_is_trained_in_few_stacks(settings, start):
    pool = CountingExecutor()
    results(CohortEngine(settings, pool), range(6), start)
    assert sum(pool.sizes) == 6
    assert len(pool.sizes) <= 3


def test_results_do_not_depend_on_who_is_joined_first(settings, start):
    engine = CohortEngine(settings, InlineExecutor())

    async def join_backwards():
        jobs = [engine.training_of(client).train(Work(start, SOLVER, client), 0.0) for client in range(4)]
        return [await job.result() for job in reversed(jobs)][::-1]

    for one, other in zip(asyncio.run(join_backwards()), results(engine, range(4), start), strict=True):
        assert all(np.array_equal(one.params[name], other.params[name]) for name in start)


def test_results_do_not_depend_on_who_began_first(settings, start):
    clients = list(range(6))
    forward = results(CohortEngine(settings, InlineExecutor()), clients, start)
    for order in (clients[::-1], [3, 0, 5, 1, 2, 4]):
        found = dict(zip(order, results(CohortEngine(settings, InlineExecutor()), order, start), strict=True))
        for client, expected in zip(clients, forward, strict=True):
            assert all(np.array_equal(found[client].params[name], expected.params[name]) for name in start)


def test_who_drops_out_before_training_begins_is_left_out(settings, start):
    pool = CountingExecutor()
    engine = CohortEngine(settings, pool)

    async def drop_one():
        stays, goes = (engine.training_of(client).train(Work(start, SOLVER, 0), 0.0) for client in (0, 1))
        goes.cancel()
        await stays.result()
        with pytest.raises(TrainingError, match="client 1"):
            await goes.result()

    asyncio.run(drop_one())
    assert pool.sizes == [1]


def test_evaluations_are_jobs_too(settings, start):
    engine, local = (
        CohortEngine(settings, InlineExecutor()),
        LocalEngine(Population(settings), InlineExecutor()),
    )
    assert asyncio.run(engine.evaluate_all(start, 0.0).result()) == asyncio.run(
        local.evaluate_all(start, 0.0).result()
    )
    one = engine.training_of(2).evaluate(start)
    assert asyncio.run(one.result()) == asyncio.run(local.training_of(2).evaluate(start).result())


def test_an_evaluation_is_shared_by_several_processes(fleet, monkeypatch):
    monkeypatch.setattr(evaluation, "_PIECE", 10)
    settings, pool = fleet(num_processes=1), ListingExecutor()
    start, local = params_of(Population(settings).build_model()), Population(settings)
    found = asyncio.run(CohortEngine(settings, pool).evaluate_all(start, 0.0).result())
    expected = asyncio.run(LocalEngine(local, InlineExecutor()).evaluate_all(start, 0.0).result())
    assert [(e.client, e.num_examples, e.correct) for e in found] == [
        (e.client, e.num_examples, e.correct) for e in expected
    ]
    assert len(pool.submitted) > 1


def test_every_process_of_a_pool_is_asked_to_prepare(settings):
    pool = ListingExecutor()
    CohortEngine(settings, InlineExecutor()).prepare(pool, 3)
    assert len(pool.submitted) == 3


@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_a_pool_of_nothing_is_refused(engine):
    with pytest.raises(ConfigError, match="0"), open_pool(engine, 0):
        pass


def test_a_pool_runs_work_elsewhere_and_is_closed():
    with open_pool("processes", 1) as pool:
        assert isinstance(pool, Executor)
        assert pool.submit(max, 3, 4).result() == 4
    with pytest.raises(RuntimeError):
        pool.submit(max, 3, 4)


@pytest.fixture
def there(fleet, away, monkeypatch):
    """A fleet with a device that is away."""
    devices = {"cuda": away, "cpu": torch.device("cpu")}
    for module in ("cohort_engine", "engine"):
        monkeypatch.setattr(f"workers.fleet.{module}.find_device", devices.__getitem__)
    return fleet(num_processes=1, model="cnn", device="cuda")


def test_elsewhere_a_cohort_is_one_stack_and_gives_what_it_would_here(there, start_of, monkeypatch):
    trained_on = []

    def train_stack_somewhere(*args, device, **options):
        trained_on.append(device)
        return train_stack(*args, device=device, **options)

    monkeypatch.setattr("workers.fleet.cohort_engine.train_stack", train_stack_somewhere)
    start, pool = start_of(there), CountingExecutor()
    here = results(CohortEngine(at_home(there), InlineExecutor()), range(6), start)
    for one, other in zip(results(CohortEngine(there, pool), range(6), start), here, strict=True):
        for name, array in one.params.items():
            np.testing.assert_allclose(array, other.params[name], rtol=1e-3, atol=2e-5)
    assert pool.sizes == [6]
    assert [device.type for device in trained_on] == ["cpu", "cpu", "meta"]


@pytest.mark.parametrize(
    "engine_of", [CohortEngine, lambda s, executor: LocalEngine(Population(s), executor)]
)
@pytest.mark.parametrize("does", ["trains", "evaluates"])
def test_elsewhere_an_engine_does_for_one_client_what_it_does_here(
    there, start_of, monkeypatch, engine_of, does
):
    start, models = start_of(there), []

    def run(settings):
        models.clear()
        engine = engine_of(settings, InlineExecutor())
        if does == "trains":
            return {n: array.tobytes() for n, array in results(engine, [3], start)[0].params.items()}
        return asyncio.run(engine.evaluate_all(start, 0.0).result())

    build_model = Population.build_model
    monkeypatch.setattr(
        Population, "build_model", lambda self: models.append(build_model(self)) or models[-1]
    )
    here = run(at_home(there))
    assert run(there) == here
    assert "meta" in [next(model.parameters()).device.type for model in models]


def test_a_fleet_without_its_device_does_not_begin(fleet):
    settings = fleet(device="cuda:3")
    for build in (
        lambda: LocalEngine(Population(settings), InlineExecutor()),
        lambda: results(CohortEngine(settings, InlineExecutor()), [0], {}),
    ):
        with pytest.raises(ConfigError, match="device 'cuda:3' is not there"):
            build()
