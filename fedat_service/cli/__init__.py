"""The `fedat` command: every package adds its own commands through the entry point `fedat.commands`."""

import errno
import signal
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from fedat_service.errors import FedATError

_EXTRAS = {
    "httpx": "worker",
    "stamina": "worker",
    "torch": "worker",
    "PIL": "worker",
    "matplotlib": "report",
}
"""Packages that a command may miss, and the extra that brings each."""

_INTERRUPTED = 128 + signal.SIGINT
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}
"""What a disk says when it is full: no defect of ours, even where the system names no file."""


def build() -> typer.Typer:
    """The command with everything that is installed."""
    app = typer.Typer(
        help="Tiered, asynchronous federated learning: a service, fleets of stragglers, measured load.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    for command in sorted(entry_points(group="fedat.commands"), key=lambda point: point.name):
        command.load()(app)
    return app


def main() -> None:
    """Run `fedat`; our own errors, a file's and a missing extra are one line and exit status 2."""
    # For `module:function` options. Last: nothing here may take the place of what is installed.
    sys.path.append(str(Path.cwd()))
    try:
        build()()
    except KeyboardInterrupt:
        # While commands are still being imported; once they run, they say what an interrupt means.
        sys.exit(_INTERRUPTED)
    except FedATError as error:
        _fail(str(error))
    except OSError as error:
        if error.filename is None and error.errno not in _DISK:
            raise
        where = error.filename2 or error.filename
        _fail(": ".join(str(part) for part in (where, error.strerror) if part))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        _fail(f"this command needs {package}: pip install 'fedat-service[{_EXTRAS[package]}]'")


def _fail(message: str) -> NoReturn:
    console = Console(stderr=True, emoji=False, highlight=False)
    console.print(f"[red]error:[/red] {escape(message)}", soft_wrap=True)
    sys.exit(2)
