import pytest
from pydantic import ValidationError

from workers.fleet.settings import FleetSettings


def test_every_client_is_hosted_by_exactly_one_process(fleet):
    settings = fleet(num_clients=11, num_processes=3)
    hosted = [client for process in range(3) for client in settings.clients_of(process)]
    assert sorted(hosted) == list(range(11))


@pytest.mark.parametrize(
    ("num_clients", "client", "name"), [(20, 0, "c000"), (1000, 999, "c999"), (1001, 7, "c0007")]
)
def test_names_carry_the_index_and_sort_like_it(fleet, num_clients, client, name):
    assert fleet(num_clients=num_clients).client_name(client) == name


def test_settings_survive_the_way_to_another_process(fleet, tmp_path):
    settings = fleet(data_dir=tmp_path, rate=12.5, num_unstable=2)
    assert FleetSettings.model_validate_json(settings.model_dump_json()) == settings


@pytest.mark.parametrize(
    "fields",
    [
        {"num_processes": 7},
        {"num_unstable": 7},
        {"num_clients": 0},
        {"federation": "../f"},
        {"rate": 0.0},
        {"compute_s": -1.0},
        {"unknown": 1},
        {"device": None},
        {"test_fraction": 0.0},
        {"test_fraction": 1.0},
    ],
)
def test_settings_that_make_no_sense_are_refused(fleet, fields):
    with pytest.raises(ValidationError):
        fleet(**fields)
