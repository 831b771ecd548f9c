"""What solvers keep on the server, over HTTP, down to its numbers."""

import numpy as np
import pytest

from fedat_service.methods.solvers import learning
from fedat_service.params import Model
from fedat_service.wire.bundle import Bundle, decode_bundle, encode_bundle, parse_bundle
from fedat_service.wire.codecs import Float32
from fedat_service.wire.entries import model_entries

INTEGERS = np.array([3])


async def start(service, solver, *clients, examples=None, participation="fedavg", num_tiers=1, **more):
    method = {
        "participation": {"name": participation},
        "solver": {"lr": 0.1, **solver},
        "codec": {"name": "float32"},
        **more.pop("method", {}),
    }
    rounds = {"cohort_size": len(clients), "start_clients": len(clients), **more.pop("rounds", {})}
    created = await service.create(method=method, rounds=rounds, tiering={"num_tiers": num_tiers}, **more)
    created.raise_for_status()
    for name in clients:
        await service.register(name, num_examples=(examples or {}).get(name, 10))


def entries_of(service, slot, value):
    """All tensors that a slot is made of, filled with a value."""
    part = service.manifest if slot == "weights" else learning(service.manifest)
    integers = INTEGERS if part.num_integers else np.empty(0, np.int64)
    model = Model(np.full(part.num_floats, value, np.float32), integers)
    return model_entries(model, part, part.tensors, Float32(), slot)


async def send(service, client, num_examples=10, **values):
    """Answer a client's task: what is given of the slots that the task asks for."""
    task = (await service.task(client)).json()
    wanted = [slot for slot, names in task["up"].items() if names]
    entries = tuple(entry for slot in wanted for entry in entries_of(service, slot, values.get(slot, 0.0)))
    body = encode_bundle(
        Bundle(service.name, entries, base_version=task["base_version"], num_examples=num_examples)
    )
    (await service.put(task["task"], body)).raise_for_status()


async def slots(service, client):
    """The first value of each slot that a client's task begins with."""
    task = (await service.task(client)).json()
    answer = await service.get("/model", params={"task": task["task"]})
    assert answer.status_code == 200
    found = decode_bundle(parse_bundle(answer.content, service.manifest))
    return {slot: float(next(iter(tensors.values())).flat[0]) for slot, tensors in found.items()}


async def test_mimes_gradient_counts_by_examples(service):
    await start(service, {"name": "mime"}, "a", "b", examples={"a": 10, "b": 30})
    await send(service, "a", gradient=1.0)
    await send(service, "b", 30, gradient=5.0)
    assert (await slots(service, "a"))["control"] == (10 * 1 + 30 * 5) / 40


async def test_scaffolds_variates_count_alike(service):
    await start(service, {"name": "scaffold"}, "a", "b", examples={"a": 10, "b": 30})
    await send(service, "a", control=1.0)
    await send(service, "b", 30, control=5.0)
    assert (await slots(service, "a"))["control"] == 3.0


async def test_mimes_momentum_moves_by_the_gradients_of_the_round_that_ends(service):
    await start(service, {"name": "mime", "momentum": 0.5}, "a", "b", participation="fedat", num_tiers=2)
    for at, name in enumerate(("a", "b")):
        await service.task(name)
        service.clock.time_s += 1.0 + at
        await send(service, name)
    await send(service, "a", gradient=8.0)
    await send(service, "b", gradient=-100.0)
    assert (await slots(service, "a"))["control"] == 8.0
    await send(service, "a")
    await send(service, "a", gradient=0.0)
    assert (await slots(service, "a"))["momentum"] == 0.5 * 0 + 0.5 * 8


@pytest.mark.parametrize(
    ("name", "slot", "value"), [("mimelamb", "gradient", 1e21), ("scaffold", "control", 3e38)]
)
async def test_no_upload_makes_what_goes_down_infinite(service, name, slot, value):
    await start(service, {"name": name}, "a")
    for _ in range(3):
        await send(service, "a", **{slot: value})
    assert np.isfinite(list((await slots(service, "a")).values())).all()


async def test_what_clients_keep_of_a_round_that_fails_counts_on_the_server_too(service):
    """SCAFFOLD: c stays the mean of all variates, for who has reported has moved its own."""
    names = ("a", "b", "c", "d")
    await start(service, {"name": "scaffold"}, *names, rounds={"quorum": 0.5, "deadline_s": 10.0})
    await send(service, "a", control=4.0)
    service.coordinator._on_deadline(20.0)
    assert (await service.task("a", wait=5)).status_code == 200
    assert (await service.get("")).json()["version"] == 0
    await send(service, "a", control=0.0)
    assert (await slots(service, "a"))["control"] == 4.0 / 4
