"""Uploads through the real service against two of the same framework that do less, or do it plainly.

An upload is a million-parameter update over loopback HTTP: received, checked, hashed, put on the log,
decoded and added to its tier's mean, and only then answered. Each server is a process of its own, one at a
time is busy, and the clients are threads of this process, on the same cores. The service reads bodies on its
event loop, by `fedat_service.http.bulk`, and checks and adds them in threads. What it is held against runs on
uvicorn as it comes, all of it on the event loop.
"""

import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median

from fedat_service.errors import ServiceRefused
from fedat_service.params import Model
from fedat_service.wire.codecs import make_codec
from loadtest.benchmarks.handlers import DECODE, READ
from loadtest.benchmarks.run import Results, measurement
from loadtest.benchmarks.traffic import (
    CODEC,
    Connection,
    count_reported,
    encode_update,
    fetch_task,
    open_federation,
    put_all,
    random_model,
    update_path,
)
from loadtest.experiments.service import fedat_serve, running

_REPEATS = 7
_UPLOADS = 60
_SLOW_UPLOADS = 2
"""Uploads to the package's decoder: each takes about a second."""
_CONNECTIONS = 4


def measure() -> Results:
    """Uploads a second: medians of interleaved repetitions."""
    model = random_model(seed=0)
    text = make_codec(CODEC).encode(model.floats)
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        service = stack.enter_context(running(fedat_serve(rate=1.0), logs / "service.log"))
        plain_command = [sys.executable, "-m", "loadtest.benchmarks.handlers"]
        plain = stack.enter_context(running(plain_command, logs / "plain.log"))
        contestants: dict[str, Callable[[int], float]] = {
            "add": lambda i: _add_rate(service.url, f"upload-{i}", model),
            "read": lambda _: _UPLOADS / put_all(plain.url, [READ] * _UPLOADS, text, _CONNECTIONS),
            "decode": lambda _: (
                _SLOW_UPLOADS / put_all(plain.url, [DECODE] * _SLOW_UPLOADS, text, _SLOW_UPLOADS)
            ),
        }
        rates: dict[str, list[float]] = {name: [] for name in contestants}
        for i in range(_REPEATS):
            for name, contestant in contestants.items():
                rates[name].append(contestant(i))
    add, read, decode = (median(rates[name]) for name in ("add", "read", "decode"))
    return {
        "upload_add_vs_package_decode": measurement(add, decode),
        "upload_add_vs_read_body": measurement(add, read),
    }


def _add_rate(url: str, federation: str, model: Model) -> float:
    """Uploads a second into a fresh federation whose round is one client larger, so that it stays open.

    Raises:
        ServiceRefused: If the service has not counted every upload.
    """
    with closing(Connection(url)) as connection:
        clients = open_federation(connection, federation, _UPLOADS + 1, _UPLOADS + 1)[:_UPLOADS]
        tasks = [fetch_task(connection, federation, client) for client in clients]
        body = encode_update(tasks[0], model)
        seconds = put_all(url, [update_path(task) for task in tasks], body, _CONNECTIONS)
        counted = count_reported(connection, federation)
    if counted != _UPLOADS:
        raise ServiceRefused(f"{counted} of {_UPLOADS} uploads were counted", 200, "not-counted")
    return _UPLOADS / seconds
