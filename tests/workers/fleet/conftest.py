"""The real service, on virtual time in this process, or on a socket in a thread."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import uvicorn

from fedat_service.coordinator.offload import inline
from fedat_service.http.app import create_app
from fedat_service.wire.messages import CreateFederation, ManifestMessage
from fedat_service.wire.settings import CodecSettings, Method, Participation, Rounds, Solver, Stop, Tiering
from workers.client import AppConnection
from workers.fleet.population import Population
from workers.fleet.settings import FleetSettings
from workers.models.state import manifest_of

SMALL = {
    "federation": "f",
    "num_clients": 6,
    "num_processes": 2,
    "limit_per_class": 12,
    "model": "logistic",
    "partition": "iid",
}


@pytest.fixture
def fleet() -> Callable[..., FleetSettings]:
    """`fleet(**fields)`: settings of a small fleet."""
    return lambda **fields: FleetSettings(**{**SMALL, **fields})


@pytest.fixture
def federation() -> Callable[..., CreateFederation]:
    """`federation(settings, **fields)`: a short FedAT run of a fleet's model in two tiers."""

    def message(settings: FleetSettings, **fields: Any) -> CreateFederation:
        method = Method(
            participation=Participation(name="fedat", cold_start="reported"),
            solver=Solver(lr=0.01, epochs=1),
            codec=CodecSettings(precision=4),
        )
        standard = {
            "name": settings.federation,
            "method": method,
            "manifest": ManifestMessage.of(manifest_of(Population(settings).build_model())),
            "tiering": Tiering(num_tiers=2),
            "rounds": Rounds(cohort_size=3, start_clients=settings.num_clients, deadline_s=200.0),
            "stop": Stop(max_versions=6),
        }
        return CreateFederation(**{**standard, **fields})

    return message


@pytest.fixture
def served(virtually) -> Callable[..., Any]:
    """`served(main)` runs `main(connect)` with the real service on virtual time."""

    def run(main):
        async def inside():
            app = create_app(offload=inline)
            async with app.router.lifespan_context(app):
                return await main(partial(AppConnection, app))

        return virtually(inside())

    return run


@pytest.fixture(scope="session")
def live_url() -> Iterator[str]:
    """The real service on a socket, at a rate of 200; other tests use it too: take a name of your own."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        config = uvicorn.Config(create_app(rate=200.0), log_level="error", lifespan="on")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield "http://{}:{}".format(*listening.getsockname())
        server.should_exit = True
        thread.join()
