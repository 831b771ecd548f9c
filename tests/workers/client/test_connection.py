import httpx
import pytest

from fedat_service.coordinator.offload import inline
from fedat_service.errors import ConfigError, WireError
from fedat_service.http.app import create_app
from fedat_service.wire.messages import BUNDLE_TYPE
from workers.client.connection import AppConnection, Request, open_http

REQUESTS = [
    Request("GET", "/healthz"),
    Request("GET", "/v1/federations", {"limit": "3", "after": "a b&c"}),
    Request("POST", "/v1/federations", headers={"Content-Type": "application/json"}, content=b'{"name": 1}'),
    Request("PUT", "/v1/federations/f/model", headers={"Content-Type": BUNDLE_TYPE}, content=b"nonsense"),
    Request("GET", "/v1/federations/f/model", headers={"Accept": BUNDLE_TYPE, "Accept-Encoding": "identity"}),
]


def recorded():
    """An app that notes what arrives, and the same app's answers over both connections."""
    seen = []

    async def app(scope, receive, send):
        message = await receive()
        seen.append(
            (scope["method"], scope["path"], scope["query_string"], scope["headers"], message["body"])
        )
        await send({"type": "http.response.start", "status": 200, "headers": [(b"etag", b'"1"')]})
        await send({"type": "http.response.body", "body": b"x" * 10})

    return app, seen


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: f"{request.method} {request.path}")
async def test_in_one_process_the_same_bytes_travel_as_over_the_network(request_):
    app, seen = recorded()
    over_network = open_http("http://service:8080", httpx.ASGITransport(app))
    async with over_network, AppConnection(app, "http://service:8080") as inside:
        network, in_process = await over_network.send(request_), await inside.send(request_)
    assert (network.status, network.headers["etag"], network.body) == (200, '"1"', b"x" * 10)
    assert (in_process.status, in_process.headers["etag"], in_process.body) == (200, '"1"', b"x" * 10)
    (*plain, headers, body), (*plain_inside, headers_inside, body_inside) = seen
    assert plain == plain_inside
    assert body == body_inside
    assert sorted((name.lower(), value) for name, value in headers) == sorted(headers_inside)


async def test_the_service_answers_in_process_as_over_the_network():
    app = create_app(offload=inline)
    async with app.router.lifespan_context(app):
        over_network = open_http("http://service", httpx.ASGITransport(app))
        async with over_network, AppConnection(app, "http://service") as inside:
            for request in REQUESTS:
                network, in_process = await over_network.send(request), await inside.send(request)
                assert (network.status, network.body) == (in_process.status, in_process.body)


async def test_a_larger_answer_than_asked_for_is_refused_in_process_too():
    app, _ = recorded()
    with pytest.raises(WireError, match="over 9 bytes"):
        await AppConnection(app, "http://service").send(Request("GET", "/x", max_bytes=9))


@pytest.mark.parametrize("url", ["http://here:0", "http://here:65536", "http://here:-1", "http://here:x"])
def test_a_port_that_cannot_be_is_refused(url):
    with pytest.raises(ConfigError, match=f"'{url}' is no address"):
        open_http(url)


def test_an_app_must_be_called_something_that_can_be_an_address():
    with pytest.raises(ConfigError, match="address"):
        AppConnection(recorded()[0], "nowhere")
