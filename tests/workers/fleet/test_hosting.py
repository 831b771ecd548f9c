import asyncio

import httpx
import numpy as np
import pytest
import torch

from fedat_service.errors import ManifestError, NotNow, ServiceRefused
from workers.client import FedATClient, open_http
from workers.client.connection import Request
from workers.fleet.engine import LocalEngine
from workers.fleet.hosting import host
from workers.fleet.population import Population
from workers.models.state import manifest_of
from workers.training.jobs import InlineExecutor


def share(settings, process, connect):
    """One process's share of a fleet."""
    population, executor = Population(settings), InlineExecutor()
    return host(population, process, LocalEngine(population, executor), executor, connect)


@pytest.fixture
def simulate(served, federation):
    """`simulate(settings, **fields)`: a federation in virtual time; gives tallies, view, metrics, model."""

    def run(settings, **fields):
        async def main(connect):
            async with connect(settings.url) as http:
                client = FedATClient(http, settings.federation, jitter=np.random.default_rng(0))
                await client.create_federation(federation(settings, **fields))
                shares = [share(settings, process, connect) for process in range(settings.num_processes)]
                tallies = await asyncio.gather(*shares)
                model = (await http.send(Request("GET", "/v1/federations/f/model"))).body
                return tallies, await client.view(), await client.metrics(), model

        return served(main)

    return run


def test_a_fleet_trains_a_federation_to_its_end(simulate, fleet):
    tallies, view, metrics, _ = simulate(fleet())
    assert (view.status, view.version, view.clients, view.lost_clients) == ("finished", 6, 6, 0)
    assert all(tally.finished and not tally.late for tally in tallies)
    assert sum(tally.tasks for tally in tallies) >= 6 * 2
    assert metrics.evaluations[0].version == 0
    assert metrics.evaluations[-1].version == 6
    assert metrics.evaluations[-1].num_clients == 6
    assert metrics.evaluations[-1].loss < metrics.evaluations[0].loss


def test_time_passes_as_the_latencies_say(simulate, fleet):
    _, _, metrics, _ = simulate(fleet(latency="none", compute_s=25.0))
    profiled_s = 25.0
    rounds_s = [25.0, 25.0, 50.0, 50.0, 75.0, 75.0]
    assert [point.at_s - profiled_s for point in metrics.versions] == pytest.approx(rounds_s, abs=0.1)


def test_the_same_seed_gives_the_same_bytes(simulate, fleet):
    first, again, other = simulate(fleet()), simulate(fleet()), simulate(fleet(seed=5))
    assert again[3] == first[3] != other[3]
    assert again[2] == first[2]


def test_clients_that_drop_out_are_lost_to_the_federation(simulate, fleet):
    settings = fleet(num_unstable=2, drop_horizon_s=1.0, compute_s=30.0)
    _, view, _, _ = simulate(settings)
    assert (view.status, view.lost_clients) == ("finished", 2)


def test_a_fleet_that_is_started_again_is_the_same_clients(served, fleet, federation):
    settings = fleet(num_processes=1, evaluate_every_s=0.0)

    async def main(connect):
        async with connect(settings.url) as http:
            client = FedATClient(http, "f", jitter=np.random.default_rng(0))
            await client.create_federation(federation(settings))
            first = asyncio.ensure_future(share(settings, 0, connect))
            await asyncio.sleep(60.0)
            first.cancel()
            await asyncio.wait([first])
            await share(settings, 0, connect)
            return await client.view()

    view = served(main)
    assert (view.status, view.clients) == ("finished", 6)


def test_clients_report_how_the_models_they_receive_do(served, fleet, federation):
    settings = fleet(num_processes=1, evaluate_every_s=0.0, evaluate_on_task=True)

    async def main(connect):
        async with connect(settings.url) as http:
            client = FedATClient(http, "f", jitter=np.random.default_rng(0))
            await client.create_federation(federation(settings))
            await share(settings, 0, connect)
            return await client.tiers()

    accuracies = [member.accuracy for tier in served(main).tiers for member in tier.members]
    assert len(accuracies) == 6
    assert all(accuracy is not None and 0 <= accuracy <= 1 for accuracy in accuracies)


def test_a_model_that_is_not_the_federations_is_refused_at_the_start(simulate, fleet, federation):
    with pytest.raises(ManifestError, match=r"fc1\.weight"):
        simulate(fleet(model="mlp"), manifest=federation(fleet()).manifest)


def test_a_federation_that_does_not_exist_is_refused(served, fleet):
    with pytest.raises(ServiceRefused, match="no federation 'f'"):
        served(lambda connect: share(fleet(), 0, connect))


def test_training_leaves_the_number_of_threads_alone(simulate, fleet):
    before = torch.get_num_threads()
    simulate(fleet(num_clients=2, num_processes=1))
    assert torch.get_num_threads() == before


def test_the_first_error_ends_all_clients(virtually, fleet, service):
    settings = fleet(num_processes=1, evaluate_every_s=0.0)
    service.manifest = manifest_of(Population(settings).build_model())
    service.first["clients"] = [httpx.ConnectError("refused")] * 10_000
    with pytest.raises(NotNow, match="refused"):
        virtually(
            share(
                settings,
                0,
                lambda url: open_http(url, httpx.MockTransport(service)),
            )
        )
