"""Finished runs on disk: what an interrupted comparison need not do again."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedat_service.store.jsonl import bodies_path
from fedat_service.wire.strict import Strict
from loadtest.experiments.files import digest_of, write_atomically
from loadtest.experiments.results import MethodRun


class KeptRun(Strict):
    """A run and all it followed from.

    Attributes:
        version: Of this package.
        conditions: See `ExperimentSettings.conditions_of`.
        log: Digest of its event log, and of the updates beside it.
        run: What the run left behind.
    """

    version: str
    conditions: dict[str, Any]
    log: str
    run: MethodRun


def keep_run(path: Path, conditions: dict[str, Any], log: Path, run: MethodRun) -> None:
    """Write a finished run to `path`, whole or not at all; its event log is kept elsewhere.

    Raises:
        OSError: If it cannot be written.
    """
    kept = KeptRun(version=_version(), conditions=conditions, log=_digest(log), run=run)
    write_atomically(path, kept.model_dump_json().encode())


def find_run(path: Path, conditions: dict[str, Any], log: Path) -> MethodRun | None:
    """The run at `path`; None if there is none, or one of other conditions or of another version.

    Nor is there one whose log is not the one that it left: gone, changed, or by now another method's.

    Raises:
        OSError: If a file that is there cannot be read.
    """
    try:
        kept = KeptRun.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
    if (kept.version, kept.conditions) != (_version(), conditions):
        return None
    return kept.run if kept.log == _digest(log) else None


def _digest(log: Path) -> str:
    """Of a log and its updates; of a file that is not there, nothing."""
    return ":".join(digest_of(path) for path in (log, bodies_path(log)) if path.exists())


def _version() -> str:
    return version("fedat-service")
