"""What the log could not take has not happened."""

import asyncio

import httpx
import pytest

from fedat_service.http.app import create_app
from fedat_service.store.memory import MemoryStore


class FragileStore(MemoryStore):
    """A store that can be broken and mended."""

    broken = False

    async def create(self, federation, definition):
        if self.broken:
            raise OSError("no space left on device")
        await super().create(federation, definition)

    async def append(self, federation, records):
        await asyncio.sleep(0)
        if self.broken:
            raise OSError("no space left on device")
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
    assert fragile.coordinator.state == before
    store.broken = False
    assert (await fragile.put(task, body)).status_code == 201
    assert (await fragile.get("")).json()["version"] == 1


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
    model = fragile.coordinator._arrays().version(1, 1)
    assert store.events("f")[3].digest == model.digest()


async def test_a_defect_in_carrying_out_leaves_nobody_waiting(fragile, monkeypatch):
    (task,) = await fragile.started("a")

    def fail(*_):
        raise RuntimeError("defect")

    monkeypatch.setattr(fragile.coordinator._arrays(), "add", fail)
    assert (await fragile.put(task, fragile.update())).status_code == 503
