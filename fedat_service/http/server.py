"""The server process: uvicorn, with a way out that sends waiting clients away first."""

import asyncio
import os
import socket
import sys
from types import FrameType

import structlog
import uvicorn
from fastapi import FastAPI

from fedat_service.errors import ConfigError
from fedat_service.http.bulk import BulkProtocol

_BACKLOG = 2048
"""Connections that may wait to be taken: a whole fleet connects at once."""

_SWITCH_INTERVAL_S = 0.0002


class Server(uvicorn.Server):
    """uvicorn waits for open requests before it shuts the app down, and long-polls are open requests.

    So the signal itself releases them: they answer 503 with `Retry-After`, and the process is gone in a
    moment.
    """

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Release who waits, then go down as uvicorn does."""
        app = self.config.app
        if isinstance(app, FastAPI) and (context := getattr(app.state, "context", None)) is not None:
            # A signal handler runs between two steps of the loop: hand over, so that the loop wakes up.
            asyncio.get_running_loop().call_soon_threadsafe(context.registry.release)
        super().handle_exit(sig, frame)


def listen(host: str, port: int) -> list[socket.socket]:
    """Take a port on every address of a host, the same one; a free one if it is 0.

    Raises:
        ConfigError: If that cannot be had; the message names host and port.
    """
    sockets: list[socket.socket] = []
    try:
        # The protocol is asked for too: event loops send small answers at once only where they see it.
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        ):
            sockets.append(one := socket.socket(family, kind, protocol))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, os.name == "posix")
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, True)
            one.bind((address[0], port_of(sockets[0]) or port, *address[2:]))
            one.listen(_BACKLOG)
    except (OSError, UnicodeError) as error:
        for one in sockets:
            one.close()
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"cannot listen on host {host!r}, port {port}: {why}") from error
    return sockets


def port_of(listening: socket.socket) -> int:
    """The port of a socket; 0 if it has none yet."""
    port: int = listening.getsockname()[1]
    return port


def serve(app: FastAPI, sockets: list[socket.socket]) -> None:
    """Run the service on sockets of `listen` until a signal ends it."""
    config = uvicorn.Config(
        app,
        http=BulkProtocol,
        lifespan="on",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=120,
        timeout_graceful_shutdown=10,
        backlog=_BACKLOG,
    )
    # A traceback with all its values would hold up the loop for seconds, and write data into the log.
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], plain])
    # Codecs and sums run in threads: the loop must get the interpreter back at once when one has it.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    Server(config).run(sockets)
