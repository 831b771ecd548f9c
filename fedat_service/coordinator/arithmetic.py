"""The arrays of a federation: running means, tier models, published versions. Driven by effects only."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedat_service.aggregation.asynchronous import blended
from fedat_service.aggregation.mean import RunningMean
from fedat_service.aggregation.mixing import mix_tiers
from fedat_service.aggregation.server_optimizer import Moments, move
from fedat_service.coordinator.begin import NO_SLOTS, AsSent, Begin
from fedat_service.coordinator.gathering import Gathering, written_over
from fedat_service.errors import Gone, ManifestError, NotFound
from fedat_service.federation.effects import AddUpdate, CloseSync, DropRound, MakeVersion
from fedat_service.federation.spec import Spec
from fedat_service.methods.schedule import measures, next_cycle
from fedat_service.methods.server import server_rule
from fedat_service.methods.solvers import receive, settle, start
from fedat_service.params import Manifest, Model
from fedat_service.wire.bundle import Bundle
from fedat_service.wire.codecs import make_codec
from fedat_service.wire.differences import make_update_codec, stepped
from fedat_service.wire.entries import Entry
from fedat_service.wire.settings import Slot

_STEP_STREAM = 4
"""Purpose number of the generator that rounds the step to a version."""


@dataclass(frozen=True, slots=True)
class TierModel:
    """A tier's own model, the version it was made for, and the rounds in it.

    One value, for it is read while others compute.
    """

    version: int
    model: Model
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class Made:
    """A new version, and how often its tier's tensors travel from now on, if that has changed."""

    model: Model
    intervals: tuple[int, ...]


_Sync = tuple[int, int | None]


