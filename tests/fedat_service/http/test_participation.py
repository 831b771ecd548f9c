"""A small federation of every participation, over HTTP, down to the numbers of its models."""

import math

import numpy as np
import pytest

NAMES = ("a", "b", "c", "d")


async def floats(service, **params):
    """All float values of a version that clients may fetch."""
    entries = (await service.model(**params)).entries
    values = [entry.codec.decode(entry.payload, entry.tensor.size) for entry in entries]
    return np.concatenate([value for value in values if value.dtype == np.float32])


async def start(service, name, cohort_size=2, clients=NAMES, **participation):
    method = {"participation": {"name": name, **participation}, "codec": {"name": "float32"}}
    rounds = {"cohort_size": cohort_size, "start_clients": len(clients)}
    (await service.create(method=method, rounds=rounds, tiering={"num_tiers": 2})).raise_for_status()
    await service.register(*clients)


async def task_of(service, name):
    """The client's task; None if it has none."""
    answer = await service.task(name)
    return answer.json() if answer.status_code == 200 else None


async def tasks(service, clients=NAMES):
    """All tasks that are held, oldest first."""
    held = [task for name in clients if (task := await task_of(service, name)) is not None]
    return sorted(held, key=lambda task: task["round"])


async def send(service, task, value, num_examples=10):
    body = service.update(
        service.some_model(value), base_version=task["base_version"], num_examples=num_examples
    )
    assert (await service.put(task["task"], body)).status_code == 201


async def profile(service, clients=NAMES):
    """Measure everybody: the first half of the names is the fast one."""
    for at, name in enumerate(clients):
        task = await task_of(service, name)
        service.clock.time_s += 1.0 + at
        await service.put(task["task"], service.update(layers=()))


async def version(service):
    return (await service.get("")).json()["version"]


async def test_fedavg_s_model_is_the_mean_of_its_cohort(service):
    await start(service, "fedavg")
    for task, value, n in zip(await tasks(service), (1.0, 4.0), (10, 5), strict=True):
        await send(service, task, value, n)
    assert (await floats(service) == 2.0).all()


@pytest.mark.parametrize(("mixing", "weights"), [("inverse-frequency", [0.4, 0.6]), ("uniform", [0.5, 0.5])])
async def test_fedat_mixes_what_its_tiers_last_made(service, mixing, weights):
    await start(service, "fedat", mixing=mixing, cold_start="reported")
    await profile(service)
    for fast, slow in ((1.0, 2.0), (3.0, 5.0)):
        for name, value in zip(NAMES, (fast, fast, slow, slow), strict=True):
            await send(service, await task_of(service, name), value)
    for name in ("a", "b"):
        await send(service, await task_of(service, name), 8.0)
    # T = (3, 2): by eq. 3 the slow tier's model counts 3/5.
    np.testing.assert_allclose(await floats(service), weights[0] * 8 + weights[1] * 5, rtol=1e-6)
    assert (await service.get("")).json()["weights"] == weights


async def test_tifl_s_model_is_the_mean_of_the_one_cohort_that_was_drawn(service):
    await start(service, "tifl")
    await profile(service)
    drawn = []
    for number in range(1, 9):
        first, second = await tasks(service)
        assert first["tier"] == second["tier"]
        drawn.append(first["tier"])
        await send(service, first, float(number), 10)
        await send(service, second, number + 3.0, 5)
        assert (await floats(service) == np.float32(number + 1.0)).all()
        newest = (await service.get("/metrics")).json()["versions"][-1]
        assert newest["weights"] == [float(m == drawn[-1]) for m in (1, 2)]
    view = (await service.get("")).json()
    assert view["update_counts"] == [drawn.count(1), drawn.count(2)]
    assert set(drawn) == {1, 2}
    assert sorted(view["weights"]) == [0.0, 1.0]


