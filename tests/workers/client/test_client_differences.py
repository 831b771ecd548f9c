"""Updates that travel as differences to the model that was fetched."""

import numpy as np
import pytest

from fedat_service.errors import WireError
from fedat_service.wire.codecs import Float32
from fedat_service.wire.settings import CodecSettings
from workers.client import ModelCache
from workers.training.jobs import InlineExecutor


def with_qsgd(service, number=1, **fields):
    return service.task(number, codec=CodecSettings(name="qsgd", levels=7), **fields)


def test_a_quantised_update_is_the_difference_to_the_model_that_was_fetched(
    virtually, connect, service, models
):
    async def main(task):
        client = connect()
        model = await client.fetch_model(task, models)
        trained = {name: value + np.float32(0.5) for name, value in model.params.items()}
        await client.put_update(task, {"weights": trained}, 8, models)

    for number in (1, 2, 1):
        virtually(main(with_qsgd(service, number)))
    entries = [entry for bundle in service.updates for entry in bundle.entries]
    assert {(entry.codec.levels, entry.reference) for entry in entries} == {(7, "base")}
    decoded = [entry.codec.decode(entry.payload, entry.tensor.size) for entry in entries]
    assert np.mean(np.concatenate(decoded)) == pytest.approx(0.5, abs=0.2)
    # It is rounded by the seed of its task, whoever sends it and however often.
    bodies = [request.content for request in service.requests if request.method == "PUT"]
    assert bodies[0] == bodies[2] != bodies[1]


def test_a_difference_needs_a_model_that_was_fetched(virtually, connect, service, models, params):
    async def main():
        client = connect()
        with pytest.raises(WireError, match=r"'fc\.weight' has no base"):
            await client.put_update(with_qsgd(service), {"weights": params}, 8, models)

    virtually(main())
    assert service.updates == []


def test_a_base_is_there_though_the_cache_forgot_it(virtually, connect, service):
    models = ModelCache("f", service.manifest, InlineExecutor(), capacity=1)

    async def main():
        client = connect()
        model = await client.fetch_model(with_qsgd(service), models)
        service.version = 4
        await connect().fetch_newest(models, Float32())
        await client.put_update(with_qsgd(service, base_version=3), {"weights": model.params}, 8, models)

    virtually(main())
    assert service.updates[0].base_version == 3
