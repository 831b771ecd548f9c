"""The arrays of a federation: running means, tier models, published versions. Driven by effects only."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedat_service.aggregation.asynchronous import blended
from fedat_service.aggregation.mean import RunningMean
from fedat_service.aggregation.mixing import mix_tiers
from fedat_service.errors import Gone, NotFound
from fedat_service.federation.effects import MakeVersion
from fedat_service.federation.spec import Spec
from fedat_service.params import Model
from fedat_service.wire.bundle import Bundle
from fedat_service.wire.codecs import Int64, make_codec


@dataclass(frozen=True, slots=True)
class TierModel:
    """A tier's own model, and the version it was made for: one value, for it is read while others compute."""

    version: int
    model: Model


class Arithmetic:
    """Memory O(tiers x model): one running mean and one model a tier, and the versions still in use.

    Its methods are called in the order of the log, one at a time: the same log gives the same bits.
    """

    def __init__(self, spec: Spec, initial: Model) -> None:
        self._spec = spec
        self._codec = make_codec(spec.method.codec)
        self._means: dict[int, RunningMean] = {}
        # Every tier model starts as w0 (FedAT, Algorithm 1).
        self._tiers = [TierModel(0, initial)] * spec.num_tiers
        self._versions = {0: initial}

    def add(self, tier: int, update: Bundle, weight: float) -> None:
        """Decode a checked update straight into its tier's running mean."""
        mean = self._means.get(tier)
        if mean is None:
            mean = self._means[tier] = RunningMean(self._spec.manifest, self._codec.scale)
        spans = self._spec.manifest.spans
        integers = np.empty(self._spec.manifest.num_integers, np.int64)
        for entry in update.entries:
            span = spans[entry.tensor.name]
            if isinstance(entry.codec, Int64):
                integers[span] = entry.codec.decode(entry.payload, entry.tensor.size)
            else:
                entry.codec.add(entry.payload, weight, mean.total[span])
        mean.admit(integers, weight)

    def drop(self, tier: int) -> None:
        """Forget an abandoned round."""
        self._means.pop(tier, None)

    def make_version(self, made: MakeVersion) -> Model:
        """Blend the tier's mean into its model, then mix a version: the weighted sum of all tier models."""
        x, mean = self._tiers[made.tier - 1].model, self._means.pop(made.tier)
        moved = blended(made.blend, mean, x, self._versions, self._spec.manifest)
        self._tiers[made.tier - 1] = TierModel(made.version, self._carriable(moved))
        model = mix_tiers([tier.model for tier in self._tiers], made.weights)
        self._versions[made.version] = model
        return model

    def _carriable(self, model: Model) -> Model:
        """The model, or the nearest one its codec can carry: rounding may leave the range by a step."""
        bound = self._codec.largest
        if max(model.floats.max(initial=0.0), -model.floats.min(initial=0.0)) <= bound:
            return model
        return Model(np.clip(model.floats, -bound, bound), model.integers)

    def drop_all(self) -> None:
        """Forget all rounds in progress: the federation is over."""
        self._means.clear()

    def keep_only(self, versions: Iterable[int]) -> None:
        """Forget versions that nobody can ask for any more."""
        kept = set(versions)
        for version in [v for v in self._versions if v not in kept]:
            del self._versions[version]

    def version(self, number: int, newest: int) -> Model:
        """A published version's model.

        Raises:
            NotFound: If there is no such version yet.
            Gone: If it is no longer kept.
        """
        if number > newest:
            raise NotFound(f"no version {number}; the newest is {newest}", "version")
        if number not in self._versions:
            raise Gone(f"version {number} is no longer kept", "version", current_version=newest)
        return self._versions[number]

    def tier_model(self, number: int) -> TierModel:
        """A tier's model, tiers numbered from 1."""
        return self._tiers[number - 1]
