"""Commands of the workers: `create`, `fleet`, `manifest`.

What needs torch or httpx is imported where it is used: `fedat --help` waits for neither, nor needs the extra.
"""

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from pydantic import BaseModel, ValidationError
from rich.console import Console

from fedat_service.errors import ConfigError
from fedat_service.wire.complaints import first_of, place_of, reason_of
from fedat_service.wire.messages import CreateFederation
from fedat_service.wire.presets import PRESETS
from fedat_service.wire.settings import Rounds, Stop, Tiering
from workers.fleet.settings import FleetSettings
from workers.method import method_of

Message = TypeVar("Message", bound=BaseModel)
T = TypeVar("T")

_DEFAULT = FleetSettings(federation="any")
_INTERRUPTED = 130

_OPTIONS = {
    "federation": "federation",
    "num_clients": "--clients",
    "num_processes": "--processes",
    "num_tiers": "--tiers",
    "num_unstable": "--unstable",
    "cohort_size": "--cohort",
    "deadline_s": "--deadline",
    "drop_horizon_s": "--drop-horizon",
    "evaluate_every_s": "--evaluate-every",
    "max_time_s": "--max-time",
}
"""Options with another name than their field."""

Url = Annotated[str, typer.Option(help="Where the service is.")]
Data = Annotated[
    str,
    typer.Option(
        help="digits, fashion-mnist, mnist, vader, vader-text, an image folder or zip, or "
        "module:function -> Dataset."
    ),
]
DataDir = Annotated[Path | None, typer.Option(help="The only folder to look in for data.")]
Model = Annotated[
    str,
    typer.Option(
        help="logistic, mlp, cnn, mnist-cnn, leaf-cnn, resnet20-lama, resnet20-als, wrn-10-2, wrn-28-10, "
        "llama-6-64, smollm2-135m, or module:function(input_shape, num_classes) -> torch module."
    ),
]

NewName = Annotated[str, typer.Argument(help="Name of the federation: a-z, 0-9, '-', '_'.")]
Preset = Annotated[str, typer.Option(help=f"Method to start from: {', '.join(PRESETS)}.")]
Tiers = Annotated[int, typer.Option(help="Tiers by latency, for a method that has them.")]
RetierEvery = Annotated[int, typer.Option(help="Versions between two looks at the tiers; 0: none.")]
Cohort = Annotated[int, typer.Option(help="Most clients in one round of one tier.")]
Deadline = Annotated[float, typer.Option(help="Federation seconds until a round does without the missing.")]
StartClients = Annotated[int, typer.Option(help="Clients that must be there before anything starts.")]
MaxTime = Annotated[float | None, typer.Option(help="Stop after this many federation seconds.")]
MaxVersions = Annotated[int | None, typer.Option(help="Stop at this version of the model.")]
TargetAccuracy = Annotated[float | None, typer.Option(help="Stop at this accuracy, 0 to 1.")]
CreationSeed = Annotated[int, typer.Option(help="Of the initial model, the cohorts and the training.")]
LearningRate = Annotated[float | None, typer.Option(help="Local learning rate; the preset's if not given.")]
Epochs = Annotated[int | None, typer.Option(help="Local epochs of a round.")]
BatchSize = Annotated[int | None, typer.Option(help="Examples in a local step.")]
ProxMu = Annotated[
    float | None, typer.Option(help="Pull towards the model a round started from (FedProx, FedAT eq. 5).")
]
Codec = Annotated[str | None, typer.Option(help="float32, float16, polyline, qsgd or affine8.")]
Precision = Annotated[int | None, typer.Option(help="Decimals that polyline keeps, 3 to 6.")]
Changes = Annotated[
    list[str],
    typer.Option("--set", metavar="AXIS.FIELD=VALUE", help="Anything else of the method: schedule.phi=4."),
]

