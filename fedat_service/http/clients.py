"""Clients' routes: register, ask for work, report metrics."""

from typing import Annotated

from fastapi import Path, Query, Request
from starlette.responses import Response

from fedat_service.coordinator.views import client_view, task_view
from fedat_service.federation.state import client_of
from fedat_service.http.context import Federation, FederationName, NamedTask, context_of, find_federation
from fedat_service.http.direct import direct_router
from fedat_service.http.problems import again
from fedat_service.http.routers import make_router
from fedat_service.wire.messages import (
    CLIENT_TASK,
    CLIENTS,
    TASK_EVALUATION,
    Evaluation,
    RegisterClient,
    Task,
)
from fedat_service.wire.views import ClientView

_MAX_JSON_BYTES = 64 << 10

_TAG = "clients"

router, direct = make_router(_TAG, max_body_size=_MAX_JSON_BYTES), direct_router(_TAG)


@router.post(CLIENTS, status_code=201, responses=again(ClientView))
async def register(
    request: Request, message: RegisterClient, federation: FederationName, response: Response
) -> ClientView:
    """Register a client, or find it again by its name."""
    coordinator = find_federation(request, federation)
    response.status_code = 201 if await coordinator.register(message) else 200
    return client_view(coordinator.state, client_of(coordinator.state, message.name))


@direct.get(CLIENT_TASK, response_model=Task, responses={204: {"description": "Nothing now; ask again."}})
async def next_task(
    request: Request,
    federation: FederationName,
    client: Annotated[str, Path(max_length=64)],
    wait: Annotated[float, Query(ge=0, le=3600, description="Seconds to wait for work.")] = 0.0,
) -> Response:
    """The client's task, the same one until it is done or its lease ends."""
    coordinator = find_federation(request, federation)
    wait_s = min(wait, context_of(request).limits.max_wait_s)
    lease = await coordinator.next_task(client, wait_s)
    if lease is None:
        return Response(status_code=204, headers={"Retry-After": "0" if wait_s >= 1 else "1"})
    return Response(task_view(coordinator, lease).model_dump_json(), media_type="application/json")


@router.post(TASK_EVALUATION, status_code=201, responses=again(Evaluation))
async def evaluate_task(
    message: Evaluation, federation: Federation, task: NamedTask, response: Response
) -> Evaluation:
    """A client's metrics of the model it received, on its own test split."""
    response.status_code = 201 if await federation.evaluate_task(task, message) else 200
    return message
