import asyncio

import httpx
import numpy as np
import pytest

from fedat_service.errors import ConfigError, NotNow, ServiceRefused, WireError
from workers.client import Retry, open_http
from workers.client.connection import Request
from workers.client.exchange import Exchange


def exchange(answers, retry=Retry(base_s=0.0, cap_s=0.0)):  # noqa: B008 - a frozen value
    """An exchange with a server that gives `answers`, one a request, and when it was asked."""
    asked_s = []

    async def answer(request):
        asked_s.append(asyncio.get_running_loop().time())
        given = answers.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    connection = open_http("http://service", httpx.MockTransport(answer))
    return Exchange(connection, retry, np.random.default_rng(1)), asked_s


@pytest.mark.parametrize(
    "failure",
    [
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("silence"),
        httpx.RemoteProtocolError("cut off"),
        httpx.Response(429),
        httpx.Response(502),
        httpx.Response(503),
        httpx.Response(504),
    ],
)
def test_what_may_pass_is_tried_again(virtually, failure):
    async def main():
        asking, asked_s = exchange([failure, failure, httpx.Response(200, content=b"ok")])
        return (await asking.send(Request("GET", "/x"))).body, len(asked_s)

    assert virtually(main()) == (b"ok", 3)


def test_retry_after_is_waited_for(virtually):
    async def main():
        busy = httpx.Response(503, headers={"Retry-After": "7"})
        asking, asked_s = exchange([busy, busy, httpx.Response(200)])
        await asking.send(Request("GET", "/x"))
        return asked_s

    assert virtually(main()) == pytest.approx([0.0, 7.0, 14.0])


@pytest.mark.parametrize("text", ["-1", "nan", "soon", "", "1e9", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_a_retry_after_that_is_no_number_of_seconds_asks_for_nothing(virtually, text):
    async def main():
        asking, asked_s = exchange([httpx.Response(503, headers={"Retry-After": text}), httpx.Response(200)])
        await asking.send(Request("GET", "/x"))
        return asked_s

    assert virtually(main()) == pytest.approx([0.0, 0.0])


def test_back_off_is_jittered_fully_below_a_ceiling_that_doubles_up_to_its_cap(virtually):
    async def main():
        lost = [httpx.ConnectError("x")] * 200
        asking, asked_s = exchange([*lost, httpx.Response(200)], Retry(1000, 1e9, base_s=1.0, cap_s=8.0))
        await asking.send(Request("GET", "/x"))
        return np.diff(asked_s)

    waits_s = virtually(main())
    assert np.all(waits_s[:4] <= [1, 2, 4, 8])
    assert waits_s.max() <= 8
    assert waits_s.min() < 0.5
    assert waits_s.mean() == pytest.approx(4, abs=0.5)


def test_it_gives_up_after_its_attempts(virtually):
    async def main():
        asking, asked_s = exchange([httpx.ConnectError("refused")] * 9, Retry(4, base_s=0.0, cap_s=0.0))
        with pytest.raises(NotNow, match=r"no answer from http://service.*refused"):
            await asking.send(Request("GET", "/x"))
        return len(asked_s)

    assert virtually(main()) == 4


def test_it_does_not_wait_beyond_its_time(virtually):
    async def main():
        busy = httpx.Response(503, headers={"Retry-After": "20"})
        asking, asked_s = exchange([busy] * 9, Retry(total_s=50.0, base_s=0.0, cap_s=0.0))
        with pytest.raises(NotNow, match="503"):
            await asking.send(Request("GET", "/x"))
        return asked_s

    assert virtually(main()) == pytest.approx([0.0, 20.0, 40.0])


@pytest.mark.parametrize("status", [400, 404, 409, 410, 412, 413, 415, 422, 500, 302])
def test_a_refusal_is_not_tried_again_and_says_status_kind_and_detail(virtually, refusal, status):
    async def main():
        asking, _ = exchange([refusal(status, "some-kind", "layer fc is wrong")])
        with pytest.raises(ServiceRefused, match="GET /x: layer fc is wrong") as caught:
            await asking.send(Request("GET", "/x"))
        return caught.value.status, caught.value.kind

    assert virtually(main()) == (status, "some-kind")


def test_a_refusal_without_a_problem_document_is_a_refusal_all_the_same(virtually):
    async def main():
        asking, _ = exchange([httpx.Response(404, text="<html>")])
        with pytest.raises(ServiceRefused, match="HTTP 404"):
            await asking.send(Request("GET", "/x"))

    virtually(main())


def test_an_answer_larger_than_it_may_be_is_not_read_to_its_end(virtually):
    served = []

    async def endless():
        while True:
            served.append(1)
            yield b"x" * 1000

    async def main():
        asking, _ = exchange([httpx.Response(200, content=endless())])
        with pytest.raises(WireError, match="over 10000 bytes"):
            await asking.send(Request("GET", "/x", max_bytes=10_000))

    virtually(main())
    assert len(served) <= 11


def test_an_answer_that_does_not_decompress_is_refused(virtually):
    async def main():
        asking, _ = exchange(
            [httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=httpx.ByteStream(b"no gzip"))]
        )
        with pytest.raises(WireError, match="does not decompress"):
            await asking.send(Request("GET", "/x"))

    virtually(main())


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://host", "http://", "http://host:port"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(ConfigError, match="address"):
        open_http(url)


async def test_the_environment_plays_no_part(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:1")
    async with open_http("http://service", httpx.MockTransport(lambda _: httpx.Response(200))) as http:
        assert (await http.send(Request("GET", "/"))).status == 200
