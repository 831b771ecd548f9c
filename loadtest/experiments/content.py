"""What stands in the files that a run is made from: with other images or latencies it is another run."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from fedat_service.errors import ConfigError
from loadtest.experiments.files import digest_of
from loadtest.experiments.settings import ExperimentSettings
from workers.data.catalog import path_of
from workers.data.folder import names_in
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


def require_same_content(settings: ExperimentSettings, before: Mapping[str, str]) -> None:
    """Refuse a run whose files changed while it went on: nobody knows which of them it saw.

    Raises:
        FedATError: If they changed, or the data is gone.
        OSError: If a file cannot be read.
    """
    now = content_of(settings)
    if other := [field for field in now if now[field] != before.get(field)]:
        raise ConfigError(f"{other[0]} {getattr(settings, other[0])!r} changed while the run went on")


def digest(path: Path) -> str:
    """Hex digest of a file, or of an image folder: of the names of the images in it and of what they hold.

    Raises:
        OSError: If it is not there, or cannot be read.
    """
    if path.is_dir():
        lines = [f"{digest_of(path / name)} {name}\n" for name in names_in(path)]
        return hashlib.sha256(os.fsencode("".join(lines))).hexdigest()
    return digest_of(path)
