"""The application: parts put together, routes mounted, errors turned into problems."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline

from fedat_service.clock import Clock, LoopClock
from fedat_service.coordinator.limits import Limits
from fedat_service.coordinator.offload import Offload, in_thread
from fedat_service.coordinator.registry import Registry
from fedat_service.http import bundles, clients, federations, health, problems
from fedat_service.http.body import UploadBudget
from fedat_service.http.context import Context
from fedat_service.store.base import Store
from fedat_service.store.memory import MemoryStore


def create_app(
    limits: Limits | None = None,
    *,
    rate: float = 1.0,
    store: Store | None = None,
    offload: Offload = in_thread,
    make_clock: Callable[[float], Clock] = LoopClock,
) -> FastAPI:
    """Put a service together; it starts and stops with the app's lifespan.

    Args:
        limits: How much it takes on.
        rate: Federation seconds per second.
        store: Where events go; memory if None.
        offload: Where codecs and arithmetic run; inline on virtual time.
        make_clock: Makes the federations' clock from the rate, inside the running loop.
    """
    bounds = limits or Limits()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        registry = Registry(store or MemoryStore(), make_clock(rate), offload, bounds)
        app.state.context = Context(bounds, registry, UploadBudget(bounds.max_uploads_bytes))
        yield
        await registry.close()

    # The documentation pages come with their scripts: they must work without a way to the internet.
    app = FastAPIOffline(
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False, "operation_spans": False},
        title="FedAT service",
        version="0.1.0",
        lifespan=lifespan,
    )
    problems.install(app)
    _mount(app)
    return app


def _mount(app: FastAPI) -> None:
    """Routes are tried in order: those that clients use all the time come first."""
    app.router.routes[:0] = clients.direct.routes + bundles.direct.routes
    for router in (clients.router, bundles.router, federations.router, health.router):
        app.router.routes += router.routes
