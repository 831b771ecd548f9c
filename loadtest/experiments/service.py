"""A real server as a process of its own: started, waited for, ended gracefully."""

import http
import http.client
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from fedat_service.errors import ServiceFailed

_HOST = "127.0.0.1"
_START_S = 60.0
_STOP_S = 20.0
_POLL_S = 0.05
_TIMEOUT_S = 120.0
_LOG_TAIL_BYTES = 2000


@dataclass(frozen=True, slots=True)
class ServiceProcess:
    """A service that answers at `url`; `pid` is its process."""

    url: str
    pid: int


def fedat_serve(rate: float, event_log: Path | None = None, *, keep_updates: bool = False) -> list[str]:
    """The command that starts this package's service; its port is added by `running`."""
    command = [sys.executable, "-m", "fedat_service.cli", "serve", "--host", _HOST, "--rate", str(rate)]
    # Nobody else could end it, should this process be killed.
    command.append("--until-eof")
    if event_log is not None:
        command += ["--event-log", str(event_log)]
    return [*command, "--keep-updates"] if keep_updates else command


@contextmanager
def running(command: Sequence[str], log: Path, ready_path: str = "/readyz") -> Iterator[ServiceProcess]:
    """Start `command --port PORT`, wait until it answers, and end it gracefully on the way out.

    Args:
        command: What to start; it must take `--port` and answer `ready_path` with 200 when it is ready.
        log: File for everything it prints.
        ready_path: What to ask.

    Raises:
        ServiceFailed: If it ends, or is not ready within a minute.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    with log.open("wb") as sink:
        # A session of its own: an interrupt from the keyboard reaches us first, and we end it in order.
        process = subprocess.Popen(  # noqa: S603 - our own command line
            [*command, "--port", str(port)],
            stdin=subprocess.PIPE,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_ready(process, port, ready_path, log)
        yield ServiceProcess(f"http://{_HOST}:{port}", process.pid)
    finally:
        _end(process)


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_ready(process: subprocess.Popen[bytes], port: int, path: str, log: Path) -> None:
    end_s = monotonic() + _START_S
    while not _answers(port, path):
        with suppress(subprocess.TimeoutExpired):
            status = process.wait(_POLL_S)
            raise ServiceFailed(f"the service ended with status {status}: {_tail(log)}")
        if monotonic() > end_s:
            raise ServiceFailed(f"the service was not ready within {_START_S:g} s: {_tail(log)}")


def _answers(port: int, path: str) -> bool:
    with closing(http.client.HTTPConnection(_HOST, port, timeout=_TIMEOUT_S)) as connection:
        try:
            connection.request("GET", path)
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False


def _tail(log: Path) -> str:
    return log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace").strip()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    finally:
        if process.stdin is not None:
            process.stdin.close()
