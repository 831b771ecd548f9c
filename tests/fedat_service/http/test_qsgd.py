"""FedPAQ and FedCOM over HTTP: quantised differences up, float32 down, down to the numbers and the bytes."""

import zlib
from dataclasses import replace

import numpy as np
import pytest

from fedat_service.params import Manifest, Model, TensorSpec, to_params
from fedat_service.wire.bundle import Bundle, decode_bundle, encode_bundle, parse_bundle
from fedat_service.wire.codecs import Float32
from fedat_service.wire.differences import update_entries
from fedat_service.wire.entries import model_entries
from fedat_service.wire.messages import BUNDLE_TYPE, ManifestMessage
from fedat_service.wire.qsgd import Qsgd
from fedat_service.wire.settings import CodecSettings

MANIFEST = Manifest(
    (
        TensorSpec("fc.weight", (2,), "float32", "fc"),
        TensorSpec("norm.var", (3,), "float32", "norm", trainable=False),
        TensorSpec("norm.count", (), "int64", "norm", trainable=False),
    )
)
OTHERS = [0.5, 0.25, 0.125]


class Uniforms:
    """A generator whose numbers are known."""

    def __init__(self, numbers):
        self.numbers = numbers

    def random(self, size):
        return np.array(self.numbers[:size])


def model_of(weights, others=OTHERS, count=3):
    return Model(np.array([*weights, *others], np.float32), np.array([count]))


def update(base, to, uniforms, *, version=0, others=OTHERS, levels=2, **header):
    settings = CodecSettings(name="qsgd", levels=levels)
    start = to_params(model_of(base), MANIFEST)
    entries = update_entries(
        model_of(to, others), start, MANIFEST, MANIFEST.tensors, settings, Uniforms(uniforms)
    )
    fields = {"federation": "f", "base_version": version, "num_examples": 10, "entries": entries, **header}
    return encode_bundle(Bundle(**fields))


def initial(weights):
    entries = model_entries(model_of(weights), MANIFEST, MANIFEST.tensors, Float32())
    return encode_bundle(Bundle(federation="f", version=0, entries=entries))


async def put_model(service, body):
    path = f"/v1/federations/{service.name}/model"
    return await service.http.put(path, content=body, headers={"Content-Type": BUNDLE_TYPE})


async def start(service, weights, *clients, server=None, participation="fedavg", directions="up", phi=1):
    """A federation of two weights, at their initial values; the clients' tasks."""
    method = {
        "participation": {"name": participation},
        "server": server or {"name": "average"},
        "codec": {"name": "qsgd", "levels": 2, "directions": directions},
        "schedule": {"name": "fedlama", "phi": phi},
    }
    created = await service.create(
        method=method,
        manifest=ManifestMessage.of(MANIFEST).model_dump(mode="json"),
        rounds={"cohort_size": len(clients), "start_clients": len(clients)},
        initial_model="upload",
    )
    created.raise_for_status()
    (await put_model(service, initial(weights))).raise_for_status()
    for name in clients:
        client = {"name": name, "num_examples": 10, "codecs": ["float32", "qsgd"]}
        (await service.http.post("/v1/federations/f/clients", json=client)).raise_for_status()
    return [(await service.task(name)).json()["task"] for name in clients]


async def newest(service):
    entries = parse_bundle((await service.get("/model")).content, MANIFEST).entries
    assert {entry.reference for entry in entries} == {"absolute"}
    return [entry.codec.decode(entry.payload, entry.tensor.size).tolist() for entry in entries]


@pytest.mark.parametrize(
    ("case_id", "server", "directions", "result"),
    [
        ("fedpaq_server", {"name": "average"}, "up", "x"),
        # Its mean is on the levels of its own norm: whatever number is drawn, it stays there.
        ("fedpaq_bidirectional", {"name": "average"}, "both", "x"),
        ("fedcom_server", {"name": "server_lr", "gamma": 2.0}, "up", "w"),
    ],
)
async def test_a_federation_takes_the_golden_step(service, golden, case_id, server, directions, result):
    inputs, outputs = golden(case_id)["inputs"], golden(case_id)["outputs"]
    x = inputs.get("x") or inputs["w"]
    tasks = await start(service, x, "a", "b", server=server, directions=directions)
    for task, delta, u in zip(tasks, inputs["deltas"], inputs["u"], strict=True):
        body = update(x, np.array(x) + delta, u)
        assert (await service.put(task, body)).status_code == 201
    assert (await newest(service))[0] == pytest.approx(outputs[result], rel=1e-6)


async def test_what_does_not_learn_is_averaged_as_it_is(service):
    tasks = await start(service, [1.0, 1.0], "a", "b")
    for task, others in zip(tasks, ([1.0, 0.5, 0.25], [2.0, 1.5, 0.75]), strict=True):
        (await service.put(task, update([1, 1], [1, 1], [0, 0], others=others))).raise_for_status()
    assert (await newest(service))[1:] == [[1.5, 1.0, 0.5], [3]]


