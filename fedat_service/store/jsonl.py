"""A readable log: one JSON object a line, one file a federation."""

import json
import os
from collections.abc import Sequence
from io import FileIO
from pathlib import Path

from fedat_service.errors import NotFound
from fedat_service.federation.events import to_record
from fedat_service.store.base import Record


class JsonLinesStore:
    """Appends events to `<directory>/<federation>.events.jsonl`, flushed but not synced; bodies are not kept.

    A line that defines the federation stands before its events. A service that starts anew with the same
    directory appends: nothing written before is lost.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._files: dict[str, FileIO] = {}

    async def create(self, federation: str, definition: str) -> None:
        """Write the federation's definition."""
        path = self._directory / f"{federation}.events.jsonl"
        file = path.open("ab", buffering=0)
        try:
            _write_whole(file, f'{{"kind": "federation_created", "definition": {definition}}}\n'.encode())
        except OSError:
            file.close()
            raise
        self._files[federation] = file

    async def append(self, federation: str, records: Sequence[Record]) -> None:
        """Write one line an event.

        Raises:
            NotFound: If the federation was not created here.
        """
        file = self._files.get(federation)
        if file is None:
            raise NotFound(f"no log of federation {federation!r}", "federation")
        lines = "".join(json.dumps(to_record(record.event)) + "\n" for record in records)
        _write_whole(file, lines.encode())

    async def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        self._files.clear()


def _write_whole(file: FileIO, content: bytes) -> None:
    """Write all of it or none: what a full disk took of it is cut off again."""
    end = file.seek(0, os.SEEK_END)
    view = memoryview(content)
    try:
        while view:
            view = view[file.write(view) :]
    except OSError:
        file.truncate(end)
        raise
