"""Bodies over a real socket: whole, into the handler's own memory, and never more than the body."""

import asyncio
import socket
import threading
import time
from contextlib import ExitStack

import pytest
import uvicorn
import uvloop
from starlette.requests import ClientDisconnect

from fedat_service.errors import TooLarge
from fedat_service.http.bulk import LARGE_BYTES, BulkProtocol, receive_into

LARGE = 3 * LARGE_BYTES + 5


class Handler:
    """An app that keeps every body, and tells how it ended: the size it got, or an error's name."""

    def __init__(self):
        self.buffers = []
        self.took_straight_way = []
        self.ends = []
        self.room = 8 << 20
        self.patience_s = 20.0
        self.go_on = threading.Event()
        self.go_on.set()

    async def __call__(self, scope, receive, send):
        await asyncio.to_thread(self.go_on.wait)
        read = receive_into(scope)
        self.took_straight_way.append(read is not None)
        buffer = bytearray(self.room)
        self.buffers.append(buffer)
        try:
            size = await asyncio.wait_for((read or pieces(receive))(memoryview(buffer)), self.patience_s)
        except (TimeoutError, TooLarge, ClientDisconnect) as error:
            size = 0
            self.ends.append(type(error).__name__)
        else:
            self.ends.append(size)
            del buffer[size:]
        answer = b"%08d" % size
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"8")]})
        await send({"type": "http.response.body", "body": answer})

    def wait_until_ended(self, count=1):
        until_s = time.monotonic() + 10
        while len(self.ends) < count:
            assert time.monotonic() < until_s
            time.sleep(0.01)


def pieces(receive):
    async def read(buffer):
        size, more = 0, True
        while more:
            message = await receive()
            body, more = message["body"], message["more_body"]
            buffer[size : size + len(body)] = body
            size += len(body)
        return size

    return read


class Apps:
    """An app that is whichever one is set: starting a server for each test would take most of its time."""

    async def __call__(self, scope, receive, send):
        await self.current(scope, receive, send)


@pytest.fixture(
    scope="module", params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
def served(request):
    """A running server's address and its apps."""
    apps = Apps()
    server = uvicorn.Server(uvicorn.Config(apps, http=BulkProtocol, lifespan="off", log_level="error"))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))

        def serve():
            with asyncio.Runner(loop_factory=request.param) as runner:
                runner.run(server.serve([listening]))

        thread = threading.Thread(target=serve)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield listening.getsockname(), apps
        server.should_exit = True
        thread.join()


@pytest.fixture
def handler(served):
    _, apps = served
    apps.current = Handler()
    yield apps.current
    apps.current.go_on.set()


@pytest.fixture
def connect(served):
    """`connect()` is a socket to a server that runs the handler."""
    address, _ = served
    with ExitStack() as stack:
        yield lambda: stack.enter_context(socket.create_connection(address, timeout=20))


def head(size, more=b""):
    return b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%b\r\n" % (size, more)


