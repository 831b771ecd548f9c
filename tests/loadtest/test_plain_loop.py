"""A simulated federation is the loop that one would write by hand: same cohorts, same orders, same model."""

from functools import partial

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from fedat_service.coordinator.offload import inline
from fedat_service.http.app import create_app
from fedat_service.virtual import run_virtual
from fedat_service.wire.codecs import Float32
from fedat_service.wire.messages import CreateFederation, ManifestMessage
from fedat_service.wire.presets import resolve
from fedat_service.wire.settings import Rounds, Solver, Stop
from workers.client import AppConnection, FedATClient, ModelCache
from workers.fleet.cohort_engine import CohortEngine
from workers.fleet.hosting import host
from workers.fleet.population import Population
from workers.fleet.settings import FleetSettings
from workers.models.state import manifest_of
from workers.training.jobs import InlineExecutor

COHORT, ROUNDS, BATCH, EPOCHS, LR = 4, 5, 10, 2, 0.05
FLEET = FleetSettings(
    url="http://service",
    federation="f",
    num_clients=12,
    num_processes=1,
    limit_per_class=60,
    partition="dirichlet:0.5",
    model="logistic",
    latency="none",
    evaluate_every_s=1000.0,
    seed=3,
)


class RecordingEngine(CohortEngine):
    """Notes what was trained, in the order in which it was begun."""

    def __init__(self, settings):
        super().__init__(settings, InlineExecutor())
        self.seen = []

    def train(self, assignment):
        self.seen.append(assignment)
        return super().train(assignment)


async def simulated(population, engine):
    """The last model, and its accuracy as the service tells it."""
    manifest = manifest_of(population.build_model())
    app = create_app(offload=inline)
    connect = partial(AppConnection, app)
    work = Solver(name="sgd", lr=LR, batch_size=BATCH, epochs=EPOCHS)
    async with app.router.lifespan_context(app), connect(FLEET.url) as connection:
        client = FedATClient(connection, "f", jitter=np.random.default_rng(0))
        await client.create_federation(
            CreateFederation(
                name="f",
                method=resolve("fedavg").model_copy(update={"solver": work}),
                manifest=ManifestMessage.of(manifest),
                rounds=Rounds(start_clients=FLEET.num_clients, cohort_size=COHORT),
                stop=Stop(max_versions=ROUNDS),
                seed=FLEET.seed,
            )
        )
        await host(population, 0, engine, InlineExecutor(), connect)
        model = await client.fetch_newest(ModelCache("f", manifest, InlineExecutor()), Float32())
        return model, (await client.metrics()).evaluations[-1]


def train(module, x, y, seed):
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(module.parameters(), LR)
    for _ in range(EPOCHS):
        for batch in torch.split(torch.randperm(len(y), generator=generator), BATCH):
            optimizer.zero_grad()
            F.cross_entropy(module(x[batch]), y[batch]).backward()
            optimizer.step()


def plain_loop(population, assignments):
    module = population.build_model()
    weights = {name: value.clone() for name, value in module.state_dict().items()}
    for number in range(ROUNDS):
        total = {name: torch.zeros_like(value) for name, value in weights.items()}
        num_examples = 0
        for one in assignments[number * COHORT : (number + 1) * COHORT]:
            x, y = (torch.as_tensor(part) for part in population.train_data(one.client))
            module.load_state_dict(weights)
            train(module, x, y, one.work.seed)
            num_examples += len(y)
            for name, value in module.state_dict().items():
                total[name] += value * len(y)
        weights = {name: value / num_examples for name, value in total.items()}
    module.load_state_dict(weights)
    return module


def test_federated_averaging_is_the_plain_loop_on_its_cohorts_and_orders():
    population, engine = Population(FLEET), RecordingEngine(FLEET)
    model, evaluated = run_virtual(simulated(population, engine))
    module = plain_loop(population, engine.seen[: ROUNDS * COHORT])
    assert (model.version, evaluated.version) == (ROUNDS, ROUNDS)
    for name, value in module.state_dict().items():
        np.testing.assert_allclose(model.params[name], value.numpy(), rtol=0, atol=1e-5)
    x, y = (
        torch.as_tensor(np.concatenate(parts))
        for parts in zip(*map(population.test_data, range(FLEET.num_clients)), strict=True)
    )
    with torch.no_grad():
        accuracy = float((module(x).argmax(1) == y).double().mean())
    assert evaluated.accuracy == pytest.approx(accuracy)
