import asyncio
from typing import Annotated

import httpx
import pytest
from fastapi import FastAPI, Query, Request
from starlette.responses import JSONResponse, Response

from fedat_service.http.direct import direct_router


async def double(request: Request, name: str, times: Annotated[float, Query(ge=0)] = 1.0) -> Response:
    """Say a name and a number."""
    return JSONResponse({"name": name, "doubled": 2 * times, "agent": request.headers["user-agent"]})


def call(url, method="GET"):
    app, router = FastAPI(), direct_router("test")
    router.get("/double/{name}")(double)
    app.router.routes[:0] = router.routes

    async def send():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            return await client.request(method, url, headers={"user-agent": "test"})

    return asyncio.run(send())


def test_arguments_come_from_path_and_query():
    assert call("/double/anna?times=1.5").json() == {"name": "anna", "doubled": 3.0, "agent": "test"}


def test_what_is_not_in_the_query_has_its_default():
    assert call("/double/anna").json()["doubled"] == 2.0


def test_a_path_is_decoded():
    assert call("/double/anna%20b").json()["name"] == "anna b"


def test_the_path_is_stronger_than_a_query_of_the_same_name():
    assert call("/double/anna?name=bob").json()["name"] == "anna"


@pytest.mark.parametrize("query", ["times=-1", "times=x", "times="])
def test_what_does_not_fit_is_refused_with_its_place(query):
    answer = call(f"/double/anna?{query}")
    assert (answer.status_code, answer.json()["detail"][0]["loc"]) == (422, ["query", "times"])


def test_another_method_is_refused():
    answer = call("/double/anna", "POST")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")


def test_the_route_is_documented_as_the_handler_says():
    described = call("/openapi.json").json()["paths"]["/double/{name}"]["get"]
    assert (described["operationId"], described["description"]) == ("double", "Say a name and a number.")
    assert {one["name"] for one in described["parameters"]} == {"name", "times"}
