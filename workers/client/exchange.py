"""One request and its answer: bounded, patient, and every failure an error of our own."""

import asyncio
from dataclasses import dataclass
from functools import cache
from ssl import SSLContext
from typing import Any

import httpx
import numpy as np
import stamina
from pydantic import ValidationError

from fedat_service.errors import ConfigError, NotNow, ServiceRefused, WireError
from fedat_service.wire.views import Problem

MAX_JSON_BYTES = 64 << 20

_ANSWERS = (200, 201, 204, 304)
_NOT_NOW = (429, 502, 503, 504)
_LOST = (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError)
_MAX_RETRY_AFTER_S = 300.0


@dataclass(frozen=True, slots=True)
class Retry:
    """How long to insist when the service cannot be reached or says "not now".

    Before attempt n+1 the client waits what `Retry-After` asks, plus ``U(0, min(cap_s, base_s * 2**n))``:
    exponential back-off with full jitter, so that a restarted service does not meet everybody at once.
    Seconds are the event loop's, not the federation's.
    """

    attempts: int = 100
    total_s: float = 120.0
    base_s: float = 0.2
    cap_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: a status that means success, and a body of bounded size."""

    status: int
    headers: httpx.Headers
    body: bytearray

    @property
    def retry_after_s(self) -> float:
        """Seconds the service asks to wait; 0 if it does not say, or not in seconds."""
        return _retry_after_s(self.headers)


class Exchange:
    """Sends requests over one client's connections.

    A request is never cancelled from here: httpx 0.28 loses the connection of a cancelled request for good.
    Its own timeouts bound it.

    Args:
        http: The connections.
        retry: How long to insist.
        jitter: Draws the back-off.
    """

    def __init__(self, http: httpx.AsyncClient, retry: Retry, jitter: np.random.Generator) -> None:
        self._http = http
        self._retry = retry
        self._jitter = jitter

    async def send(
        self,
        method: str,
        path: str,
        *,
        max_bytes: int = MAX_JSON_BYTES,
        read_s: float = 60.0,
        **request: Any,  # noqa: ANN401 - httpx's own names: params, headers, content, json
    ) -> Answer:
        """Send a request until it is answered.

        Args:
            method: Of HTTP.
            path: Below the service's address.
            max_bytes: Largest body that an answer may have.
            read_s: Longest silence.
            **request: What else `httpx.AsyncClient.stream` takes.

        Raises:
            NotNow: If the service could not be reached, or was busy, for as long as `retry` says.
            ServiceRefused: If it refuses.
            WireError: If the answer is no HTTP, or larger than `max_bytes`.
        """
        insist = stamina.AsyncRetryingCaller(attempts=self._retry.attempts, timeout=None)
        timeout = httpx.Timeout(30.0, read=read_s)

        async def attempt() -> Answer:
            return await self._attempt(method, path, max_bytes, timeout=timeout, **request)

        return await insist(_Patience(self._retry, self._jitter), attempt)

    async def _attempt(
        self,
        method: str,
        path: str,
        max_bytes: int,
        **request: Any,  # noqa: ANN401
    ) -> Answer:
        try:
            async with self._http.stream(method, path, **request) as response:
                body = await _read(response, max_bytes)
        except _LOST as error:
            why = str(error) or type(error).__name__
            raise NotNow(f"no answer from {self._http.base_url}: {why}", retry_after_s=0.0) from error
        except httpx.DecodingError as error:
            raise WireError(f"the answer to {method} {path} does not decompress: {error}") from error
        if response.status_code in _NOT_NOW:
            raise NotNow(f"{method} {path}: {_problem(response, body)[0]}", _retry_after_s(response.headers))
        if response.status_code not in _ANSWERS:
            detail, kind = _problem(response, body)
            raise ServiceRefused(f"{method} {path}: {detail}", response.status_code, kind)
        return Answer(response.status_code, response.headers, body)


class _Patience:
    """stamina's hook for one request: how long to wait before the next attempt, or that it is enough."""

    def __init__(self, retry: Retry, jitter: np.random.Generator) -> None:
        self._retry = retry
        self._jitter = jitter
        self._ceiling_s = retry.base_s
        self._end_s = asyncio.get_running_loop().time() + retry.total_s

    def __call__(self, error: Exception) -> bool | float:
        if not isinstance(error, NotNow):
            return False
        wait_s = error.retry_after_s + float(self._jitter.uniform(0, self._ceiling_s))
        self._ceiling_s = min(2 * self._ceiling_s, self._retry.cap_s)
        return wait_s if asyncio.get_running_loop().time() + wait_s <= self._end_s else False


async def _read(response: httpx.Response, max_bytes: int) -> bytearray:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > max_bytes:
            raise WireError(f"the answer to {response.request.url.path} is over {max_bytes} bytes")
    return body


def _problem(response: httpx.Response, body: bytearray) -> tuple[str, str]:
    """What is wrong, and which kind of problem it is, as far as the answer says."""
    try:
        problem = Problem.model_validate_json(bytes(body))
    except ValidationError:
        return f"HTTP {response.status_code}", "unknown"
    return problem.detail, problem.type.rpartition("/")[2]


def _retry_after_s(headers: httpx.Headers) -> float:
    text = headers.get("retry-after", "")
    if not (text.isascii() and text.isdigit()):
        return 0.0
    return min(float(text), _MAX_RETRY_AFTER_S)


@cache
def _tls() -> SSLContext:
    """One for all clients of a process: making it costs more than everything else of a client."""
    return httpx.create_ssl_context(trust_env=False)


def open_http(url: str, transport: httpx.AsyncBaseTransport | None = None) -> httpx.AsyncClient:
    """Open connections to a service; one set for each client, for a shared set is slower (httpx #3215).

    Args:
        url: Where the service is, without `/v1`.
        transport: Another way there than the network, such as `httpx.ASGITransport(app)`.

    Raises:
        ConfigError: If it is no http or https address.
    """
    try:
        base = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ConfigError(f"{url!r} is no address: {error}") from error
    if base.scheme not in ("http", "https") or not base.host:
        raise ConfigError(f"the service's address must be http://host:port or https://..., got {url!r}")
    # The service closes idle connections after 120 s: let them go earlier here.
    limits = httpx.Limits(max_connections=4, max_keepalive_connections=1, keepalive_expiry=60.0)
    return httpx.AsyncClient(
        base_url=base, transport=transport, verify=_tls(), trust_env=False, limits=limits
    )
