"""The protocol as a client sees it."""

import asyncio

import httpx
import numpy as np
import pytest

from fedat_service.http.app import create_app


async def test_creating_a_federation_is_idempotent(service):
    first, again, other = [await service.create(seed=seed) for seed in (1, 1, 2)]
    assert [first.status_code, again.status_code, other.status_code] == [201, 200, 409]
    assert first.headers["location"] == "/v1/federations/f"
    assert first.json()["status"] == "waiting"


async def test_federations_are_listed_a_page_at_a_time(service):
    for name in ("c", "a", "b"):
        service.name = name
        await service.create()
    page = await service.http.get("/v1/federations", params={"limit": 2})
    assert [one["name"] for one in page.json()["federations"]] == ["a", "b"]
    rest = await service.http.get(page.links["next"]["url"])
    assert [one["name"] for one in rest.json()["federations"]] == ["c"]
    assert "link" not in rest.headers


async def test_a_registered_client_is_found_again(service):
    await service.create(rounds={"start_clients": 9})
    assert (await service.register("a")).status_code == 201
    assert (await service.register("a")).status_code == 200


async def test_a_client_that_cannot_read_the_codec_is_refused(service):
    await service.create()
    answer = await service.http.post(
        "/v1/federations/f/clients", json={"name": "a", "num_examples": 1, "codecs": ["qsgd"]}
    )
    assert (answer.status_code, answer.json()["field"]) == (422, "codecs")


async def test_a_task_stays_the_same_until_it_is_done(service):
    (task,) = await service.started("a")
    again = (await service.task("a")).json()
    assert again["task"] == task
    assert again["up"] == {"weights": [tensor.name for tensor in service.manifest.tensors]}
    await service.put(task, service.update())
    assert (await service.task("a")).json()["task"] != task


async def test_an_update_is_counted_once_however_often_it_is_sent(service):
    task, other = await service.started("a", "b")
    body = service.update()
    answers = await asyncio.gather(*(service.put(task, body) for _ in range(20)))
    assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
    await service.put(other, service.update(service.some_model(0.75)))
    bundle = await service.model()
    assert bundle.version == 1
    (point,) = (await service.get("/metrics")).json()["versions"]
    assert (point["num_updates"], point["num_examples"]) == (2, 20)


async def test_the_same_bytes_after_the_round_closed_are_still_answered_alike(service):
    (task,) = await service.started("a")
    statuses = [(await service.put(task, service.update())).status_code for _ in range(2)]
    assert statuses == [201, 200]


async def test_other_bytes_for_a_counted_task_conflict(service):
    (task,) = await service.started("a")
    await service.put(task, service.update())
    assert (await service.put(task, service.update(num_examples=9))).status_code == 409


async def test_the_global_model_is_the_weighted_mean(service):
    tasks = await service.started("a", "b")
    for task, value, n in zip(tasks, (1.0, 4.0), (10, 5), strict=True):
        await service.put(task, service.update(service.some_model(value), num_examples=n))
    values = [
        entry.codec.decode(entry.payload, entry.tensor.size) for entry in (await service.model()).entries
    ]
    floats = np.concatenate([value for value in values if value.dtype == np.float32])
    np.testing.assert_array_equal(floats, np.float32(2.0))


