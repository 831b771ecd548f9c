"""Values with large arrays in them, on their way from one process of a machine to another.

A pipe carries a model in pieces of 64 KB, for which both its ends must be awake in turn: that takes as long
as some steps of training. A file in memory takes it in one piece.
"""

import mmap
import os
import pickle  # noqa: TID251 - as the pool itself does, between processes that it started; never from a network
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from weakref import WeakSet

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

_MEMORY = Path("/dev/shm")  # noqa: S108 - only the parent of a folder that tempfile makes
_LARGE_BYTES = 1 << 16
_ALIGNMENT = 64
_PREFIX, _LOCK = "fedat-parcels-", "lock"
_OLD_S = 60.0
"""Nobody takes longer from making a folder to holding its lock."""

_MOST_MAPPED, _MOST_OF_MEMORY = 64, 0.25
"""Files in memory that are used in place: each keeps a descriptor and its room while an array of it lives."""

_names = count()
_mapped: WeakSet[mmap.mmap] = WeakSet()


@dataclass(frozen=True, slots=True)
class Parcel:
    """A pickled value; if it has large arrays, these are in a file that `unpack` takes away.

    Args:
        value: All of it, or what is not in the file.
        path: The file.
        sizes: Bytes of each array in it.
    """

    value: bytes
    path: Path | None = None
    sizes: tuple[int, ...] = ()


@contextmanager
def parcel_folder(memory: Path = _MEMORY) -> Iterator[Path]:
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
            yield folder


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
    if parcel.path is not None:
        parcel.path.unlink(missing_ok=True)


def pack(value: Any, folder: Path) -> Parcel:  # noqa: ANN401 - whatever can be pickled
    """Make a parcel; where the folder has no room, or is gone, all of it goes by the pipe."""
    arrays: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(value, protocol=5, buffer_callback=arrays.append)
    contents = [array.raw() for array in arrays]
    sizes = tuple(content.nbytes for content in contents)
    if sum(sizes) < _LARGE_BYTES:
        return Parcel(pickle.dumps(value, protocol=5))
    path = folder / f"{os.getpid()}-{next(_names)}"
    try:
        _write(path, contents)
    except OSError:
        path.unlink(missing_ok=True)
        return Parcel(pickle.dumps(value, protocol=5))
    return Parcel(pickled, path, sizes)


def unpack(parcel: Parcel) -> Any:  # noqa: ANN401 - whatever was packed
    """Give the value, once; its arrays can be written to.

    Raises:
        OSError: If its file is gone, or not whole.
    """
    if parcel.path is None:
        return pickle.loads(parcel.value)  # noqa: S301 - from a process of our own
    content = memoryview(_taken(parcel.path, sum(size + _gap(size) for size in parcel.sizes)))
    arrays, start = [], 0
    for size in parcel.sizes:
        arrays.append(content[start : start + size])
        start += size + _gap(size)
    return pickle.loads(parcel.value, buffers=arrays)  # noqa: S301 - as above


def _taken(path: Path, size: int) -> mmap.mmap | bytearray:
    """What a file holds, which goes.

    Raises:
        OSError: If it is gone, or has not `size` bytes.
    """
    try:
        with path.open("r+b") as file:
            found = os.fstat(file.fileno()).st_size
            if found != size:
                raise OSError(f"{path} has {found} bytes in place of {size}")
            if _may_map(path, size):
                # Shared with nobody, for the file has no name any more; a private one would be a copy.
                content = mmap.mmap(file.fileno(), size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
                _mapped.add(content)
                return content
            read = bytearray(size)
            file.readinto(read)
            return read
    finally:
        path.unlink(missing_ok=True)


def _may_map(path: Path, size: int) -> bool:
    """Whether a file is in memory that can be used as it is, and enough of it is left for others."""
    if not hasattr(mmap, "MAP_POPULATE") or not path.is_relative_to(_MEMORY):
        return False
    used = sum(len(content) for content in tuple(_mapped))
    return len(_mapped) < _MOST_MAPPED and used + size <= _MOST_OF_MEMORY * shutil.disk_usage(_MEMORY).total


def _write(path: Path, contents: Sequence[memoryview]) -> None:
    with path.open("wb") as file:
        for content in contents:
            file.write(content)
            file.write(bytes(_gap(content.nbytes)))


def _gap(size: int) -> int:
    return -size % _ALIGNMENT
