"""Bodies over a real socket: whole, in large pieces, and never more than the handler asks for."""

import asyncio
import socket
import threading
import time

import pytest
import uvicorn

from fedat_service.http.bulk import PIECE_BYTES, BulkProtocol


class Handler:
    """An app that notes the pieces it receives; it asks for the next one when `go_on` is set."""

    def __init__(self):
        self.pieces = []
        self.disconnected = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    async def __call__(self, scope, receive, send):
        pieces = []
        self.pieces.append(pieces)
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.disconnected.set()
                return
            pieces.append(message["body"])
            more = message["more_body"]
            await asyncio.to_thread(self.go_on.wait)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def handler():
    return Handler()


@pytest.fixture
def connect(handler):
    """`connect()` is a socket to a server that runs the handler."""
    sockets = []
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        config = uvicorn.Config(handler, http=BulkProtocol, lifespan="off", log_level="error")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
        thread.start()
        while not server.started:
            time.sleep(0.01)

        def new():
            made = socket.create_connection(listening.getsockname(), timeout=20)
            sockets.append(made)
            return made

        yield new
        handler.go_on.set()
        for made in sockets:
            made.close()
        server.should_exit = True
        thread.join()


def head(size):
    return b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size


def content(size):
    return bytes(range(256)) * (size // 256) + bytes(size % 256)


@pytest.mark.parametrize("size", [0, 1, 100_000, PIECE_BYTES - 1])
def test_a_body_below_a_piece_comes_whole(connect, handler, size):
    sender = connect()
    sender.sendall(head(size) + content(size))
    assert sender.recv(1000).startswith(b"HTTP/1.1 200")
    assert handler.pieces == [[content(size)]]


def test_a_large_body_comes_in_large_pieces(connect, handler):
    size = 3 * PIECE_BYTES + 5
    sender = connect()
    sender.sendall(head(size) + content(size))
    assert sender.recv(1000).startswith(b"HTTP/1.1 200")
    (pieces,) = handler.pieces
    assert b"".join(pieces) == content(size)
    assert len(pieces) <= 4
    assert all(len(piece) >= PIECE_BYTES for piece in pieces[:-1])


def test_a_slow_sender_does_not_wake_the_handler_for_every_part(connect, handler):
    sender = connect()
    sender.sendall(head(40_000))
    for part in range(4):
        sender.sendall(content(40_000)[part * 10_000 : (part + 1) * 10_000])
        time.sleep(0.02)
    assert sender.recv(1000).startswith(b"HTTP/1.1 200")
    assert handler.pieces == [[content(40_000)]]


def test_requests_in_a_pipeline_are_answered_one_after_the_other(connect, handler):
    sender = connect()
    sender.sendall((head(3) + b"abc") + (head(4) + b"defg"))
    answers = b""
    while answers.count(b"HTTP/1.1 200") < 2:
        answers += sender.recv(1000)
    assert handler.pieces == [[b"abc"], [b"defg"]]


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
    sender.sendall(head(100) + b"half")
    time.sleep(0.1)
    sender.close()
    assert handler.disconnected.wait(10)
