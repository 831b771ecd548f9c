"""A readable log: one JSON object a line, one file a federation; updates beside it if asked for."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from fedat_service.errors import LogDamaged, NotFound, WireError
from fedat_service.federation.events import Event, from_record, to_record
from fedat_service.store.base import Body, Record

_CREATED = "federation_created"
_SUFFIX = ".jsonl"
_BLOCK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Created:
    """A log's first line: what the federation is, as it was asked for."""

    definition: Any


def bodies_path(log: Path) -> Path:
    """Where the bodies that a log's events speak of are kept, one after the other."""
    return log.with_name(log.name.removesuffix(_SUFFIX) + ".bodies")


class JsonLinesStore:
    """Appends events to `<directory>/<federation>.events.jsonl`, flushed but not synced.

    A line that defines the federation stands before its events. A service that starts anew with the same
    directory appends: no line written before is lost.

    Args:
        directory: Folder of the logs.
        keeps_bodies: Whether the bodies of updates are kept too, in `<federation>.events.bodies`: then every
            version can be computed again from the log alone.
    """

    def __init__(self, directory: Path, *, keeps_bodies: bool = False) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._keeps_bodies = keeps_bodies
        self._files: dict[str, tuple[FileIO, FileIO | None]] = {}

    async def create(self, federation: str, definition: str) -> None:
        """Write the federation's definition."""
        path = self._directory / f"{federation}.events.jsonl"
        file = path.open("a+b", buffering=0)
        bodies = bodies_path(path).open("ab", buffering=0) if self._keeps_bodies else None
        try:
            _cut_torn(file)
            _write_whole(file, f'{{"kind": "{_CREATED}", "definition": {definition}}}\n'.encode())
        except OSError:
            _close(file, bodies)
            raise
        self._files[federation] = file, bodies

    async def append(self, federation: str, records: Sequence[Record]) -> None:
        """Write one line an event, its body first.

        Raises:
            NotFound: If the federation was not created here.
        """
        if federation not in self._files:
            raise NotFound(f"no log of federation {federation!r}", "federation")
        file, bodies = self._files[federation]
        lines = []
        for record in records:
            line = to_record(record.event)
            if bodies is not None and record.body is not None:
                line["body_at"], line["body_bytes"] = _write_whole(bodies, record.body), len(record.body)
            lines.append(json.dumps(line) + "\n")
        _write_whole(file, "".join(lines).encode())

    async def forget(self, federation: str) -> None:
        """Close its files; another federation of its name is appended to them."""
        if (files := self._files.pop(federation, None)) is not None:
            _close(*files)

    async def close(self) -> None:
        """Close all files."""
        for files in self._files.values():
            _close(*files)
        self._files.clear()


def read_log(log: Path) -> Iterator[Created | Record]:
    """Go through a log; bodies come with the events that speak of them, if they were kept.

    Raises:
        LogDamaged: If a line or a body cannot be read; the message names the line.
    """
    kept = bodies_path(log)
    bodies = memoryview(kept.read_bytes()) if kept.exists() else None
    with log.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield _read(json.loads(line.decode()), bodies)
            except (ValueError, RecursionError) as error:
                raise LogDamaged(f"{log}, line {number}: {error}") from error


def _read(line: Any, bodies: memoryview | None) -> Created | Record:  # noqa: ANN401 - whatever JSON held
    if not isinstance(line, dict):
        raise WireError(f"an event is an object, got {line!r}", "kind")
    if line.get("kind") == _CREATED:
        return Created(line.get("definition"))
    start, size = line.pop("body_at", None), line.pop("body_bytes", 0)
    event: Event = from_record(line)
    if start is None or bodies is None:
        return Record(event)
    if not (type(start) is type(size) is int and 0 <= start <= start + size <= len(bodies)):
        raise WireError(
            f"its body should be {size!r} bytes at {start!r}, of {len(bodies)} that were kept", "body_at"
        )
    return Record(event, bodies[start : start + size])


def _close(file: FileIO, bodies: FileIO | None) -> None:
    file.close()
    if bodies is not None:
        bodies.close()


def _cut_torn(file: FileIO) -> None:
    """Cut off the last line if it has no end: the machine stopped meanwhile, and it says nothing."""
    end = size = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - _BLOCK_BYTES)
        file.seek(start)
        last = file.read(end - start).rfind(b"\n")
        end = start + last + 1
        if last >= 0:
            break
    if end < size:
        file.truncate(end)


def _write_whole(file: FileIO, content: Body) -> int:
    """Write all of it or none, and say where: what a full disk took of it is cut off again."""
    end = file.seek(0, os.SEEK_END)
    view = memoryview(content)
    try:
        while view:
            view = view[file.write(view) :]
    except OSError as error:
        file.truncate(end)
        error.filename = str(file.name)  # a write that fails does not say where
        raise
    return end
