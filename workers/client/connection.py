"""Two ways to a service: over the network with httpx, or straight into an app in the same process."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from ssl import SSLContext
from types import TracebackType
from typing import Any, Protocol, Self
from urllib.parse import urlencode

import httpx

from fedat_service.errors import ConfigError, NotNow, WireError

MAX_JSON_BYTES = 64 << 20

_LOST = (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError)
_CONNECT_S = 30.0

AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI application: scope, receive, send."""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request: `path` below the service's address, the longest silence, the largest answer."""

    method: str
    path: str
    query: Mapping[str, str] | None = None
    headers: Mapping[str, str] | None = None
    content: bytes | None = None
    read_s: float = 60.0
    max_bytes: int = MAX_JSON_BYTES


@dataclass(frozen=True, slots=True)
class Response:
    """What came back; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes | bytearray


class Connection(Protocol):
    """A way to the service, of one client's own. It closes with its context."""

    url: str

    async def send(self, request: Request) -> Response:
        """Send a request and read the whole answer.

        Raises:
            NotNow: If no answer comes.
            WireError: If the answer is no HTTP, or larger than the request allows.
        """
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None: ...


class NetworkConnection:
    """Keep-alive connections over the network.

    A request is never cancelled from here: httpx 0.28 loses the connection of a cancelled request for good.
    Its own timeouts bound it.
    """

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.url = str(http.base_url)
        self._http = http

    async def send(self, request: Request) -> Response:
        """See `Connection`."""
        try:
            async with self._http.stream(
                request.method,
                request.path,
                params=request.query,
                headers=request.headers,
                content=request.content,
                timeout=httpx.Timeout(_CONNECT_S, read=request.read_s),
            ) as response:
                body = bytearray()
                async for chunk in response.aiter_bytes():
                    body += chunk
                    _check_size(len(body), request)
        except _LOST as error:
            why = str(error) or type(error).__name__
            raise NotNow(f"no answer from {self.url}: {why}", retry_after_s=0.0) from error
        except httpx.DecodingError as error:
            raise WireError(
                f"the answer to {request.method} {request.path} does not decompress: {error}"
            ) from error
        return Response(response.status_code, response.headers, body)

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self._http.__aexit__(kind, error, traceback)


class AppConnection:
    """Calls an ASGI app in the same process, with the headers that httpx would send over the network.

    A simulated request costs a third of one through httpx and its ASGI transport, and counts the same bytes.

    Args:
        app: The application, already started.
        url: What to call it.
    """

    def __init__(self, app: AsgiApp, url: str) -> None:
        self.url = url
        self._app = app
        self._host, self._standard = _standard_headers(url)

    async def send(self, request: Request) -> Response:
        """See `Connection`."""
        exchange = _AppExchange(request)
        await self._app(self._scope(request), exchange.receive, exchange.send)
        _check_size(len(exchange.body), request)
        return Response(exchange.status, exchange.headers, exchange.body)

    def _scope(self, request: Request) -> dict[str, Any]:
        own = {name.lower().encode(): value.encode() for name, value in (request.headers or {}).items()}
        if request.content is not None:
            own[b"content-length"] = b"%d" % len(request.content)
        headers = [header for header in self._standard if header[0] not in own]
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "scheme": "http",
            "method": request.method,
            "path": request.path,
            "raw_path": request.path.encode(),
            "query_string": urlencode(request.query or {}).encode(),
            "root_path": "",
            "headers": [*headers, *own.items()],
            "server": (self._host, 80),
            "client": ("in-process", 0),
        }

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


class _AppExchange:
    """The two channels of one ASGI request."""

    def __init__(self, request: Request) -> None:
        self._content: bytes | None = request.content or b""
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""

    async def receive(self) -> dict[str, Any]:
        if self._content is None:
            # A client in the same process never hangs up.
            await asyncio.get_running_loop().create_future()
        message = {"type": "http.request", "body": self._content, "more_body": False}
        self._content = None
        return message

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            # A body in one piece, as services send it, is not copied.
            self.body += message.get("body", b"")


def _check_size(size: int, request: Request) -> None:
    if size > request.max_bytes:
        raise WireError(f"the answer to {request.path} is over {request.max_bytes} bytes")


@cache
def _tls() -> SSLContext:
    """One for all clients of a process: making it costs more than everything else of a client."""
    return httpx.create_ssl_context(trust_env=False)


@cache
def _standard_headers(url: str) -> tuple[str, list[tuple[bytes, bytes]]]:
    """The host, and the headers that httpx sends to it with every request."""
    base = _address(url)
    client = httpx.Client(trust_env=False, verify=_tls())
    headers = client.build_request("GET", base).headers
    return base.host, [(name.lower(), value) for name, value in headers.raw]


def _address(url: str) -> httpx.URL:
    try:
        base = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ConfigError(f"{url!r} is no address: {error}") from error
    if base.scheme not in ("http", "https") or not base.host:
        raise ConfigError(f"the service's address must be http://host:port or https://..., got {url!r}")
    if base.port is not None and not 0 < base.port < 1 << 16:
        raise ConfigError(f"{url!r} is no address: ports lie in 1..65535")
    return base


def open_http(url: str, transport: httpx.AsyncBaseTransport | None = None) -> NetworkConnection:
    """Open connections to a service; one set for each client, for a shared set is slower (httpx #3215).

    Args:
        url: Where the service is, without `/v1`.
        transport: Another way there than the network.

    Raises:
        ConfigError: If it is no http or https address.
    """
    base = _address(url)
    # The service closes idle connections after 120 s: let them go earlier here.
    limits = httpx.Limits(max_connections=4, max_keepalive_connections=1, keepalive_expiry=60.0)
    return NetworkConnection(
        httpx.AsyncClient(base_url=base, transport=transport, verify=_tls(), trust_env=False, limits=limits)
    )
