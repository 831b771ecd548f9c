"""Versions for clients that hold another one: as differences to that."""

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial

from fedat_service.coordinator.offload import Offload
from fedat_service.coordinator.publisher import Publication
from fedat_service.federation.spec import Spec
from fedat_service.wire.bundle import Bundle, decode_bundle, encode_bundle
from fedat_service.wire.differences import relative, versions_differ
from fedat_service.wire.entries import Entry

_CAPACITY = 16
"""Encoded steps kept at most: a cohort fetches at once, and few others hold the same."""

_BASES = 1024
_BASE_BYTES = 64 << 20
"""What is kept of versions that clients may hold: so many of them, and beyond the last one so many bytes."""


class Steps:
    """Remembers what was sent, and makes what leads on from there.

    A client proves what it holds by its entity tag, which names version and contents. Where the codec gives
    differences of its own (`qsgd` and `affine8` in both directions), they lead from one version to the next,
    and nothing of the former is kept but the tag. Polyline with reference `base` has a step from whatever is
    kept.
    """

    def __init__(self, spec: Spec, offload: Offload) -> None:
        self._federation = spec.name
        self._settings = spec.method.codec
        self._offload = offload
        self._sent: OrderedDict[str, Bundle] = OrderedDict()
        self._sent_bytes = 0
        self._made: OrderedDict[tuple[int, str, str], asyncio.Future[Publication]] = OrderedDict()

    async def onward(
        self, whole: Publication, held: Collection[str], rounded: Mapping[str, Entry]
    ) -> Publication:
        """A version as it travels to a client that holds something.

        Args:
            whole: The version as a whole.
            held: Entity tags of what the client holds.
            rounded: The codec's own step from the version before, by tensor; nothing if it has none.

        Returns:
            `whole`, if the client holds nothing that leads there, or all of it travels as it is anyhow.
        """
        if not versions_differ(self._settings):
            return whole
        self._remember(whole)
        bases = [tag for tag in held if tag in self._sent and self._leads(self._sent[tag], whole, rounded)]
        if whole.etag in held or not bases:
            return whole
        key = whole.bundle.version or 0, bases[0], whole.etag
        if key not in self._made:
            work = partial(self._make, whole, self._sent[bases[0]], rounded)
            self._made[key] = asyncio.ensure_future(self._offload(work))
            if len(self._made) > _CAPACITY:
                self._made.popitem(last=False)
        # Shielded: one client that hangs up must not take the step away from the others.
        return await asyncio.shield(self._made[key])

    def keep_only(self, versions: Iterable[int]) -> None:
        """Forget steps to versions no longer in use."""
        kept = set(versions)
        for key in [key for key in self._made if key[0] not in kept]:
            del self._made[key]

    def _remember(self, whole: Publication) -> None:
        if whole.etag in self._sent:
            return
        bundle = whole.bundle if self._settings.name == "polyline" else _without_payloads(whole.bundle)
        self._sent[whole.etag] = bundle
        self._sent_bytes += _size(bundle)
        while len(self._sent) > _BASES or (len(self._sent) > 1 and self._sent_bytes > _BASE_BYTES):
            self._sent_bytes -= _size(self._sent.popitem(last=False)[1])

    def _leads(self, base: Bundle, whole: Publication, rounded: Mapping[str, Entry]) -> bool:
        """Whether there may be a step from one to the other."""
        if [_what(entry) for entry in base.entries] != [_what(entry) for entry in whole.bundle.entries]:
            return False
        if self._settings.name == "polyline":
            return True
        return bool(rounded) and base.version == (whole.bundle.version or 0) - 1

    def _make(self, whole: Publication, base: Bundle, rounded: Mapping[str, Entry]) -> Publication:
        entries = tuple(
            rounded.get(entry.tensor.name, entry) if entry.slot == "weights" else entry
            for entry in whole.bundle.entries
        )
        if self._settings.name == "polyline":
            entries = relative(entries, decode_bundle(base).get("weights", {}), self._settings)
        if all(entry.reference == "absolute" for entry in entries):
            return whole
        bundle = Bundle(self._federation, entries, version=whole.bundle.version, base_version=base.version)
        return Publication(bundle, encode_bundle(bundle), whole.etag)


def _what(entry: Entry) -> tuple[str, str]:
    return entry.slot, entry.tensor.name


def _size(bundle: Bundle) -> int:
    return sum(len(entry.payload) for entry in bundle.entries)


def _without_payloads(bundle: Bundle) -> Bundle:
    return replace(bundle, entries=tuple(replace(entry, payload=b"") for entry in bundle.entries))
