"""The arrays of a federation: running means, tier models, published versions. Driven by effects only."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedat_service.aggregation.asynchronous import REPLACE, blended
from fedat_service.aggregation.mean import RunningMean, add_values
from fedat_service.aggregation.mixing import mix_tiers
from fedat_service.aggregation.server_optimizer import Moments, move
from fedat_service.errors import Gone, ManifestError, NotFound
from fedat_service.federation.effects import MakeVersion
from fedat_service.federation.spec import Spec
from fedat_service.methods.server import server_rule
from fedat_service.params import Model
from fedat_service.wire.bundle import Bundle, Entry
from fedat_service.wire.codecs import Float32, Int64, make_codec, make_update_codec
from fedat_service.wire.differences import differential, stepped

_STEP_STREAM = 4
"""Purpose number of the generator that rounds the step to a version."""


@dataclass(frozen=True, slots=True)
class TierModel:
    """A tier's own model, and the version it was made for: one value, for it is read while others compute."""

    version: int
    model: Model


class Arithmetic:
    """Memory O(tiers x model): one running mean and one model a tier, and the versions still in use.

    A server optimizer moves a model from where the updates of a round started, which is the version as the
    cohort got it, toward their mean; so it makes the tier's model. Where updates are blended into a model
    that has gone on (`fedasync`, `fedbuff`), it moves the tier's model toward what the blend would make of
    it. Each tier has moments of its own; tiers that train in turns (`tifl`) move one model, and share them.

    Its methods are called in the order of the log, one at a time: the same log gives the same bits.
    """

    def __init__(self, spec: Spec, initial: Model) -> None:
        self._spec = spec
        self._codec = make_codec(spec.method.codec)
        self._largest = min(self._codec.largest, make_update_codec(spec.method.codec).largest)
        self._means: dict[int, RunningMean] = {}
        self._bases: dict[int, int] = {}
        self._sent: dict[int, Model] = {}
        self._server = server_rule(spec.method.server)
        self._moments: dict[int, Moments] = {}
        # Every tier model starts as w0 (FedAT, Algorithm 1).
        self._tiers = [TierModel(0, initial)] * spec.num_tiers
        self._versions = {0: initial}
        self._steps: dict[int, tuple[Entry, ...]] = {}

    def add(self, tier: int, update: Bundle, weight: float) -> None:
        """Decode a checked update straight into its tier's running mean."""
        mean = self._means.get(tier)
        if mean is None:
            mean = self._means[tier] = RunningMean(self._spec.manifest, self._codec.scale)
        base = self._bases[tier] = self._base(update)
        spans = self._spec.manifest.spans
        integers = np.empty(self._spec.manifest.num_integers, np.int64)
        for entry in update.entries:
            span = spans[entry.tensor.name]
            if isinstance(entry.codec, Int64):
                integers[span] = entry.codec.decode(entry.payload, entry.tensor.size)
            else:
                entry.codec.add(entry.payload, weight, mean.total[span])
                if entry.reference == "base":
                    start = differential(entry).on_grid(self._as_sent(base).floats[span])
                    add_values(start, weight, mean.total[span])
        mean.admit(integers, weight)

    def drop(self, tier: int) -> None:
        """Forget an abandoned round."""
        self._means.pop(tier, None)
        self._bases.pop(tier, None)

    def _base(self, update: Bundle) -> int:
        """The version that an update started from; it is kept for as long as a round has it."""
        if update.base_version is None or update.base_version not in self._versions:
            raise ManifestError(f"version {update.base_version}, which an update started from, is not there")
        return update.base_version

    def make_version(self, made: MakeVersion) -> Model:
        """Move the tier's model by its mean, then mix a version: the weighted sum of all tier models."""
        self._tiers[made.tier - 1] = TierModel(made.version, self._carriable(self._moved(made)))
        model = mix_tiers([tier.model for tier in self._tiers], made.weights)
        if self._spec.method.codec.directions == "both":
            model = self._step(made.version, model)
        self._versions[made.version] = model
        return model

    def _step(self, version: int, target: Model) -> Model:
        """A version that those who hold the one before reach by a rounded step."""
        rng = np.random.default_rng((self._spec.seed, _STEP_STREAM, version))
        base, settings = self._versions[version - 1], self._spec.method.codec
        model, entries = stepped(base, target, self._spec.manifest, settings, rng)
        carriable = self._carriable(model)
        if carriable is model:
            self._steps[version] = entries
        return carriable

    def _moved(self, made: MakeVersion) -> Model:
        """What the updates of a tier make of its model."""
        manifest, mean, base = self._spec.manifest, self._means.pop(made.tier), self._bases.pop(made.tier)
        x = self._tiers[made.tier - 1].model
        target = blended(made.blend, mean, x, self._versions, manifest)
        if self._spec.method.server.name == "average":
            return target
        if made.blend == REPLACE:
            x = self._as_sent(base)
        whose = 0 if self._spec.rule.drawn else made.tier
        moments = self._moments.get(whose) or self._server.start(manifest.num_floats)
        self._moments[whose], moved = move(self._server, moments, x, manifest, target, manifest)
        return moved

    def _as_sent(self, version: int) -> Model:
        """A version as its codec gives it to the clients: what they start from, and the updates step from."""
        model = self._versions[version]
        if isinstance(self._codec, Float32):
            return model
        if version not in self._sent:
            floats = self._codec.decode(self._codec.encode(model.floats), model.floats.size)
            self._sent[version] = Model(floats, model.integers)
        return self._sent[version]

    def _carriable(self, model: Model) -> Model:
        """The model, or the nearest one its codec can carry: rounding may leave the range by a step."""
        bound = self._largest
        if max(model.floats.max(initial=0.0), -model.floats.min(initial=0.0)) <= bound:
            return model
        return Model(np.clip(model.floats, -bound, bound), model.integers)

    def drop_all(self) -> None:
        """Forget all rounds in progress: the federation is over."""
        self._means.clear()
        self._bases.clear()

    def keep_only(self, versions: Iterable[int]) -> None:
        """Forget versions that nobody can ask for any more."""
        kept = set(versions)
        for version in [v for v in self._versions if v not in kept]:
            del self._versions[version]
            self._steps.pop(version, None)
            self._sent.pop(version, None)

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

    def step(self, number: int) -> tuple[Entry, ...] | None:
        """What makes a version of the one before it; None where versions travel whole."""
        return self._steps.get(number)

    def tier_model(self, number: int) -> TierModel:
        """A tier's model, tiers numbered from 1."""
        return self._tiers[number - 1]
