"""Finished runs on disk: what an interrupted comparison need not do again."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedat_service.wire.settings import Strict
from loadtest.experiments.files import write_atomically
from loadtest.experiments.results import MethodRun


class KeptRun(Strict):
    """A run and all it followed from.

    Attributes:
        version: Of this package.
        conditions: See `ExperimentSettings.conditions_of`.
        run: What the run left behind.
    """

    version: str
    conditions: dict[str, Any]
    run: MethodRun


def keep_run(path: Path, conditions: dict[str, Any], run: MethodRun) -> None:
    """Write a finished run to `path`, whole or not at all.

    Raises:
        OSError: If it cannot be written.
    """
    kept = KeptRun(version=_version(), conditions=conditions, run=run)
    write_atomically(path, kept.model_dump_json().encode())


def find_run(path: Path, conditions: dict[str, Any]) -> MethodRun | None:
    """The run at `path`; None if there is none, or one of other conditions or of another version.

    Raises:
        OSError: If a file that is there cannot be read.
    """
    try:
        kept = KeptRun.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
    return kept.run if (kept.version, kept.conditions) == (_version(), conditions) else None


def _version() -> str:
    return version("fedat-service")
