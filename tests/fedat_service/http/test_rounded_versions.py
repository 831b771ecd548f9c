"""With `directions` both, a version is the one before it and a rounded step, and goes down as that."""

import pytest

from fedat_service.wire.bundle import decode_bundle
from fedat_service.wire.codecs import Float32


def asking(etag):
    return {"If-None-Match": etag, "A-IM": "fedat-differences"}


async def test_who_holds_the_version_before_is_sent_the_step(two_weights):
    service = two_weights.service
    (task,) = await two_weights.start([1.0, -1.0], "a", directions="both")
    first = await service.get("/model")
    await two_weights.put(task, two_weights.update([1, -1], [1.25, -1.5]))
    step = await service.get("/model", headers=asking(first.headers["etag"]))
    assert (step.status_code, step.headers["im"]) == (226, "fedat-differences")
    bundle = two_weights.parse(step.content)
    assert (bundle.version, bundle.base_version) == (1, 0)
    assert [entry.reference for entry in bundle.entries] == ["base", "absolute", "absolute"]
    held = decode_bundle(two_weights.parse(first.content))["weights"]
    reached = decode_bundle(bundle, held)["weights"]
    whole = await service.get("/model")
    expected = decode_bundle(two_weights.parse(whole.content))["weights"]
    assert {name: value.tolist() for name, value in reached.items()} == {
        name: value.tolist() for name, value in expected.items()
    }
    assert (whole.status_code, whole.headers["etag"]) == (200, step.headers["etag"])
    assert "im" not in whole.headers


@pytest.mark.parametrize("layers", ["fc", "norm"])
async def test_a_step_of_some_layers_is_for_who_holds_these(two_weights, layers):
    service = two_weights.service
    (task,) = await two_weights.start([1.0, -1.0], "a", directions="both")
    all_layers = (await service.get("/model")).headers["etag"]
    some = (await service.get("/model", params={"layers": layers})).headers["etag"]
    await two_weights.put(task, two_weights.update([1, -1], [1.25, -1.5]))
    for etag, status in ((all_layers, 200), (some, 226 if layers == "fc" else 200)):
        answer = await service.get("/model", params={"layers": layers}, headers=asking(etag))
        assert answer.status_code == status
        assert {e.tensor.layer for e in two_weights.parse(answer.content).entries} == {layers}


async def test_who_holds_something_else_or_cannot_add_is_sent_the_whole(two_weights):
    service = two_weights.service
    (task,) = await two_weights.start([1.0, -1.0], "a", directions="both")
    tags = [(await service.get("/model")).headers["etag"]]
    for version, to in enumerate(([1.25, -1.5], [0.5, 2.0])):
        base = (await two_weights.newest())[0]
        await two_weights.put(task, two_weights.update(base, to, version=version))
        tags.append((await service.get("/model")).headers["etag"])
        task = await two_weights.task("a")
    statuses = [(await service.get("/model", headers=asking(tag))).status_code for tag in (*tags, '"x"')]
    assert statuses == [200, 226, 304, 200]
    assert (await service.get("/model", headers={"If-None-Match": tags[1]})).status_code == 200


async def test_within_a_round_means_go_down_as_float32_and_then_the_version_to_who_holds_those(two_weights):
    service = two_weights.service
    (task,) = await two_weights.start([1.0, -1.0], "a", directions="both", phi=2)
    held = [(await service.get("/model", params={"task": task})).headers["etag"]]
    await two_weights.put(task, two_weights.update([1, -1], [1.25, -1.5]))
    task = await two_weights.task("a")
    means = await service.get("/model", params={"task": task}, headers=asking(held[0]))
    held.append(means.headers["etag"])
    sent = two_weights.parse(means.content).entries[0]
    assert (means.status_code, sent.reference, sent.codec) == (200, "absolute", Float32())
    await two_weights.put(task, two_weights.update(sent.codec.decode(sent.payload, 2), [0.5, 2.0]))
    assert [(await service.get("/model", headers=asking(tag))).status_code for tag in held] == [226, 200]


async def test_with_one_direction_versions_travel_whole(two_weights):
    service = two_weights.service
    (task,) = await two_weights.start([1.0, -1.0], "a")
    etag = (await service.get("/model")).headers["etag"]
    await two_weights.put(task, two_weights.update([1, -1], [1.25, -1.5]))
    assert (await service.get("/model", headers=asking(etag))).status_code == 200
