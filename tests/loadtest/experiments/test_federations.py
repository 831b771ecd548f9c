import pytest

from fedat_service.errors import ConfigError
from fedat_service.wire.messages import ManifestMessage, TensorMessage
from loadtest.experiments.federations import federation_of, fleet_of
from loadtest.experiments.settings import ExperimentSettings

URL = "http://127.0.0.1:1"
MANIFEST = ManifestMessage(tensors=(TensorMessage(name="fc.weight", shape=(2, 2)),))


def test_all_methods_get_the_same_clients_and_rounds():
    settings = ExperimentSettings(seed=3)
    fleets = [fleet_of(name, settings, URL).model_dump(exclude={"federation"}) for name in settings.methods]
    federations = [
        federation_of(name, settings, MANIFEST).model_dump(exclude={"name", "method"})
        for name in settings.methods
    ]
    assert fleets[0] == fleets[1]
    assert federations[0] == federations[1]
    assert (fleets[0]["seed"], federations[0]["seed"]) == (3, 3)


def test_clients_split_their_examples_as_the_experiment_says():
    settings = ExperimentSettings(test_fraction=0.4)
    assert fleet_of("fedat", settings, URL).test_fraction == 0.4


def test_training_starts_with_all_clients_and_ends_at_the_horizon():
    federation = federation_of(
        "fedat", ExperimentSettings(num_clients=7, num_unstable=0, horizon_s=99), MANIFEST
    )
    assert federation.rounds.start_clients == 7
    assert federation.stop.max_time_s == 99


def test_more_processes_than_clients_are_refused_by_number():
    with pytest.raises(ConfigError, match=r"num_processes: must lie in 1\.\.50, got 100"):
        fleet_of("fedat", ExperimentSettings(processes=100), URL)
