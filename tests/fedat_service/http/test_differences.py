"""Polyline as differences on the grid, up and down, over HTTP: the same models from fewer bytes."""

import numpy as np
import pytest

from fedat_service.params import Model, to_model, to_params
from fedat_service.wire.bundle import Bundle, decode_bundle, decode_model, encode_bundle, parse_bundle
from fedat_service.wire.differences import update_entries
from fedat_service.wire.settings import CodecSettings

METHOD = {"participation": {"name": "fedavg"}, "codec": {"name": "polyline", "reference": "base"}}
SENT = CodecSettings(reference="base")


def moved(model, seed):
    """A model a small way from another one."""
    step = np.random.default_rng(seed).standard_normal(model.floats.size).astype(np.float32)
    return Model(model.floats + np.float32(0.002) * step, model.integers + 1)


def update(service, to, base, settings=SENT, version=0):
    manifest = service.manifest
    sent, start = (to_params(one, manifest) for one in (to, base))
    entries = update_entries(sent, start, manifest.tensors, settings, np.random.default_rng(0))
    return encode_bundle(Bundle(service.name, entries, base_version=version, num_examples=10))


async def run(service, reference):
    """A federation of one round: its model, and the bytes of its two updates."""
    codec = {"name": "polyline", "reference": reference}
    service.name = reference
    tasks = await service.started("a", "b", method={**METHOD, "codec": codec})
    base = decode_model(await service.model(), service.manifest)
    for seed, task in enumerate(tasks):
        body = update(service, moved(base, seed), base, CodecSettings(**codec))
        (await service.put(task, body)).raise_for_status()
    model = decode_model(await service.model(), service.manifest)
    return model.digest(), (await service.get("/metrics")).json()["up"]["payload"]


async def test_the_same_model_comes_of_fewer_bytes(service):
    absolute, absolute_bytes = await run(service, "absolute")
    based, based_bytes = await run(service, "base")
    assert based == absolute
    assert based_bytes < 0.75 * absolute_bytes


async def test_differences_are_taken_where_the_federation_does_so(service):
    codec = {"name": "polyline", "reference": "absolute"}
    (task,) = await service.started("a", method={**METHOD, "codec": codec})
    base = decode_model(await service.model(), service.manifest)
    answer = await service.put(task, update(service, moved(base, 1), base))
    assert answer.status_code == 422
    assert "came as polyline, precision 4, layout plain, reference base" in answer.json()["detail"]


async def test_a_client_may_send_values_all_the_same(service):
    (task,) = await service.started("a", method=METHOD)
    body = service.update(service.some_model(), codec="polyline")
    assert (await service.put(task, body)).status_code == 201


def asking(*tags):
    return {"If-None-Match": ", ".join(tags), "A-IM": "fedat-differences"}


async def versions(service, count, method=METHOD, **params):
    """A federation that makes some versions; the answers with the model of each, the initial one first."""
    (task,) = await service.started("a", method=method)
    answers = [await service.get("/model", params=params)]
    for version in range(count):
        base = decode_model(await service.model(), service.manifest)
        body = update(service, moved(base, version), base, version=version)
        (await service.put(task, body)).raise_for_status()
        answers.append(await service.get("/model", params=params))
        task = (await service.task("a")).json()["task"]
    return answers


def values(service, answer, base=None):
    return decode_bundle(parse_bundle(answer.content, service.manifest), base)["weights"]


@pytest.mark.parametrize("held", [0, 1, 2])
async def test_a_version_goes_down_as_differences_to_any_that_the_client_holds(service, held):
    answers = await versions(service, 3)
    step = await service.get("/model", headers=asking(answers[held].headers["etag"]))
    bundle = parse_bundle(step.content, service.manifest)
    assert (step.status_code, step.headers["im"]) == (226, "fedat-differences")
    assert (bundle.version, bundle.base_version) == (3, held)
    reached = values(service, step, values(service, answers[held]))
    expected = values(service, answers[3])
    assert to_model(reached, service.manifest).digest() == to_model(expected, service.manifest).digest()
    assert step.headers["etag"] == answers[3].headers["etag"]
    assert len(step.content) < len(answers[3].content)


async def test_versions_older_than_those_in_use_are_remembered_as_bases_within_bounds(service, monkeypatch):
    monkeypatch.setattr("fedat_service.coordinator.steps._BASE_BYTES", 500)
    answers = await versions(service, 4)
    tags = [answer.headers["etag"] for answer in answers]
    statuses = [(await service.get("/model", headers=asking(tag))).status_code for tag in tags]
    assert statuses == [200, 200, 226, 226, 304]


@pytest.mark.parametrize("tags", [(), ("",), ('"global-0-0123"',), ("*",)])
async def test_who_holds_nothing_that_is_known_is_sent_the_whole(service, tags):
    await versions(service, 1)
    answer = await service.get("/model", headers=asking(*tags))
    assert answer.status_code == (304 if tags == ("*",) else 200)


async def test_what_holds_other_layers_is_no_base(service):
    answers = await versions(service, 1, layers="fc")
    tag = answers[0].headers["etag"]
    assert (await service.get("/model", headers=asking(tag))).status_code == 200
    answer = await service.get("/model", params={"layers": "fc"}, headers=asking(tag))
    assert answer.status_code == 226


async def test_absolute_versions_travel_whole(service):
    codec = {"name": "polyline", "reference": "absolute"}
    (task,) = await service.started("a", method={**METHOD, "codec": codec})
    tag = (await service.get("/model")).headers["etag"]
    (await service.put(task, service.update(codec="polyline"))).raise_for_status()
    assert (await service.get("/model", headers=asking(tag))).status_code == 200
