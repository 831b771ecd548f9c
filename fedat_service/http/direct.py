"""Routes that clients use all the time: called straight, and documented like all others."""

from inspect import signature
from typing import Any, get_type_hints
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError, create_model
from starlette.types import Receive, Scope, Send

from fedat_service.http.routers import make_router

_REQUEST = "request"


class DirectRoute(APIRoute):
    """Reads a handler's arguments off path and query in one step, and calls it.

    The framework's way there costs as much as a small answer. Its handlers take the `request` and arguments
    of path and query, and return a response. Whatever does not fit them goes the framework's way, which
    says what is wrong.
    """

    def __init__(self, path: str, endpoint: Any, **settings: Any) -> None:  # noqa: ANN401 - passed on
        super().__init__(path, endpoint, **settings)
        self._arguments = TypeAdapter(_arguments_of(endpoint))

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that matches."""
        arguments = self._read(scope)
        if arguments is None:
            await super().handle(scope, receive, send)
        else:
            response = await self.endpoint(Request(scope, receive, send), **arguments)
            await response(scope, receive, send)

    def _read(self, scope: Scope) -> dict[str, Any] | None:
        if scope["method"] not in (self.methods or ()):
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        try:
            return self._arguments.validate_python(dict(query) | scope["path_params"]).__dict__
        except ValidationError:
            return None


def direct_router(tag: str) -> APIRouter:
    """A router of such routes."""
    return make_router(tag, route_class=DirectRoute)


def _arguments_of(endpoint: Any) -> type[BaseModel]:  # noqa: ANN401 - any handler
    hints = get_type_hints(endpoint, include_extras=True)
    fields: dict[str, Any] = {
        name: (hints[name], ... if parameter.default is parameter.empty else parameter.default)
        for name, parameter in signature(endpoint).parameters.items()
        if name != _REQUEST
    }
    return create_model("Arguments", **fields)