async def test_updates_of_different_bases_are_each_added_to_their_own(service):
    (first, _) = await start(service, [1.0, 1.0], "a", "b", participation="fedasync")
    # alpha = 0.6 of a fresh update: 0.4 * 1 + 0.6 * 2
    (await service.put(first, update([1, 1], [2, 1], [0, 0]))).raise_for_status()
    np.testing.assert_allclose((await newest(service))[0], [1.6, 1.0], rtol=1e-6)
    second = (await service.task("b")).json()
    assert second["base_version"] == 0
    (await service.put(second["task"], update([1, 1], [1, 0], [0, 0]))).raise_for_status()
    # s(1) = 2 ** -0.5 of one that started from version 0, not from 1.6.
    a = 0.6 * 2**-0.5
    np.testing.assert_allclose((await newest(service))[0], [1.6 * (1 - a) + a, 1 - a], rtol=1e-6)


async def test_bytes_are_counted_as_they_are(service):
    (task,) = await start(service, [1.0, 1.0], "a")
    await service.get("/model", params={"task": task})
    await service.put(task, update([1, 1], [2, 1], [0, 0]))
    metrics = (await service.get("/metrics")).json()
    volume = {
        (one["direction"], one["layer"]): one["payload"] for one in metrics["by_layer"] if one["tier"] == 1
    }
    # Up: a norm and two times 3 bits, then the statistics as they are.
    assert volume == {("up", "fc"): 4 + 1, ("up", "norm"): 20, ("down", "fc"): 8, ("down", "norm"): 20}


def changed(body, at, **members):
    """A bundle whose entry says something else."""
    bundle = parse_bundle(body, MANIFEST)
    entry = replace(bundle.entries[at], **members)
    entry = replace(entry, crc32=zlib.crc32(entry.payload))
    entries = (*bundle.entries[:at], entry, *bundle.entries[at + 1 :])
    return encode_bundle(replace(bundle, entries=entries))


GOOD = update([1, 1], [2, 1], [0, 0])
NAN = np.array(np.nan, "<f4").tobytes()
WRONG = {
    "other levels": (
        update([1, 1], [2, 1], [0, 0], levels=3),
        "fc.weight",
        "takes qsgd, levels 2, reference base",
    ),
    "values": (
        encode_bundle(
            Bundle("f", model_entries(model_of([2, 1]), MANIFEST, MANIFEST.tensors, Float32()), None, 0, 10)
        ),
        "fc.weight",
        "came as float32",
    ),
    "reference": (changed(GOOD, 0, reference="absolute"), "entries[0].reference", "has reference 'base'"),
    "differences of statistics": (
        changed(GOOD, 1, reference="base"),
        "entries[1].reference",
        "has reference 'absolute'",
    ),
    "quantised statistics": (
        changed(GOOD, 1, codec=Qsgd(2), reference="base", payload=bytes(6)),
        "norm.var",
        "takes float32",
    ),
    "too few bytes": (changed(GOOD, 0, payload=bytes(4)), "entries[0].nbytes", "takes 5 to 5 bytes"),
    "too many bytes": (changed(GOOD, 0, payload=bytes(6)), "entries[0].nbytes", "takes 5 to 5 bytes"),
    "no norm": (changed(GOOD, 0, payload=NAN + b"\0"), "fc.weight", "a norm must be"),
    "a level too high": (
        changed(GOOD, 0, payload=np.array(1, "<f4").tobytes() + b"\x60"),
        "fc.weight",
        "no place in 2 levels",
    ),
}


@pytest.mark.parametrize(("body", "field", "reason"), WRONG.values(), ids=WRONG.keys())
async def test_an_update_that_is_not_what_was_asked_for_is_refused_by_name(service, body, field, reason):
    (task,) = await start(service, [1.0, 1.0], "a")
    answer = await service.put(task, body)
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert reason in answer.json()["detail"]
    assert (await service.put(task, GOOD)).status_code == 201


def asking(etag):
    return {"If-None-Match": etag, "A-IM": "fedat-differences"}


async def test_who_holds_the_version_before_is_sent_the_step(service):
    (task,) = await start(service, [1.0, -1.0], "a", directions="both")
    first = await service.get("/model")
    (await service.put(task, update([1, -1], [1.25, -1.5], [0, 0]))).raise_for_status()
    step = await service.get("/model", headers=asking(first.headers["etag"]))
    assert (step.status_code, step.headers["im"]) == (226, "fedat-differences")
    bundle = parse_bundle(step.content, MANIFEST)
    assert (bundle.version, bundle.base_version) == (1, 0)
    assert [entry.reference for entry in bundle.entries] == ["base", "absolute", "absolute"]
    reached = decode_bundle(bundle, decode_bundle(parse_bundle(first.content, MANIFEST))["weights"])[
        "weights"
    ]
    whole = await service.get("/model")
    expected = decode_bundle(parse_bundle(whole.content, MANIFEST))["weights"]
    assert {name: value.tolist() for name, value in reached.items()} == {
        name: value.tolist() for name, value in expected.items()
    }
    assert (whole.status_code, whole.headers["etag"]) == (200, step.headers["etag"])
    assert "im" not in whole.headers


