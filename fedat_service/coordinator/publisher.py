"""Encoded models: made once per version and layer set, off the event loop, however many ask at once."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from fedat_service.coordinator.offload import Offload
from fedat_service.errors import ManifestError, NotFound, WireError
from fedat_service.federation.spec import Spec
from fedat_service.params import Model
from fedat_service.wire.bundle import Bundle, encode_bundle, head_of, model_entries
from fedat_service.wire.codecs import make_codec


@dataclass(frozen=True, slots=True)
class Publication:
    """A model as it travels: the bundle, its bytes, and an entity tag that names both."""

    bundle: Bundle
    body: bytes
    etag: str


_CAPACITY = 64
"""Encodings kept at most: what is not in use any more goes sooner."""

_Key = tuple[str, int, tuple[str, ...]]


class Publisher:
    """Encodes each (model, version, layers) once and keeps it while its version is in use."""

    def __init__(self, spec: Spec, offload: Offload) -> None:
        self._spec = spec
        self._offload = offload
        self._codec = make_codec(spec.method.codec)
        self._made: OrderedDict[_Key, asyncio.Future[Publication]] = OrderedDict()

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
            return await asyncio.shield(self._made[key])
        except WireError:
            self._made.pop(key, None)
            raise

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
        # The head holds size and checksum of every payload: a thousandth of the bytes, and as telling.
        tag = hashlib.blake2b(head_of(body), digest_size=9).hexdigest()
        return Publication(bundle, body, f'"{whose}-{version}-{tag}"')

    def keep_only(self, whose: str, versions: Iterable[int]) -> None:
        """Forget encodings of versions no longer in use."""
        kept = set(versions)
        for key in [k for k in self._made if k[0] == whose and k[1] not in kept]:
            del self._made[key]
