"""Worker processes: data, models, local training, simulated stragglers."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workers.fleet.real import run_client

__all__ = ["run_client"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - PEP 562
    """Import on first use: `fedat --help` waits for no HTTP client, and a service needs none."""
    if name == "run_client":
        from workers.fleet.real import run_client

        return run_client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
