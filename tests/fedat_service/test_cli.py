import sys
from importlib import import_module
from types import SimpleNamespace

import click
import pytest
import typer
from typer.testing import CliRunner

from fedat_service import cli
from fedat_service.errors import ConfigError, FedATError
from fedat_service.wire.polyline import DEFAULT


@pytest.fixture
def failing(monkeypatch, capsys):
    """`failing(act)` runs `fedat` with one command that does `act()`; gives exit status and stderr."""

    def run(act):
        def register(app):
            app.command()(lambda: act())

        point = SimpleNamespace(name="failing", load=lambda: register)
        monkeypatch.setattr(cli, "entry_points", lambda group: [point])
        monkeypatch.setattr(sys, "argv", ["fedat"])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return end.value.code, capsys.readouterr().err

    return run


def raising(error):
    def act():
        raise error

    return act


@pytest.fixture
def command():
    """`command(*words)` runs `fedat` with everything installed; gives exit status and plain text."""

    def run(*words):
        result = CliRunner().invoke(cli.build(), words, env={"COLUMNS": "200"}, catch_exceptions=False)
        return result.exit_code, click.unstyle(result.output)

    return run


def test_an_error_of_ours_is_one_line_however_long(failing):
    message = "no federation " + "f" * 500 + " " + "g" * 500
    assert failing(raising(FedATError(message))) == (2, f"error: {message}\n")


def test_brackets_in_a_message_survive(failing):
    message = "shape [3, 4] is not [red]bold[/red], see fedat-service[worker]"
    assert failing(raising(ConfigError(message))) == (2, f"error: {message}\n")


@pytest.mark.parametrize(
    ("package", "extra"),
    [
        ("httpx", "worker"),
        ("stamina", "worker"),
        ("torch", "worker"),
        ("PIL", "worker"),
        ("matplotlib", "report"),
    ],
)
def test_a_missing_extra_is_advice_to_install_it(failing, monkeypatch, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    advice = f"error: this command needs {package}: pip install 'fedat-service[{extra}]'\n"
    assert failing(lambda: import_module(package)) == (2, advice)


def test_a_part_of_a_package_counts_as_the_package(failing):
    status, told = failing(raising(ModuleNotFoundError(name="torch.nn")))
    assert (status, "needs torch:" in told) == (2, True)


@pytest.mark.parametrize("error", [ModuleNotFoundError(name="workers.flete"), ModuleNotFoundError("?")])
def test_any_other_missing_module_is_a_defect(failing, error):
    with pytest.raises(ModuleNotFoundError):
        failing(raising(error))


def test_every_package_adds_its_commands():
    names = set(typer.main.get_command(cli.build()).commands)
    assert {"serve", "doctor", "create", "fleet", "manifest", "demo", "bench"} <= names


def test_the_help_of_serve_lists_its_options(command):
    status, told = command("serve", "--help")
    assert status == 0
    assert all(option in told for option in ("--host", "--port", "--rate", "--event-log"))


def test_the_doctor_finds_this_build_healthy_and_names_its_codec_backend(command):
    status, told = command("doctor")
    assert status == 0
    assert f"backend {DEFAULT.name}" in told
