"""`python -m loadtest.benchmarks.peers --help` says what can be compared."""

import sys

import typer

from fedat_service.errors import FedATError
from loadtest.benchmarks.peers.run import main

try:
    typer.run(main)
except FedATError as error:
    sys.exit(f"error: {error}")
