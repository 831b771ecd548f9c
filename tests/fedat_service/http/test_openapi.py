"""The OpenAPI document is true, and the pages that show it need no internet."""

import json
import re
from pathlib import Path

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import allow_header_conformance, positive_data_acceptance

from fedat_service.coordinator.limits import Limits
from fedat_service.http.app import create_app

schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(Limits(max_wait_s=0.0)))


@schema.exclude(path_regex=r"/model$|/update$").parametrize()
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_no_request_breaks_the_service(case):
    # Starlette answers 405 per route, so `Allow` lists one method where a path has two. And some rules span
    # fields (as many quantiles as tiers less one): JSON Schema cannot say them, the service still must.
    case.call_and_validate(excluded_checks=[allow_header_conformance, positive_data_acceptance])


async def test_every_operation_has_its_own_name(service):
    document = (await service.http.get("/openapi.json")).json()
    names = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(set(names)) == len(names)


async def test_the_documentation_needs_no_internet(service):
    page = (await service.http.get("/docs")).text
    sources = re.findall(r"(?:src|href)=\"([^\"]+)\"", page)
    assert sources
    for source in sources:
        assert source.startswith("/")
        assert (await service.http.get(source)).status_code == 200


async def test_the_committed_description_is_up_to_date(service):
    committed = json.loads((Path(__file__).parents[3] / "docs" / "openapi.json").read_text())
    assert (await service.http.get("/openapi.json")).json() == committed
