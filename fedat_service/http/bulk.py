"""HTTP/1.1 as uvicorn speaks it, and a straight way for large bodies: from the socket to the caller's memory.

On its way through uvicorn's parser every byte is copied five times, and reading stops at every 64 KiB to wake
the handler. A body of known length needs no parsing: its connection can put it where it belongs, in one copy.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import httptools
from starlette.requests import ClientDisconnect
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from fedat_service.errors import TooLarge

LARGE_BYTES = 1 << 17
"""Smallest body that the straight way is for."""

ReceiveInto = Callable[[memoryview], Awaitable[int]]
"""Puts the body, or what is left of it, at the start of a buffer and returns its size.

It takes the place of ASGI's `receive`. When it ends, however it ends, the buffer is the caller's again.

Raises:
    TooLarge: If the buffer is too small; nothing is read then.
    ClientDisconnect: If the client hangs up before the end.
"""

_EXTENSION = "fedat.bulk"
_WASTE_BYTES = 1 << 16


def receive_into(scope: Scope) -> ReceiveInto | None:
    """The straight way for this request's body; None if the body is small or the server has no such way."""
    extensions = scope.get("extensions") or {}
    # Taken out: it holds the request, which holds the scope.
    way: ReceiveInto | None = extensions.pop(_EXTENSION, {}).get("receive_into")
    return way


class BulkProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with an ASGI extension for large bodies of declared length: `receive_into`.

    While such a body comes, the connection belongs to a protocol of its own that reads into the caller's
    buffer; the parser, which has not seen the body, begins anew behind it.
    """

    _unseen_bytes = 0
    """What the parser has not seen of the body that it is in."""

    def on_headers_complete(self) -> None:
        """Begin a request; offer the straight way if its body is large."""
        super().on_headers_complete()
        # The parser has refused two lengths, what is no number, and a length beside chunks.
        declared = [value for name, value in self.headers if name == b"content-length"]
        self._unseen_bytes = int(declared[0]) if declared else 0
        if self._unseen_bytes >= LARGE_BYTES:
            self.scope["extensions"] = {_EXTENSION: {"receive_into": partial(self._receive_into, self.cycle)}}

    def on_body(self, body: bytes) -> None:
        """Keep count of what the parser has seen."""
        self._unseen_bytes -= len(body)
        super().on_body(body)

    async def _receive_into(self, cycle: RequestResponseCycle, buffer: memoryview) -> int:
        # What came along with the head. It also tells a client to continue that waits for that.
        message = await cycle.receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        begin = message["body"]
        # As long as a body is not complete, the parser has seen no later request: the count is this one's.
        size = len(begin) + (self._unseen_bytes if message["more_body"] else 0)
        if size > len(buffer):
            raise TooLarge(f"the body has {size} bytes", "body", limit=len(buffer))
        buffer[: len(begin)] = begin
        if message["more_body"]:
            body = _Body(self, buffer[len(begin) : size])
            self._read_by(body)
            await body.read()
        return size

    def body_is_read(self) -> None:
        """Go on behind a body: what comes now is a request."""
        self.parser = httptools.HttpRequestParser(self)
        # As uvicorn has it: what follows the last request of a connection is no error.
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.on_message_complete()
        self._read_by(self)

    def _read_by(self, protocol: asyncio.BaseProtocol) -> None:
        # Event loops look how a protocol wants to be fed when they start to read.
        self.flow.pause_reading()
        self.transport.set_protocol(protocol)
        self.flow.resume_reading()


class _Body(asyncio.BufferedProtocol):
    """A connection's protocol while a body comes: takes exactly the body, then gives the connection back."""

    def __init__(self, http: BulkProtocol, buffer: memoryview) -> None:
        self._http = http
        self._buffer = buffer
        self._left = len(buffer)
        self._is_wanted = True
        self._end: asyncio.Future[None] = http.loop.create_future()

    async def read(self) -> None:
        """Wait until the buffer is full."""
        try:
            await self._end
        finally:
            if self._left:
                # The rest must be taken off the connection all the same, but not into the caller's memory.
                self._is_wanted = False
                self._buffer = memoryview(bytearray(min(self._left, _WASTE_BYTES)))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Say where the next bytes go: as many as there are, but none of the next request's."""
        return self._buffer[: self._left]

    def buffer_updated(self, nbytes: int) -> None:
        """Count them."""
        self._left -= nbytes
        if self._is_wanted:
            self._buffer = self._buffer[nbytes:]
        if not self._left:
            # An event loop may hold on to this object for as long as the connection lasts.
            self._buffer = memoryview(b"")
            self._http.body_is_read()
            if not self._end.done():
                self._end.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever waits for the body, and the protocol that comes after."""
        if not self._end.done():
            self._end.set_exception(ClientDisconnect())
        self._http.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass on: answers are written by the protocol of the connection."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """Pass on."""
        self._http.resume_writing()
