"""A federation as its users see it: read off the state, changing nothing."""

from typing import Literal

import numpy as np

from fedat_service.coordinator.coordinator import Coordinator
from fedat_service.federation.state import Client, Lease, Round, State, Tier, exchange_of
from fedat_service.wire.messages import ManifestMessage, Task
from fedat_service.wire.views import ClientView, FederationView, MetricsView, RoundView, TiersView, TierView

_QUANTILES = {"p50": 0.5, "p90": 0.9, "max": 1.0}
_TASK_STREAM = 2
"""Purpose number of the generator that seeds local training."""


def federation_view(coordinator: Coordinator) -> FederationView:
    """What a federation is and where it stands."""
    spec, state = coordinator.spec, coordinator.state
    return FederationView(
        name=spec.name,
        status="training" if state.status == "finished" and not state.over else state.status,
        reason=state.reason,
        version=state.published,
        now_s=coordinator.elapsed_s,
        clock_rate=coordinator.clock.rate,
        update_counts=state.update_counts,
        weights=state.weights,
        clients=len(state.clients),
        lost_clients=state.lost_clients,
        method=spec.method,
        tiering=spec.tiering,
        rounds=spec.rounds,
        stop=spec.stop,
        seed=spec.seed,
        manifest=ManifestMessage.of(spec.manifest),
    )


def tiers_view(coordinator: Coordinator) -> TiersView:
    """All tiers, fastest first."""
    state = coordinator.state
    members: dict[int | None, list[Client]] = {}
    for client in state.clients.values():
        members.setdefault(client.tier, []).append(client)
    return TiersView(
        federation=coordinator.spec.name,
        now_s=coordinator.elapsed_s,
        version=state.published,
        tiers=tuple(_tier_view(coordinator, tier, members.get(tier.number, [])) for tier in state.tiers),
    )


def tier_view(coordinator: Coordinator, tier: Tier) -> TierView:
    """One tier: its model, counter and weight, its members and why they are there, its rounds."""
    clients = coordinator.state.clients.values()
    return _tier_view(coordinator, tier, [client for client in clients if client.tier == tier.number])


def _tier_view(coordinator: Coordinator, tier: Tier, members: list[Client]) -> TierView:
    state, now_s = coordinator.state, coordinator.clock.now()
    members.sort(key=lambda client: client.name)
    return TierView(
        tier=tier.number,
        model_version=tier.model_version,
        update_count=tier.update_count,
        weight=state.weights[tier.number - 1],
        parked=state.parked[tier.number - 1],
        last_update_age_s=None if tier.updated_at_s is None else max(0.0, now_s - tier.updated_at_s),
        accuracy=state.tier_accuracies[tier.number - 1],
        members=tuple(client_view(state, client) for client in members),
        latency_quantiles_s=_quantiles([c.latency_s for c in members if c.latency_s is not None]),
        rounds=tuple(_round_view(current, now_s) for current in tier.rounds),
    )


def client_view(state: State, client: Client) -> ClientView:
    """One client: where it is, and why."""
    return ClientView(
        name=client.name,
        num_examples=client.num_examples,
        status=_status(state, client),
        tier=client.tier,
        latency_s=client.latency_s,
        accuracy=client.accuracy,
        reason=client.reason,
    )


def _status(state: State, client: Client) -> Literal["waiting", "profiling", "tiered", "lost"]:
    if client.lost:
        return "lost"
    if client.tier is not None:
        return "tiered"
    return "profiling" if client.lease is not None else "waiting"


def task_view(coordinator: Coordinator, lease: Lease) -> Task:
    """A lease as the client's task."""
    spec, task = coordinator.spec, lease.task
    exchange = exchange_of(coordinator.state, task)
    seeds = np.random.SeedSequence((spec.seed, _TASK_STREAM, task.tier, task.round, *task.client.encode()))
    return Task(
        task=str(task),
        federation=spec.name,
        client=task.client,
        purpose="profile" if task.is_profile else "train",
        tier=task.tier,
        round=task.round,
        sync=task.sync,
        last=exchange.last,
        base_version=lease.base_version,
        blocks=exchange.blocks,
        down=dict(exchange.down),
        up=dict(exchange.up),
        solver=spec.method.solver,
        codec=spec.method.codec,
        seed=int(seeds.generate_state(1, np.uint64)[0] >> 1),
        deadline_in_s=max(0.0, lease.deadline_s - coordinator.clock.now()),
    )


def metrics_view(coordinator: Coordinator) -> MetricsView:
    """Time series and communication volume."""
    ledger, timeline = coordinator.ledger, coordinator.timeline
    return MetricsView(
        federation=coordinator.spec.name,
        now_s=coordinator.elapsed_s,
        versions=tuple(timeline.versions),
        evaluations=timeline.evaluations,
        up=ledger.total("up"),
        down=ledger.total("down"),
        by_tier=ledger.by_tier(),
        by_layer=ledger.by_layer(),
    )


def _round_view(current: Round, now_s: float) -> RoundView:
    return RoundView(
        round=current.index,
        base_version=current.base_version,
        cohort=current.cohort,
        reported=current.reported,
        deadline_in_s=max(0.0, current.deadline_s - now_s),
    )


def _quantiles(latencies_s: list[float]) -> dict[str, float]:
    if not latencies_s:
        return {}
    return {name: float(np.quantile(latencies_s, q)) for name, q in _QUANTILES.items()}
