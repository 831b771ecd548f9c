"""Models that came over the network: checked, decoded once, and kept for a while."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import numpy as np

from fedat_service.errors import WireError
from fedat_service.params import Manifest, Params, require_whole
from fedat_service.wire.bundle import Bundle, decode_bundle, encode_bundle, parse_bundle
from fedat_service.wire.codecs import Codec, Float32
from fedat_service.wire.differences import update_entries
from fedat_service.wire.entries import Entry, params_entries
from fedat_service.wire.polyline_numpy import Payload
from fedat_service.wire.settings import CodecSettings, Slot

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GlobalModel:
    """One version of the global model; `params` may be shared, and are never written to."""

    version: int
    params: Params
    slots: Mapping[Slot, Params] = field(default_factory=dict)


Wanted = Mapping[Slot, tuple[str, ...]]
"""Tensors by slot, in manifest order."""
Key = str
"""The entity tag that the service gave them."""


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
        self, key: Key | None, body: Payload, wanted: Wanted, base: GlobalModel | None = None
    ) -> GlobalModel:
        """Check a bundle and turn it into parameters, unless that was done under the same key before.

        Args:
            key: What it is kept under, if at all.
            body: The bundle.
            wanted: The tensors that it must hold.
            base: The version that it holds differences to, if it does.

        Raises:
            WireError: If it is not a version of exactly these tensors of this federation's model.
        """
        work = partial(_decode, body, self.federation, self.manifest, wanted, base)
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

    async def encode(self, bundle: Bundle, params: Params, codec: Codec) -> bytes:
        """Fill a bundle that has only its header with a whole model.

        Raises:
            ManifestError: If `params` are not a whole model.
            WireError: If a value cannot be carried.
        """
        return await self._run(partial(_encode, bundle, params, self.manifest, codec))

    async def encode_update(
        self,
        bundle: Bundle,
        slots: Mapping[Slot, Params],
        base: Params,
        wanted: Wanted,
        settings: CodecSettings,
        rng: np.random.Generator,
    ) -> bytes:
        """Fill a bundle that has only its header with a trained model, and with what is sent beside it.

        Args:
            bundle: The header.
            slots: Values: `weights`, a whole model, and others by tensor.
            base: The model as it was fetched, where differences travel.
            wanted: What of the values is sent; without any, they need not be there.
            settings: How the weights become bytes.
            rng: Rounds what is rounded at random.

        Raises:
            ManifestError: If the weights are not a whole model, or a tensor that is wanted is missing.
            WireError: If a value cannot be carried, or the base is missing.
        """
        if not wanted:
            return encode_bundle(bundle)
        work = partial(_encode_update, bundle, slots, base, self.manifest, wanted, settings, rng)
        return await self._run(work)

    def _run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._executor, work)


def _decode(
    body: Payload, federation: str, manifest: Manifest, wanted: Wanted, base: GlobalModel | None
) -> GlobalModel:
    bundle = parse_bundle(body, manifest)
    if bundle.federation != federation or bundle.version is None:
        raise WireError(
            f"expected a version of {federation!r}, got version {bundle.version} of {bundle.federation!r}",
            "federation",
        )
    if bundle.base_version != (None if base is None else base.version):
        raise WireError(f"differences to version {bundle.base_version} came unasked", "base_version")
    asked = {(slot, name) for slot, names in wanted.items() for name in names}
    sent = {(entry.slot, entry.tensor.name) for entry in bundle.entries}
    if wrong := sent.symmetric_difference(asked):
        slot, name = min(wrong)
        raise WireError(
            f"{slot} of tensor {name!r} {'is missing' if (slot, name) in asked else 'was not asked for'}"
        )
    # Decoding checks every value, as `check_bundle` does.
    slots: dict[Slot, Params] = {**decode_bundle(bundle, None if base is None else base.params)}
    return GlobalModel(bundle.version, slots.pop("weights", {}), slots)


def _encode(bundle: Bundle, params: Params, manifest: Manifest, codec: Codec) -> bytes:
    require_whole(params, manifest)
    entries = params_entries(params, manifest.tensors, codec)
    return encode_bundle(replace(bundle, entries=entries))


def _encode_update(
    bundle: Bundle,
    slots: Mapping[Slot, Params],
    base: Params,
    manifest: Manifest,
    wanted: Wanted,
    settings: CodecSettings,
    rng: np.random.Generator,
) -> bytes:
    entries: tuple[Entry, ...] = ()
    for slot, names in wanted.items():
        tensors = manifest.named(names)
        if slot == "weights":
            require_whole(slots[slot], manifest)
            entries += update_entries(slots[slot], base, tensors, settings, rng)
        elif tensors:
            sent = {name: slots[slot][name] for name in names}
            require_whole(sent, Manifest(tensors))
            entries += params_entries(sent, tensors, Float32(), slot)
    return encode_bundle(replace(bundle, entries=entries))
