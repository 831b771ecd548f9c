"""Models that came over the network: checked, decoded once, and kept for a while."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from fedat_service.errors import WireError
from fedat_service.params import Manifest, Model, Params, to_model
from fedat_service.wire.bundle import (
    Bundle,
    Entry,
    decode_bundle,
    encode_bundle,
    model_entries,
    parse_bundle,
)
from fedat_service.wire.codecs import Codec
from fedat_service.wire.differences import update_entries
from fedat_service.wire.settings import CodecSettings

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GlobalModel:
    """One version of the global model; `params` may be shared, and are never written to."""

    version: int
    params: Params


Key = tuple[tuple[str, ...], str]
"""Which layers, and the entity tag that the service gave them."""


class ModelCache:
    """Decoded models: each is decoded once, whichever of a process's clients fetched it first.

    Args:
        federation: Whose models they are.
        manifest: What every model must be.
        executor: Where bundles are encoded and decoded: never on the event loop.
        capacity: How many decoded models are kept.
    """

    def __init__(self, federation: str, manifest: Manifest, executor: Executor, capacity: int = 8) -> None:
        self.federation = federation
        self.manifest = manifest
        self._executor = executor
        self._capacity = capacity
        self._models: OrderedDict[Key, asyncio.Future[GlobalModel]] = OrderedDict()

    def get(self, key: Key | None) -> asyncio.Future[GlobalModel] | None:
        """The model kept under a key, if it still is."""
        return None if key is None else self._models.get(key)

    async def decode(
        self, key: Key | None, body: bytearray, layers: tuple[str, ...], base: GlobalModel | None = None
    ) -> GlobalModel:
        """Check a bundle and turn it into parameters, unless that was done under the same key before.

        Args:
            key: What it is kept under, if at all.
            body: The bundle.
            layers: The layers that it must hold.
            base: The version that it holds differences to, if it does.

        Raises:
            WireError: If it is not a version of exactly these layers of this federation's model.
        """
        work = partial(_decode, body, self.federation, self.manifest, layers, base)
        if key is None:
            return await self._run(work)
        if key not in self._models:
            self._models[key] = self._run(work)
            if len(self._models) > self._capacity:
                self._models.popitem(last=False)
        try:
            # Shielded: one client that goes away must not take the model away from the others.
            return await asyncio.shield(self._models[key])
        except WireError:
            self._models.pop(key, None)
            raise

    async def encode(self, bundle: Bundle, params: Params, layers: tuple[str, ...], codec: Codec) -> bytes:
        """Fill a bundle that has only its header with the tensors of `layers`.

        Raises:
            ManifestError: If `params` are not a whole model.
            WireError: If a value cannot be carried.
        """

        def entries(model: Model) -> tuple[Entry, ...]:
            return model_entries(model, self.manifest, layers, codec)

        return await self._run(partial(_encode, bundle, params, self.manifest, entries))

    async def encode_update(
        self,
        bundle: Bundle,
        params: Params,
        base: Params | None,
        layers: tuple[str, ...],
        settings: CodecSettings,
        rng: np.random.Generator,
    ) -> bytes:
        """Fill a bundle that has only its header with the tensors of `layers`, as updates travel.

        Args:
            bundle: The header.
            params: The trained model.
            base: The version it started from, where differences travel.
            layers: Which layers; if there are none, `params` need not be a model.
            settings: How tensors become bytes.
            rng: Rounds what is rounded at random.

        Raises:
            ManifestError: If `params` are not a whole model.
            WireError: If a value cannot be carried, or the base is missing.
        """
        manifest = self.manifest

        def entries(update: Model) -> tuple[Entry, ...]:
            start = None if base is None else to_model(base, manifest)
            return update_entries(update, start, manifest, layers, settings, rng)

        if not layers:
            return encode_bundle(bundle)
        return await self._run(partial(_encode, bundle, params, manifest, entries))

    def _run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._executor, work)


def _decode(
    body: bytearray, federation: str, manifest: Manifest, layers: tuple[str, ...], base: GlobalModel | None
) -> GlobalModel:
    bundle = parse_bundle(body, manifest)
    if bundle.federation != federation or bundle.version is None:
        raise WireError(
            f"expected a version of {federation!r}, got version {bundle.version} of {bundle.federation!r}",
            "federation",
        )
    if bundle.base_version != (None if base is None else base.version):
        raise WireError(f"differences to version {bundle.base_version} came unasked", "base_version")
    sent = {entry.tensor.layer for entry in bundle.entries}
    if wrong := sent.symmetric_difference(layers):
        raise WireError(
            f"layer {min(wrong)!r} {'is missing' if min(wrong) in layers else 'was not asked for'}"
        )
    # Decoding checks every value, as `check_bundle` does.
    return GlobalModel(bundle.version, decode_bundle(bundle, None if base is None else base.params))


def _encode(
    bundle: Bundle, params: Params, manifest: Manifest, entries: Callable[[Model], tuple[Entry, ...]]
) -> bytes:
    return encode_bundle(replace(bundle, entries=entries(to_model(params, manifest))))
