"""Files that are whole or not there."""

import hashlib
import os
from pathlib import Path

from fedat_service.store.jsonl import bodies_path


def write_atomically(path: Path, *pieces: bytes | memoryview) -> None:
    """Write some pieces to `path`: a reader sees the old file or the new one, never a part.

    Raises:
        OSError: If it cannot be written, by the name of the file; an older one is left as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with draft.open("wb") as file:
            file.writelines(pieces)
        draft.replace(path)
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk has no name of its own
        raise
    finally:
        draft.unlink(missing_ok=True)


def remove_drafts(folder: Path) -> None:
    """Remove what is left of files that somebody was writing to `folder` who was killed.

    Raises:
        OSError: If one cannot be removed.
    """
    for draft in folder.glob(".*.part"):
        draft.unlink(missing_ok=True)


def keep_log(written: Path, log: Path) -> None:
    """Move a whole event log to its place, with the updates if they were kept beside it."""
    if bodies_path(written).exists():
        bodies_path(written).replace(bodies_path(log))
    written.replace(log)


def digest_of(path: Path) -> str:
    """Hex digest of what a file holds.

    Raises:
        OSError: If it is not there, or cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
