import os
import signal
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from fedat_service.errors import ConfigError
from loadtest import cli


@pytest.fixture
def app():
    app = typer.Typer()
    cli.register(app)
    return app


@pytest.mark.parametrize("command", ["demo", "bench"])
def test_help_works(app, command):
    result = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert "--only" in result.output if command == "bench" else "--target-accuracy" in result.output


def test_help_needs_neither_torch_nor_matplotlib():
    code = "import sys, loadtest.cli; print({'torch', 'matplotlib', 'httpx'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_settings_that_make_no_sense_are_refused(app):
    result = CliRunner().invoke(app, ["demo", "--rate", "-1"])
    assert isinstance(result.exception, ConfigError)


def terminate_oneself():
    with cli._terminable():
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_termination_unwinds():
    with pytest.raises(SystemExit):
        terminate_oneself()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
