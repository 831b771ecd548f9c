"""The application: parts put together, routes mounted, errors turned into problems."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi_offline import FastAPIOffline

from fedat_service.clock import Clock, LoopClock
from fedat_service.config import ServiceSettings
from fedat_service.coordinator.offload import Offload, in_thread
from fedat_service.coordinator.registry import Registry
from fedat_service.http import bundles, clients, federations, health, problems
from fedat_service.http.body import UploadBudget
from fedat_service.http.context import Context
from fedat_service.store.base import Store
from fedat_service.store.jsonl import JsonLinesStore
from fedat_service.store.memory import MemoryStore


def create_app(
    settings: ServiceSettings,
    offload: Offload = in_thread,
    make_clock: Callable[[float], Clock] = LoopClock,
    store: Store | None = None,
) -> FastAPI:
    """Put a service together; it starts and stops with the app's lifespan.

    Args:
        settings: What it was told.
        offload: Where codecs and arithmetic run; inline on virtual time.
        make_clock: Makes the federations' clock from the rate, inside the running loop.
        store: Where events go; chosen by the settings if None.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.context = Context(
            settings=settings,
            registry=Registry(
                store=store or _store(settings),
                clock=make_clock(settings.rate),
                offload=offload,
                max_parameters=settings.max_parameters,
                max_federations=settings.max_federations,
            ),
            budget=UploadBudget(settings.max_uploads_bytes),
        )
        yield
        await app.state.context.registry.close()

    # The documentation pages come with their scripts: they must work without a way to the internet.
    app = FastAPIOffline(
        redoc_url=None,
        title="FedAT service",
        version="0.1.0",
        lifespan=lifespan,
        generate_unique_id_function=_operation_id,
    )
    problems.install(app)
    for router in (federations.router, clients.router, bundles.router, health.router):
        app.include_router(router)
    return app


def _store(settings: ServiceSettings) -> Store:
    return MemoryStore() if settings.event_log is None else JsonLinesStore(settings.event_log)


def _operation_id(route: APIRoute) -> str:
    return route.name
