"""The store interface: small enough that a list, a file and a database can each be one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fedat_service.federation.events import Event

Body = bytes | bytearray | memoryview
"""Bytes as they came; a store that keeps them longer than `append` lasts must copy them."""


@dataclass(frozen=True, slots=True)
class Record:
    """An event, and the body it speaks of if there is one (named in the event by its digest)."""

    event: Event
    body: Body | None = None


def unwritten(error: Exception) -> str:
    """What clients are told when a store fails: why, but not which file."""
    return f"the log cannot be written: {getattr(error, 'strerror', None) or error}"


class Store(Protocol):
    """Events of many federations, in order.

    `append` returns once all records are as durable as the store can make them, or raises and keeps none
    of them: only then is the event acknowledged and its effects carried out.
    """

    async def create(self, federation: str, definition: str) -> None:
        """Keep what the federation is (JSON), before its first event."""
        ...

    async def append(self, federation: str, records: Sequence[Record]) -> None:
        """Keep records, all or none, in order."""
        ...

    async def forget(self, federation: str) -> None:
        """Let go of a federation; what is written of it stays, and another of its name may be created."""
        ...

    async def close(self) -> None:
        """Let go of files and connections."""
        ...
