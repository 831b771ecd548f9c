"""What the log could not take has not happened."""

import asyncio
import errno

import httpx
import pytest

from fedat_service.http.app import create_app
from fedat_service.store.memory import MemoryStore


class FragileStore(MemoryStore):
    """A store that can be broken and mended."""

    broken = False
    broken_for: str | None = None

    async def create(self, federation, definition):
        if self.broken:
            raise OSError(errno.ENOSPC, "no space left on device", "folder/f.jsonl")
        await super().create(federation, definition)

    async def append(self, federation, records):
        await asyncio.sleep(0)
        if self.broken or any(record.event.kind == self.broken_for for record in records):
            raise OSError(errno.ENOSPC, "no space left on device", "folder/f.jsonl")
        await super().append(federation, records)


@pytest.fixture
def store():
    return FragileStore()


@pytest.fixture
async def fragile(service, store):
    """The service of these tests, on a store that breaks."""
    app = create_app(make_clock=lambda _: service.clock, store=store)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as http:
            service.http, service.app = http, app
            yield service


async def test_an_update_the_log_refuses_is_not_counted_and_can_be_sent_again(fragile, store):
    (task,) = await fragile.started("a")
    before, body = fragile.coordinator.state, fragile.update()
    store.broken = True
    answer = await fragile.put(task, body)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "no space" in answer.json()["detail"]
    assert "folder" not in answer.text
    assert fragile.coordinator.state == before
    store.broken = False
    assert (await fragile.put(task, body)).status_code == 201
    assert (await fragile.task("a", wait=30)).json()["base_version"] == 1


async def test_what_was_decided_after_a_lost_event_is_lost_with_it(fragile, store):
    tasks = await fragile.started("a", "b", "c")
    before = fragile.coordinator.state
    store.broken = True
    answers = await asyncio.gather(*(fragile.put(task, fragile.update()) for task in tasks))
    assert {answer.status_code for answer in answers} == {503}
    assert fragile.coordinator.state == before
    assert (await fragile.get("/metrics")).json()["versions"] == []


async def test_a_federation_that_cannot_be_written_down_does_not_exist(fragile, store):
    store.broken = True
    assert (await fragile.create()).status_code == 503
    assert (await fragile.get("")).status_code == 404
    store.broken = False
    assert (await fragile.create()).status_code == 201


async def test_reading_goes_on_while_the_log_is_broken(fragile, store):
    await fragile.started("a")
    store.broken = True
    assert (await fragile.get("/model")).status_code == 200
    assert (await fragile.get("/tiers")).status_code == 200


async def test_the_log_holds_every_version_and_its_digest(fragile, store):
    (task,) = await fragile.started("a")
    await fragile.put(task, fragile.update())
    await fragile.task("a", wait=30)  # the next task is there once its version is
    kinds = [event.kind for event in store.events("f")]
    assert kinds[2:4] == ["update_accepted", "version_published"]
    model = fragile.coordinator._execution.arrays.version(1, 1).model
    assert store.events("f")[3].digest == model.digest()


async def test_an_event_of_the_federation_s_own_is_tried_until_it_is_written(fragile, store):
    tasks = await fragile.started("a", "b")
    await fragile.put(tasks[0], fragile.update())
    store.broken_for = "version_published"
    assert (await fragile.put(tasks[1], fragile.update())).status_code == 201
    assert (await fragile.task("a", wait=0.1)).status_code == 204
    store.broken_for = None
    assert (await fragile.task("a", wait=30)).json()["base_version"] == 1


async def test_a_second_poll_is_not_answered_by_what_is_not_durable_yet(fragile, store):
    (task,) = await fragile.started("a")
    store.broken = True
    answers = await asyncio.gather(
        fragile.put(task, fragile.update()),
        fragile.put(task, fragile.update()),
        fragile.http.delete("/v1/federations/f"),
        fragile.task("a"),
    )
    assert [answer.status_code for answer in answers] == [503, 503, 503, 200]


async def test_an_initial_model_the_log_refuses_is_not_installed(fragile, store):
    await fragile.create(initial_model="upload")
    body = fragile.update(version=0, base_version=None, num_examples=None)
    path, headers = "/v1/federations/f/model", {"Content-Type": "application/vnd.fedat.bundle"}
    store.broken = True
    assert (await fragile.http.put(path, content=body, headers=headers)).status_code == 503
    assert (await fragile.get("/model")).status_code == 404
    store.broken = False
    assert (await fragile.http.put(path, content=body, headers=headers)).status_code == 201
    assert (await fragile.get("/model")).status_code == 200


async def test_the_same_federation_twice_at_once_is_one(fragile):
    answers = await asyncio.gather(fragile.create(), fragile.create())
    assert sorted(answer.status_code for answer in answers) == [200, 201]


async def test_two_observers_at_once_are_one_or_a_conflict(fragile):
    await fragile.create()

    def post(correct):
        client = {"client": "a", "num_examples": 10, "correct": correct, "loss": 1.0}
        body = {"version": 0, "clients": [client]}
        return fragile.http.post("/v1/federations/f/evaluations", json=body)

    answers = await asyncio.gather(post(5), post(5), post(6))
    assert [answer.status_code for answer in answers] == [201, 200, 409]


async def test_a_defect_in_carrying_out_leaves_nobody_waiting(fragile, monkeypatch):
    (task,) = await fragile.started("a")

    def fail(*_):
        raise RuntimeError("defect")

    monkeypatch.setattr(fragile.coordinator._execution.arrays, "add", fail)
    for _ in range(2):
        assert (await fragile.put(task, fragile.update())).status_code == 503
    ready = await fragile.http.get("/readyz")
    assert (ready.status_code, ready.json()["federations"]) == (503, ["f"])
