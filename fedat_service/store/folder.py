"""A folder that files can be written to: seen to before anything starts that would need it in the end."""

from pathlib import Path
from tempfile import TemporaryFile

from fedat_service.errors import ConfigError


def make_folder(path: Path, setting: str) -> Path:
    """Make a folder, if it is not there, and try whether it takes a file.

    Raises:
        ConfigError: If not; the message names the setting and the folder.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path):
            return path
    except FileExistsError as error:
        raise ConfigError(f"{setting}: {path} is not a folder") from error
    except OSError as error:
        raise ConfigError(f"{setting}: no file can be written to {path}: {error.strerror}") from error
