"""The real server process: it starts, answers, and leaves in good order."""

import json
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager
from http.client import HTTPConnection

import numpy as np
import pytest

from fedat_service.errors import ConfigError
from fedat_service.http.server import listen, port_of
from fedat_service.params import Model
from fedat_service.wire.bundle import Bundle, decode_model, encode_bundle, parse_bundle
from fedat_service.wire.codecs import Float32
from fedat_service.wire.entries import model_entries
from fedat_service.wire.messages import BUNDLE_TYPE, CreateFederation, ManifestMessage, TensorMessage

pytestmark = pytest.mark.e2e


def call(port: int, method: str, path: str, body: object = None) -> tuple[int, dict[str, str], bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


@contextmanager
def running(folder):
    """Port and process of a server whose event logs are in a folder."""
    command = [sys.executable, "-m", "fedat_service.cli", "serve", "--port", "0", "--event-log", str(folder)]
    with (folder / "told").open("w") as told:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=told)
    try:
        while not (announced := re.search(r"http://127\.0\.0\.1:(\d+) ", (folder / "told").read_text())):
            assert process.poll() is None, "the server ended before it was ready"
            time.sleep(0.05)
        yield int(announced[1]), process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def server(tmp_path):
    """One to end."""
    with running(tmp_path) as (port, process):
        yield port, process


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Port and event logs of one that all others share: take a name of your own, and leave it running."""
    folder = tmp_path_factory.mktemp("shared")
    with running(folder) as (port, _):
        yield port, folder


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


def test_a_large_model_goes_up_and_comes_down_as_it_was(shared):
    port, _ = shared
    manifest = ManifestMessage(tensors=(TensorMessage(name="w", shape=(400, 500)),))
    message = CreateFederation(name="large", method="fedavg", manifest=manifest, initial_model="upload")
    assert call(port, "POST", "/v1/federations", message.model_dump(mode="json", exclude_none=True))[0] == 201
    values = np.random.default_rng(0).normal(size=200_000).astype(np.float32)
    layers = manifest.to_manifest()
    entries = model_entries(Model(values, np.empty(0, np.int64)), layers, layers.tensors, Float32())
    body = encode_bundle(Bundle("large", entries, version=0))
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        for status in (201, 200):
            connection.request("PUT", "/v1/federations/large/model", body, {"Content-Type": BUNDLE_TYPE})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == status
    down = call(port, "GET", "/v1/federations/large/model")[2]
    sent = decode_model(parse_bundle(down, layers), layers)
    assert np.abs(sent.floats - values).max() < 1e-4


def test_the_event_log_is_written_as_things_happen(shared):
    port, folder = shared
    manifest = {"tensors": [{"name": "w", "shape": [3]}]}
    call(port, "POST", "/v1/federations", {"name": "logged", "manifest": manifest})
    call(port, "POST", "/v1/federations/logged/clients", {"name": "a", "num_examples": 1})
    lines = [json.loads(line) for line in (folder / "logged.events.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["federation_created", "client_registered"]


def test_a_port_in_use_is_one_line_not_a_traceback(shared):
    port, _ = shared
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


def test_a_port_that_is_taken_is_named():
    with closing(listen("127.0.0.1", 0)[0]) as taken:
        port = port_of(taken)
        with pytest.raises(ConfigError, match=f"host '127.0.0.1', port {port}: Address already in use"):
            listen("127.0.0.1", port)


def test_all_addresses_of_a_host_have_the_same_port():
    sockets = listen("localhost", 0)
    ports = {port_of(one) for one in sockets}
    for one in sockets:
        one.close()
    assert len(ports) == 1
    assert ports != {0}
