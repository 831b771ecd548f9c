"""The bulk routes: models down, updates up, every byte counted."""

from http import HTTPStatus
from typing import Annotated

from fastapi import Query, Request
from starlette.responses import JSONResponse, Response

from fedat_service.coordinator.coordinator import Coordinator
from fedat_service.coordinator.publisher import Publication
from fedat_service.federation.tasks import TaskId
from fedat_service.http.body import expected_bytes, read_body, request_head_bytes
from fedat_service.http.context import Federation, FederationName, Parts, context_of, find_federation
from fedat_service.http.direct import direct_router
from fedat_service.http.problems import again
from fedat_service.http.routers import make_router
from fedat_service.wire.bundle import describe, max_bundle_bytes
from fedat_service.wire.codecs import Float32, make_codec
from fedat_service.wire.differences import DIFFERENCES, make_update_codec
from fedat_service.wire.messages import BUNDLE_TYPE, MODEL, TIER_MODEL, UPDATE, Receipt

_TAG = "models and updates"

router, direct = make_router(_TAG), direct_router(_TAG)

Layers = Annotated[str | None, Query(max_length=100_000, description="Comma-separated; all if absent.")]


def _split(layers: str | None) -> tuple[str, ...] | None:
    return None if layers is None else tuple(layers.split(","))


@direct.get(MODEL, response_class=Response, responses={226: {"description": "Differences to what is held"}})
async def get_model(
    request: Request,
    federation: FederationName,
    layers: Layers = None,
    version: Annotated[int | None, Query(ge=0, lt=2**53)] = None,
    task: Annotated[str | None, Query(max_length=128)] = None,
) -> Response:
    """The global model, or some layers of it.

    With `task` and no version, what that task begins with: the tensors it fetches, and what its solver is
    sent beside them. With `task` the bytes are counted for its tier.

    Who sends `A-IM: fedat-differences` and the entity tag of another version may get 226: a bundle of
    differences to it (RFC 3229).
    """
    coordinator = find_federation(request, federation)
    named = None if task is None else TaskId.parse(task)
    tier = 0 if named is None else coordinator.tier_of_task(named)
    held = _tags(request) if DIFFERENCES in request.headers.get("a-im", "") else ()
    if named is not None and version is None:
        found = await coordinator.task_model(named, _split(layers), held)
    else:
        found = await coordinator.model(version, _split(layers), held)
    return _answer(request, coordinator, found, tier)


@router.get(TIER_MODEL, response_class=Response)
async def get_tier_model(
    request: Request, federation: Federation, tier: int, layers: Layers = None
) -> Response:
    """A tier's own model."""
    return _answer(request, federation, await federation.tier_model(tier, _split(layers)), 0)


def _answer(request: Request, federation: Coordinator, found: Publication, tier: int) -> Response:
    headers = {"ETag": found.etag, "Cache-Control": "no-cache", "Vary": "Accept, A-IM, If-None-Match"}
    if "application/json" in request.headers.get("accept", ""):
        return JSONResponse(describe(found.bundle), headers={"Vary": "Accept"})
    known = _tags(request)
    if found.etag in known or "*" in known:
        response = Response(status_code=304, headers=headers)
        federation.ledger.count("down", tier, (), _response_bytes(response))
        return response
    status = 200
    if found.bundle.base_version is not None:
        # RFC 3229: an answer to be added to what the client holds.
        status, headers["IM"] = 226, DIFFERENCES
    response = Response(found.body, status, media_type=BUNDLE_TYPE, headers=headers)
    federation.ledger.count("down", tier, found.bundle.entries, _response_bytes(response))
    return response


def _tags(request: Request) -> list[str]:
    return [tag.strip() for tag in request.headers.get("if-none-match", "").split(",")]


def _response_bytes(response: Response) -> int:
    """Bytes of a response on the wire: status line, headers, body."""
    status = f"HTTP/1.1 {response.status_code} {HTTPStatus(response.status_code).phrase}\r\n"
    head = len(status) + sum(len(name) + len(value) + 4 for name, value in response.raw_headers) + 2
    return head + len(response.body)


@router.put(MODEL, status_code=201)
async def put_initial_model(request: Request, parts: Parts, federation: Federation) -> Response:
    """Upload the initial model of a federation that was created with `initial_model: upload`."""
    limit = max_bundle_bytes(federation.spec.manifest, Float32())
    async with parts.budget.reserve(expected_bytes(request, limit)) as buffer:
        body = await read_body(request, buffer, parts.limits.max_receive_s)
        federation.ledger.count("up", 0, (), request_head_bytes(request) + len(body))
        created = await federation.upload_model(body)
    return JSONResponse({"version": 0}, 201 if created else 200)


@direct.put(UPDATE, status_code=201, response_model=Receipt, responses=again(Receipt))
async def put_update(request: Request, federation: str, task: str) -> Response:
    """The result of a task: 201 the first time, 200 for the very same bytes again."""
    parts = context_of(request)
    coordinator, named = find_federation(request, federation), TaskId.parse(task)
    spec, codec = coordinator.spec, coordinator.spec.method.codec
    codecs = make_codec(codec), make_update_codec(codec)
    limit = max_bundle_bytes(spec.manifest, *codecs, num_slots=spec.half.num_slots)
    tier = coordinator.tier_of_task(named)
    async with parts.budget.reserve(expected_bytes(request, limit)) as buffer:
        body = await read_body(request, buffer, parts.limits.max_receive_s)
        # Its bytes have travelled, whatever becomes of it; its tensors count if it is accepted.
        coordinator.ledger.count("up", tier, (), request_head_bytes(request) + len(body))
        bundle, created = await coordinator.accept(named, body)
        coordinator.ledger.count("up", tier, bundle.entries, 0)
    return JSONResponse(Receipt(task=task).model_dump(), 201 if created else 200)
