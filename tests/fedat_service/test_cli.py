import errno
import os
import subprocess
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


def test_a_message_is_told_as_it_is(failing):
    message = "shape [3, 4] is not [red]bold[/red] nor :x:, see fedat-service[worker]"
    assert failing(raising(ConfigError(message))) == (2, f"error: {message}\n")


def test_an_interrupt_while_commands_are_imported_is_no_traceback(monkeypatch, capsys):
    def interrupted(group):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "entry_points", interrupted)
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert (end.value.code, capsys.readouterr().err) == (130, "")


def test_a_file_that_cannot_be_used_is_named(failing, tmp_path):
    status, told = failing(lambda: (tmp_path / "no" / "file").write_text(""))
    assert (status, told) == (2, f"error: {tmp_path / 'no' / 'file'}: No such file or directory\n")


def test_a_file_that_cannot_take_its_place_is_named_by_that_place(failing, tmp_path):
    (tmp_path / "draft").write_text("")
    (tmp_path / "folder").mkdir()
    status, told = failing(lambda: (tmp_path / "draft").replace(tmp_path / "folder"))
    assert (status, told) == (2, f"error: {tmp_path / 'folder'}: Is a directory\n")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS])
def test_a_full_disk_is_one_line_even_where_nobody_knows_the_file(failing, number):
    why = os.strerror(number)
    assert failing(raising(OSError(number, why))) == (2, f"error: {why}\n")


def test_an_error_of_the_system_about_no_file_is_a_defect(failing):
    with pytest.raises(ConnectionResetError):
        failing(raising(ConnectionResetError()))


def test_modules_of_the_working_directory_can_be_named_as_options(tmp_path):
    (tmp_path / "own_module.py").write_text("def load():\n    return 7\n")
    # -P: as an installed command, python does not look into the working directory by itself.
    program = "from fedat_service.cli import main; main()"
    words = ["manifest", "--data", "own_module:load"]
    ended = subprocess.run(
        [sys.executable, "-P", "-c", program, *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert "own_module:load must return a Dataset, got int" in ended.stderr


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


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--rate", "inf"], "setting rate: Input should be a finite number, got inf"),
        (["--rate", "nan"], "setting rate: .*, got nan"),
        (["--rate", "0"], "setting rate: .*, got 0"),
        (["--port", "99999"], "setting port: .*, got 99999"),
        (["--event-log", "file"], "setting event_log: file is not a folder"),
        (["--event-log", "file/log"], "setting event_log: no file can be written to file/log: "),
        (["--event-log", "/proc"], "setting event_log: no file can be written to /proc: "),
        (["--keep-updates"], "setting keep_updates needs event_log"),
        (["--host", "192.0.2.1"], "cannot listen on host '192.0.2.1', port 8080: "),
    ],
)
def test_what_a_service_cannot_be_started_with_is_named(command, tmp_path, monkeypatch, words, complaint):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=f"^{complaint}"):
        command("serve", *words)
