"""A store that lives as long as its process: the newest events, and no bodies."""

from collections import deque
from collections.abc import Sequence
from itertools import islice

from fedat_service.errors import ConfigError, NotFound
from fedat_service.federation.events import Event
from fedat_service.store.base import Record


class MemoryStore:
    """Keeps the newest `capacity` events of each federation, so that memory does not grow with time.

    Bodies are not kept: they would be as many models as there are updates, and nothing here could survive
    the process anyway.

    Raises:
        ConfigError: If `capacity` is not positive.
    """

    def __init__(self, capacity: int = 10_000) -> None:
        if capacity < 1:
            raise ConfigError(f"a store must keep at least one event, got a capacity of {capacity!r}")
        self._capacity = capacity
        self._events: dict[str, deque[Event]] = {}

    async def create(self, federation: str, definition: str) -> None:
        """Start an empty log."""
        self._events[federation] = deque(maxlen=self._capacity)

    async def append(self, federation: str, records: Sequence[Record]) -> None:
        """Keep the events.

        Raises:
            NotFound: If the federation was not created here.
        """
        self._log(federation).extend(record.event for record in records)

    async def forget(self, federation: str) -> None:
        """Drop its log: there is no other place to look for it."""
        self._events.pop(federation, None)

    async def close(self) -> None:
        """Nothing to let go of."""

    def events(self, federation: str, last: int | None = None) -> tuple[Event, ...]:
        """The kept events, oldest first; only the newest `last` if given.

        Raises:
            NotFound: If the federation was not created here.
        """
        log = self._log(federation)
        skip = 0 if last is None else max(0, len(log) - last)
        return tuple(islice(log, skip, None))

    def _log(self, federation: str) -> deque[Event]:
        if federation not in self._events:
            raise NotFound(f"no log of federation {federation!r}", "federation")
        return self._events[federation]
