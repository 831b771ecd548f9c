"""Updates that travel as differences to the model that was fetched."""

import httpx
import numpy as np
import pytest

from fedat_service.errors import WireError
from fedat_service.params import Model, to_params
from fedat_service.wire.affine import Affine8
from fedat_service.wire.bundle import Bundle, decode_bundle, encode_bundle
from fedat_service.wire.codecs import Float32, Polyline
from fedat_service.wire.differences import relative
from fedat_service.wire.entries import model_entries
from fedat_service.wire.qsgd import Qsgd
from fedat_service.wire.settings import CodecSettings
from workers.client import ModelCache
from workers.training.jobs import InlineExecutor


def same(left, right):
    return list(left) == list(right) and all(np.array_equal(left[name], right[name]) for name in left)


def with_qsgd(service, number=1, **fields):
    return service.task(number, codec=CodecSettings(name="qsgd", levels=7), **fields)


async def train(task, client, models):
    """Send a model that is 0.5 above the one that was fetched."""
    model = await client.fetch_model(task, models)
    trained = {name: value + np.float32(0.5) for name, value in model.params.items()}
    await client.put_update(task, {"weights": trained}, 8, models)


@pytest.mark.parametrize(("codec", "off"), [(Qsgd(7), 0.2), (Affine8(), 1e-6)], ids=["qsgd", "affine8"])
def test_a_rounded_update_is_the_difference_to_the_model_that_was_fetched(
    virtually, connect, service, models, codec, off
):
    fields = codec.fields()
    settings = CodecSettings(name=fields.pop("codec"), **fields)
    for number in (1, 2, 3):
        virtually(train(service.task(number, codec=settings), connect(), models))
    entries = [entry for bundle in service.updates for entry in bundle.entries]
    assert {(entry.codec, entry.reference) for entry in entries} == {(codec, "base")}
    decoded = [entry.codec.decode(entry.payload, entry.tensor.size) for entry in entries]
    assert np.mean(np.concatenate(decoded)) == pytest.approx(0.5, abs=off)


def test_an_update_is_rounded_by_the_seed_of_its_task_whoever_sends_it(virtually, connect, service, models):
    for number in (1, 2, 1):
        virtually(train(with_qsgd(service, number), connect(), models))
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


def on_the_grid(service, number=1, **fields):
    return service.task(number, codec=CodecSettings(reference="base"), **fields)


def step(service, version, base_version):
    """A version on the grid of 4 digits, as differences to one on the same grid."""
    base = to_params(service.model, service.manifest)
    moved = Model(service.model.floats + np.float32(0.0007), service.model.integers)
    whole = model_entries(moved, service.manifest, service.manifest.tensors, Polyline())
    entries = relative(whole, base, CodecSettings(reference="base"))
    bundle = Bundle("f", entries, version=version, base_version=base_version)
    expected = decode_bundle(Bundle("f", whole, version=version))["weights"]
    return httpx.Response(226, content=encode_bundle(bundle), headers={"ETag": f'"v{version}"'}), expected


def test_differences_are_added_to_what_is_held_though_the_cache_forgot_it(virtually, connect, service):
    models = ModelCache("f", service.manifest, InlineExecutor(), capacity=1)
    answer, expected = step(service, 4, 3)

    async def main():
        client = connect()
        await client.fetch_model(on_the_grid(service), models)
        service.version = 5
        await connect().fetch_newest(models, Float32())
        service.first["model"] = [answer]
        return await client.fetch_model(on_the_grid(service, 2, base_version=4), models)

    assert same(virtually(main()).params, expected)
    asked = service.requests[-1].headers
    assert (asked["if-none-match"], asked["a-im"]) == ('"v3"', "fedat-differences")


def test_a_client_of_values_holds_no_more_than_the_cache(virtually, connect, service):
    models = ModelCache("f", service.manifest, InlineExecutor(), capacity=1)

    async def main():
        client = connect()
        await client.fetch_model(service.task(), models)
        service.version = 5
        await connect().fetch_newest(models, Float32())
        await client.fetch_model(service.task(2, base_version=5), models)

    virtually(main())
    assert "if-none-match" not in service.requests[-1].headers


def test_differences_to_what_is_not_held_are_refused(virtually, connect, service, models):
    async def main():
        client = connect()
        service.first["model"] = [step(service, 3, 2)[0]]
        with pytest.raises(WireError, match="differences to version 2 came unasked"):
            await client.fetch_model(on_the_grid(service), models)
        await client.fetch_model(on_the_grid(service), models)
        service.first["model"] = [step(service, 4, 2)[0]]
        with pytest.raises(WireError, match="differences to version 2 came unasked"):
            await client.fetch_model(on_the_grid(service, 2, base_version=4), models)

    virtually(main())
