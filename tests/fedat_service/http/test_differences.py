"""Polyline updates as differences on the grid, over HTTP: the same models from fewer bytes."""

import numpy as np

from fedat_service.params import Model, to_params
from fedat_service.wire.bundle import Bundle, decode_model, encode_bundle
from fedat_service.wire.differences import update_entries
from fedat_service.wire.settings import CodecSettings

METHOD = {"participation": {"name": "fedavg"}, "codec": {"name": "polyline", "reference": "base"}}
SENT = CodecSettings(reference="base")


def moved(model, seed):
    """A model a small way from another one."""
    step = np.random.default_rng(seed).standard_normal(model.floats.size).astype(np.float32)
    return Model(model.floats + np.float32(0.002) * step, model.integers + 1)


def update(service, to, base, settings=SENT):
    manifest = service.manifest
    entries = update_entries(
        to, to_params(base, manifest), manifest, manifest.tensors, settings, np.random.default_rng(0)
    )
    return encode_bundle(Bundle(service.name, entries, base_version=0, num_examples=10))


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
    (task,) = await service.started("a", method={**METHOD, "codec": {"name": "polyline"}})
    base = decode_model(await service.model(), service.manifest)
    answer = await service.put(task, update(service, moved(base, 1), base))
    assert answer.status_code == 422
    assert "came as polyline, precision 4, layout plain, reference base" in answer.json()["detail"]


async def test_a_client_may_send_values_all_the_same(service):
    (task,) = await service.started("a", method=METHOD)
    body = service.update(service.some_model(), codec="polyline")
    assert (await service.put(task, body)).status_code == 201
