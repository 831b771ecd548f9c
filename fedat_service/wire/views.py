"""What the service answers about its federations: JSON messages that are only ever read."""

from typing import Literal

from fedat_service.wire.messages import ManifestMessage
from fedat_service.wire.settings import Method, Rounds, Stop, Tiering
from fedat_service.wire.strict import Seconds, Strict


class ClientView(Strict):
    """What the service knows of a client."""

    name: str
    num_examples: int
    status: Literal["waiting", "profiling", "tiered", "lost"]
    tier: int | None
    latency_s: float | None
    accuracy: float | None
    reason: str


class RoundView(Strict):
    """An open round of a tier."""

    round: int
    base_version: int
    cohort: tuple[str, ...]
    reported: tuple[str, ...]
    deadline_in_s: float


class TierView(Strict):
    """`GET .../tiers/{m}`: one tier, live.

    `accuracy` is that of the newest model that an observer evaluated on its members' test splits, or else
    what the members reported of the models they received.
    """

    tier: int
    model_version: int
    update_count: int
    weight: float
    parked: bool
    last_update_age_s: float | None
    accuracy: float | None
    members: tuple[ClientView, ...]
    latency_quantiles_s: dict[str, float]
    rounds: tuple[RoundView, ...]


class TiersView(Strict):
    """`GET .../tiers`: all tiers, fastest first."""

    federation: str
    now_s: Seconds
    version: int
    tiers: tuple[TierView, ...]


class FederationView(Strict):
    """`GET .../federations/{f}`: state of a federation."""

    name: str
    status: Literal["awaiting-model", "waiting", "profiling", "training", "finished"]
    reason: str
    version: int
    now_s: Seconds
    clock_rate: float
    update_counts: tuple[int, ...]
    weights: tuple[float, ...]
    clients: int
    lost_clients: int
    method: Method
    tiering: Tiering
    rounds: Rounds
    stop: Stop
    seed: int
    manifest: ManifestMessage


class FederationList(Strict):
    """`GET .../federations`: one page."""

    federations: tuple[FederationView, ...]


class VersionPoint(Strict):
    """One published version: when, by which tier, and the mixing weights it was made with."""

    version: int
    at_s: float
    tier: int
    update_counts: tuple[int, ...]
    weights: tuple[float, ...]
    num_updates: int
    num_examples: int


class AccuracyPoint(Strict):
    """One evaluated version: sample-weighted accuracy, population variance over clients."""

    version: int
    at_s: float
    num_clients: int
    num_examples: int
    accuracy: float
    loss: float
    client_accuracy_variance: float


class Volume(Strict):
    """What travelled: elements, bytes after the codec, bytes on the wire with framing and headers."""

    parameters: int = 0
    payload: int = 0
    wire: int = 0


class ByteCount(Strict):
    """Volume of one direction, tier, layer and slot; wire bytes are counted per message, not per layer."""

    direction: Literal["up", "down"]
    tier: int
    layer: str
    slot: str
    parameters: int
    payload: int


class MetricsView(Strict):
    """`GET .../metrics`: time series of a federation and its communication volume."""

    federation: str
    now_s: Seconds
    versions: tuple[VersionPoint, ...]
    evaluations: tuple[AccuracyPoint, ...]
    up: Volume
    down: Volume
    by_tier: dict[str, dict[str, Volume]]
    by_layer: tuple[ByteCount, ...]


class Problem(Strict):
    """`application/problem+json` (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None
    current_version: int | None = None
    tier: int | None = None
    limit: int | None = None
    retry_after_s: float | None = None
