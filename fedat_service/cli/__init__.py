"""The `fedat` command: every package adds its own commands through the entry point `fedat.commands`."""

import sys
from importlib.metadata import entry_points

import typer
from rich.console import Console
from rich.markup import escape

from fedat_service.errors import FedATError


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
    """Run `fedat`; an error of ours is one line and exit status 2, never a traceback."""
    try:
        build()()
    except FedATError as error:
        Console(stderr=True).print(f"[red]error:[/red] {escape(str(error))}", highlight=False)
        sys.exit(2)
