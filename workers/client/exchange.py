"""One request and its answer: bounded, patient, and every failure an error of our own."""

import asyncio
from dataclasses import dataclass

import numpy as np
import stamina
from pydantic import ValidationError

from fedat_service.errors import NotNow, ServiceRefused
from fedat_service.wire.views import Problem
from workers.client.connection import Connection, Request, Response

_ANSWERS = (200, 201, 204, 226, 304)
_NOT_NOW = (429, 502, 503, 504)
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


class Exchange:
    """Sends requests over one client's connection until they are answered.

    Args:
        connection: The way to the service.
        retry: How long to insist.
        jitter: Draws the back-off.
    """

    def __init__(self, connection: Connection, retry: Retry, jitter: np.random.Generator) -> None:
        self._connection = connection
        self._retry = retry
        self._jitter = jitter

    async def send(self, request: Request) -> Response:
        """Send a request until it is answered with success.

        Raises:
            NotNow: If the service could not be reached, or was busy, for as long as `retry` says.
            ServiceRefused: If it refuses.
            WireError: If the answer is no HTTP, or larger than the request allows.
        """
        try:
            return await self._attempt(request)
        except NotNow as error:
            return await self._insist(request, error)

    async def _insist(self, request: Request, first: NotNow) -> Response:
        """Try again after a first failure; stamina costs too much for what nearly always succeeds."""
        failures = [first]

        async def attempt() -> Response:
            if failures:
                raise failures.pop()
            return await self._attempt(request)

        insist = stamina.AsyncRetryingCaller(attempts=self._retry.attempts, timeout=None)
        return await insist(_Patience(self._retry, self._jitter), attempt)

    async def _attempt(self, request: Request) -> Response:
        response = await self._connection.send(request)
        what = f"{request.method} {request.path}"
        if response.status in _NOT_NOW:
            raise NotNow(f"{what}: {_problem(response)[0]}", retry_after_s(response))
        if response.status not in _ANSWERS:
            detail, kind = _problem(response)
            raise ServiceRefused(f"{what}: {detail}", response.status, kind)
        return response


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


def _problem(response: Response) -> tuple[str, str]:
    """What is wrong, and which kind of problem it is, as far as the answer says."""
    try:
        problem = Problem.model_validate_json(response.body)
    except ValidationError:
        return f"HTTP {response.status}", "unknown"
    return problem.detail, problem.type.rpartition("/")[2]


def retry_after_s(response: Response) -> float:
    """Seconds the service asks to wait; 0 if it does not say, or not in seconds."""
    text = response.headers.get("retry-after", "")
    if not (text.isascii() and text.isdigit()):
        return 0.0
    return min(float(text), _MAX_RETRY_AFTER_S)
