"""A method as data: one value on each of the five axes, strict, frozen, and the same on both sides."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedat_service.wire.strict import Float, Int, Strict, judged_as, require_own

MethodName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_+-]{0,63}$")]
"""Of a preset; a plus sign joins the methods that it combines. It is never a part of a path."""
Slot = Literal["weights", "control", "second_moment", "gradient", "momentum"]
"""A named set of tensors in a bundle: the model's values, or what a solver sends beside them."""
CodecName = Literal["float32", "float16", "polyline", "qsgd", "affine8"]
Reference = Literal["absolute", "base"]
"""What the values of a tensor in a bundle are: themselves, or differences to those of another version."""
HeadCount = Annotated[Int, Field(ge=1, le=100_000)]
HeadPatterns = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=128)], ...], Field(min_length=1, max_length=64)
]


def _head_like(value: object) -> Any:  # noqa: ANN401 - a type, as pydantic takes it
    if isinstance(value, str):
        return Literal["classifier"]
    return HeadPatterns if isinstance(value, list | tuple) else HeadCount


Head = Annotated[Literal["classifier"] | HeadCount | HeadPatterns, judged_as(_head_like)]


_Owners = Mapping[str, tuple[str, ...]]


class Axis(Strict):
    """One of the five: its `name` is what is chosen there, and says which of the other fields count."""

    name: str

    belongs: ClassVar[_Owners] = {}
    """The choices that have a field, by field; all have those that are not here."""

    @model_validator(mode="after")
    def _only_its_own(self) -> Self:
        require_own(self, self.name, self.belongs)
        return self

    def changed(self, given: Mapping[str, Any]) -> Self:
        """The same with other values; what another choice does not have falls away.

        Raises:
            ValidationError: If a value makes no sense, or belongs to another choice.
        """
        name = given.get("name", self.name)
        kept = {field: value for field, value in self if name in self.belongs.get(field, (name,))}
        return type(self)(**{**kept, **given})


class Participation(Axis):
    """Who trains when, and how finished work enters the global model.

    `fedavg` is one tier that holds everybody. `fedat` and `tifl` train `num_tiers` tiers by measured latency:
    `fedat` all of them side by side; `tifl` one at a time, drawn the oftener the lower its accuracy, looked
    at anew after every `interval` rounds (as many as there are tiers, if not given) and drawn for its part of
    `num_rounds` at most. `fedasync` and `fedbuff` have one tier and keep `cohort_size` clients at work, each
    by itself: every update makes a version, or every `buffer_size` of them do.

    `mixing` is how `fedat` weighs its tiers: by the inverse frequency of their updates (eq. 3), or all alike.

    `cold_start` says what eq. 3 does before every tier has reported: `literal` (as printed), `smoothed`
    (counts + 1) or `reported` (only tiers that have). `staleness` is the factor for the age D of an update:
    1 (`constant`), `1 / (hinge_a (D - hinge_b) + 1)` above `hinge_b` (`hinge`), or `(D + 1)^-poly_a`
    (`polynomial`); `alpha` is what FedAsync mixes of a fresh one.
    """

    name: Literal["fedavg", "tifl", "fedasync", "fedbuff", "fedat"] = "fedat"
    mixing: Literal["inverse-frequency", "uniform"] = "inverse-frequency"
    cold_start: Literal["literal", "smoothed", "reported"] = "literal"
    weighting: Literal["samples", "uniform"] = "samples"
    interval: Annotated[Int, Field(ge=1, le=1_000_000)] | None = None
    num_rounds: Annotated[Int, Field(ge=1, le=1_000_000_000)] | None = None
    alpha: Annotated[Float, Field(gt=0, le=1)] = 0.6
    staleness: Literal["constant", "hinge", "polynomial"] = "polynomial"
    hinge_a: Annotated[Float, Field(gt=0, le=1e6)] = 10.0
    hinge_b: Annotated[Float, Field(ge=0, le=1e6)] = 4.0
    poly_a: Annotated[Float, Field(gt=0, le=10)] = 0.5
    buffer_size: Annotated[Int, Field(ge=1, le=100_000)] = 10

    belongs: ClassVar[_Owners] = {
        **dict.fromkeys(("mixing", "cold_start"), ("fedat",)),
        "weighting": ("fedavg", "fedat", "tifl"),
        **dict.fromkeys(("interval", "num_rounds"), ("tifl",)),
        **dict.fromkeys(("staleness", "hinge_a", "hinge_b", "poly_a"), ("fedasync", "fedbuff")),
        "alpha": ("fedasync",),
        "buffer_size": ("fedbuff",),
    }

    @model_validator(mode="after")
    def _fits(self) -> Self:
        hinge = dict.fromkeys(("hinge_a", "hinge_b"), ("hinge",))
        require_own(self, self.staleness, hinge | {"poly_a": ("polynomial",)})
        if (self.mixing, self.cold_start) == ("uniform", "smoothed"):
            raise ValueError("cold_start smoothed belongs to inverse-frequency mixing, not to uniform")
        return self


