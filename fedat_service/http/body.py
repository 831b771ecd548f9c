"""Reading request bodies, bounded: by what the resource takes, and by what is in flight altogether."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from fastapi import Request

from fedat_service.errors import NotNow, TooLarge, TooSlow, Unprocessable, UnsupportedMedia
from fedat_service.http.bulk import receive_into
from fedat_service.wire.messages import BUNDLE_TYPE

_KEPT_BUFFERS = 4


@dataclass
class UploadBudget:
    """Memory for bodies being received: bounded, and used again, for fresh memory costs more than copying."""

    max_bytes: int
    used_bytes: int = 0
    _free: list[bytearray] = field(default_factory=list)

    @asynccontextmanager
    async def reserve(self, num_bytes: int) -> AsyncIterator[memoryview]:
        """Lend `num_bytes` while a body is read, checked and counted.

        Raises:
            NotNow: If too much is in flight. A lone body always passes.
        """
        if self.used_bytes and self.used_bytes + num_bytes > self.max_bytes:
            raise NotNow(f"{self.used_bytes} bytes of updates are being received", retry_after_s=1)
        self.used_bytes += num_bytes
        fitting = [buffer for buffer in self._free if len(buffer) >= num_bytes]
        buffer = min(fitting, key=len) if fitting else bytearray(num_bytes)
        if fitting:
            self._free.remove(buffer)
        try:
            yield memoryview(buffer)[:num_bytes]
        finally:
            self.used_bytes -= num_bytes
        # Only after an upload that went well: whoever was interrupted may still be read from.
        if len(self._free) < _KEPT_BUFFERS:
            self._free.append(buffer)


def expected_bytes(request: Request, limit: int) -> int:
    """How large the body will be at most, before any of it is read.

    Raises:
        UnsupportedMedia: If it is not an uncompressed bundle.
        TooLarge: If it says it is over `limit`.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != BUNDLE_TYPE:
        raise UnsupportedMedia(
            f"the body must be {BUNDLE_TYPE}, got {media_type or 'no type'}", "content-type"
        )
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise UnsupportedMedia(f"content encoding {encoding!r} is not taken here", "content-encoding")
    declared = request.headers.get("content-length")
    if declared is None:
        return limit
    if not declared.isascii() or not declared.isdigit():
        raise Unprocessable(f"content-length {declared[:40]!r} is no number", "content-length")
    if int(declared) > limit:
        raise TooLarge(f"the body has {declared} bytes", "content-length", limit=limit)
    return int(declared)


async def read_body(request: Request, buffer: memoryview, max_receive_s: float) -> memoryview:
    """Read a body into a buffer that is as large as the body may be.

    Returns:
        The part of the buffer that it fills.

    Raises:
        TooLarge: If there is more.
        TooSlow: If it takes longer than `max_receive_s` real seconds.
    """
    read = receive_into(request.scope) or partial(_read_pieces, request)
    try:
        async with asyncio.timeout(max_receive_s):
            return buffer[: await read(buffer)]
    except TimeoutError as error:
        raise TooSlow(f"the body did not come within {max_receive_s:g} s", "body") from error


async def _read_pieces(request: Request, buffer: memoryview) -> int:
    """As `ReceiveInto`, for small bodies, those of unknown length, and other servers."""
    size = 0
    async for piece in request.stream():
        if size + len(piece) > len(buffer):
            raise TooLarge(f"the body is over {len(buffer)} bytes", "body", limit=len(buffer))
        buffer[size : size + len(piece)] = piece
        size += len(piece)
    return size


def request_head_bytes(request: Request) -> int:
    """Bytes of an HTTP/1.1 request's head, as they travelled."""
    path = request.scope["raw_path"] + b"?" * bool(request.scope["query_string"])
    line = len(request.method) + len(path) + len(request.scope["query_string"]) + len("  HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + 4 for name, value in request.scope["headers"]) + 2
