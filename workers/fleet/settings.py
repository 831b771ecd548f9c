"""What a fleet is. No torch here: the command line reads it before it starts anything."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError, model_validator

from fedat_service.wire.complaints import at_field
from fedat_service.wire.strict import Bool, Float, Int, Name, Seconds, Seed, Strict

_MIN_DIGITS = 3

"""Where training and evaluation run: see `workers.training.devices.find_device`."""


class FleetSettings(Strict):
    """A fleet of simulated clients; equal settings give every process the same clients with the same data.

    Args:
        url: Where the service is.
        federation: Which federation the clients join.
        num_clients: How many clients there are.
        num_processes: How many processes share them.
        data: Data set: see `workers.data.catalog.load`, or `module:function`.
        data_dir: The only folder to look in for data.
        limit_per_class: Keep only so many images of every class.
        partition: How examples are shared out: see `workers.data.partition_setting.FORMS`.
        test_fraction: Share of every client's examples that only evaluates.
        model: One of `workers.models.networks.NAMES`, or `module:function`.
        latency: Delay of every participation: see `workers.latency.FORMS`.
        compute_s: Constant seconds of computing, added to the delay.
        num_unstable: How many clients drop out for good.
        drop_horizon_s: They do so at a time drawn from U(0, this).
        seed: Seed of partition, splits, latencies and drop-outs.
        rate: Federation seconds per second; the service's own rate if None.
        evaluate_every_s: How often the newest version is evaluated on all clients' test splits; 0: never.
        evaluate_on_task: Whether each client also reports how the model of each task does on its own split.
        device: Where they train and evaluate; processes that share a GPU take turns.
        bfloat16: Whether layers compute in it when they train.
    """

    url: str = "http://127.0.0.1:8080"
    federation: Name
    num_clients: Annotated[Int, Field(ge=1, le=1_000_000)] = 20
    num_processes: Annotated[Int, Field(ge=1, le=1024)] = 2
    data: str = "digits"
    data_dir: Path | None = None
    limit_per_class: Annotated[Int, Field(ge=1)] | None = None
    partition: str = "classes:2"
    test_fraction: Annotated[Float, Field(gt=0, lt=1)] = 0.2
    model: str = "mlp"
    latency: str = "fedat"
    compute_s: Seconds = 20.0
    num_unstable: Annotated[Int, Field(ge=0)] = 0
    drop_horizon_s: Annotated[Float, Field(gt=0, le=1e9)] = 3600.0
    seed: Seed = 0
    rate: Annotated[Float, Field(gt=0, le=1e9)] | None = None
    evaluate_every_s: Seconds = 60.0
    evaluate_on_task: Bool = False
    device: str = "auto"
    bfloat16: Bool = False

    @model_validator(mode="after")
    def _fits(self) -> "FleetSettings":
        if self.num_processes > self.num_clients:
            raise self._not_within("num_processes", 1)
        if self.num_unstable > self.num_clients:
            raise self._not_within("num_unstable", 0)
        return self

    def _not_within(self, field: str, fewest: int) -> ValidationError:
        why = f"must lie in {fewest}..{self.num_clients}"
        return at_field(type(self), field, getattr(self, field), why)

    def client_name(self, client: int) -> str:
        """Name of the client with this index, from `c000` on."""
        return f"c{client:0{max(_MIN_DIGITS, len(str(self.num_clients - 1)))}d}"

    def clients_of(self, process: int) -> range:
        """Indices of the clients that a process hosts."""
        return range(process, self.num_clients, self.num_processes)
