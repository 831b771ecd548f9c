"""How routers are made: what all routes of the service have in common."""

from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute

from fedat_service.http.problems import RESPONSES


def make_router(tag: str, **settings: Any) -> APIRouter:  # noqa: ANN401 - FastAPI's own
    """A router whose `routes` belong into the app's own list.

    Each inclusion of a router costs every request a search, and an app that includes one makes all of its
    routes anew at its first request.

    Args:
        tag: What the API's description puts its routes under.
        settings: More of `APIRouter`; without `responses`, routes may answer with any problem.
    """
    settings = {"responses": RESPONSES} | settings
    return APIRouter(tags=[tag], generate_unique_id_function=_operation_id, **settings)


def _operation_id(route: APIRoute) -> str:
    """What the API's description calls a route: its handler's name."""
    return route.name
