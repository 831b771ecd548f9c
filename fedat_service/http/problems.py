"""Refusals as `application/problem+json` (RFC 9457): what was wrong, where, and what to do next."""

import http
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

from fedat_service.errors import FedATError, NotNow, RequestError, TooLarge, UnsupportedMedia
from fedat_service.wire.complaints import reason_of
from fedat_service.wire.messages import PROBLEM_TYPE
from fedat_service.wire.views import Problem

_log = structlog.get_logger(__name__)
_TYPES = "https://fedat.invalid/problems/"
"""Prefix of problem types: stable names, not addresses (RFC 9457 allows a URI that leads nowhere)."""

_MAX_WORDS = 128
"""What a stranger's words are cut to."""

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


async def _on_invalid(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    first: dict[str, Any] = error.errors()[0]
    source, *steps = first["loc"]
    if first["type"] == "json_invalid":
        return _unreadable(f"{first['ctx']['error']} at character {steps[0]}")
    if source == "body" and isinstance(error.body, bytes):
        # The framework reads JSON only where it is said to be JSON.
        given = request.headers.get("content-type", "no type")
        detail = f"the body must be application/json, got {given[:_MAX_WORDS]}"
        return problem(UnsupportedMedia.status, UnsupportedMedia.kind, detail, "content-type")
    where = ".".join(str(step)[:_MAX_WORDS] for step in steps) or source
    return problem(422, "unprocessable", f"{where}: {reason_of(first)}", where)


def _unreadable(why: str) -> Response:
    return problem(RequestError.status, RequestError.kind, f"the body is no JSON: {why}", "body")


async def _on_http(_: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == RequestError.status and error.__cause__ is not None:
        # What a JSON parser fails at besides grammar: encoding, digits without end, depth.
        return _unreadable(str(error.__cause__))
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