class Arithmetic:
    """Memory O(tiers x model): means, tier models, versions in use, and what rounds in progress go on with.

    A server optimizer moves a model from where the updates of a round started, which is the version as the
    cohort got it, toward their mean; so it makes the tier's model. Where updates are blended into a model
    that has gone on (`fedasync`, `fedbuff`), it moves the tier's model toward what the blend would make of
    it. Each tier has moments of its own; tiers that train in turns (`tifl`) move one model, and share them.

    Its methods are called in the order of the log, one at a time: the same log gives the same bits.
    """

    def __init__(self, spec: Spec, initial: Model) -> None:
        self._spec = spec
        codec = make_codec(spec.method.codec)
        self._as_sent = AsSent(codec)
        self._largest = min(codec.largest, make_update_codec(spec.method.codec).largest)
        self._server = server_rule(spec.method.server)
        self._moments: dict[int, Moments] = {}
        self._gathered: dict[_Sync, Gathering] = {}
        self._begun: dict[tuple[int, int], Begin] = {}
        self._bases: dict[int, Begin] = {}
        slots = start(spec.half, spec.method.solver, spec.manifest)
        # Every tier model starts as w0 (FedAT, Algorithm 1).
        self._tiers = [TierModel(0, initial)] * spec.num_tiers
        self._versions = {0: Begin(initial, slots)}
        self._steps: dict[int, Mapping[str, Entry]] = {}
        self._slots = slots

    def add(self, added: AddUpdate, update: Bundle) -> None:
        """Decode a checked update straight into the running means of its sync."""
        # What ends a round is gathered by tier, for several rounds may make one version.
        key = added.tier, None if added.is_last else added.round
        base = self._began(added.tier, added.round, update.base_version)
        if added.is_last:
            self._bases[added.tier] = base
        if key not in self._gathered:
            measured = added.is_last and self._measures(added.tier)
            self._gathered[key] = Gathering(self._spec, base.model if measured else None)
        differs = any(entry.reference == "base" for entry in update.entries)
        self._gathered[key].add(update, added.weight, self._as_sent(base) if differs else base.model)

    def _began(self, tier: int, index: int, base_version: int | None) -> Begin:
        """What a round's last exchange began with; kept for as long as somebody works on it."""
        if (tier, index) in self._begun:
            return self._begun[tier, index]
        if base_version not in self._versions:
            raise ManifestError(f"version {base_version}, which an update started from, is not there")
        return self._versions[base_version]

    def drop(self, dropped: DropRound) -> None:
        """Forget an abandoned round, but for what its clients keep of it, too."""
        self._begun.pop((dropped.tier, dropped.round), None)
        gathered = [self._gathered.pop((dropped.tier, dropped.round), None)]
        if not self._spec.rule.solo:
            gathered.append(self._gathered.pop((dropped.tier, None), None))
            self._bases.pop(dropped.tier, None)
        for gathering in filter(None, gathered):
            if self._spec.half.follows:
                self._receive(gathering, dropped.num_updates, dropped.num_clients)

    def close_sync(self, closed: CloseSync) -> str:
        """Make what a round's next exchange begins with, and give its digest.

        The tensors that were due are what the cohort's means make of them; the others stay with the clients.
        """
        key = closed.tier, closed.round
        gathering = self._gathered.pop(key)
        begin = self._began(*key, closed.base_version)
        x = begin.model
        if "weights" in gathering.means:
            mean, due = gathering.means["weights"].mean(), gathering.parts["weights"]
            x = self._carriable(self._stepped(closed.tier, begin, mean, due))
        self._receive(gathering, closed.num_updates, closed.num_clients)
        self._begun[key] = Begin(x, self._slots)
        return self._begun[key].digest()

    def make_version(self, made: MakeVersion) -> Made:
        """Move the tier's model by its mean, then mix a version: the weighted sum of all tier models."""
        tier, gathering = self._tiers[made.tier - 1], self._gathered.pop((made.tier, None))
        moved = self._carriable(self._moved(made, gathering))
        self._receive(gathering, made.num_updates, made.num_clients)
        began = [self._begun.pop((made.tier, index), None) for index in made.rounds]
        slots = [begin.slots for begin in began if begin is not None]
        self._slots = settle(self._spec.half, self._spec.method.solver, self._slots, slots)
        intervals = self._intervals(gathering, made) if self._measures(made.tier) else ()
        self._tiers[made.tier - 1] = TierModel(made.version, moved, tier.rounds + len(made.rounds))
        model = mix_tiers([one.model for one in self._tiers], made.weights)
        if self._spec.method.codec.directions == "both":
            model = self._step(made.version, model)
        self._versions[made.version] = Begin(model, self._slots)
        return Made(model, intervals)

    def _step(self, version: int, target: Model) -> Model:
        """A version that those who hold the one before reach by a rounded step."""
        rng = np.random.default_rng((self._spec.seed, _STEP_STREAM, version))
        base, settings = self._versions[version - 1].model, self._spec.method.codec
        model, entries = stepped(base, target, self._spec.manifest, settings, rng)
        carriable = self._carriable(model)
        if carriable is model:
            self._steps[version] = {entry.tensor.name: entry for entry in entries}
        return carriable

    def _measures(self, tier: int) -> bool:
        blocks = (self._tiers[tier - 1].rounds + 1) * self._spec.first_cycle.length
        return measures(self._spec.method.schedule, blocks)

    def _whole(self, gathering: Gathering, x: Model) -> RunningMean:
        """The running mean over the whole model; what never travels is as it was."""
        manifest, part, mean = self._spec.manifest, gathering.parts["weights"], gathering.means["weights"]
        if part is manifest:
            return mean
        whole = RunningMean(manifest, mean.scale)
        whole.add(written_over(manifest, mean.mean(), part, x), mean.weight_sum)
        return whole

    def _receive(self, gathering: Gathering, num_updates: int, num_clients: int) -> None:
        """Have the solver make something of what came up beside the weights."""
        half = self._spec.half
        means: dict[Slot, NDArray[Any]] = {
            slot: mean.mean().floats for slot, mean in gathering.means.items() if slot != "weights"
        }
        if means:
            due = next(part for slot, part in gathering.parts.items() if slot != "weights")
            self._slots = receive(
                half,
                self._spec.method.solver,
                self._slots,
                self._spec.manifest,
                means,
                due,
                num_updates,
                num_clients,
            )

    def _intervals(self, gathering: Gathering, made: MakeVersion) -> tuple[int, ...]:
        """FedLAMA: how often each tensor travels from now on."""
        schedule, cycle = self._spec.method.schedule, made.cycle
        found = gathering.discrepancies(dict(cycle.intervals))
        return tuple(next_cycle(schedule, self._spec.manifest, cycle, found).intervals.values())

    def _moved(self, made: MakeVersion, gathering: Gathering) -> Model:
        """What the updates of a tier make of its model."""
        x, base = self._tiers[made.tier - 1].model, self._bases.pop(made.tier)
        versions = {number: begin.model for number, begin in self._versions.items()}
        target = blended(made.blend, self._whole(gathering, x), x, versions, self._spec.manifest)
        start = Begin(x, NO_SLOTS) if self._spec.rule.solo else base
        return self._stepped(made.tier, start, target, self._spec.manifest)

    def _stepped(self, tier: int, begin: Begin, target: Model, due: Manifest) -> Model:
        """The server optimizer's step from a model, as clients get it, toward the `target` of due tensors."""
        manifest = self._spec.manifest
        if self._spec.method.server.name == "average":
            return target if due is manifest else written_over(manifest, target, due, begin.model)
        whose = 0 if self._spec.rule.drawn else tier
        moments = self._moments.get(whose) or self._server.start(manifest.num_floats)
        self._moments[whose], moved = move(self._server, moments, self._as_sent(begin), manifest, target, due)
        return moved

    def _carriable(self, model: Model) -> Model:
        """The model, or the nearest one its codec can carry: rounding may leave the range by a step."""
        bound = self._largest
        if max(model.floats.max(initial=0.0), -model.floats.min(initial=0.0)) <= bound:
            return model
        return Model(np.clip(model.floats, -bound, bound), model.integers)

    def drop_all(self) -> None:
        """Forget all rounds in progress: the federation is over."""
        self._gathered.clear()
        self._begun.clear()
        self._bases.clear()

    def keep_only(self, versions: Iterable[int]) -> None:
        """Forget versions that nobody can ask for any more."""
        kept = set(versions)
        for version in [v for v in self._versions if v not in kept]:
            del self._versions[version]
            self._steps.pop(version, None)

    def version(self, number: int, newest: int) -> Begin:
        """A published version.

        Raises:
            NotFound: If there is no such version yet.
            Gone: If it is no longer kept.
        """
        if number > newest:
            raise NotFound(f"no version {number}; the newest is {newest}", "version")
        if number not in self._versions:
            raise Gone(f"version {number} is no longer kept", "version", current_version=newest)
        return self._versions[number]

    def begin(self, tier: int, index: int, newest: int) -> Begin:
        """What a further exchange of a round begins with.

        Raises:
            Gone: If the round is over.
        """
        if (tier, index) not in self._begun:
            raise Gone(f"round {index} of tier {tier} is over", "task", current_version=newest)
        return self._begun[tier, index]

    def step(self, number: int) -> Mapping[str, Entry]:
        """What makes a version of the one before it, by tensor; nothing where versions are no such steps."""
        return self._steps.get(number, {})

    def tier_model(self, number: int) -> TierModel:
        """A tier's model, tiers numbered from 1."""
        return self._tiers[number - 1]
