"""`python -m loadtest.benchmarks` is `fedat bench`."""

import typer

from loadtest.cli import bench

typer.run(bench)
