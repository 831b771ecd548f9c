"""A readable log: one JSON object a line, one file a federation."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

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
        self._files: dict[str, TextIO] = {}

    async def create(self, federation: str, definition: str) -> None:
        """Write the federation's definition."""
        path = self._directory / f"{federation}.events.jsonl"
        file = path.open("a", encoding="utf-8")
        file.write(f'{{"kind": "federation_created", "definition": {definition}}}\n')
        file.flush()
        self._files[federation] = file

    async def append(self, federation: str, records: Sequence[Record]) -> None:
        """Write one line an event.

        Raises:
            NotFound: If the federation was not created here.
        """
        file = self._files.get(federation)
        if file is None:
            raise NotFound(f"no log of federation {federation!r}", "federation")
        file.write("".join(json.dumps(to_record(record.event)) + "\n" for record in records))
        file.flush()

    async def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        self._files.clear()
