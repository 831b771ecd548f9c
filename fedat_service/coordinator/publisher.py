"""Encoded models: made once per version and layer set, off the event loop, however many ask at once."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import partial

from fedat_service.coordinator.offload import Offload
from fedat_service.errors import ManifestError, NotFound, WireError
from fedat_service.federation.spec import Spec
from fedat_service.params import Model
from fedat_service.wire.bundle import Bundle, Entry, encode_bundle, model_entries
from fedat_service.wire.codecs import make_codec


@dataclass(frozen=True, slots=True)
class Publication:
    """A model as it travels: the bundle, its bytes, and the entity tag of the version's layers.

    Sent as differences to another version it has the tag of what comes out.
    """

    bundle: Bundle
    body: bytes
    etag: str


_CAPACITY = 64
"""Encodings kept at most: what is not in use any more goes sooner."""

_TAGS = 1024
"""Entity tags remembered at most: by them clients prove what they hold."""

_Key = tuple[str, int, tuple[str, ...]]
"""Whose model, its version, and the layers."""


class Publisher:
    """Encodes each (model, version, layers) once and keeps it while its version is in use."""

    def __init__(self, spec: Spec, offload: Offload) -> None:
        self._spec = spec
        self._offload = offload
        self._codec = make_codec(spec.method.codec)
        self._made: OrderedDict[_Key, asyncio.Future[Publication]] = OrderedDict()
        self._tags: OrderedDict[_Key, str] = OrderedDict()
        self._steps: dict[_Key, Publication] = {}

    async def publication(
        self, whose: str, version: int, model: Model, layers: tuple[str, ...] | None
    ) -> Publication:
        """The encoded layers of a model; all layers if None.

        Args:
            whose: `global`, or a tier's number: versions of different models are told apart by it.
            version: The model's version.
            model: Its values.
            layers: Layers that travel.

        Raises:
            NotFound: If a layer is unknown.
            WireError: If the codec cannot carry a value.
        """
        key = (whose, version, self._in_order(layers))
        if key not in self._made:
            self._made[key] = asyncio.ensure_future(self._offload(partial(self._encode, *key, model)))
            if len(self._made) > _CAPACITY:
                self._made.popitem(last=False)
        self._made.move_to_end(key)
        try:
            # Shielded: one client that hangs up must not take the encoding away from the others.
            found = await asyncio.shield(self._made[key])
        except WireError:
            self._made.pop(key, None)
            raise
        self._tags[key] = found.etag
        if len(self._tags) > _TAGS:
            self._tags.popitem(last=False)
        return found

    async def step(self, whole: Publication, entries: tuple[Entry, ...]) -> Publication:
        """A version of the global model as its differences to the one before, for those who hold that.

        Args:
            whole: The same version and layers as a whole.
            entries: The differences of all layers.

        Returns:
            The version as a whole, if none of its layers differs that way.
        """
        version, layers = whole.bundle.version or 0, self._layers_of(whole)
        chosen = tuple(entry for entry in entries if entry.tensor.layer in layers)
        if all(entry.reference == "absolute" for entry in chosen):
            return whole
        key = ("global", version, layers)
        if key not in self._steps:
            bundle = Bundle(self._spec.name, chosen, version=version, base_version=version - 1)
            body = await self._offload(partial(encode_bundle, bundle))
            self._steps[key] = Publication(bundle, body, whole.etag)
        return self._steps[key]

    def holds_base(self, whole: Publication, tags: Collection[str]) -> bool:
        """Whether one of the tags names the same layers of the version before."""
        key = ("global", (whole.bundle.version or 0) - 1, self._layers_of(whole))
        return self._tags.get(key, "") in tags

    def _layers_of(self, whole: Publication) -> tuple[str, ...]:
        return self._in_order(tuple(entry.tensor.layer for entry in whole.bundle.entries))

    def _in_order(self, layers: tuple[str, ...] | None) -> tuple[str, ...]:
        """The layers once each, in manifest order: one encoding, however they are asked for."""
        if layers is None:
            return self._spec.manifest.layers
        try:
            self._spec.manifest.select(layers)
        except ManifestError as error:
            raise NotFound(str(error), "layers") from error
        return tuple(layer for layer in self._spec.manifest.layers if layer in layers)

    def _encode(self, whose: str, version: int, layers: tuple[str, ...], model: Model) -> Publication:
        entries = model_entries(model, self._spec.manifest, layers, self._codec)
        bundle = Bundle(federation=self._spec.name, version=version, entries=entries)
        body = encode_bundle(bundle)
        tag = hashlib.blake2b(body, digest_size=9).hexdigest()
        return Publication(bundle, body, f'"{whose}-{version}-{tag}"')

    def keep_only(self, whose: str, versions: Iterable[int]) -> None:
        """Forget encodings of versions no longer in use."""
        kept = set(versions)
        for made in (self._made, self._steps):
            for key in [k for k in made if k[0] == whose and k[1] not in kept]:
                del made[key]
