"""`python -m loadtest.benchmarks.peers --help` says what can be compared."""

import sys

import typer

from fedat_service.errors import FedATError
from loadtest.benchmarks.peers.run import main
from loadtest.cli import terminable

try:
    with terminable():
        typer.run(main)
except FedATError as error:
    sys.exit(f"error: {error}")