class Schedule(Axis):
    """Which tensors travel at which sync of a round; a round ends with everything in sync.

    `full` is one sync a round. `fedals` averages the layers of the `head` at each of `alpha` syncs, the
    others at the last: a head is the `classifier` (the last layer that learns), the last n groups of a layer
    with a kernel and what follows it (norms, a `shortcut` or `downsample`), or the layers that match shell
    patterns. `fedlama` gives tensors (`unit`: of two dimensions or more, or whole layers) that hardly differ
    between clients the interval of `phi` syncs; `rule` is the authors' inclusive one or the paper's text, and
    the first `warmup_blocks` syncs leave all intervals alone (0 is the paper). `buffers` are averaged with
    the model, or stay `local`: no update carries them, and a client fetches the initial ones once. Versions
    keep those, so that what observers measure of a model with batch norm then means little.
    """

    name: Literal["full", "fedals", "fedlama"] = "full"
    alpha: Annotated[Int, Field(ge=1, le=1000)] = 10
    head: Head = "classifier"
    phi: Annotated[Int, Field(ge=1, le=1000)] = 2
    rule: Literal["official", "text"] = "official"
    unit: Literal["kernel-tensor", "layer"] = "kernel-tensor"
    warmup_blocks: Annotated[Int, Field(ge=0, le=1_000_000)] = 6
    buffers: Literal["average", "local"] = "average"

    belongs: ClassVar[_Owners] = {
        **dict.fromkeys(("alpha", "head"), ("fedals",)),
        **dict.fromkeys(("phi", "rule", "unit", "warmup_blocks"), ("fedlama",)),
    }


_PLAIN = ("sgd", "momentum", "adam", "adamw")
_SHARED_MOMENT = ("fedams", "fedlamb", "mimeams", "mimelamb")


