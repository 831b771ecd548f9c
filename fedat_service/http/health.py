"""Routes for operators' machines: alive, ready, Prometheus metrics. Outside the versioned API."""

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest
from starlette.responses import JSONResponse, Response

from fedat_service.http.context import Parts
from fedat_service.http.routers import make_router
from fedat_service.metrics import DIRECTIONS

router = make_router("operations", responses=None)


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Alive: the process answers."""
    return {"status": "ok"}


@router.get("/readyz")
async def readyz(parts: Parts) -> Response:
    """Ready: not going down, and no federation stands still."""
    if parts.registry.stopping:
        return JSONResponse({"status": "draining"}, 503, headers={"Retry-After": "5"})
    if failed := parts.registry.failed:
        return JSONResponse({"status": "failed", "federations": failed}, 503)
    return JSONResponse({"status": "ready"})


@router.get("/metrics", response_class=Response)
async def metrics(parts: Parts) -> Response:
    """Federations in Prometheus' text format; labels come from bounded sets only."""
    registry = CollectorRegistry()
    versions = Gauge("fedat_version", "Published global version", ["federation"], registry=registry)
    counts = Gauge(
        "fedat_tier_updates", "Rounds a tier has closed", ["federation", "tier"], registry=registry
    )
    weights = Gauge(
        "fedat_tier_weight", "Share in the global model", ["federation", "tier"], registry=registry
    )
    clients = Gauge("fedat_clients", "Registered clients", ["federation", "status"], registry=registry)
    volume = Gauge(
        "fedat_bytes", "Model and update bytes", ["federation", "direction", "kind"], registry=registry
    )
    for coordinator in parts.registry.page("", parts.limits.max_federations + parts.limits.max_finished):
        name, state = coordinator.spec.name, coordinator.state
        versions.labels(name).set(state.published)
        clients.labels(name, "live").set(len(state.clients) - state.lost_clients)
        clients.labels(name, "lost").set(state.lost_clients)
        for tier, weight in zip(state.tiers, state.weights, strict=True):
            counts.labels(name, str(tier.number)).set(tier.update_count)
            weights.labels(name, str(tier.number)).set(weight)
        for direction in DIRECTIONS:
            total = coordinator.ledger.total(direction)
            volume.labels(name, direction, "payload").set(total.payload)
            volume.labels(name, direction, "wire").set(total.wire)
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
