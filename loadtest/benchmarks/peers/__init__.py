"""Other frameworks on the same work as ours, each in its own environment; see `run`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadtest.benchmarks.run import Results


def measure() -> "Results":
    """Measure what `run.measure` does."""
    # Not above: the others' processes import this package, too, and have none of what ours needs.
    from loadtest.benchmarks.peers.run import measure as run

    return run()
