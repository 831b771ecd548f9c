"""Settings are read once: command line before environment before files."""

import pytest

from fedat_service.config import ServiceSettings
from fedat_service.errors import ConfigError


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


@pytest.mark.parametrize(
    "line",
    ["colour = 'red'", "rate = 0", "rate = inf", "rate = nan", "port = 70000", "limits.max_wait_s = inf"],
)
def test_a_wrong_setting_is_named(elsewhere, line):
    (elsewhere / "fedat.toml").write_text(line)
    with pytest.raises(ConfigError, match=f"setting {line.split()[0]}: ") as refused:
        ServiceSettings()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("fedat.toml", b"port = = 3"),
        ("fedat.toml", b"\xff\xfe"),
        ("fedat.yaml", b"a: ["),
        ("fedat.yaml", b"- 1"),
        ("fedat.yaml", b"7"),
        ("fedat.yaml", b"7: 8"),
        ("fedat.yaml", b'port: "\xff"'),
        ("fedat.yaml", b"port: \x00"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_in_one_line(elsewhere, name, content):
    (elsewhere / name).write_bytes(content)
    with pytest.raises(ConfigError, match=f"^{name}: ") as refused:
        ServiceSettings()
    assert "\n" not in str(refused.value)


def test_an_empty_file_says_nothing(elsewhere):
    (elsewhere / "fedat.yaml").write_text("")
    (elsewhere / "fedat.toml").write_text("")
    assert ServiceSettings().port == 8080


def test_an_environment_that_makes_no_sense_is_named(monkeypatch):
    monkeypatch.setenv("FEDAT_LIMITS", "many")
    with pytest.raises(ConfigError, match="limits"):
        ServiceSettings()


def test_updates_cannot_be_kept_beside_no_log():
    with pytest.raises(ConfigError, match="keep_updates needs event_log"):
        ServiceSettings(keep_updates=True)
