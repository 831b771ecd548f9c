"""The real server process: it starts, answers, and leaves in good order."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection

import pytest

pytestmark = pytest.mark.e2e


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def call(port: int, method: str, path: str, body: object = None) -> tuple[int, dict[str, str], bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def ready(port: int) -> bool:
    try:
        return call(port, "GET", "/readyz")[0] == 200
    except OSError:
        return False


@pytest.fixture
def server(tmp_path):
    port = free_port()
    command = [sys.executable, "-m", "fedat_service.cli", "serve", "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--event-log", str(tmp_path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while not ready(port):
        assert process.poll() is None, "the server ended before it was ready"
        time.sleep(0.05)
    yield port, process
    process.kill()
    process.wait()


def test_a_hundred_waiting_clients_do_not_hold_up_shutdown(server):
    port, process = server
    manifest = {"tensors": [{"name": "w", "shape": [3]}]}
    federation = {"name": "f", "method": "fedavg", "manifest": manifest, "rounds": {"start_clients": 101}}
    assert call(port, "POST", "/v1/federations", federation)[0] == 201
    answers = []

    def wait_for_work(name: str) -> None:
        answers.append(call(port, "GET", f"/v1/federations/f/clients/{name}/task?wait=50"))

    threads = []
    for i in range(100):
        name = f"c{i}"
        assert call(port, "POST", "/v1/federations/f/clients", {"name": name, "num_examples": 1})[0] == 201
        threads.append(threading.Thread(target=wait_for_work, args=(name,)))
        threads[-1].start()
    while call(port, "GET", "/metrics")[2].count(b'status="live"} 100.0') == 0:
        time.sleep(0.05)
    time.sleep(0.3)  # let the last polls arrive
    process.send_signal(signal.SIGTERM)
    # Long before the polls' own 50 s are over; how fast it is, is measured in the benchmarks.
    assert process.wait(timeout=10) in (0, -signal.SIGTERM)
    for thread in threads:
        thread.join(timeout=10)
    assert {status for status, _, _ in answers} == {503}
    assert len(answers) == 100
    assert all(int(headers["retry-after"]) >= 1 for _, headers, _ in answers)


def test_the_event_log_is_written_as_things_happen(server, tmp_path):
    port, _ = server
    manifest = {"tensors": [{"name": "w", "shape": [3]}]}
    call(port, "POST", "/v1/federations", {"name": "f", "manifest": manifest})
    call(port, "POST", "/v1/federations/f/clients", {"name": "a", "num_examples": 1})
    lines = [json.loads(line) for line in (tmp_path / "f.events.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["federation_created", "client_registered"]


def test_a_port_in_use_is_one_line_not_a_traceback(server):
    port, _ = server
    command = [sys.executable, "-m", "fedat_service.cli", "serve", "--port", str(port)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode != 0
    assert "Traceback" not in second.stderr
    assert "in use" in second.stderr


def test_a_wrong_setting_is_named():
    command = [sys.executable, "-m", "fedat_service.cli", "serve", "--rate", "-1"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 2
    assert "rate" in answer.stderr
    assert "Traceback" not in answer.stderr