@pytest.mark.parametrize("fields", [{}, {"alpha": 0.9, "staleness": "constant"}])
async def test_fedasync_mixes_every_update_in_as_it_comes(service, fields):
    await start(service, "fedasync", **fields)
    x = await floats(service)
    slow, quick = await tasks(service)
    for value in (1.0, 2.0, 3.0):
        a = fields.get("alpha", 0.6)
        await send(service, quick, value)
        x = (1 - a) * x + a * value
        np.testing.assert_allclose(await floats(service), x, rtol=1e-6)
        slow, quick = await tasks(service)
        assert quick["base_version"] == await version(service)
    await send(service, slow, 7.0)
    a *= 1 if fields else (3 + 1) ** -0.5
    np.testing.assert_allclose(await floats(service), (1 - a) * x + a * 7, rtol=1e-6)
    points = (await service.get("/metrics")).json()["versions"]
    assert [point["num_updates"] for point in points] == [1, 1, 1, 1]
    assert (await service.get("")).json()["update_counts"] == [4]


async def test_fedbuff_goes_the_mean_way_of_its_buffer(service):
    await start(service, "fedbuff", buffer_size=3)
    x = x0 = await floats(service)
    slow, _ = await tasks(service)
    for value in (1.0, 2.0, 6.0):
        assert await version(service) == 0
        await send(service, (await tasks(service))[1], value)
    x = x0 + ((1 - x0) + (2 - x0) + (6 - x0)) / 3
    np.testing.assert_allclose(await floats(service), x, rtol=1e-5, atol=1e-6)
    # The slow one started from version 0; that version is kept until its update is counted.
    await send(service, slow, 4.0)
    assert (await service.get("/model", params={"version": 0})).status_code == 200
    ways = (4 - x0) / math.sqrt(2)
    for value in (1.0, 5.0):
        task = (await tasks(service))[-1]
        ways += (value - x) / math.sqrt(1 + (1 - task["base_version"]))
        await send(service, task, value)
    np.testing.assert_allclose(await floats(service), x + ways / 3, rtol=1e-5, atol=1e-6)
    assert [p["num_updates"] for p in (await service.get("/metrics")).json()["versions"]] == [3, 3]


@pytest.mark.parametrize("name", ["fedasync", "fedbuff"])
async def test_the_tier_view_shows_everybody_at_work(service, name):
    await start(service, name, cohort_size=3)
    one = (await service.get("/tiers/1")).json()
    assert [current["round"] for current in one["rounds"]] == [1, 2, 3]
    assert {len(current["cohort"]) for current in one["rounds"]} == {1}
    assert (one["weight"], one["parked"], len(one["members"])) == (1.0, False, 4)


@pytest.mark.parametrize("name", ["fedasync", "fedbuff"])
async def test_an_update_sent_twice_is_counted_once(service, name):
    await start(service, name)
    task, _ = await tasks(service)
    body = service.update(service.some_model(2.0))
    statuses = [(await service.put(task["task"], body)).status_code for _ in range(3)]
    assert statuses == [201, 200, 200]
    assert (await service.put(task["task"], service.update(service.some_model(3.0)))).status_code == 409
    before = await floats(service)
    assert (await service.put("t1.r2.s0.nobody", body)).status_code == 404
    assert (await floats(service) == before).all()


async def test_an_observer_tells_how_a_version_does_in_each_tier(service):
    await start(service, "tifl", interval=1)
    correct = {"a": 3, "b": 5, "c": 9, "nobody": 1}
    clients = [{"client": n, "num_examples": 10, "correct": c, "loss": 1.0} for n, c in correct.items()]
    path, body = "/v1/federations/f/evaluations", {"version": 0, "clients": clients}
    assert (await service.http.post(path, json=body)).status_code == 201
    await profile(service)
    # The same report once more, now that the clients have tiers, is still the same report.
    assert (await service.http.post(path, json=body)).status_code == 200
    for task in await tasks(service):
        await send(service, task, 1.0)
    assert (await service.http.post(path, json={**body, "version": 1})).status_code == 201
    tiers = (await service.get("/tiers")).json()["tiers"]
    assert [tier["accuracy"] for tier in tiers] == [0.4, 0.9]
    for task in await tasks(service):
        await send(service, task, 1.0)
    assert service.coordinator.state.chances == pytest.approx((2 / 3, 1 / 3))
