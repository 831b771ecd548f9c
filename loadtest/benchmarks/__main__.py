"""`python -m loadtest.benchmarks` is `fedat bench`."""

import sys

import typer

from fedat_service.errors import FedATError
from loadtest.cli import bench

try:
    typer.run(bench)
except FedATError as error:
    sys.exit(f"error: {error}")
