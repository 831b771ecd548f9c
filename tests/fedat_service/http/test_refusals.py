"""Bad input gets a problem document that names what was wrong, and changes nothing."""

import asyncio
import json
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
from structlog.testing import capture_logs

from fedat_service.coordinator.limits import Limits
from fedat_service.wire.messages import BUNDLE_TYPE

BASE = "/v1/federations/f"


def header_of(body: bytes) -> tuple[dict, bytes]:
    (length,) = struct.unpack_from("<I", body, 7)
    return json.loads(body[11 : 11 + length]), body[11 + length :]


def bundle(header: dict, payloads: bytes) -> bytes:
    text = json.dumps(header).encode()
    return b"FEDAT1\n" + struct.pack("<I", len(text)) + text + payloads


def with_header(**fields):
    def change(service):
        header, payloads = header_of(service.update())
        return bundle({**header, **fields}, payloads)

    return change


def with_entry(index=0, **fields):
    def change(service):
        header, payloads = header_of(service.update())
        header["entries"][index].update(fields)
        return bundle(header, payloads)

    return change


def with_value(value):
    def change(service):
        header, payloads = header_of(service.update())
        bias = header["entries"][1]
        start = header["entries"][0]["nbytes"]
        payload = struct.pack("<f", value) + payloads[start + 4 : start + bias["nbytes"]]
        bias["crc32"] = zlib.crc32(payload)
        return bundle(header, payloads[:start] + payload + payloads[start + len(payload) :])

    return change


def without_layer(service):
    return service.update(layers=service.manifest.layers[:-1])


# body, status, part of `field`
UPDATES = {
    "nan": (with_value(np.nan), 422, "conv.bias"),
    "infinity": (with_value(-np.inf), 422, "conv.bias"),
    "shape": (with_entry(shape=[4, 1, 9]), 422, "entries[0].shape"),
    "name": (with_entry(tensor="conv.weights"), 422, "entries[0]"),
    "layer": (with_entry(layer="fc"), 422, "entries[0].layer"),
    "codec unknown": (with_entry(codec="zip"), 422, "entries[0]"),
    "codec not the federation's": (lambda s: s.update(codec="float16"), 422, "conv.weight"),
    "slot that does not travel": (with_entry(-1, slot="control"), 422, "fc.weight"),
    "slot unknown": (with_entry(slot="velocity"), 422, "entries[0].slot"),
    "reference": (with_entry(reference="base"), 422, "entries[0].reference"),
    "count of bytes": (with_entry(nbytes=4), 422, "entries[0].nbytes"),
    "crc": (with_entry(crc32=1), 422, "entries[0].crc32"),
    "unknown field": (with_header(weights=[1]), 422, "weights"),
    "layer missing": (without_layer, 422, "fc"),
    "trailing bytes": (lambda s: s.update() + b"?", 422, "body"),
    "cut short": (lambda s: s.update()[:-1], 422, "body"),
    "no magic": (lambda s: b"PK\x03\x04" + s.update(), 422, "magic"),
    "empty": (lambda s: b"", 422, "magic"),
    "pickle": (lambda s: b"\x80\x04K\x01.", 422, "magic"),
    "header of lies": (lambda s: b"FEDAT1\n\xff\xff\xff\xff{}", 422, "header"),
    "oversize": (lambda s: b"x" * 1_000_000, 413, "content-length"),
    "federation": (with_header(federation="g"), 422, "federation"),
    "base version": (with_header(base_version=7), 412, "base_version"),
    "zero examples": (with_header(num_examples=0), 422, "num_examples"),
    "negative examples": (with_header(num_examples=-9), 422, "num_examples"),
    "huge examples": (with_header(num_examples=10**12), 422, "num_examples"),
    "more examples than registered": (with_header(num_examples=11), 422, "num_examples"),
    "boolean examples": (with_header(num_examples=True), 422, "num_examples"),
    "text examples": (with_header(num_examples="10"), 422, "num_examples"),
    "fractional examples": (with_header(num_examples=1.5), 422, "num_examples"),
}


@pytest.mark.parametrize("case", UPDATES)
async def test_a_wrong_update_is_named_and_changes_nothing(service, case):
    make, status, field = UPDATES[case]
    (task,) = await service.started("a")
    before = service.coordinator.state
    answer = await service.put(task, make(service))
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, problem["status"]) == (status, status), problem
    assert field in problem["field"], problem
    assert service.coordinator.state == before
    assert (await service.put(task, service.update())).status_code == 201


POLYLINE = {
    "unterminated": b"~" * 20,
    "over-long group": b"~" * 8 + b"?" * 12,
    "byte outside the alphabet": b"?" * 15 + b" ",
    "count": b"?" * 15,
}


@pytest.mark.parametrize("case", POLYLINE)
async def test_wrong_polyline_is_refused(service, case):
    (task,) = await service.started("a", method={"participation": {"name": "fedavg"}})
    header, payloads = header_of(service.update(codec="polyline"))
    last = header["entries"][-1]
    payload = POLYLINE[case]
    last.update(nbytes=len(payload), crc32=zlib.crc32(payload))
    kept = sum(entry["nbytes"] for entry in header["entries"][:-1])
    answer = await service.put(task, bundle(header, payloads[:kept] + payload))
    assert answer.status_code == 422, answer.text
    assert "fc.weight" in answer.json()["field"] or "entries[3]" in answer.json()["field"]


@pytest.mark.parametrize("task", ["t1.r9.s0.a", "t7.r1.s0.a", "t1.r1.s0.zoe", "nonsense", "t1.r1.s0.A"])
async def test_an_unknown_task_is_not_found(service, task):
    await service.started("a")
    assert (await service.put(task, service.update())).status_code == 404


