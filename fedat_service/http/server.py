"""The server process: uvicorn, with a way out that sends waiting clients away first."""

import asyncio
import sys
from types import FrameType

import structlog
import uvicorn
from fastapi import FastAPI

from fedat_service.http.bulk import BulkProtocol

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


def serve(app: FastAPI, host: str, port: int) -> None:
    """Run the service until a signal ends it."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=BulkProtocol,
        lifespan="on",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=120,
        timeout_graceful_shutdown=10,
    )
    # A traceback with all its values would hold up the loop for seconds, and write data into the log.
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], plain])
    # Codecs and sums run in threads: the loop must get the interpreter back at once when one has it.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    Server(config).run()
