"""What stands in the files that a run is made from: with other images or latencies it is another run."""

import hashlib
from pathlib import Path

from loadtest.experiments.settings import ExperimentSettings
from workers.data.catalog import path_of
from workers.fleet.population import is_own
from workers.latency import trace_of


def content_of(settings: ExperimentSettings) -> dict[str, str]:
    """Digests of an experiment's own files, by the field that names them: `data` and `latency`.

    Data sets with a name of their own are the published ones. Functions of the user's are not looked into.

    Raises:
        FedATError: If the data is not there.
        OSError: If a file cannot be read.
    """
    data = None if is_own(settings.data) else path_of(settings.data, settings.data_dir)
    paths = {"data": data, "latency": trace_of(settings.latency)}
    return {field: digest(path) for field, path in paths.items() if path is not None}


def digest(path: Path) -> str:
    """Hex digest of a file, or of a folder: of the names of the files in it and of what they hold.

    Raises:
        OSError: If it is not there, or cannot be read.
    """
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        lines = [f"{digest(file)} {file.relative_to(path).as_posix()}\n" for file in files]
        return hashlib.sha256("".join(lines).encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
