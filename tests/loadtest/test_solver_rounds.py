"""Solvers with a server's half, on the real service and real workers: rounds that can be followed by hand."""

import asyncio
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from fedat_service.clock import LoopClock
from fedat_service.coordinator.offload import inline
from fedat_service.http.app import create_app
from fedat_service.virtual import run_virtual
from fedat_service.wire.codecs import Float32
from fedat_service.wire.messages import CreateFederation, ManifestMessage
from fedat_service.wire.settings import CodecSettings, Method, Participation, Rounds, Schedule, Solver, Stop
from workers.client import AppConnection, FedATClient, ModelCache
from workers.models.state import manifest_of, params_of
from workers.training.jobs import DueFirst, ExecutorTraining, InlineExecutor
from workers.training.torch_trainer import TorchTrainer
from workers.worker import Worker

A, B = np.array([[1.0, 2.0], [3.0, 0.5]]), np.array([[1.0, -1.0], [-1.0, 3.0]])
ETA = 0.1


class Part(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))


class Quadratic(nn.Module):
    """Loss ``a/2 (x - b)^2`` in layers `phi` and `h`, so the gradient ``a (x - b)``."""

    def __init__(self):
        super().__init__()
        self.phi, self.h = Part(1), Part(1)

    def forward(self, ab):
        x = torch.cat([self.phi.weight, self.h.weight])
        return (ab[:, 0] * (x - ab[:, 1]) ** 2 / 2).sum(1)


def trainer_of(client):
    ab = torch.tensor(np.array([[A[client], B[client]]]), dtype=torch.float32)
    return TorchTrainer(Quadratic(), [(ab, torch.zeros(1))], [], loss_fn=lambda losses, _: losses.mean())


async def newest(method, num_rounds):
    """The model after some rounds of both clients, that began at 0."""
    module, app, url = Quadratic(), create_app(offload=inline), "http://service"
    manifest = manifest_of(module)
    models, connect = ModelCache("f", manifest, InlineExecutor()), partial(AppConnection, app)
    async with (
        app.router.lifespan_context(app),
        connect(url) as mine,
        connect(url) as one,
        connect(url) as two,
    ):
        operator, *clients = (FedATClient(c, "f", jitter=np.random.default_rng(0)) for c in (mine, one, two))
        await operator.create_federation(
            CreateFederation(
                name="f",
                method=method,
                manifest=ManifestMessage.of(manifest),
                initial_model="upload",
                rounds=Rounds(cohort_size=2, start_clients=2),
                stop=Stop(max_versions=num_rounds),
            )
        )
        await operator.upload_model(params_of(module), models)
        async with asyncio.TaskGroup() as group:
            for number, client in enumerate(clients):
                training = ExecutorTraining(trainer_of(number), DueFirst(InlineExecutor()))
                worker = Worker(f"c{number}", 1, training, client=client, models=models, clock=LoopClock())
                group.create_task(worker.run())
        params = (await operator.fetch_newest(models, Float32())).params
    return np.concatenate([params["phi.weight"], params["h.weight"]])


def rounds(num_rounds, schedule=None, **solver):
    method = Method(
        participation=Participation(name="fedavg"),
        schedule=schedule or Schedule(),
        solver=Solver(lr=ETA, **solver),
        codec=CodecSettings(name="float32"),
    )
    return [run_virtual(newest(method, number)) for number in range(1, num_rounds + 1)]


@pytest.mark.parametrize(("case_id", "option"), [("scaffold_optionI", "I"), ("scaffold_optionII", "II")])
def test_scaffold_goes_the_golden_way(golden, case_id, option):
    expected = [each["x"] for each in golden(case_id)["outputs"]["rounds"]]
    found = rounds(len(expected), name="scaffold", option=option, steps=2)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_scaffold_under_a_schedule_goes_the_golden_way(golden):
    steps = golden("fedals_scaffold")["outputs"]["steps"]
    found = rounds(2, Schedule(name="fedals", alpha=2, head=("h",)), name="scaffold", steps=1)
    np.testing.assert_allclose(found, [steps[1]["x"][0], steps[3]["x"][0]], rtol=1e-5, atol=1e-6)


def test_mime_moves_its_momentum_once_a_round():
    beta, x, m, expected = 0.9, np.zeros(2), np.zeros(2), []
    for _ in range(4):
        c = np.mean(A * (x - B), 0)
        y = np.array([x, x])
        for _ in range(2):
            y = y - ETA * (beta * m + (1 - beta) * (A * (y - B) - A * (x - B) + c))
        x, m = y.mean(0), beta * m + (1 - beta) * c
        expected.append(x)
    found = rounds(4, name="mime", momentum=beta, steps=2)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_fedams_divides_by_the_largest_mean_moment_that_came_up():
    beta1, beta2, eps = 0.9, 0.99, 1e-2
    x, m, vhat, expected = np.zeros(2), np.zeros((2, 2)), np.full(2, eps), []
    for _ in range(3):
        y, v = np.array([x, x]), np.array([vhat, vhat])
        for _ in range(2):
            g = A * (y - B)
            m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
            y = y - ETA * m / np.sqrt(vhat)
        x, vhat = y.mean(0), np.maximum(vhat, v.mean(0))
        expected.append(x)
    found = rounds(3, name="fedams", beta1=beta1, beta2=beta2, eps=eps, steps=2)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
