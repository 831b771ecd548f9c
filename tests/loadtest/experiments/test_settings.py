import pytest

from fedat_service.errors import ConfigError
from loadtest.experiments.settings import ExperimentSettings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_clients", 0),
        ("cohort_size", -1),
        ("rate", 0.0),
        ("rate", float("nan")),
        ("horizon_s", float("inf")),
        ("target_accuracy", 1.5),
        ("num_unstable", 50),
        ("methods", ()),
    ],
)
def test_refuses_numbers_that_make_no_sense(name, value):
    with pytest.raises(ConfigError):
        ExperimentSettings(**{name: value})


def test_a_refusal_holds_the_name_and_the_value():
    with pytest.raises(ConfigError, match=r"rate must be a positive number, got -2"):
        ExperimentSettings(rate=-2)
