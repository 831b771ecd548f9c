"""Operators' and observers' routes: create, list, look, stop."""

from typing import Annotated
from urllib.parse import urlencode

from fastapi import Query, Response

from fedat_service.coordinator.views import federation_view, metrics_view, tier_view, tiers_view
from fedat_service.federation.state import tier_of
from fedat_service.http.context import Federation, Parts
from fedat_service.http.problems import again
from fedat_service.http.routers import make_router
from fedat_service.wire.messages import (
    EVALUATIONS,
    FEDERATION,
    FEDERATIONS,
    METRICS,
    TIER,
    TIERS,
    CreateFederation,
    EvaluateVersion,
)
from fedat_service.wire.views import FederationList, FederationView, MetricsView, TiersView, TierView

_MAX_JSON_BYTES = 16 << 20
"""Largest JSON body: a manifest of a hundred thousand tensors."""

router = make_router("federations", max_body_size=_MAX_JSON_BYTES)


@router.post(FEDERATIONS, status_code=201, responses=again(FederationView))
async def create(message: CreateFederation, parts: Parts, response: Response) -> FederationView:
    """Create a federation; the very same request again answers 200."""
    coordinator, created = await parts.registry.create(message)
    response.status_code = 201 if created else 200
    response.headers["Location"] = FEDERATION.format(federation=message.name)
    return federation_view(coordinator)


@router.get(FEDERATIONS)
async def list_federations(
    parts: Parts,
    response: Response,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    after: Annotated[str, Query(max_length=64)] = "",
) -> FederationList:
    """Federations by name, a page at a time; `Link` leads to the next."""
    found = parts.registry.page(after, limit + 1)
    if len(found) > limit:
        query = urlencode({"limit": limit, "after": found[limit - 1].spec.name})
        response.headers["Link"] = f'<{FEDERATIONS}?{query}>; rel="next"'
    return FederationList(federations=tuple(federation_view(one) for one in found[:limit]))


@router.get(FEDERATION)
async def get_federation(federation: Federation) -> FederationView:
    """What a federation is and where it stands."""
    return federation_view(federation)


@router.delete(FEDERATION)
async def stop(
    parts: Parts,
    federation: Federation,
    forget: Annotated[bool, Query(description="Keep nothing but its log: its name is free again.")] = False,
) -> FederationView:
    """End a federation; its results stay readable, unless it is forgotten as well."""
    if forget:
        await parts.registry.forget(federation.spec.name)
    else:
        await federation.stop("stopped by an operator")
    return federation_view(federation)


@router.get(TIERS)
async def get_tiers(federation: Federation) -> TiersView:
    """The live tier view: models, counters, mixing weights, members, rounds."""
    return tiers_view(federation)


@router.get(TIER)
async def get_tier(federation: Federation, tier: int) -> TierView:
    """One tier of the live view."""
    return tier_view(federation, tier_of(federation.state, tier))


@router.post(EVALUATIONS, status_code=201, responses=again(EvaluateVersion))
async def evaluate(message: EvaluateVersion, federation: Federation, response: Response) -> EvaluateVersion:
    """An observer's metrics of one version over many clients' test splits."""
    response.status_code = 201 if await federation.evaluate_version(message) else 200
    return message


@router.get(METRICS)
async def get_metrics(federation: Federation) -> MetricsView:
    """Versions, evaluations and communication volume over time."""
    return metrics_view(federation)
