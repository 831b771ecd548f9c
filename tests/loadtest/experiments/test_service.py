import http.client
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from fedat_service.errors import ServiceFailed
from loadtest.experiments.service import running

HANDLERS = [sys.executable, "-m", "loadtest.benchmarks.handlers"]


def status_of(url):
    with closing(http.client.HTTPConnection(url.removeprefix("http://"))) as connection:
        connection.request("GET", "/readyz")
        return connection.getresponse().status


def is_running(pid):
    return Path(f"/proc/{pid}").exists()


@pytest.mark.e2e
def test_a_process_answers_inside_and_is_gone_outside(tmp_path):
    with running(HANDLERS, tmp_path / "logs" / "server.log") as server:
        assert status_of(server.url) == 200
        assert is_running(server.pid)
    assert not is_running(server.pid)


@pytest.mark.e2e
def test_a_failure_inside_ends_the_process_too(tmp_path):
    with pytest.raises(KeyboardInterrupt), running(HANDLERS, tmp_path / "server.log") as server:
        raise KeyboardInterrupt
    assert not is_running(server.pid)


PARENT = """
import sys, time
from pathlib import Path
from loadtest.experiments.service import fedat_serve, running
with running(fedat_serve(rate=1.0), Path(sys.argv[1])) as server:
    print(server.pid, flush=True)
    time.sleep(60)
"""


@pytest.mark.e2e
def test_a_service_ends_with_whoever_started_it(tmp_path):
    with subprocess.Popen([sys.executable, "-c", PARENT, tmp_path / "log"], stdout=subprocess.PIPE) as parent:
        service = int(parent.stdout.readline())
        parent.kill()
    end_s = time.monotonic() + 20
    while is_running(service) and time.monotonic() < end_s:
        time.sleep(0.05)
    assert not is_running(service)


def test_a_process_that_ends_at_once_is_reported_with_its_last_words(tmp_path):
    command = [sys.executable, "-c", "print('no such setting'); raise SystemExit(3)"]
    with pytest.raises(ServiceFailed, match=r"status 3: no such setting"), running(command, tmp_path / "log"):
        pytest.fail("it never became ready")
