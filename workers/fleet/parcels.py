"""Values with large arrays in them, on their way from one process of a machine to another.

A pipe carries a model in pieces of 64 KB, for which both its ends must be awake in turn: that takes as long
as some steps of training. A file in memory takes it in one piece.
"""

import os
import pickle  # noqa: TID251 - as the pool itself does, between processes that it started; never from a network
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from workers.fleet.memory_files import MEMORY, files_in, forget_files, give_back, places

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

_LARGE_BYTES = 1 << 16
_PREFIX, _LOCK = "fedat-parcels-", "lock"
_OLD_S = 60.0
"""Nobody takes longer from making a folder to holding its lock."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """A pickled value; if it has large arrays, these are in a file that `unpack` takes away, or gives back.

    Args:
        value: All of it, or what is not in the file.
        path: The file.
        comes_back: Whether who packed it will use the file again.
        sizes: Bytes of each array in it.
    """

    value: bytes
    path: Path | None = None
    comes_back: bool = False
    sizes: tuple[int, ...] = ()


@contextmanager
def parcel_folder(memory: Path = MEMORY) -> Iterator[Path]:
    """Have a folder for parcels: in memory, or among temporary files where the system has no such place.

    What processes have left there that were killed, with all that would have tidied up after them, goes.

    Raises:
        OSError: If there is no room for a folder anywhere.
    """
    in_memory = memory if os.access(memory, os.W_OK) else None
    with TemporaryDirectory(prefix=_PREFIX, dir=in_memory) as name:
        folder = Path(name)
        with (folder / _LOCK).open("wb") as lock:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX)
            for other in folder.parent.glob(f"{_PREFIX}*"):
                if _is_left(other, folder.stat().st_mtime):
                    shutil.rmtree(other, ignore_errors=True)
            try:
                yield folder
            finally:
                forget_files(folder)


def _is_left(folder: Path, now_s: float) -> bool:
    """Whether a folder was made by `parcel_folder`, for this user, long ago, and nobody holds its lock.

    Without a lock it is not one of ours, or was left empty: it stays.
    """
    if fcntl is None:
        return False
    try:
        status = folder.lstat()
        if status.st_uid != os.getuid() or now_s - status.st_mtime < _OLD_S:
            return False
        with (folder / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def discard(parcel: Parcel) -> None:
    """Do without what is in a parcel that nobody has unpacked."""
    if parcel.path is not None and parcel.comes_back:
        give_back(parcel.path, os.getpid())
    elif parcel.path is not None:
        parcel.path.unlink(missing_ok=True)


def pack(value: Any, folder: Path) -> Parcel:  # noqa: ANN401 - whatever can be pickled
    """Make a parcel; where the folder has no room, or is gone, all of it goes by the pipe."""
    arrays: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(value, protocol=5, buffer_callback=arrays.append)
    contents = [array.raw() for array in arrays]
    sizes = tuple(len(content) for content in contents)
    if sum(sizes) >= _LARGE_BYTES:
        with suppress(OSError):
            return Parcel(pickled, *files_in(folder).store(contents), sizes)
    return Parcel(pickle.dumps(value, protocol=5))


def unpack(parcel: Parcel) -> Any:  # noqa: ANN401 - whatever was packed
    """Give the value, once; its arrays can be written to.

    Raises:
        OSError: If its file is gone, or not whole.
    """
    if parcel.path is None:
        return pickle.loads(parcel.value)  # noqa: S301 - from a process of our own
    files, parts = files_in(parcel.path.parent), places(parcel.sizes)
    content = files.take(parcel.path, parts[-1].stop, parcel.comes_back)
    return pickle.loads(parcel.value, buffers=[content[part] for part in parts])  # noqa: S301 - as above