async def test_another_content_type_is_refused(service):
    (task,) = await service.started("a")
    answer = await service.put(task, service.update(), content_type="application/octet-stream")
    assert (answer.status_code, answer.json()["field"]) == (415, "content-type")


async def test_an_unknown_content_encoding_is_refused(service):
    (task,) = await service.started("a")
    answer = await service.http.put(
        f"{BASE}/tasks/{task}/update",
        content=service.update(),
        headers={"Content-Type": "application/vnd.fedat.bundle", "Content-Encoding": "br"},
    )
    assert (answer.status_code, answer.json()["field"]) == (415, "content-encoding")


async def test_a_body_of_unknown_length_is_bounded_too(service):
    (task,) = await service.started("a")

    async def chunks():
        for _ in range(100):
            yield b"x" * 10_000

    answer = await service.put(task, chunks())
    assert answer.status_code == 413
    assert answer.json()["limit"] < 100_000


async def test_too_many_bytes_in_flight_are_told_to_come_back(service):
    (task,) = await service.started("a")
    budget = service.app.state.context.budget
    budget.used_bytes = budget.max_bytes
    answer = await service.put(task, service.update())
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    budget.used_bytes = 0
    assert (await service.put(task, service.update())).status_code == 201


async def test_codecs_are_told_in_words(service):
    (task,) = await service.started("a")
    answer = await service.put(task, service.update(codec="polyline"))
    assert answer.json()["detail"] == (
        "tensor 'conv.weight' came as polyline, precision 4, layout pairs, the federation takes float32"
    )


@pytest.mark.parametrize("path", ["/v1/federations/none", "/v1/federations/none/tiers", "/v1/nothing", "/x"])
async def test_what_is_not_there_is_a_problem_too(service, path):
    answer = await service.http.get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_wrong_method_is_a_problem_too(service):
    answer = await service.http.patch("/v1/federations")
    assert (answer.status_code, answer.headers["content-type"]) == (405, "application/problem+json")


@pytest.mark.parametrize("task", ["t1.r1.s0.zoe", "t9.r1.s0.a", "nonsense"])
async def test_bytes_are_never_counted_for_a_task_nobody_can_have(service, task):
    await service.started("a")
    assert (await service.get("/model", params={"task": task})).status_code == 404
    assert (await service.get("/metrics")).json()["down"]["wire"] == 0


async def test_a_model_the_codec_cannot_carry_is_refused_at_once(service):
    method = {"codec": {"name": "polyline", "precision": 6}}
    await service.create(method=method, initial_model="upload")
    body = service.update(service.some_model(1e6), version=0, base_version=None, num_examples=None)
    answer = await service.http.put(
        f"{BASE}/model", content=body, headers={"Content-Type": "application/vnd.fedat.bundle"}
    )
    assert (answer.status_code, answer.json()["field"]) == (422, "conv.weight")
    assert (await service.get("")).json()["status"] == "awaiting-model"


async def test_values_at_the_edge_of_the_codec_are_published(service):
    (task,) = await service.started(
        "a", method={"participation": {"name": "fedavg"}, "codec": {"name": "polyline", "precision": 3}}
    )
    edge = float(np.nextafter(np.float32(2**30 / 1000), np.float32(0)))
    body = service.update(service.some_model(edge), codec="polyline", precision=3)
    assert (await service.put(task, body)).status_code == 201
    await service.task("a", wait=30)
    assert (await service.get("/model")).status_code == 200


async def test_a_body_that_does_not_come_is_given_up(service, monkeypatch):
    (task,) = await service.started("a")
    context = service.app.state.context
    service.app.state.context = replace(context, limits=Limits(max_receive_s=0.01))

    async def chunks():
        yield b"FEDAT1"
        await asyncio.sleep(60)

    answer = await service.put(task, chunks())
    assert (answer.status_code, answer.json()["field"]) == (408, "body")
    assert context.budget.used_bytes == 0


async def test_a_service_takes_so_much_and_no_more(service):
    registry = service.app.state.context.registry
    registry._limits = Limits(max_clients=1, max_federations=2, max_memory_bytes=20_000)
    await service.create(rounds={"start_clients": 9})
    assert [(await service.register(name)).status_code for name in ("a", "a", "b")] == [201, 200, 409]
    service.name = "g"
    assert (await service.create(method="fedat", tiering={"num_tiers": 200})).status_code == 413
    assert (await service.create()).status_code == 201
    service.name = "h"
    assert (await service.create()).status_code == 409


async def test_a_member_that_is_no_text_is_named_in_text(service):
    (task,) = await service.started("a")
    header = rb'{"\ud800": 1, "\ud800": 2}'
    answer = await service.put(task, b"FEDAT1\n" + len(header).to_bytes(4, "little") + header)
    assert (answer.status_code, answer.json()["field"]) == (422, "\\ud800")


async def test_a_client_that_goes_away_in_the_middle_is_no_defect(service):
    (task,) = await service.started("a")
    before = service.coordinator.state
    messages = [{"type": "http.request", "body": b"FEDAT1", "more_body": True}, {"type": "http.disconnect"}]

    async def receive():
        return messages.pop(0)

    async def send(_):
        """Nobody reads the answer."""

    path = f"/v1/federations/f/tasks/{task}/update"
    headers = [(b"content-type", BUNDLE_TYPE.encode()), (b"content-length", b"300")]
    scope = {
        "type": "http",
        "method": "PUT",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": headers,
    }
    with capture_logs() as logs:
        await service.app(scope, receive, send)
    assert logs == []
    assert service.coordinator.state == before