@pytest.mark.parametrize("layers", ["fc", "norm"])
async def test_a_step_of_some_layers_is_for_who_holds_these(service, layers):
    (task,) = await start(service, [1.0, -1.0], "a", directions="both")
    all_layers = (await service.get("/model")).headers["etag"]
    some = (await service.get("/model", params={"layers": layers})).headers["etag"]
    (await service.put(task, update([1, -1], [1.25, -1.5], [0, 0]))).raise_for_status()
    for etag, status in ((all_layers, 200), (some, 226 if layers == "fc" else 200)):
        answer = await service.get("/model", params={"layers": layers}, headers=asking(etag))
        assert answer.status_code == status
        assert {e.tensor.layer for e in parse_bundle(answer.content, MANIFEST).entries} == {layers}


async def test_who_holds_something_else_or_cannot_add_is_sent_the_whole(service):
    (task,) = await start(service, [1.0, -1.0], "a", directions="both")
    tags = [(await service.get("/model")).headers["etag"]]
    for version, to in enumerate(([1.25, -1.5], [0.5, 2.0])):
        base = (await newest(service))[0]
        (await service.put(task, update(base, to, [0, 0], version=version))).raise_for_status()
        tags.append((await service.get("/model")).headers["etag"])
        task = (await service.task("a")).json()["task"]
    statuses = [(await service.get("/model", headers=asking(tag))).status_code for tag in (*tags, '"x"')]
    assert statuses == [200, 226, 304, 200]
    assert (await service.get("/model", headers={"If-None-Match": tags[1]})).status_code == 200


async def test_within_a_round_means_go_down_as_float32_and_then_the_version_to_who_holds_those(service):
    (task,) = await start(service, [1.0, -1.0], "a", directions="both", phi=2)
    held = [(await service.get("/model", params={"task": task})).headers["etag"]]
    (await service.put(task, update([1, -1], [1.25, -1.5], [0, 0]))).raise_for_status()
    task = (await service.task("a")).json()["task"]
    means = await service.get("/model", params={"task": task}, headers=asking(held[0]))
    held.append(means.headers["etag"])
    sent = parse_bundle(means.content, MANIFEST).entries[0]
    assert (means.status_code, sent.reference, sent.codec) == (200, "absolute", Float32())
    body = update(sent.codec.decode(sent.payload, 2), [0.5, 2.0], [0, 0])
    (await service.put(task, body)).raise_for_status()
    assert [(await service.get("/model", headers=asking(tag))).status_code for tag in held] == [226, 200]


async def test_with_one_direction_versions_travel_whole(service):
    (task,) = await start(service, [1.0, -1.0], "a")
    etag = (await service.get("/model")).headers["etag"]
    (await service.put(task, update([1, -1], [1.25, -1.5], [0, 0]))).raise_for_status()
    assert (await service.get("/model", headers=asking(etag))).status_code == 200


async def test_an_update_from_another_base_is_refused(service):
    (task,) = await start(service, [1.0, 1.0], "a")
    assert (await service.put(task, update([1, 1], [2, 1], [0, 0], version=1))).status_code == 412


async def test_a_model_that_no_difference_can_be_taken_to_is_no_initial_model(service):
    method = {"participation": {"name": "fedavg"}, "codec": {"name": "qsgd"}}
    manifest = ManifestMessage.of(MANIFEST).model_dump(mode="json")
    await service.create(method=method, manifest=manifest, initial_model="upload")
    answer = await put_model(service, initial([1.0, -1e35]))
    assert (answer.status_code, answer.json()["field"]) == (422, "fc.weight")
    differences = update([1, 1], [2, 1], [0, 0])
    assert (await put_model(service, differences)).status_code == 422
    assert (await put_model(service, initial([1.0, -1e30]))).status_code == 201


async def test_the_largest_steps_that_travel_leave_a_model_that_does(service):
    (task,) = await start(service, [1.0, 1.0], "a", server={"name": "server_lr", "gamma": 1000.0})
    norm = np.array(2.0**126, "<f4").tobytes()
    assert (await service.put(task, changed(GOOD, 0, payload=norm + b"\x40"))).status_code == 201
    assert (await newest(service))[0] == [Qsgd(2).largest, pytest.approx(1.0)]


async def test_a_client_that_does_not_read_it_cannot_take_part(service):
    await start(service, [1.0, 1.0], "a")
    client = {"name": "b", "num_examples": 10, "codecs": ["float32", "polyline"]}
    answer = await service.http.post("/v1/federations/f/clients", json=client)
    assert (answer.status_code, answer.json()["field"]) == (422, "codecs")


async def test_a_client_that_names_no_codec_reads_all(service):
    await start(service, [1.0, 1.0], "a")
    assert (await service.register("b")).status_code == 201