async def test_a_model_is_not_sent_twice(service):
    await service.create()
    first = await service.get("/model")
    again = await service.get("/model", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_layers_can_be_asked_for_by_name(service):
    await service.create()
    bundle = await service.model(layers="fc")
    assert [entry.tensor.name for entry in bundle.entries] == ["fc.weight"]
    assert (await service.get("/model", params={"layers": "fc,nope"})).status_code == 404


async def test_a_bundle_describes_itself_to_people(service):
    await service.create()
    answer = await service.get("/model", headers={"Accept": "application/json"})
    assert answer.json()["entries"][0]["tensor"] == "conv.weight"


async def test_a_version_no_longer_kept_is_gone(service):
    task = (await service.started("a"))[0]
    await service.put(task, service.update())
    assert (await service.get("/model", params={"version": 0})).status_code == 410
    assert (await service.get("/model", params={"version": 9})).status_code == 404


async def test_the_initial_model_can_be_uploaded(service):
    await service.create(initial_model="upload")
    assert (await service.get("")).json()["status"] == "awaiting-model"
    assert (await service.get("/model")).status_code == 404
    body = service.update(version=0, base_version=None, num_examples=None)
    path, headers = "/v1/federations/f/model", {"Content-Type": "application/vnd.fedat.bundle"}
    answers = [await service.http.put(path, content=body, headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 200]
    assert (await service.get("")).json()["status"] == "waiting"
    assert (await service.get("/model")).content != b""


async def test_five_tiers_form_from_measured_latency_and_train(service):
    names = [f"c{i}" for i in range(6)]
    await service.create(
        method="fedat", tiering={"num_tiers": 3}, rounds={"start_clients": 6, "cohort_size": 2}
    )
    await service.register(*names)
    for name in names:
        task = (await service.task(name)).json()
        assert (task["purpose"], task["up"]) == ("profile", {})
        service.clock.time_s += 10 - int(name[1])
        await service.put(task["task"], service.update(layers=()))
    tiers = (await service.get("/tiers")).json()["tiers"]
    assert [[member["name"] for member in tier["members"]] for tier in tiers] == [
        ["c4", "c5"],
        ["c2", "c3"],
        ["c0", "c1"],
    ]
    assert sum(tier["weight"] for tier in tiers) == pytest.approx(1.0)
    task = (await service.task("c5")).json()
    assert (task["purpose"], task["tier"]) == ("train", 1)
    one = (await service.get("/tiers/1")).json()
    assert one["rounds"][0]["cohort"] == ["c4", "c5"]
    assert (await service.get("/tiers/4")).status_code == 404
    assert (await service.get("/tiers/1/model")).status_code == 200


async def test_evaluations_make_the_accuracy_series(service):
    await service.create()
    body = {
        "version": 0,
        "clients": [
            {"client": "a", "num_examples": 10, "correct": 5, "loss": 1.0},
            {"client": "b", "num_examples": 30, "correct": 30, "loss": 0.2},
        ],
    }
    path = "/v1/federations/f/evaluations"
    assert [(await service.http.post(path, json=body)).status_code for _ in range(2)] == [201, 200]
    body["clients"][0]["correct"] = 6
    assert (await service.http.post(path, json=body)).status_code == 409
    (point,) = (await service.get("/metrics")).json()["evaluations"]
    assert point["accuracy"] == 35 / 40
    assert point["client_accuracy_variance"] == 0.0625


async def test_a_client_evaluates_its_task_once(service):
    (task,) = await service.started("a")
    path, body = f"/v1/federations/f/tasks/{task}/evaluation", {"num_examples": 4, "correct": 3, "loss": 0.1}
    assert [(await service.http.post(path, json=body)).status_code for _ in range(2)] == [201, 200]
    assert (await service.get("/tiers/1")).json()["accuracy"] == 0.75


async def test_bytes_are_counted_per_direction_tier_and_layer(service):
    (task,) = await service.started("a")
    body = service.update()
    await service.get("/model", params={"task": task})
    await service.put(task, body)
    metrics = (await service.get("/metrics")).json()
    elements = service.manifest.num_floats + service.manifest.num_integers
    assert metrics["up"]["parameters"] == metrics["down"]["parameters"] == elements
    assert metrics["up"]["payload"] == 4 * service.manifest.num_floats + 8
    assert metrics["up"]["wire"] > len(body) > metrics["up"]["payload"]
    assert metrics["by_tier"]["1"]["up"] == metrics["up"]
    layer = {(c["direction"], c["layer"]): c["parameters"] for c in metrics["by_layer"]}
    assert layer["up", "fc"] == 15


async def test_bytes_of_what_was_not_sent_again_and_of_what_was_refused_count_too(service):
    (task,) = await service.started("a")
    first = await service.get("/model", params={"task": task})
    once = (await service.get("/metrics")).json()["down"]
    await service.get("/model", params={"task": task}, headers={"If-None-Match": first.headers["etag"]})
    twice = (await service.get("/metrics")).json()["down"]
    assert 0 < twice["wire"] - once["wire"] < 300
    assert twice["payload"] == once["payload"]
    await service.put(task, b"nonsense")
    up = (await service.get("/metrics")).json()["up"]
    assert up["wire"] > 0
    assert up["payload"] == 0


async def test_layers_are_encoded_once_however_they_are_asked_for(service):
    await service.create()
    bodies = {
        (await service.get("/model", params={"layers": spelling})).content
        for spelling in ("fc,conv", "conv,fc", "fc,conv,fc")
    }
    assert len(bodies) == 1
    assert len(service.coordinator._execution.publisher._made) == 1


async def test_a_stopped_federation_is_gone_for_its_clients_and_readable_for_all(service):
    (task,) = await service.started("a")
    waiting = asyncio.create_task(service.task("a", wait=30))
    assert (await service.http.delete("/v1/federations/f")).json()["status"] == "finished"
    await waiting
    assert (await service.task("a")).status_code == 410
    assert (await service.put(task, service.update())).status_code == 410
    assert (await service.get("/model")).status_code == 200
    assert (await service.http.delete("/v1/federations/f")).status_code == 200


async def test_prometheus_reads_the_tiers(service):
    (task,) = await service.started("a")
    await service.put(task, service.update())
    text = (await service.http.get("/metrics")).text
    assert 'fedat_tier_updates{federation="f",tier="1"} 1.0' in text
    assert 'fedat_version{federation="f"} 1.0' in text


async def test_a_tier_model_that_is_still_being_made_does_not_go_out_under_its_number(service):
    making, may_go_on = asyncio.Event(), asyncio.Event()

    async def slow_to_make(work):
        if getattr(getattr(work, "func", None), "__name__", "") == "make_version":
            making.set()
            await may_go_on.wait()
        return work()

    app = create_app(make_clock=lambda _: service.clock, offload=slow_to_make)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as http:
            service.http, service.app = http, app
            (task,) = await service.started("a")
            putting = asyncio.create_task(service.put(task, service.update()))
            await making.wait()
            before = await service.get("/tiers/1/model")
            may_go_on.set()
            await putting
            after = await service.get("/tiers/1/model")
    assert before.headers["etag"].startswith('"tier1-0-')
    assert after.headers["etag"].startswith('"tier1-1-')
    assert before.content != after.content
