"""`python -m loadtest.benchmarks.peers --help` says what can be compared."""

import typer

from loadtest.benchmarks.peers.run import main

typer.run(main)
