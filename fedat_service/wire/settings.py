"""A method as data: one value on each of the five axes, strict, frozen, and the same on both sides."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Strict(BaseModel):
    """Base of everything that is read from JSON or TOML: no unknown key, no coercion, no NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _no_bool(value: Any) -> Any:  # noqa: ANN401 - runs before validation, on whatever JSON held
    if isinstance(value, bool | str):
        raise ValueError(f"must be a number, got {value!r}")  # noqa: TRY004 - pydantic's contract
    return value


Int = Annotated[int, BeforeValidator(_no_bool)]
Float = Annotated[float, BeforeValidator(_no_bool)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
Seconds = Annotated[Float, Field(ge=0, le=1e9)]
Seed = Annotated[Int, Field(ge=0, lt=2**63)]


class Participation(Strict):
    """Who trains when, and how finished work enters the global model.

    `fedavg` is one tier that holds everybody; `fedat` is `num_tiers` tiers by measured latency, mixed with
    the inverse-frequency weights of FedAT eq. 3. `cold_start` says what the rule does before every tier
    has reported: `literal` (as printed), `smoothed` (counts + 1) or `reported` (only tiers that have).
    """

    name: Literal["fedavg", "fedat"] = "fedat"
    cold_start: Literal["literal", "smoothed", "reported"] = "literal"
    weighting: Literal["samples", "uniform"] = "samples"


class Schedule(Strict):
    """Which layers travel at which sync."""

    name: Literal["full"] = "full"


class Solver(Strict):
    """How a client trains: optimizer, local work, proximal term (FedProx; FedAT eq. 5: lambda = 0.4)."""

    name: Literal["sgd", "momentum", "adam", "adamw"] = "adam"
    lr: Annotated[Float, Field(gt=0, le=1e3)] = 1e-3
    momentum: Annotated[Float, Field(ge=0, lt=1)] = 0.9
    beta1: Annotated[Float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[Float, Field(ge=0, lt=1)] = 0.999
    eps: Annotated[Float, Field(gt=0, le=1)] = 1e-7
    weight_decay: Annotated[Float, Field(ge=0, le=1)] = 0.0
    prox_mu: Annotated[Float, Field(ge=0, le=1e6)] = 0.0
    epochs: Annotated[Int, Field(ge=1, le=10_000)] = 1
    batch_size: Annotated[Int, Field(ge=1, le=1_000_000)] = 10


class ServerOptimizer(Strict):
    """How an aggregate moves a model."""

    name: Literal["average"] = "average"


class CodecSettings(Strict):
    """How tensors become bytes; `precision` and `layout` belong to polyline."""

    name: Literal["float32", "float16", "polyline"] = "polyline"
    precision: Annotated[Int, Field(ge=3, le=6)] = 4
    layout: Literal["pairs", "flat", "plain"] = "pairs"


class Method(Strict):
    """A row of the five axes."""

    participation: Participation = Participation()
    schedule: Schedule = Schedule()
    solver: Solver = Solver()
    server: ServerOptimizer = ServerOptimizer()
    codec: CodecSettings = CodecSettings()


class Tiering(Strict):
    """How clients are grouped: `equal` parts by latency, or cuts at latency `quantiles`.

    A client changes tier only when its latency has passed the border by the share `hysteresis`;
    `retier_every` counts tier rounds between two looks (0: tiers stay as they were formed).
    """

    num_tiers: Annotated[Int, Field(ge=1, le=256)] = 5
    rule: Literal["equal", "quantiles"] = "equal"
    quantiles: tuple[Annotated[Float, Field(gt=0, lt=1)], ...] = ()
    hysteresis: Annotated[Float, Field(ge=0, le=10)] = 0.2
    retier_every: Annotated[Int, Field(ge=0, le=1_000_000)] = 0


class Rounds(Strict):
    """Cohorts, deadlines and quorum.

    A round closes when its whole cohort has reported, or at `deadline_s` if at least `quorum` of it has;
    otherwise it is abandoned and opened again with a fresh cohort.
    """

    cohort_size: Annotated[Int, Field(ge=1, le=1_000_000)] = 10
    deadline_s: Annotated[Float, Field(gt=0, le=1e9)] = 600.0
    quorum: Annotated[Float, Field(gt=0, le=1)] = 0.5
    start_clients: Annotated[Int, Field(ge=1, le=10_000_000)] = 1


class Stop(Strict):
    """When a federation is over: whichever comes first; never, if nothing is set."""

    max_versions: Annotated[Int, Field(ge=1)] | None = None
    max_time_s: Annotated[Float, Field(gt=0, le=1e12)] | None = None
    target_accuracy: Annotated[Float, Field(gt=0, le=1)] | None = None
