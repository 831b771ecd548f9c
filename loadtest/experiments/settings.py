"""What an experiment is run under: one set of conditions for several methods."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator

from fedat_service.errors import ConfigError, Unprocessable
from fedat_service.wire.complaints import at_field, complaint
from fedat_service.wire.presets import PRESETS, resolve
from fedat_service.wire.settings import Method, MethodName
from fedat_service.wire.strict import Bool, Float, Int, Seed, Strict

Count = Annotated[Int, Field(ge=1, le=1_000_000)]
Duration = Annotated[Float, Field(gt=0, le=1e9)]

_APART = {
    *("methods", "method", "reference", "target_accuracy", "processes", "device", "out", "rate"),
    *("epochs", "batch_size", "lr", "prox_mu"),
}
"""Fields that change nothing that a simulation leaves, or only by way of its method."""


def default_rate(data: str) -> float:
    """A rate that two cores keep up with: images larger than the digits cost several times as much."""
    return 30.0 if data == "digits" else 15.0


def federation_name(method: str) -> str:
    """What the federation that runs a method is called: a part of paths, which take no plus sign."""
    return method.replace("+", "-")


class MethodTable(Strict):
    """A method of the experiment's own: a preset, and what is different about it on each axis.

    It may run for a share of the time only: with twice the steps in a round, half of it has as many steps.
    """

    preset: str | None = None
    horizon_share: Annotated[Float, Field(gt=0, le=1)] = 1.0
    participation: dict[str, Any] = Field(default_factory=dict)
    schedule: dict[str, Any] = Field(default_factory=dict)
    solver: dict[str, Any] = Field(default_factory=dict)
    server: dict[str, Any] = Field(default_factory=dict)
    codec: dict[str, Any] = Field(default_factory=dict)


class ExperimentSettings(Strict):
    """Conditions that are the same for every method, and where the results go.

    Raises:
        ConfigError: If a value makes no sense; the message names its field.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)

    methods: Annotated[tuple[MethodName, ...], Field(min_length=1)] = ("fedavg", "fedat")
    """Methods to run, in this order: presets, or names of `method` tables."""

    method: dict[MethodName, MethodTable] = Field(default_factory=dict)
    """Methods of the experiment's own; a table without `preset` is about the preset of its name."""

    reference: MethodName = "fedat"
    """The method that the others are held against, if it runs."""

    data: str = "digits"
    """digits, fashion-mnist, mnist, vader, vader-text, or the path of an image folder or zip."""

    data_dir: Path | None = None
    """The only folder to look in for data."""

    limit_per_class: Count | None = 180
    """Use only so many examples of every class. On a real clock more make rounds outlast their latency."""

    model: str = "cnn"
    """Network that all clients train: logistic, mlp, cnn (FedAT's), mnist-cnn, leaf-cnn, resnet20-lama ..."""

    num_clients: Count = 50
    """Simulated clients; each holds its part of the data."""

    num_tiers: Annotated[Int, Field(ge=1, le=256)] = 5
    """Tiers of the methods that have them."""

    cohort_size: Count = 5
    """Most clients in one round: of everybody for FedAvg, of one tier for FedAT (the same |S|)."""

    deadline_s: Duration = 90.0
    """Simulated seconds after which a round goes on without the missing; what a drop-out costs."""

    partition: str = "shards:2"
    """How examples are shared out: iid, shards:2, classes:2 (classes a client), dirichlet:0.1 ..."""

    test_fraction: Annotated[Float, Field(gt=0, lt=1)] = 0.2
    """Share of every client's examples that only evaluates; the rest trains."""

    latency: str = "fedat"
    """Delay of every round: fedat (the paper's five parts, up to 30 s), uniform:0:5, lognormal:1:0.5 ..."""

    compute_s: Duration = 20.0
    """Simulated seconds of computing in every round, before the delay."""

    num_unstable: Annotated[Int, Field(ge=0)] = 5
    """Clients that drop out for good at a random time."""

    horizon_s: Duration = 1800.0
    """Simulated seconds that each method runs."""

    rate: Duration = 30.0
    """Simulated seconds in a real one; `fedat demo` takes 30 for digits, 15 for other data."""

    epochs: Annotated[Int, Field(ge=1, le=10_000)] = 3
    """Local epochs of a round."""

    batch_size: Count = 10
    """Examples in a local step."""

    lr: Annotated[Float, Field(gt=0, le=1e3)] = 0.01
    """Local learning rate."""

    prox_mu: Annotated[Float, Field(ge=0, le=1e6)] = 0.4
    """Weight of FedAT's proximal term (lambda)."""

    target_accuracy: Annotated[Float, Field(gt=0, le=1)] = 0.55
    """What the time to target counts to, 0 to 1."""

    evaluate_every_s: Duration = 10.0
    """Simulated seconds between two evaluations of the newest version."""

    seed: Seed = 0
    """Of partition, latencies, drop-outs, cohorts, initial model and batches alike."""

    processes: Annotated[Int, Field(ge=1, le=1024)] = 2
    """Processes that train; one a core is best."""

    device: str = "auto"
    """Where they train: cpu, cuda, cuda:1 ..., or auto, which is the first GPU if there is one."""

    bfloat16: Bool = False
    """Layers train in bfloat16, but small ones of stacks: faster where the processor has it, else slower."""

    out: Path = Path("runs/demo")
    """Folder of the results."""

    keep_updates: Bool = False
    """Keep the updates beside the event logs, so that `fedat replay --verify` can check every version."""

    def __init__(self, /, **fields: Any) -> None:  # noqa: ANN401 - checked here
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise config_error(error) from error

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.num_unstable >= self.num_clients:
            why = f"must lie in 0..{self.num_clients - 1}"
            raise at_field(type(self), "num_unstable", self.num_unstable, why)
        if len(set(self.methods)) < len(self.methods):
            raise ValueError(f"methods: one of them is there twice: {', '.join(self.methods)}")
        for name in (*self.methods, *self.method):
            self.method_of(name)
        self.require_methods("reference", self.reference)
        return self

    def require_methods(self, field: str, *names: str) -> None:
        """Refuse names of methods that could not even be run.

        Raises:
            ConfigError: If there are any.
        """
        if strange := set(names) - {*PRESETS, *self.method}:
            raise ConfigError(f"{field}: there is no method {', '.join(sorted(strange))}")

    def changed(self, /, **fields: Any) -> Self:  # noqa: ANN401 - checked as at the first time
        """A copy with other values."""
        return type(self)(**{**dict(self), **fields})

    def method_of(self, name: str) -> Method:
        """A method as it is run: its preset, then the experiment's local work, then its own table.

        Raises:
            ConfigError: If there is no such preset, or the values make no method.
        """
        table = self.method.get(name, MethodTable())
        try:
            preset = resolve(table.preset or name)
        except Unprocessable as error:
            raise ConfigError(f"{f'method.{name}' if name in self.method else 'methods'}: {error}") from error
        # Without its own number of steps, which would hide the epochs that all methods share.
        work: dict[str, Any] = {
            "epochs": self.epochs,
            "steps": None,
            "batch_size": self.batch_size,
            "lr": self.lr,
        }
        if preset.participation.name == "fedat":
            work["prox_mu"] = self.prox_mu
        preset = preset.model_copy(update={"solver": preset.solver.model_copy(update=work)})
        axes = {}
        for axis, settings in preset:
            try:
                axes[axis] = settings.changed(getattr(table, axis))
            except ValidationError as error:
                raise config_error(error, "method", name, axis) from error
        return Method(**axes)

    def horizon_of(self, name: str) -> float:
        """Simulated seconds that a method runs."""
        return self.horizon_s * self.method.get(name, MethodTable()).horizon_share

    def log_of(self, name: str) -> Path:
        """Where a method's event log is kept."""
        return self.out / ("events.jsonl" if name == self.reference else f"events-{name}.jsonl")

    def unfinished_of(self, name: str) -> Path:
        """Where a method's results in virtual time are kept until its run is over."""
        return self.out / f"unfinished-{name}"

    def conditions_of(self, name: str, content: Mapping[str, str]) -> dict[str, Any]:
        """All that a method's run in virtual time, and what it leaves, follows from: plain values.

        Args:
            name: The method.
            content: Digests of the files that the settings name: see `loadtest.experiments.content`.

        Raises:
            ConfigError: If the settings make no such method, or the device is not there.
        """
        from workers.training.devices import find_device, kind_of

        fields = set(ExperimentSettings.model_fields) - _APART
        return {
            **self.model_dump(mode="json", include=fields),
            # Equal GPUs give the same bits; others and a CPU do not.
            "device": kind_of(find_device(self.device)),
            "horizon_s": self.horizon_of(name),
            "method": self.method_of(name).model_dump(mode="json"),
            "content": dict(content),
        }


def config_error(error: ValidationError, *within: str) -> ConfigError:
    """Say in one line which fields are wrong, and why."""
    return ConfigError("; ".join(complaint(one, *within) for one in error.errors()))
