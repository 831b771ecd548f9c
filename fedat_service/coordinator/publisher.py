"""Encoded models: made once per version and layer set, off the event loop, however many ask at once."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from fedat_service.coordinator.begin import Begin
from fedat_service.coordinator.offload import Offload
from fedat_service.errors import WireError
from fedat_service.federation.spec import Spec
from fedat_service.methods.solvers import learning
from fedat_service.params import Model
from fedat_service.wire.bundle import Bundle, encode_bundle, head_of
from fedat_service.wire.codecs import Float32, make_codec
from fedat_service.wire.entries import Entry, model_entries
from fedat_service.wire.settings import Slot


@dataclass(frozen=True, slots=True)
class Publication:
    """A model as it travels: the bundle, its bytes, and an entity tag that names the values.

    Sent as differences to other values it has the tag of what comes out.
    """

    bundle: Bundle
    body: bytes
    etag: str


_NO_INTEGERS = np.empty(0, np.int64)
_CAPACITY = 64
"""Encodings kept at most: what is not in use any more goes sooner."""

_Key = tuple[str, int, tuple[tuple[Slot, tuple[str, ...]], ...]]


def round_name(tier: int, index: int) -> str:
    """Whose values those are that the further exchanges of a round begin with."""
    return f"tier{tier}-round{index}"


class Publisher:
    """Encodes each (values, version, tensors) once and keeps it while its version is in use."""

    def __init__(self, spec: Spec, offload: Offload) -> None:
        self._spec = spec
        self._offload = offload
        self._codec = make_codec(spec.method.codec)
        self._made: OrderedDict[_Key, asyncio.Future[Publication]] = OrderedDict()

    async def publication(
        self, whose: str, version: int, begin: Begin, down: Mapping[Slot, tuple[str, ...]]
    ) -> Publication:
        """Some encoded tensors of a model and of what the solver sends beside it.

        Args:
            whose: `global`, or a tier's or a round's name: versions of different values are told apart by it.
            version: The version they are, or come from.
            begin: All values.
            down: Tensors that travel, by slot, in manifest order.

        Raises:
            WireError: If the codec cannot carry a value.
        """
        key = (whose, version, tuple(down.items()))
        if key not in self._made:
            self._made[key] = asyncio.ensure_future(self._offload(partial(self._encode, *key, begin)))
            if len(self._made) > _CAPACITY:
                self._made.popitem(last=False)
        self._made.move_to_end(key)
        try:
            # Shielded: one client that hangs up must not take the encoding away from the others.
            return await asyncio.shield(self._made[key])
        except WireError:
            self._made.pop(key, None)
            raise

    def _encode(
        self, whose: str, version: int, down: tuple[tuple[Slot, tuple[str, ...]], ...], begin: Begin
    ) -> Publication:
        entries: tuple[Entry, ...] = ()
        whole = self._spec.manifest
        for slot, names in down:
            if slot == "weights":
                entries += model_entries(begin.model, whole, whole.named(names), self._codec)
            else:
                values, part = Model(begin.slots.values[slot], _NO_INTEGERS), learning(whole)
                entries += model_entries(values, part, part.named(names), Float32(), slot)
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
