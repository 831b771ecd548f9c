"""The real service and the real worker loop in one process, on virtual time: the same seed, the same log."""

from functools import partial

import numpy as np
import pytest

from fedat_service.coordinator.offload import inline
from fedat_service.coordinator.replay import replay
from fedat_service.federation.events import to_record
from fedat_service.http.app import create_app
from fedat_service.store.base import Store
from fedat_service.store.jsonl import JsonLinesStore
from fedat_service.store.memory import MemoryStore
from fedat_service.virtual import run_virtual
from fedat_service.wire.messages import CreateFederation, ManifestMessage
from fedat_service.wire.settings import (
    CodecName,
    CodecSettings,
    Method,
    Participation,
    Rounds,
    ServerOptimizer,
    Solver,
    Stop,
    Tiering,
)
from workers.client import AppConnection, FedATClient
from workers.fleet.engine import LocalEngine
from workers.fleet.hosting import host
from workers.fleet.population import Population
from workers.fleet.settings import FleetSettings
from workers.models.state import manifest_of
from workers.training.jobs import InlineExecutor

pytestmark = pytest.mark.no_cover  # other tests reach the same lines in less time

NUM_CLIENTS = 12


def rounded_up(codec: CodecName) -> Method:
    """FedAT with a server optimizer and rounded updates: a row that no paper has."""
    return Method(
        participation=Participation(name="fedat", cold_start="reported"),
        solver=Solver(name="sgd", lr=0.05, epochs=1),
        server=ServerOptimizer(name="fedadam", lr=0.1),
        codec=CodecSettings(name=codec),
    )


def rounded_both_ways(codec: CodecName) -> Method:
    return Method(
        participation=Participation(name="fedavg"),
        solver=Solver(name="sgd", lr=0.05, epochs=1),
        codec=CodecSettings(name=codec, directions="both"),
    )


async def federation(seed: int, method: Method | str = "fedat", store: Store | None = None):
    store = store or MemoryStore()
    app = create_app(store=store, offload=inline)
    fleet = FleetSettings(
        url="http://service",
        federation="f",
        num_clients=NUM_CLIENTS,
        num_processes=1,
        model="logistic",
        evaluate_every_s=100.0,
        num_unstable=2,
        drop_horizon_s=400.0,
        seed=seed,
    )
    population = Population(fleet)
    message = CreateFederation(
        name="f",
        method=method,
        manifest=ManifestMessage.of(manifest_of(population.build_model())),
        tiering=Tiering(num_tiers=3),
        rounds=Rounds(start_clients=NUM_CLIENTS, cohort_size=3, deadline_s=90.0),
        stop=Stop(max_time_s=400.0),
        seed=seed,
    )
    async with app.router.lifespan_context(app):
        executor = InlineExecutor()
        connect = partial(AppConnection, app)
        async with connect(fleet.url) as http:
            client = FedATClient(http, "f", jitter=np.random.default_rng(0))
            await client.create_federation(message)
            await host(population, 0, LocalEngine(population, executor), executor, connect)
            metrics = await client.metrics()
            tiers = await client.tiers()
    await store.close()
    events = store.events("f") if isinstance(store, MemoryStore) else ()
    return [to_record(event) for event in events], metrics, tiers


@pytest.fixture(scope="module")
def of_seed_1():
    """Log, metrics and tiers."""
    return run_virtual(federation(1))


def test_the_same_seed_gives_the_same_log_and_another_seed_another(of_seed_1):
    first, again, other = [of_seed_1[0], *(run_virtual(federation(seed))[0] for seed in (1, 2))]
    assert first == again
    assert first != other


def test_virtual_time_is_the_time_of_the_latency_model(of_seed_1):
    _, metrics, tiers = of_seed_1
    assert metrics.versions[-1].at_s <= 400.0
    assert len(metrics.versions) > 10
    latencies = [tier.latency_quantiles_s["p50"] for tier in tiers.tiers if tier.latency_quantiles_s]
    assert latencies == sorted(latencies)
    assert latencies[0] >= 20.0


@pytest.mark.parametrize(
    "method",
    [rounded_up("qsgd"), rounded_both_ways("qsgd"), rounded_both_ways("affine8")],
    ids=["qsgd up", "qsgd both", "affine8 both"],
)
def test_any_row_of_the_axes_gives_the_same_log_again_and_verifies(tmp_path, method):
    logs = []
    for folder in ("first", "again"):
        store = JsonLinesStore(tmp_path / folder, keeps_bodies=True)
        _, metrics, _ = run_virtual(federation(1, method, store))
        logs.append(tmp_path / folder / "f.events.jsonl")
    assert logs[0].read_bytes() == logs[1].read_bytes()
    (played,) = replay(logs[0], verify=True)
    assert played.differing == []
    assert len(played.verified) == len(metrics.versions) > 5


# 640 weights and 10 biases, each tensor with its norm or its grid.
@pytest.mark.parametrize(
    ("codec", "size"),
    [("qsgd", 4 + 640 * 6 // 8 + 4 + 8), ("affine8", 9 + 640 + 9 + 10)],
    ids=["qsgd", "affine8"],
)
def test_a_rounded_update_takes_six_or_eight_bits_an_element_and_learns(codec, size):
    _, metrics, _ = run_virtual(federation(1, rounded_up(codec)))
    updates = metrics.up.parameters // 650
    assert metrics.up.payload == updates * size
    assert metrics.down.payload == 4 * metrics.down.parameters
    accuracies = [point.accuracy for point in metrics.evaluations]
    assert accuracies[-1] > accuracies[0] + 0.2


@pytest.mark.parametrize("codec", ["qsgd", "affine8"])
def test_clients_that_hold_the_version_before_are_sent_its_step(codec):
    _, metrics, _ = run_virtual(federation(1, rounded_both_ways(codec)))
    assert metrics.down.payload < 3.5 * metrics.down.parameters


def test_differences_on_the_grid_make_the_same_versions_from_fewer_bytes():
    runs = []
    for reference in ("absolute", "base"):
        solver = Solver(name="sgd", lr=0.01, epochs=1)
        method = Method(
            participation=Participation(name="fedavg"),
            solver=solver,
            codec=CodecSettings(reference=reference),
        )
        log, metrics, _ = run_virtual(federation(1, method))
        digests = [event["digest"] for event in log if event["kind"] == "version_published"]
        runs.append((digests, metrics.up.payload, metrics.down.payload))
    (absolute, up, down), (based, fewer_up, fewer_down) = runs
    assert based == absolute
    assert fewer_up < 0.8 * up
    assert fewer_down < 0.8 * down
