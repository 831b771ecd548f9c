"""A small federation of every server optimizer, over HTTP, down to the numbers of its models."""

import numpy as np
import pytest

from fedat_service.params import Model
from fedat_service.wire.messages import BUNDLE_TYPE

INTEGERS = np.array([3])


def model_of(service, values):
    """The values over and over, for all floats of the model."""
    return Model(np.resize(np.asarray(values, np.float32), service.manifest.num_floats), INTEGERS)


async def floats(service, **params):
    """All float values of a version that clients may fetch."""
    entries = (await service.model(**params)).entries
    values = [entry.codec.decode(entry.payload, entry.tensor.size) for entry in entries]
    return np.concatenate([value for value in values if value.dtype == np.float32])


async def start(service, initial, *clients, participation=None, server=None, codec=None, **fields):
    """A federation whose first model is known."""
    method = {
        "participation": participation or {"name": "fedavg"},
        "server": server or {"name": "average"},
        "codec": codec or {"name": "float32"},
    }
    rounds = {"cohort_size": len(clients), "start_clients": len(clients), **fields.pop("rounds", {})}
    created = await service.create(method=method, rounds=rounds, initial_model="upload", **fields)
    created.raise_for_status()
    body = service.update(model_of(service, initial), version=0, base_version=None, num_examples=None)
    path = f"/v1/federations/{service.name}/model"
    (await service.http.put(path, content=body, headers={"Content-Type": BUNDLE_TYPE})).raise_for_status()
    await service.register(*clients)


async def send(service, client, values):
    """Do a client's next task."""
    task = (await service.task(client)).json()
    codec = {"codec": task["codec"]["name"], "precision": task["codec"]["precision"]}
    body = service.update(model_of(service, values), base_version=task["base_version"], **codec)
    (await service.put(task["task"], body)).raise_for_status()


@pytest.mark.parametrize("case_id", ["fedadam_v0_zero", "fedadam_v0_tau2"])
async def test_fedadam_takes_the_golden_steps(service, golden, case_id):
    inputs, outputs = golden(case_id)["inputs"], golden(case_id)["outputs"]
    numbers = {"lr": inputs["eta"], **{name: inputs[name] for name in ("beta1", "beta2", "tau", "v0")}}
    await start(service, inputs["x0"], "a", "b", server={"name": "fedadam", **numbers})
    for delta, step in zip(inputs["deltas"], outputs["rounds"], strict=True):
        x = (await floats(service))[:2].astype(float)
        for client, way in (("a", 0.5), ("b", 1.5)):
            await send(service, client, x + way * np.array(delta))
        np.testing.assert_allclose((await floats(service))[:2], step["x"], rtol=1e-5)


async def test_fedcom_goes_on_by_its_rate(service):
    await start(service, [1.0, 2.0], "a", "b", server={"name": "server_lr", "gamma": 4.0})
    await send(service, "a", [1.5, 2.0])
    await send(service, "b", [2.0, 1.0])
    assert (await floats(service))[:2].tolist() == [1 + 4 * 0.75, 2 - 4 * 0.5]


@pytest.mark.parametrize("name", ["fedyogi", "fedadagrad"])
async def test_the_first_step_of_an_adaptive_server_is_that_of_its_rule(service, name):
    numbers = {"lr": 0.5, "beta1": 0.0, "tau": 0.5}
    await start(service, [1.0], "a", server={"name": name, **numbers})
    await send(service, "a", [3.0])
    v = 4.0 if name == "fedadagrad" else 0.01 * 4.0
    np.testing.assert_allclose(await floats(service), 1 + 0.5 * 2 / (v**0.5 + 0.5), rtol=1e-6)


async def profile(service, *clients):
    """Measure everybody: the first half of the names is the fast one."""
    for at, name in enumerate(clients):
        task = (await service.task(name)).json()
        service.clock.time_s += 1.0 + at
        await service.put(task["task"], service.update(layers=()))


async def test_a_tier_of_fedat_moves_from_the_version_its_cohort_started_from(service):
    participation = {"name": "fedat", "cold_start": "reported"}
    server = {"name": "server_lr", "gamma": 2.0}
    await start(
        service, [0.0], "fast", "slow", participation=participation, server=server, tiering={"num_tiers": 2}
    )
    await profile(service, "fast", "slow")
    await send(service, "fast", [1.0])
    assert (await floats(service) == 2.0).all()
    # The slow tier has been at work since version 0: 0 + 2 (2 - 0).
    await send(service, "slow", [2.0])
    assert (await floats(service) == (2.0 + 4.0) / 2).all()
    # The fast one since version 1: 2 + 2 (3 - 2). T = (2, 1): it counts 1/3.
    await send(service, "fast", [3.0])
    np.testing.assert_allclose(await floats(service), 4.0 / 3 + 4.0 * 2 / 3, rtol=1e-6)