class Solver(Axis):
    """How a client trains: the local optimizer, its local work, and how long its state lives.

    `sgd`, `momentum`, `adam` and `adamw` are the optimizers of that name. `scaffold` is SGD with control
    variates, by `option` I or II of its paper. `fedams` and `fedlamb` divide by a second moment that all
    clients share, `mimeams` and `mimelamb` by that of the mean full gradient; `moment_every` is Fed-LAMB's
    Z, the rounds from one synchronisation of it to the next (it goes down to every cohort, for whoever is
    drawn may not hold it), and `eps` is what it starts from. `mime` is SGD with a shared `momentum` and
    corrected gradients.

    Local work between two syncs is `steps` batches; without it, `epochs` passes. `prox_mu` weighs the
    proximal term (FedProx; FedAT eq. 5: lambda = 0.4), `weight_decay` all that learns (kernels alone in
    FedLAMA's own code). An optimizer's state begins anew with every `round`, or `never` (FedLAMA and FedALS
    keep the momentum, here that of a client).
    """

    name: Literal[
        "sgd", "momentum", "adam", "adamw", "scaffold", "fedams", "fedlamb", "mime", "mimelamb", "mimeams"
    ] = "adam"
    lr: Annotated[Float, Field(gt=0, le=1e3)] = 1e-3
    momentum: Annotated[Float, Field(ge=0, lt=1)] = 0.9
    beta1: Annotated[Float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[Float, Field(ge=0, lt=1)] = 0.999
    eps: Annotated[Float, Field(gt=0, le=1)] = 1e-7
    weight_decay: Annotated[Float, Field(ge=0, le=1)] = 0.0
    prox_mu: Annotated[Float, Field(ge=0, le=1e6)] = 0.0
    epochs: Annotated[Int, Field(ge=1, le=10_000)] = 1
    steps: Annotated[Int, Field(ge=1, le=1_000_000)] | None = None
    batch_size: Annotated[Int, Field(ge=1, le=1_000_000)] = 10
    option: Literal["I", "II"] = "II"
    reset: Literal["round", "never"] = "round"
    moment_every: Annotated[Int, Field(ge=1, le=1_000_000)] = 1

    belongs: ClassVar[_Owners] = {
        "momentum": ("momentum", "mime"),
        **dict.fromkeys(("beta1", "beta2", "eps"), ("adam", "adamw", *_SHARED_MOMENT)),
        "prox_mu": (*_PLAIN, "scaffold"),
        "option": ("scaffold",),
        "reset": _PLAIN,
        "moment_every": _SHARED_MOMENT,
    }


class ServerOptimizer(Axis):
    """How an aggregate moves a model.

    `average` replaces it. `server_lr` goes `gamma` times as far (FedCOM's gamma, SCAFFOLD's eta_g). The
    adaptive rules take the mean update for a gradient (Reddi et al., ICLR 2021); `v0` is what the second
    moment starts from. The step goes from the version that the cohort started from; where updates are
    blended into a model that has gone on (`fedasync`, `fedbuff`), from that model to its blend.
    """

    name: Literal["average", "server_lr", "fedadam", "fedyogi", "fedadagrad"] = "average"
    gamma: Annotated[Float, Field(gt=0, le=1e3)] = 1.0
    lr: Annotated[Float, Field(gt=0, le=1e3)] = 0.1
    beta1: Annotated[Float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[Float, Field(ge=0, lt=1)] = 0.99
    tau: Annotated[Float, Field(gt=0, le=1)] = 1e-3
    v0: Annotated[Float, Field(ge=0, le=1)] = 0.0

    belongs: ClassVar[_Owners] = {
        "gamma": ("server_lr",),
        "beta2": ("fedadam", "fedyogi"),
        **dict.fromkeys(("lr", "beta1", "tau", "v0"), ("fedadam", "fedyogi", "fedadagrad")),
    }


class CodecSettings(Axis):
    """How tensors become bytes.

    `precision`, `layout` and `reference` belong to polyline, `levels` to qsgd, `directions` to qsgd and
    affine8. With `reference` base, a tensor travels as the difference of its integers to those of a version
    that both sides hold, wherever there is one and that is shorter; the values that arrive are the same, bit
    for bit. With absolute it never does, as in FedAT's paper.

    With `qsgd` and `affine8` what learns goes up as its difference to the version that the client started
    from. `qsgd` is FedPAQ's and FedCOM's: it rounds at random to `levels` of the difference's norm (s = 16
    takes 6 bits an element, 15 take 5). `affine8` is how FedCOMGATE's authors round: to the nearest of 256
    values around the mean of a tensor, 8 bits an element. With `directions` up, models go down as float32;
    with both, every version is the one before it and a rounded step: who holds the one before it gets the
    step alone, others float32. Between the syncs of a round means go down as float32, and who then holds only
    those gets the next version as float32, too. Statistics that do not learn travel as float32: a variance
    that is rounded can become negative.
    """

    name: CodecName = "polyline"
    precision: Annotated[Int, Field(ge=3, le=6)] = 4
    layout: Literal["pairs", "flat", "plain"] = "pairs"
    reference: Reference = "base"
    levels: Annotated[Int, Field(ge=1, le=65_535)] = 16
    directions: Literal["up", "both"] = "up"

    belongs: ClassVar[_Owners] = {
        **dict.fromkeys(("precision", "layout", "reference"), ("polyline",)),
        "levels": ("qsgd",),
        "directions": ("qsgd", "affine8"),
    }


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
    `retier_every` counts tier rounds between two looks (0: tiers stay as they were formed). They are formed
    anew whenever as many clients have joined as they were formed of.
    """

    num_tiers: Annotated[Int, Field(ge=1, le=256)] = 5
    rule: Literal["equal", "quantiles"] = "equal"
    quantiles: tuple[Annotated[Float, Field(gt=0, lt=1)], ...] = ()
    hysteresis: Annotated[Float, Field(ge=0, le=10)] = 0.2
    retier_every: Annotated[Int, Field(ge=0, le=1_000_000)] = 0

    @model_validator(mode="after")
    def _only_its_own(self) -> Self:
        require_own(self, f"rule {self.rule}", {"quantiles": ("rule quantiles",)})
        if self.retier_every == 0:
            require_own(self, "tiers that stay", {"hysteresis": ("retier_every",)})
        return self


class Rounds(Strict):
    """Cohorts, deadlines and quorum.

    A round closes when its whole cohort has reported, or at `deadline_s` if at least `quorum` of it has;
    otherwise it is abandoned and opened again with a fresh cohort. Of several syncs each has a
    deadline, who misses one is out, and the quorum is always of the clients that the round was opened with.
    """

    cohort_size: Annotated[Int, Field(ge=1, le=1_000_000)] = 10
    deadline_s: Annotated[Float, Field(ge=0.001, le=1e9)] = 600.0
    quorum: Annotated[Float, Field(gt=0, le=1)] = 0.5
    start_clients: Annotated[Int, Field(ge=1, le=10_000_000)] = 1


class Stop(Strict):
    """When a federation is over: whichever comes first; never, if nothing is set."""

    max_versions: Annotated[Int, Field(ge=1)] | None = None
    max_time_s: Annotated[Float, Field(gt=0, le=1e12)] | None = None
    target_accuracy: Annotated[Float, Field(gt=0, le=1)] | None = None
