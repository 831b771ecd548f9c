"""Encoded models: made once per version and layer set, off the event loop, however many ask at once."""

import asyncio
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from fedat_service.coordinator.offload import Offload
from fedat_service.errors import ManifestError, NotFound
from fedat_service.federation.spec import Spec
from fedat_service.params import Model
from fedat_service.wire.bundle import Bundle, encode_bundle, model_entries
from fedat_service.wire.codecs import make_codec


@dataclass(frozen=True, slots=True)
class Publication:
    """A model as it travels: the bundle, its bytes, and an entity tag that names both."""

    bundle: Bundle
    body: bytes
    etag: str


_Key = tuple[str, int, tuple[str, ...]]


class Publisher:
    """Encodes each (model, version, layers) once and keeps it while its version is in use."""

    def __init__(self, spec: Spec, offload: Offload) -> None:
        self._spec = spec
        self._offload = offload
        self._codec = make_codec(spec.method.codec)
        self._made: dict[_Key, asyncio.Task[Publication]] = {}

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
        """
        chosen = layers or self._spec.manifest.layers
        try:
            self._spec.manifest.select(chosen)
        except ManifestError as error:
            raise NotFound(str(error), "layers") from error
        key = (whose, version, chosen)
        if key not in self._made:
            work = self._offload(lambda: self._encode(whose, version, model, chosen))
            self._made[key] = asyncio.ensure_future(work)
        # Shielded: one client that hangs up must not take the encoding away from the others.
        return await asyncio.shield(self._made[key])

    def _encode(self, whose: str, version: int, model: Model, layers: tuple[str, ...]) -> Publication:
        entries = model_entries(model, self._spec.manifest, layers, self._codec)
        bundle = Bundle(federation=self._spec.name, version=version, entries=entries)
        body = encode_bundle(bundle)
        tag = hashlib.blake2b(body, digest_size=9).hexdigest()
        return Publication(bundle, body, f'"{whose}-{version}-{tag}"')

    def keep_only(self, whose: str, versions: Iterable[int]) -> None:
        """Forget encodings of versions no longer in use."""
        kept = set(versions)
        for key in [k for k in self._made if k[0] == whose and k[1] not in kept]:
            del self._made[key]