async def test_tiers_that_train_at_once_have_moments_of_their_own(service):
    server = {"name": "fedadagrad", "lr": 1.0, "beta1": 0.0, "tau": 1.0}
    participation = {"name": "fedat", "cold_start": "reported"}
    await start(
        service, [0.0], "a", "b", participation=participation, server=server, tiering={"num_tiers": 2}
    )
    await profile(service, "a", "b")
    for client in ("a", "b"):
        await send(service, client, [2.0])
        np.testing.assert_allclose(await floats(service), 2.0 / (4.0**0.5 + 1.0), rtol=1e-6)


async def test_tiers_that_train_in_turns_share_the_moments_of_the_one_model(service):
    server = {"name": "fedadagrad", "lr": 1.0, "beta1": 0.0, "tau": 1.0}
    await start(
        service, [0.0], "a", "b", participation={"name": "tifl"}, server=server, tiering={"num_tiers": 2}
    )
    await profile(service, "a", "b")
    x, v, drawn = 0.0, 0.0, set()
    for _ in range(8):
        (client,) = [name for name in ("a", "b") if (await service.task(name)).status_code == 200]
        drawn.add(client)
        await send(service, client, [x + 2.0])
        v += 4.0
        x += 2.0 / (v**0.5 + 1.0)
        np.testing.assert_allclose(await floats(service), x, rtol=1e-5)
    assert drawn == {"a", "b"}


async def test_fedbuff_goes_its_mean_way_by_the_server_rate(service):
    participation = {"name": "fedbuff", "buffer_size": 2, "staleness": "constant"}
    server = {"name": "server_lr", "gamma": 3.0}
    await start(service, [1.0], "a", "b", participation=participation, server=server)
    await send(service, "a", [2.0])
    await send(service, "a", [4.0])
    # x + eta_g / K sum (x_i - x_tau): FedBuff, Algorithm 1
    np.testing.assert_allclose(await floats(service), 1.0 + 3.0 * (1.0 + 3.0) / 2, rtol=1e-6)


async def test_fedasync_s_mixing_is_one_step_of_the_server(service):
    participation = {"name": "fedasync", "alpha": 0.5, "staleness": "constant"}
    await start(service, [1.0], "a", participation=participation, server={"name": "server_lr", "gamma": 0.5})
    await send(service, "a", [5.0])
    np.testing.assert_allclose(await floats(service), 1.0 + 0.5 * 0.5 * 4.0, rtol=1e-6)


async def test_fedasync_that_replaces_steps_from_the_model_that_has_gone_on(service):
    participation = {"name": "fedasync", "alpha": 1.0, "staleness": "constant"}
    await start(
        service, [0.0], "a", "b", participation=participation, server={"name": "server_lr", "gamma": 0.5}
    )
    await service.task("b")
    await send(service, "a", [4.0])
    await send(service, "b", [6.0])
    np.testing.assert_allclose(await floats(service), 2.0 + 0.5 * (6.0 - 2.0), rtol=1e-6)


async def test_a_step_starts_from_the_model_that_clients_were_sent(service):
    """A client that learns nothing sends its rounded model back: that is no gradient."""
    codec, server = {"name": "polyline", "precision": 3}, {"name": "server_lr", "gamma": 100.0}
    await start(service, [0.1236, -1.0006], "a", codec=codec, server=server)
    before = await floats(service)
    await send(service, "a", before)
    assert (await floats(service)).tolist() == before.tolist()


async def test_values_that_a_server_throws_out_of_range_are_the_last_in_it(service):
    server = {"name": "server_lr", "gamma": 1000.0}
    await start(service, [-1e38, 1e38], "a", server=server)
    await send(service, "a", [3e38, -3e38])
    largest = float(np.finfo(np.float32).max)
    assert (await floats(service))[:2].tolist() == [largest, -largest]
    await send(service, "a", [3e38, -3e38])
    assert np.isfinite(await floats(service)).all()
