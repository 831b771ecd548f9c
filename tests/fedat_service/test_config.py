"""Settings are read once: command line before environment before files."""

import pytest
from pydantic import ValidationError

from fedat_service.config import ServiceSettings


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_defaults():
    assert (ServiceSettings().host, ServiceSettings().port) == ("127.0.0.1", 8080)


def test_files_give_way_to_the_environment_and_both_to_the_command_line(elsewhere, monkeypatch):
    (elsewhere / "fedat.toml").write_text("port = 1\nrate = 2.0\nhost = 'file'\n[limits]\nmax_wait_s = 5\n")
    monkeypatch.setenv("FEDAT_PORT", "3")
    monkeypatch.setenv("FEDAT_HOST", "environment")
    settings = ServiceSettings(host="line")
    assert (settings.host, settings.port, settings.rate) == ("line", 3, 2.0)
    assert settings.limits.max_wait_s == 5


def test_yaml_is_read_too(elsewhere):
    (elsewhere / "fedat.yaml").write_text("rate: 7\n")
    assert ServiceSettings().rate == 7


def test_one_limit_can_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("FEDAT_LIMITS__MAX_WAIT_S", "20")
    assert ServiceSettings().limits.max_wait_s == 20


@pytest.mark.parametrize("line", ["colour = 'red'", "rate = 0", "port = 70000"])
def test_a_wrong_setting_is_an_error(elsewhere, line):
    (elsewhere / "fedat.toml").write_text(line)
    with pytest.raises(ValidationError, match=line.split()[0]):
        ServiceSettings()