def content(size):
    return (bytes(range(251)) * (size // 251 + 1))[:size]


def answers(sender, count=1):
    """The bodies of the next answers."""
    received = b""
    while len(bodies := received.split(b"\r\n\r\n")[1:]) < count or len(bodies[-1]) < 8:
        part = sender.recv(1000)
        assert part, received
        received += part
    return [int(body[:8]) for body in bodies]


@pytest.mark.parametrize("size", [0, 1, LARGE_BYTES - 1, LARGE_BYTES, LARGE])
def test_a_body_comes_whole(connect, handler, size):
    sender = connect()
    sender.sendall(head(size) + content(size))
    assert answers(sender) == [size]
    assert handler.buffers == [content(size)]
    assert handler.took_straight_way == [size >= LARGE_BYTES]


def test_a_body_comes_whole_however_it_is_cut(connect, handler):
    sender = connect()
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sent = head(LARGE) + content(LARGE)
    for part in (sent[:20], sent[20:100], sent[100:-150_000], sent[-150_000:-1], sent[-1:]):
        sender.sendall(part)
        time.sleep(0.02)
    assert answers(sender) == [LARGE]
    assert handler.buffers == [content(LARGE)]


@pytest.mark.parametrize("sizes", [(3, 4), (LARGE, 3), (3, LARGE, LARGE, 0, LARGE_BYTES)])
def test_requests_in_a_pipeline_are_answered_one_after_the_other(connect, handler, sizes):
    sender = connect()
    sender.sendall(b"".join(head(size) + content(size) for size in sizes))
    assert answers(sender, len(sizes)) == list(sizes)
    assert handler.buffers == [content(size) for size in sizes]


def test_a_handler_that_does_not_ask_holds_the_sender_up(connect, handler):
    handler.go_on.clear()
    size = 64 << 20
    sender = connect()
    sender.sendall(head(size))
    sender.settimeout(1.0)
    assert sent_until_held_up(sender, content(1 << 20), size) < size // 2


def sent_until_held_up(sender, block, size):
    sent = 0
    while sent < size:
        try:
            sent += sender.send(block)
        except TimeoutError:
            return sent
    return sent


def test_a_sender_that_goes_away_is_a_disconnect(connect, handler):
    sender = connect()
    sender.sendall(head(LARGE) + content(LARGE - 1))
    time.sleep(0.1)
    sender.close()
    handler.wait_until_ended()
    assert handler.ends == ["ClientDisconnect"]


def test_a_sender_that_went_away_before_is_a_disconnect(connect, handler):
    handler.go_on.clear()
    sender = connect()
    sender.sendall(head(LARGE) + b"begin")
    time.sleep(0.1)
    sender.close()
    time.sleep(0.1)
    handler.go_on.set()
    handler.wait_until_ended()
    assert handler.ends == ["ClientDisconnect"]


def test_a_handler_that_gives_up_keeps_its_memory_and_the_connection(connect, handler):
    handler.patience_s = 0.2
    sender = connect()
    sender.sendall(head(LARGE) + content(LARGE_BYTES))
    assert answers(sender) == [0]
    assert handler.ends == ["TimeoutError"]
    kept = bytes(handler.buffers[0])
    assert kept[:LARGE_BYTES] == content(LARGE_BYTES)
    sender.sendall(content(LARGE)[LARGE_BYTES:] + head(3) + b"abc")
    assert answers(sender) == [3]
    assert handler.buffers[0] == kept
    assert handler.buffers[1] == b"abc"


def test_a_body_that_does_not_fit_is_refused_and_passed_over(connect, handler):
    handler.room = LARGE_BYTES
    sender = connect()
    sender.sendall(head(LARGE) + content(LARGE) + head(LARGE_BYTES) + content(LARGE_BYTES))
    assert answers(sender, 2) == [0, LARGE_BYTES]
    assert handler.ends == ["TooLarge", LARGE_BYTES]
    assert handler.buffers[0] == bytes(LARGE_BYTES)


def test_a_sender_that_waits_is_told_to_continue(connect, handler):
    sender = connect()
    sender.sendall(head(LARGE, b"Expect: 100-continue\r\n"))
    assert sender.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
    sender.sendall(content(LARGE))
    assert answers(sender) == [LARGE]


def test_a_body_of_unknown_length_takes_the_ordinary_way(connect, handler):
    sender = connect()
    sender.sendall(b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(3):
        sender.sendall(b"%x\r\n" % LARGE + content(LARGE) + b"\r\n")
    sender.sendall(b"0\r\n\r\n")
    assert answers(sender) == [3 * LARGE]
    assert handler.took_straight_way == [False]


@pytest.mark.parametrize(
    "other", [b"Content-Length: 7\r\n", b"Content-Length: %d\r\n" % LARGE, b"Transfer-Encoding: chunked\r\n"]
)
def test_a_length_in_doubt_is_refused(connect, handler, other):
    sender = connect()
    sender.sendall(head(LARGE, other))
    assert sender.recv(1000).startswith(b"HTTP/1.1 400")
    assert handler.buffers == []


def test_the_last_request_of_a_connection_is_answered_before_it_closes(connect, handler):
    sender = connect()
    sender.sendall(head(LARGE, b"Connection: close\r\n") + content(LARGE) + head(3) + b"abc")
    received = b""
    while part := sender.recv(1000):
        received += part
    assert received.endswith(b"%08d" % LARGE)
    assert received.count(b"HTTP/1.1") == 1


def test_a_server_without_the_straight_way_has_none_to_offer():
    assert receive_into({"type": "http"}) is None
    assert receive_into({"type": "http", "extensions": None}) is None
    assert receive_into({"type": "http", "extensions": {"http.response.debug": {}}}) is None
