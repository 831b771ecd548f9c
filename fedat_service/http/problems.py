"""Refusals as `application/problem+json` (RFC 9457): what was wrong, where, and what to do next."""

import http
from collections.abc import Sequence
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedat_service.errors import FedATError, NotNow, RequestError, TooLarge
from fedat_service.wire.messages import PROBLEM_TYPE
from fedat_service.wire.views import Problem

_log = structlog.get_logger(__name__)
_TYPES = "https://fedat.invalid/problems/"
"""Prefix of problem types: stable names, not addresses (RFC 9457 allows a URI that leads nowhere)."""

RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "content": {PROBLEM_TYPE: {}}}
    for status in (400, 404, 405, 408, 409, 410, 412, 413, 415, 422, 503)
}


def again(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """Document that the very same request a second time is answered 200 and changes nothing."""
    return {200: {"model": model, "description": "The same again: nothing changed."}}


def problem(
    status: int, kind: str, detail: str, field: str | None = None, **extensions: float | str
) -> Response:
    """A problem document as a response."""
    document = {
        "type": _TYPES + kind,
        "title": http.HTTPStatus(status).phrase,
        "status": status,
        "detail": _text(detail),
        **({"field": _text(field)} if field is not None else {}),
        **extensions,
    }
    return JSONResponse(document, status, media_type=PROBLEM_TYPE)


def _text(words: str) -> str:
    """Words of a stranger that may hold halves of characters, which no answer can carry."""
    return words.encode("utf-8", "backslashreplace").decode()


class TooLargeAsProblem:
    """Says in a problem document what the framework's body limit says in plain text."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app; replace its plain 413."""
        replaced = False

        async def send_problem(message: Message) -> None:
            nonlocal replaced
            if message["type"] == "http.response.start" and message["status"] == TooLarge.status:
                kind = Headers(raw=message["headers"]).get("content-type", "")
                replaced = kind.startswith("text/plain")
                if replaced:
                    body = problem(TooLarge.status, TooLarge.kind, "the body is too large", "body")
                    await body(scope, receive, send)
            if not replaced:
                await send(message)

        await self._app(scope, receive, send_problem)


def install(app: FastAPI) -> None:
    """Answer every error of the app as a problem."""
    app.add_middleware(TooLargeAsProblem)
    app.add_exception_handler(RequestError, _on_refusal)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(FedATError, _on_defect)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_exception_handler(Exception, _on_defect)


async def _on_refusal(_: Request, error: Exception) -> Response:
    if not isinstance(error, RequestError):
        raise error
    response = problem(error.status, error.kind, str(error), error.field, **error.extensions)
    if isinstance(error, NotNow):
        response.headers["Retry-After"] = str(max(1, round(error.retry_after_s)))
    return response


async def _on_invalid(_: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    first = error.errors()[0]
    where = _path(first.get("loc", ()))
    return problem(422, "unprocessable", f"{where}: {first.get('msg', 'invalid')}", where)


def _path(location: Sequence[int | str]) -> str:
    """`("body", "rounds", "cohort_size")` as `rounds.cohort_size`."""
    parts = [str(part) for part in location if part not in ("body", "query", "path")]
    return ".".join(parts) or "body"


async def _on_http(_: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    kind = http.HTTPStatus(error.status_code).phrase.lower().replace(" ", "-")
    response = problem(error.status_code, kind, str(error.detail))
    response.headers.update(error.headers or {})
    return response


async def _on_disconnect(_: Request, __: Exception) -> Response:
    """The client went away before its request was whole: nothing happened, and nobody reads an answer."""
    return Response(status_code=408)


async def _on_defect(request: Request, error: Exception) -> Response:
    _log.error("defect", path=request.url.path, error=repr(error), exc_info=error)
    return problem(500, "defect", "the service failed; the request changed nothing it was not told of")
