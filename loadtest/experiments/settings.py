"""What an experiment is: one set of conditions under which several methods run."""

import math
from dataclasses import dataclass
from pathlib import Path

from fedat_service.errors import ConfigError


def default_rate(data: str) -> float:
    """A rate that two cores keep up with: images larger than the digits cost several times as much."""
    return 30.0 if data == "digits" else 15.0


@dataclass(frozen=True, slots=True)
class ExperimentSettings:
    """Conditions that are the same for every method, and where the results go.

    Attributes:
        methods: Presets to run, in this order.
        data: `digits`, `fashion-mnist`, or the path of a folder of images.
        data_dir: The only folder to look in for data.
        limit_per_class: Use only so many images of every class; more make rounds that outlast their latency.
        model: Network that all clients train; `cnn` is FedAT's.
        num_clients: Clients in all; each holds its part of the data.
        num_tiers: Tiers of the methods that have them.
        cohort_size: Clients in a round: of everybody for FedAvg, of one tier for FedAT (the same |S|).
        deadline_s: Simulated seconds after which a round goes on without the missing; what a drop-out costs.
        partition: How examples are shared out; `shards:2` gives a client two shards, of two classes or one.
        latency: Latency model; `fedat` is the paper's: five equal parts, up to 30 s more for the slowest.
        compute_s: Simulated seconds of local work, before the latency of a client's part.
        num_unstable: Clients that drop out for good at a random time.
        horizon_s: Simulated seconds that each method runs.
        rate: Simulated seconds in a real one. Too high, and real training outlasts the simulated latency.
        epochs: Local epochs of a round.
        batch_size: Examples in a local step.
        lr: Local learning rate.
        prox_mu: Weight of the proximal term of tiered methods (FedAT's lambda).
        target_accuracy: What the time to target counts to.
        evaluate_every_s: Simulated seconds between two looks at the newest version.
        seed: Of partition, latencies, cohorts, initial model and batches alike.
        processes: Training processes.
        out: Folder of the results.

    Raises:
        ConfigError: If a number makes no sense.
    """

    methods: tuple[str, ...] = ("fedavg", "fedat")
    data: str = "digits"
    data_dir: Path | None = None
    limit_per_class: int | None = 180
    model: str = "cnn"
    num_clients: int = 50
    num_tiers: int = 5
    cohort_size: int = 8
    deadline_s: float = 90.0
    partition: str = "shards:2"
    latency: str = "fedat"
    compute_s: float = 20.0
    num_unstable: int = 5
    horizon_s: float = 1800.0
    rate: float = 30.0
    epochs: int = 3
    batch_size: int = 10
    lr: float = 0.01
    prox_mu: float = 0.4
    target_accuracy: float = 0.55
    evaluate_every_s: float = 10.0
    seed: int = 0
    processes: int = 2
    out: Path = Path("runs/demo")

    def __post_init__(self) -> None:
        for name in ("num_clients", "num_tiers", "cohort_size", "epochs", "batch_size", "processes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("horizon_s", "rate", "lr", "compute_s", "deadline_s", "evaluate_every_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"{name} must be a positive number, got {value!r}")
        if not 0 < self.target_accuracy <= 1:
            raise ConfigError(f"target_accuracy must lie in 0..1, got {self.target_accuracy!r}")
        if not 0 <= self.num_unstable < self.num_clients:
            raise ConfigError(f"num_unstable must lie in 0..{self.num_clients - 1}, got {self.num_unstable}")
        if not self.methods:
            raise ConfigError("an experiment needs at least one method")
