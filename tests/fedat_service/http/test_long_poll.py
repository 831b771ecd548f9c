"""Clients that wait for their task."""

import asyncio

import httpx

from fedat_service.http.app import create_app


async def test_without_work_the_poll_ends_empty(service):
    await service.create(rounds={"start_clients": 2})
    await service.register("a")
    answer = await service.task("a", wait=0.01)
    assert answer.status_code == 204
    assert "retry-after" in answer.headers


async def test_a_waiting_client_is_woken_by_its_task(service):
    await service.create(rounds={"start_clients": 2, "cohort_size": 2})
    await service.register("a")
    waiting = asyncio.create_task(service.task("a", wait=30))
    await asyncio.sleep(0)
    await service.register("b")
    assert (await waiting).json()["client"] == "a"


async def test_shutdown_sends_a_hundred_waiting_clients_away(service):
    names = [f"c{i}" for i in range(100)]
    await service.create(rounds={"start_clients": 101})
    await service.register(*names)
    waiting = [asyncio.create_task(service.task(name, wait=30)) for name in names]
    await asyncio.sleep(0)
    service.app.state.context.registry.release()
    answers = await asyncio.gather(*waiting)
    assert {answer.status_code for answer in answers} == {503}
    assert {int(answer.headers["retry-after"]) for answer in answers} == {1, 2, 3, 4, 5}
    assert (await service.http.get("/readyz")).status_code == 503
    assert (await service.http.get("/healthz")).status_code == 200


async def test_a_poll_ends_though_every_deadline_is_over_before_the_task_is_out(service):
    app = create_app(rate=1e9)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as http,
    ):
        service.http, service.app = http, app
        await service.create(rounds={"start_clients": 1, "cohort_size": 1, "deadline_s": 0.001})
        await service.register("a")
        answer = await asyncio.wait_for(service.task("a", wait=0.1), 10)
    assert answer.status_code == 204
