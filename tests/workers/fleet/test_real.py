import asyncio

import numpy as np
import pytest
import torch

from fedat_service.errors import ManifestError
from fedat_service.wire.messages import ManifestMessage
from fedat_service.wire.settings import Rounds, Stop, Tiering
from workers import run_client
from workers.client import FedATClient, open_http
from workers.fleet.creation import DescribedModel, create_federation
from workers.models.state import manifest_of, params_of
from workers.training.torch_trainer import TorchTrainer


@pytest.fixture
def module():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))


def join(url, federation, module, name="mine"):
    x, y = torch.randn(20, 1, 3, 4), torch.arange(20) % 3
    trainer = TorchTrainer(module, (x, y), (x, y))
    return run_client(url, federation, name, trainer, num_examples=20)


def start(url, name, module, federation, fleet):
    described = DescribedModel(ManifestMessage.of(manifest_of(module)), params_of(module), is_own=True)
    message = federation(
        fleet(),
        name=name,
        manifest=described.manifest,
        initial_model="upload",
        tiering=Tiering(num_tiers=1),
        rounds=Rounds(cohort_size=1, start_clients=1, deadline_s=1e6),
        stop=Stop(max_versions=2),
    )
    asyncio.run(create_federation(url, message, described))


def test_ones_own_model_and_data_join_a_federation_by_one_call(live_url, module, federation, fleet):
    start(live_url, "own", module, federation, fleet)
    tally = join(live_url, "own", module)
    assert (tally.tasks, tally.late, tally.finished) == (2, 0, True)

    async def metrics():
        async with open_http(live_url) as http:
            return await FedATClient(http, "own", jitter=np.random.default_rng()).metrics()

    assert len(asyncio.run(metrics()).versions) == 2


def test_a_federation_of_another_model_is_refused(live_url, module, federation, fleet):
    start(live_url, "other", module, federation, fleet)
    with pytest.raises(ManifestError, match="shape"):
        join(live_url, "other", torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 4)))
