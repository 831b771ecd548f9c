"""An experiment's methods as federations and fleets: the same clients under each, wherever they run."""

from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from fedat_service.errors import ConfigError, FedATError
from fedat_service.federation.spec import Spec
from fedat_service.store.folder import make_folder
from fedat_service.wire.messages import CreateFederation, ManifestMessage
from fedat_service.wire.settings import Rounds, Stop, Tiering
from loadtest.experiments.experiment import Experiment
from loadtest.experiments.settings import ExperimentSettings, config_error, federation_name
from workers.fleet.population import Population
from workers.fleet.settings import FleetSettings
from workers.models.state import manifest_of
from workers.training.devices import find_device


def make_room(out: Path, *experiments: Experiment) -> None:
    """Make the folder of the results and those around it, if all the experiments can be run; else none.

    Raises:
        FedATError: If the folder cannot be written to, or as `require_runnable`.
    """
    new = [folder for folder in (out, *out.parents) if not folder.exists()]
    make_folder(out, "out")
    try:
        for experiment in experiments:
            require_runnable(experiment)
    except FedATError:
        with suppress(OSError):  # somebody else has found a use for it
            for folder in new:
                folder.rmdir()
        raise


def require_runnable(experiment: Experiment) -> None:
    """See that all methods of an experiment can be run: what makes no sense shows before anything starts.

    Raises:
        FedATError: If a setting makes no sense, by the names of experiment and method, or the data or the
            device is not there.
    """
    find_device(experiment.device)
    population = Population(fleet_of(experiment.methods[0], experiment, "http://nowhere"))
    manifest = ManifestMessage.of(manifest_of(population.build_model()))
    for name in experiment.methods:
        try:
            Spec.of(federation_of(name, experiment, manifest))
        except FedATError as error:
            raise ConfigError(f"{experiment.name}: method {name}: {error}") from error


def federation_of(name: str, settings: ExperimentSettings, manifest: ManifestMessage) -> CreateFederation:
    """The federation that runs a method.

    Raises:
        ConfigError: If the settings make no federation.
    """
    try:
        return CreateFederation(
            name=federation_name(name),
            method=settings.method_of(name),
            manifest=manifest,
            tiering=Tiering(num_tiers=settings.num_tiers),
            rounds=Rounds(
                cohort_size=settings.cohort_size,
                deadline_s=settings.deadline_s,
                start_clients=settings.num_clients,
            ),
            stop=Stop(max_time_s=settings.horizon_of(name)),
            seed=settings.seed,
        )
    except ValidationError as error:
        raise config_error(error) from error


def fleet_of(name: str, settings: ExperimentSettings, url: str) -> FleetSettings:
    """The clients: the same ones for every method.

    Raises:
        ConfigError: If the settings make no fleet.
    """
    try:
        return FleetSettings(
            url=url,
            federation=federation_name(name),
            num_clients=settings.num_clients,
            num_processes=settings.processes,
            data=settings.data,
            data_dir=settings.data_dir,
            limit_per_class=settings.limit_per_class,
            partition=settings.partition,
            test_fraction=settings.test_fraction,
            model=settings.model,
            latency=settings.latency,
            compute_s=settings.compute_s,
            num_unstable=settings.num_unstable,
            drop_horizon_s=settings.horizon_s,
            seed=settings.seed,
            evaluate_every_s=settings.evaluate_every_s,
            device=settings.device,
            bfloat16=settings.bfloat16,
        )
    except ValidationError as error:
        raise config_error(error) from error
