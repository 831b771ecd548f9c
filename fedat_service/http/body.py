"""Reading request bodies, bounded: by what the resource takes, and by what is in flight altogether."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import Request

from fedat_service.errors import NotNow, TooLarge, TooSlow, Unprocessable, UnsupportedMedia
from fedat_service.wire.messages import BUNDLE_TYPE


@dataclass
class UploadBudget:
    """Bytes of bodies that may be received at once; over it, a client is told to come back."""

    max_bytes: int
    used_bytes: int = 0

    @asynccontextmanager
    async def reserve(self, num_bytes: int) -> AsyncIterator[None]:
        """Hold `num_bytes` while a body is read and checked.

        Raises:
            NotNow: If too much is in flight. A lone body always passes.
        """
        if self.used_bytes and self.used_bytes + num_bytes > self.max_bytes:
            raise NotNow(f"{self.used_bytes} bytes of updates are being received", retry_after_s=1)
        self.used_bytes += num_bytes
        try:
            yield
        finally:
            self.used_bytes -= num_bytes


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


async def read_body(request: Request, limit: int, max_receive_s: float) -> bytearray:
    """Read a body of at most `limit` bytes.

    Raises:
        TooLarge: If there is more.
        TooSlow: If it takes longer than `max_receive_s` real seconds.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(max_receive_s):
            async for chunk in request.stream():
                if len(body) + len(chunk) > limit:
                    raise TooLarge(f"the body is over {limit} bytes", "body", limit=limit)
                body += chunk
    except TimeoutError as error:
        raise TooSlow(f"{len(body)} bytes came in {max_receive_s:g} s", "body") from error
    return body


def request_head_bytes(request: Request) -> int:
    """Bytes of an HTTP/1.1 request's head, as they travelled."""
    path = request.scope["raw_path"] + b"?" * bool(request.scope["query_string"])
    line = len(request.method) + len(path) + len(request.scope["query_string"]) + len("  HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + 4 for name, value in request.scope["headers"]) + 2
