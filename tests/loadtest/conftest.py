"""Runs written by hand: small enough to work every number out on paper."""

from collections.abc import Callable

import pytest

from fedat_service.wire.messages import ManifestMessage, TensorMessage
from fedat_service.wire.presets import PRESETS
from fedat_service.wire.settings import Rounds, Stop, Tiering
from fedat_service.wire.views import AccuracyPoint, FederationView, MetricsView, VersionPoint, Volume
from loadtest.experiments import figures
from loadtest.experiments.results import MethodRun

MODEL_SIZE = 100
UPDATES_PER_VERSION = 2


@pytest.fixture(scope="session")
def make_run() -> Callable[..., MethodRun]:
    """`make_run(name, accuracies)`: version v is published at 100*v s from two updates of 100 parameters.

    Each update has 250 payload bytes and 300 wire bytes; each download 250 and 400. Version 0 is not
    evaluated; the observer is 7 s late; the run has 1000 s. Observers fetched one model of 450 wire bytes.
    Training may send another number of `models` in each message: half of one, or two slots of its size.
    """

    def make(
        name: str,
        accuracies: list[float],
        num_tiers: int = 1,
        horizon_s: float | None = 1000.0,
        models: float = 1.0,
    ) -> MethodRun:
        count = len(accuracies) * UPDATES_PER_VERSION * models
        versions = tuple(
            VersionPoint(
                version=v,
                at_s=100.0 * v,
                tier=1 + v % num_tiers,
                update_counts=tuple(v if m == 0 else 0 for m in range(num_tiers)),
                weights=tuple(1 / num_tiers for _ in range(num_tiers)),
                num_updates=UPDATES_PER_VERSION,
                num_examples=20,
            )
            for v in range(1, len(accuracies) + 1)
        )
        metrics = MetricsView(
            federation=name,
            now_s=1200.0,
            versions=versions,
            evaluations=tuple(_point(v, accuracy) for v, accuracy in enumerate(accuracies, start=1)),
            up=_volume(count, wire=300),
            down=_volume(count + 1, wire=400),
            by_tier={
                "0": {"down": _volume(1, wire=450)},
                "1": {"up": _volume(count, wire=300), "down": _volume(count, wire=400)},
            },
            by_layer=(),
        )
        return MethodRun(name, _federation(name, num_tiers, len(accuracies), horizon_s), metrics, wall_s=30.5)

    return make


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are planned and written but not drawn, which takes longer than all the rest of a report."""
    monkeypatch.setattr(figures, "_png", lambda _: b"not drawn")


def _point(version: int, accuracy: float) -> AccuracyPoint:
    return AccuracyPoint(
        version=version,
        at_s=100.0 * version + 7,
        num_clients=4,
        num_examples=40,
        accuracy=accuracy,
        loss=1 - accuracy,
        client_accuracy_variance=accuracy / 10,
    )


def _volume(models: float, wire: int) -> Volume:
    parameters, payload, wire = (int(models * size) for size in (MODEL_SIZE, 250, wire))
    return Volume(parameters=parameters, payload=payload, wire=wire)


def _federation(name: str, num_tiers: int, versions: int, horizon_s: float | None) -> FederationView:
    return FederationView(
        name=name,
        status="finished",
        reason="1000 s have passed",
        version=versions,
        now_s=1200.0,
        clock_rate=50.0,
        update_counts=tuple(versions if m == 0 else 0 for m in range(num_tiers)),
        weights=tuple(1 / num_tiers for _ in range(num_tiers)),
        clients=4,
        lost_clients=1,
        method=PRESETS["fedat"].method,
        tiering=Tiering(num_tiers=num_tiers),
        rounds=Rounds(),
        stop=Stop(max_time_s=horizon_s),
        seed=0,
        manifest=ManifestMessage(tensors=(TensorMessage(name="fc.weight", shape=(10, 10)),)),
    )
