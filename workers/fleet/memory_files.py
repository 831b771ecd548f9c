"""Files in which one process hands arrays to another: in memory they come back, and are used again.

New memory costs more than it takes to fill it. So a file that the other process is done with gets the name of
one that is free, and whoever made it takes it for the next arrays. Both keep it mapped meanwhile.
"""

import mmap
import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from weakref import finalize

import numpy as np

MEMORY = Path("/dev/shm")  # noqa: S108 - only the parent of a folder that tempfile makes

_ALIGNMENT = 64
_MOST_FILES = 64
"""That a process made and has come back, or was handed and keeps mapped: each takes a descriptor."""
_FREE = ".free"

_names = count()
"""Of all files of this process: none has a name twice, for somebody may still have the other one mapped."""


class MemoryFiles:
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
        path = self._free_file_for(sum(_padded(len(content)) for content in contents))
        if path is not None:
            with memoryview(self._own[path]) as mapped:
                for content, place in zip(contents, places(map(len, contents)), strict=True):
                    mapped[place] = content
            return path, True
        path = self._folder / f"{os.getpid()}-{next(_names)}"
        _write(path, contents)
        if self._may_keep():
            with suppress(OSError):
                self._own[path] = _mapped(path)
        return path, path in self._own

    def take(self, path: Path, size: int, comes_back: bool) -> memoryview:
        """What another process has stored, to be written to at will; the file goes back when it is dropped.

        Raises:
            OSError: If it is gone, or has less than `size` bytes.
        """
        if not comes_back:
            try:
                return _read(path, size)
            finally:
                path.unlink(missing_ok=True)
        if path not in self._handed:
            while len(self._handed) >= _MOST_FILES:  # whoever has an array of one keeps it mapped
                del self._handed[next(iter(self._handed))]
            try:
                self._handed[path] = _mapped(path)
            except OSError:  # too many descriptors, or gone
                content = _read(path, size)
                give_back(path, os.getpid())
                return content
        mapped = self._handed[path]
        if len(mapped) < size:
            raise OSError(f"{path} has {len(mapped)} bytes in place of {size}")
        # Everything that is made of it refers to this array.
        array = np.frombuffer(mapped, np.uint8)
        finalize(array, give_back, path, os.getpid()).atexit = False
        return array.data[:size]

    def _free_file_for(self, size: int) -> Path | None:
        """An own file that is free again, and neither too small nor so large that it is missed elsewhere."""
        for path, mapped in tuple(self._own.items()):
            if size <= len(mapped) <= 2 * size and _is_taken_back(path):
                return path
        return None

    def _may_keep(self) -> bool:
        """Whether one more leaves enough to others; if not, what is free is given up."""
        if not self._can_map:
            return False
        memory = shutil.disk_usage(MEMORY)
        if len(self._own) < _MOST_FILES and memory.free >= memory.total / 2:
            return True
        for path in tuple(self._own):
            if _is_taken_back(path):
                path.unlink(missing_ok=True)
                del self._own[path]
        return False


_files: dict[Path, MemoryFiles] = {}


def files_in(folder: Path) -> MemoryFiles:
    """This process's side of a folder."""
    return _files.setdefault(folder, MemoryFiles(folder))


def forget_files(folder: Path) -> None:
    """Let go of what is mapped of a folder."""
    _files.pop(folder, None)


def give_back(path: Path, process: int) -> None:
    """Let a file's owner have it again; with the folder it may be gone.

    Args:
        path: The file.
        process: Who was handed it: what one forks off has it only as long as that.
    """
    if os.getpid() == process:
        with suppress(OSError):
            path.rename(path.with_name(path.name + _FREE))


def places(sizes: Iterable[int]) -> list[slice]:
    """Where arrays of so many bytes lie, one after the other, so that each begins where a number may."""
    found, start = [], 0
    for size in sizes:
        found.append(slice(start, start + size))
        start += _padded(size)
    return found


def _padded(size: int) -> int:
    return size + -size % _ALIGNMENT


def _is_taken_back(path: Path) -> bool:
    """Take an own file back, if it is free."""
    try:
        path.with_name(path.name + _FREE).rename(path)
    except FileNotFoundError:
        return False
    return True


def _write(path: Path, contents: Sequence[memoryview]) -> None:
    with path.open("xb") as file:
        try:
            for content in contents:
                file.write(content)
                file.write(bytes(_padded(len(content)) - len(content)))
            file.flush()
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _read(path: Path, size: int) -> memoryview:
    content = bytearray(size)
    with path.open("rb") as file:
        found = file.readinto(content)
    if found < size:
        raise OSError(f"{path} has {found} bytes in place of {size}")
    return memoryview(content)


def _mapped(path: Path) -> mmap.mmap:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