Federation = Annotated[str, typer.Argument(help="Which federation to work for.")]
Clients = Annotated[int, typer.Option(help="Simulated clients.")]
Processes = Annotated[int, typer.Option(help="Processes that share them; one a core is best.")]
LimitPerClass = Annotated[int | None, typer.Option(help="Use only so many examples of every class.")]
Partition = Annotated[
    str,
    typer.Option(help="iid, shards:2, classes:2 (classes a client), dirichlet:0.1, lda:0.1, natural:8 ..."),
]
TestFraction = Annotated[float, typer.Option(help="Share of every client's examples that only evaluates.")]
Latency = Annotated[
    str,
    typer.Option(
        help="Delay of every round, in federation seconds: none, fedat (the paper's five parts, up to "
        "30 s), uniform:0:5, lognormal:1:0.5, pareto:2:1.5, trace:FILE."
    ),
]
ComputeS = Annotated[
    float, typer.Option(help="Federation seconds of computing in every round, before the delay.")
]
Unstable = Annotated[int, typer.Option(help="Clients that drop out for good.")]
DropHorizon = Annotated[
    float, typer.Option(help="They do so at a random time within this many federation seconds.")
]
FleetSeed = Annotated[int, typer.Option(help="Of partition, latencies and drop-outs.")]
Rate = Annotated[
    float | None, typer.Option(help="Federation seconds per second; the service's if not given.")
]
EvaluateEvery = Annotated[
    float,
    typer.Option(help="Federation seconds between two evaluations on all clients' test data; 0: none."),
]
EvaluateOnTask = Annotated[
    bool, typer.Option(help="Each client also reports how each model it receives does on its test data.")
]
Bfloat16 = Annotated[
    bool, typer.Option("--bfloat16", help="Train layers in bfloat16: faster where the device has it.")
]
Device = Annotated[str, typer.Option(help="Where they train: cpu, cuda, cuda:1 ..., auto (a GPU if there).")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(create)
    app.command()(fleet)
    app.command()(manifest)


def create(
    name: NewName,
    url: Url = _DEFAULT.url,
    preset: Preset = "fedat",
    model: Model = _DEFAULT.model,
    data: Data = _DEFAULT.data,
    data_dir: DataDir = None,
    tiers: Tiers = 5,
    retier_every: RetierEvery = 0,
    cohort: Cohort = 10,
    deadline: Deadline = 600.0,
    start_clients: StartClients = _DEFAULT.num_clients,
    max_time: MaxTime = None,
    max_versions: MaxVersions = None,
    target_accuracy: TargetAccuracy = None,
    seed: CreationSeed = 0,
    lr: LearningRate = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    prox_mu: ProxMu = None,
    codec: Codec = None,
    precision: Precision = None,
    changes: Changes = [],  # noqa: B006 - typer gives a fresh one
) -> None:
    """Create a federation on a running service, for the model and the data that a fleet will train.

    A built-in model starts from weights that the service draws from the seed; your own module's weights are
    uploaded. The federation ends at the first of --max-time, --max-versions and --target-accuracy, or never.
    """
    solver = {"lr": lr, "epochs": epochs, "batch_size": batch_size, "prox_mu": prox_mu}
    method = method_of(preset, {"solver": solver, "codec": {"codec": codec, "precision": precision}}, changes)
    rounds = {"cohort_size": cohort, "deadline_s": deadline, "start_clients": start_clients}
    stop = {"max_time_s": max_time, "max_versions": max_versions, "target_accuracy": target_accuracy}
    whose = {"federation": name, "url": url, "model": model, "data": data, "data_dir": data_dir}
    _create(
        _checked(FleetSettings, **whose, seed=seed),
        method=method,
        tiering=_checked(Tiering, num_tiers=tiers, retier_every=retier_every),
        rounds=_checked(Rounds, **rounds),
        stop=_checked(Stop, **stop),
    )


def _create(settings: FleetSettings, **rules: BaseModel) -> None:
    """Create a federation by `rules` for the model of a fleet, and tell where it stands."""
    from workers.fleet.creation import create_federation, describe_model

    described = describe_model(settings)
    message = _checked(
        CreateFederation,
        name=settings.federation,
        manifest=described.manifest,
        initial_model="upload" if described.is_own else "glorot",
        seed=settings.seed,
        **rules,
    )
    _hush_retries()
    view = asyncio.run(create_federation(settings.url, message, described))
    why = f", {view.reason}" if view.reason else ""
    _console().print(f"federation {view.name}: {view.status}{why}")


def fleet(
    federation: Federation,
    url: Url = _DEFAULT.url,
    clients: Clients = _DEFAULT.num_clients,
    processes: Processes = _DEFAULT.num_processes,
    data: Data = _DEFAULT.data,
    data_dir: DataDir = None,
    limit_per_class: LimitPerClass = None,
    partition: Partition = _DEFAULT.partition,
    test_fraction: TestFraction = _DEFAULT.test_fraction,
    model: Model = _DEFAULT.model,
    latency: Latency = _DEFAULT.latency,
    compute_s: ComputeS = _DEFAULT.compute_s,
    unstable: Unstable = _DEFAULT.num_unstable,
    drop_horizon: DropHorizon = _DEFAULT.drop_horizon_s,
    seed: FleetSeed = _DEFAULT.seed,
    rate: Rate = None,
    evaluate_every: EvaluateEvery = _DEFAULT.evaluate_every_s,
    evaluate_on_task: EvaluateOnTask = _DEFAULT.evaluate_on_task,
    device: Device = _DEFAULT.device,
    bfloat16: Bfloat16 = _DEFAULT.bfloat16,
) -> None:
    """Run a fleet of simulated, straggling clients until the federation is finished.

    The clients train for real; what their latency says beyond that is waited for. Fleets that are started
    again with the same options are the same clients, and go on.
    """
    shape = {"num_clients": clients, "num_processes": min(processes, max(1, clients)), "seed": seed}
    task = {"data": data, "data_dir": data_dir, "limit_per_class": limit_per_class}
    shares = {"partition": partition, "test_fraction": test_fraction}
    pace = {"latency": latency, "compute_s": compute_s, "rate": rate}
    drops = {"num_unstable": unstable, "drop_horizon_s": drop_horizon}
    looks = {"evaluate_every_s": evaluate_every, "evaluate_on_task": evaluate_on_task}
    arithmetic = {"device": device, "bfloat16": bfloat16}
    values = {**shape, **task, **shares, **pace, **drops, **looks, **arithmetic}
    _run(_checked(FleetSettings, url=url, federation=federation, model=model, **values))


def _run(settings: FleetSettings) -> None:
    """Run a fleet to its end, or until somebody stops it."""
    from workers.fleet.progress import run_visibly

    if settings.device not in ("auto", "cpu"):  # which are always there, and torch takes long to import
        from workers.training.devices import find_device

        find_device(settings.device)
    _hush_retries()
    console = _console()
    try:
        tally = asyncio.run(_until_terminated(run_visibly(settings, console)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("fleet stopped")
        raise typer.Exit(_INTERRUPTED) from None
    console.print(f"{tally.tasks} tasks done, {tally.late} later than planned")


def manifest(model: Model = _DEFAULT.model, data: Data = _DEFAULT.data, data_dir: DataDir = None) -> None:
    """Print the JSON manifest of a model, for `POST /v1/federations`."""
    from workers.fleet.creation import describe_model

    settings = _checked(FleetSettings, federation="any", model=model, data=data, data_dir=data_dir)
    typer.echo(describe_model(settings).manifest.model_dump_json())


def _checked(settings: type[Message], **values: Any) -> Message:  # noqa: ANN401 - pydantic checks them
    try:
        return settings(**values)
    except ValidationError as error:
        first = first_of(error)
        field = place_of(first)
        option = _OPTIONS.get(field, f"--{field.replace('_', '-')}")
        raise ConfigError(f"{option}: {reason_of(first)}" if field else reason_of(first)) from error


def _console() -> Console:
    """For people; what it prints is text and nothing else."""
    return Console(stderr=True, markup=False, emoji=False, highlight=False, soft_wrap=True)


def _hush_retries() -> None:
    """Somebody at a terminal is told by the error that comes in the end, not by every attempt."""
    from stamina.instrumentation import set_on_retry_hooks

    set_on_retry_hooks([])


async def _until_terminated(work: Coroutine[Any, Any, T]) -> T:
    """Let a termination signal end some work as an interrupt does."""
    task = asyncio.ensure_future(work)
    with suppress(NotImplementedError):  # no signal handlers in Windows' event loop
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task
