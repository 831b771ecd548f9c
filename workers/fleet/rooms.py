"""Files in which one process hands arrays to another: in memory they come back, and are used again.

New memory costs ten times what it takes to fill it. So a file that the other process is done with gets the
name of one that is free, and whoever made it takes it for the next arrays. Both keep it mapped meanwhile.
"""

import mmap
import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import count
from pathlib import Path
from weakref import finalize

import numpy as np

MEMORY = Path("/dev/shm")  # noqa: S108 - only the parent of a folder that tempfile makes

_ALIGNMENT = 64
_MOST_FILES, _MOST_OF_MEMORY = 64, 0.25
"""Of one process, that come back: each takes a descriptor, and its room, until the folder goes."""
_FREE = ".free"

_names = count()
"""Of all files of this process: none has a name twice, for somebody may still have the other one mapped."""


@lru_cache(maxsize=4)
def rooms_in(folder: Path) -> "Rooms":
    """This process's side of a folder."""
    return Rooms(folder)


class Rooms:
    """One process's files in a folder, and those that it was handed there.

    Args:
        folder: Of a pool of processes alone; who made it removes it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own: dict[Path, mmap.mmap] = {}
        self._handed: dict[Path, mmap.mmap] = {}
        self._can_map = hasattr(mmap, "MAP_POPULATE") and folder.is_relative_to(MEMORY)

    def store(self, contents: Sequence[memoryview]) -> tuple[Path, bool]:
        """Put arrays into a file for another process.

        Returns:
            The file, and whether it is to come back.

        Raises:
            OSError: If there is no room; nothing is left of it then.
        """
        size = sum(map(_room_of, contents))
        path = self._come_back(size)
        if path is not None:
            with memoryview(self._own[path]) as room:
                for content, place in zip(contents, places(map(len, contents)), strict=True):
                    room[place] = content
            return path, True
        path = self._folder / f"{os.getpid()}-{next(_names)}"
        try:
            _write(path, contents)
            comes_back = self._may_keep(size)
            if comes_back:
                self._own[path] = _mapped(path)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        return path, comes_back

    def take(self, path: Path, size: int, comes_back: bool) -> memoryview:
        """What another process has stored, to be written to at will; the file goes back when it is dropped.

        Raises:
            OSError: If it is gone, or has less than `size` bytes.
        """
        if not comes_back:
            return _read(path, size)
        if path not in self._handed:
            self._handed[path] = _mapped(path)
        # Everything that is made of it refers to this array.
        content = np.frombuffer(self._handed[path], np.uint8)
        finalize(content, give_back, path).atexit = False
        return content.data[:size]

    def _come_back(self, size: int) -> Path | None:
        """An own file that is free again, and neither too small nor much too large."""
        for path, room in self._own.items():
            if size <= len(room) <= 2 * size:
                with suppress(FileNotFoundError):
                    path.with_name(path.name + _FREE).rename(path)
                    return path
        return None

    def _may_keep(self, size: int) -> bool:
        """Whether one more leaves enough for others."""
        if not self._can_map or len(self._own) >= _MOST_FILES:
            return False
        return sum(map(len, self._own.values())) + size <= _MOST_OF_MEMORY * shutil.disk_usage(MEMORY).total


def give_back(path: Path) -> None:
    """Let a file's owner have it again; with the folder it may be gone."""
    with suppress(OSError):
        path.rename(path.with_name(path.name + _FREE))


def places(sizes: Iterable[int]) -> list[slice]:
    """Where arrays of so many bytes lie, one after the other, so that each begins where a number may."""
    found, start = [], 0
    for size in sizes:
        found.append(slice(start, start + size))
        start += size + -size % _ALIGNMENT
    return found


def _room_of(content: memoryview) -> int:
    return len(content) + -len(content) % _ALIGNMENT


def _write(path: Path, contents: Sequence[memoryview]) -> None:
    with path.open("xb") as file:
        for content in contents:
            file.write(content)
            file.write(bytes(_room_of(content) - len(content)))


def _read(path: Path, size: int) -> memoryview:
    """What a file holds, which goes."""
    content = bytearray(size)
    try:
        with path.open("rb") as file:
            found = file.readinto(content)
    finally:
        path.unlink(missing_ok=True)
    if found < size:
        raise OSError(f"{path} has {found} bytes in place of {size}")
    return memoryview(content)


def _mapped(path: Path) -> mmap.mmap:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
