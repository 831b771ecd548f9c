"""HTTP/1.1 that hands request bodies over in large pieces."""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

PIECE_BYTES = 4 << 20
"""Body bytes that a connection holds at most for its handler, but for what one read brings."""


class BulkProtocol(HttpToolsProtocol):
    """uvicorn's protocol for bodies of megabytes.

    uvicorn stops reading and wakes the handler at every 64 KiB, which costs more than all that this service
    does with an update. Here the handler is woken when `PIECE_BYTES` have come, or the whole body.
    """

    def on_body(self, body: bytes) -> None:
        """Keep a part of a body; a full piece stops reading until the handler has taken it."""
        cycle = self.cycle
        if cycle.response_complete:
            return
        cycle.body += body
        if len(cycle.body) >= PIECE_BYTES:
            self.flow.pause_reading()
            cycle.message_event.set()
