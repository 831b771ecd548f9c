import asyncio
from concurrent.futures import Executor

import numpy as np
import pytest

from fedat_service.errors import ManifestError, WireError
from fedat_service.wire.bundle import Bundle
from fedat_service.wire.codecs import Float32
from fedat_service.wire.settings import CodecSettings
from workers.client import ModelCache
from workers.training.jobs import InlineExecutor

WHOLE = {"weights": ("fc.weight", "fc.bias")}


class CountingExecutor(InlineExecutor):
    jobs = 0

    def submit(self, fn, /, *args, **kwargs):
        self.jobs += 1
        return super().submit(fn, *args, **kwargs)


@pytest.fixture
def executor() -> Executor:
    return CountingExecutor()


@pytest.fixture
def small(service, executor) -> ModelCache:
    return ModelCache("f", service.manifest, executor, capacity=2)


def test_what_arrives_twice_at_once_is_decoded_once(virtually, service, small, executor):
    async def main():
        body = bytearray(service.bundle())
        return await asyncio.gather(*(small.decode("e", body, WHOLE) for _ in range(5)))

    first, *others = virtually(main())
    assert all(other is first for other in others)
    assert executor.jobs == 1


def test_only_the_newest_models_are_kept(virtually, service, small):
    async def main():
        for tag in "abc":
            await small.decode(tag, bytearray(service.bundle()), WHOLE)
        return [small.get(tag) is not None for tag in "abc"]

    assert virtually(main()) == [False, True, True]


def test_bytes_that_do_not_decode_are_not_kept(virtually, small):
    async def main():
        with pytest.raises(WireError):
            await small.decode("bad", bytearray(b"nonsense"), WHOLE)
        return small.get("bad")

    assert virtually(main()) is None


def test_a_client_that_goes_away_does_not_take_the_model_from_the_others(service):
    async def main():
        loop = asyncio.get_running_loop()
        models = ModelCache("f", service.manifest, Slow(loop))
        body = bytearray(service.bundle())
        one, other = (asyncio.ensure_future(models.decode("e", body, WHOLE)) for _ in range(2))
        await asyncio.sleep(0)
        one.cancel()
        return (await other).version

    assert asyncio.run(main()) == 3


class Slow(InlineExecutor):
    """Runs work when the loop comes round."""

    def __init__(self, loop):
        self._loop = loop

    def submit(self, fn, /, *args, **kwargs):
        done = super().submit(fn, *args, **kwargs)
        late = type(done)()
        self._loop.call_later(
            0.001, lambda: late.set_running_or_notify_cancel() and late.set_result(done.result())
        )
        return late


@pytest.mark.parametrize(
    ("slot", "change", "named"),
    [
        ("weights", {"fc.bias": None}, r"'fc\.bias' is missing"),
        ("weights", {"more": np.zeros(1, np.float32)}, "'more' is not in the manifest"),
        ("weights", {"fc.bias": np.zeros(99, np.float32)}, r"'fc\.bias' must be"),
        ("weights", {"fc.bias": np.zeros(3)}, "float64"),
        ("control", {"fc.bias": np.zeros(99, np.float32)}, r"'fc\.bias' must be"),
    ],
)
def test_an_update_that_does_not_fit_the_manifest_is_not_sent(virtually, small, params, slot, change, named):
    changed = {name: array for name, array in {**params, **change}.items() if array is not None}
    slots = {"weights": params, "control": params, slot: changed}
    header = Bundle(federation="f", base_version=0, num_examples=1, entries=())
    wanted = {"weights": ("fc.weight",), "control": ("fc.bias",)}

    async def main():
        with pytest.raises(ManifestError, match=named):
            await small.encode_update(
                header, slots, {}, wanted, CodecSettings(name="float32"), np.random.default_rng(0)
            )

    virtually(main())


def test_parameters_that_are_no_model_of_the_manifest_are_not_sent(virtually, small, params):
    async def main():
        header = Bundle(federation="f", base_version=0, num_examples=1, entries=())
        part = {"fc.weight": params["fc.weight"]}
        with pytest.raises(ManifestError, match=r"fc\.bias"):
            await small.encode(header, part, Float32())

    virtually(main())
