"""A federation that is over makes room: its name, its memory and its place can be had again."""

import asyncio

import httpx
import pytest

from fedat_service.coordinator.limits import Limits
from fedat_service.coordinator.replay import replay
from fedat_service.http.app import create_app
from fedat_service.store.jsonl import JsonLinesStore

PATH = "/v1/federations/f"


async def created(service, name, **fields):
    service.name = name
    return (await service.create(**fields)).status_code


async def forget(service, name="f"):
    return await service.http.delete(f"/v1/federations/{name}", params={"forget": "true"})


def limit(service, **limits):
    service.app.state.context.registry._limits = Limits(**limits)


@pytest.mark.parametrize("stopped_before", [False, True])
async def test_a_forgotten_name_is_free(service, stopped_before):
    await service.started("a")
    assert (await service.create(seed=1)).status_code == 409
    if stopped_before:
        await service.http.delete(PATH)
        assert "forgetting it frees its name" in (await service.create(seed=1)).json()["detail"]
    answer = await forget(service)
    assert (answer.status_code, answer.json()["status"]) == (200, "finished")
    assert (await service.get("")).status_code == 404
    assert (await forget(service)).status_code == 404
    assert (await service.create(seed=1)).status_code == 201
    assert (await service.get("")).json()["clients"] == 0


async def test_who_waits_is_told_that_it_is_over(service):
    await service.create(rounds={"start_clients": 2})
    await service.register("a")
    waiting = asyncio.create_task(service.task("a", wait=30))
    await asyncio.sleep(0.01)
    await forget(service)
    assert (await waiting).status_code == 410


async def only_after_the_end(service, refused, **limits):
    """There is room for f, and for g only when f is finished."""
    limit(service, **limits)
    assert await created(service, "f") == 201
    assert await created(service, "g") == refused
    await service.http.delete(PATH)
    assert await created(service, "g") == 201


async def test_a_finished_federation_takes_no_place_and_stays_readable(service):
    await only_after_the_end(service, 409, max_federations=1)
    assert (await service.http.get(f"{PATH}/model")).status_code == 200
    assert 'fedat_version{federation="f"}' in (await service.http.get("/metrics")).text


async def test_of_too_many_finished_ones_the_first_to_finish_is_forgotten(service):
    limit(service, max_finished=2)
    for name in "fgh":
        await created(service, name)
    for name in "gfh":
        service.clock.time_s += 1.0
        await service.http.delete(f"/v1/federations/{name}")
    assert await created(service, "i") == 201
    listed = (await service.http.get("/v1/federations")).json()["federations"]
    assert [one["name"] for one in listed] == ["f", "h", "i"]


async def test_memory_is_had_again(service):
    await only_after_the_end(service, 413, max_memory_bytes=3_500)
    await forget(service, "g")
    assert await created(service, "g") == 201


async def test_an_update_that_comes_too_late_is_told_to_try_again_and_then_that_nobody_knows(service):
    (task,) = await service.started("a")
    coordinator = service.coordinator
    await coordinator.close()
    answer = await service.put(task, service.update())
    assert (answer.status_code, "is being closed" in answer.json()["detail"]) == (503, True)
    assert not coordinator.failed


async def test_one_that_a_defect_brought_to_a_standstill_can_be_forgotten(service, monkeypatch):
    (task,) = await service.started("a")

    async def defect(decision):
        raise ZeroDivisionError

    monkeypatch.setattr(service.coordinator._journal, "_carry_out", defect)
    assert (await service.put(task, service.update())).status_code == 503
    assert (await service.http.get("/readyz")).status_code == 503
    assert (await forget(service)).status_code == 200
    assert (await service.http.get("/readyz")).status_code == 200
    assert (await service.create()).status_code == 201


async def test_the_log_holds_one_after_the_other(service, tmp_path):
    store = JsonLinesStore(tmp_path, keeps_bodies=True)
    app = create_app(make_clock=lambda _: service.clock, store=store)
    connected = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service")
    async with app.router.lifespan_context(app), connected as http:
        service.http, service.app = http, app
        for seed in range(2):
            (task,) = await service.started("a", seed=seed)
            (await service.put(task, service.update())).raise_for_status()
            await forget(service)
    played = list(replay(tmp_path / "f.events.jsonl", verify=True))
    assert [one.state.spec.seed for one in played] == [0, 1]
    assert [(one.verified, one.state.status) for one in played] == [([1], "finished")] * 2
