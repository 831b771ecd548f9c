"""What a federation is, decided once when it is created."""

import math
from dataclasses import dataclass
from functools import cached_property

from fedat_service.errors import ManifestError, RuleError, Unprocessable
from fedat_service.methods.exchanges import Exchange, plan
from fedat_service.methods.participation import ParticipationRule, rule_for
from fedat_service.methods.schedule import first_cycle
from fedat_service.methods.solvers import ServerHalf, half_for
from fedat_service.params import Manifest
from fedat_service.schedules.cycle import Cycle
from fedat_service.wire.messages import CreateFederation
from fedat_service.wire.presets import resolve
from fedat_service.wire.settings import Method, Rounds, Stop, Tiering

Plan = tuple[Exchange, ...]


def _require_tiers(method: Method, tiering: Tiering) -> None:
    """Refuse to be told how to sort clients where nobody does; how many tiers there would be says nothing."""
    alone = rule_for(method.participation).num_tiers(2) == 1
    if alone and tiering != Tiering(num_tiers=tiering.num_tiers):
        raise Unprocessable(
            f"participation {method.participation.name} has one tier: of tiering it takes num_tiers only",
            "tiering",
        )


def _require_learning(method: Method, manifest: Manifest) -> None:
    """Refuse a solver that sends something of every tensor that learns for a model that has none."""
    if half_for(method.solver).num_slots and not any(tensor.trainable for tensor in manifest.tensors):
        raise Unprocessable(
            f"solver {method.solver.name} needs tensors that learn, the model has none", "manifest"
        )


@dataclass(frozen=True)
class Spec:
    """A created federation: method, model description, tiers, rounds, stop rule, seed."""

    name: str
    method: Method
    manifest: Manifest
    tiering: Tiering
    rounds: Rounds
    stop: Stop
    seed: int
    uploads_model: bool

    @cached_property
    def rule(self) -> ParticipationRule:
        """The participation axis as behaviour."""
        return rule_for(self.method.participation)

    @property
    def num_tiers(self) -> int:
        """Tiers that train: one, unless the participation is tiered."""
        return self.rule.num_tiers(self.tiering.num_tiers)

    @property
    def round_size(self) -> int:
        """Clients of one round."""
        return self.rule.round_size(self.rounds.cohort_size)

    @property
    def rounds_at_once(self) -> int:
        """Rounds that a tier may have open."""
        return self.rule.rounds_at_once(self.rounds.cohort_size)

    @property
    def interval(self) -> int:
        """Versions between two looks at how likely each tier is drawn."""
        return self.method.participation.interval or self.num_tiers

    @property
    def credits(self) -> int | None:
        """How many versions one tier may make; None without limit (TiFL)."""
        num_rounds = self.method.participation.num_rounds
        return None if num_rounds is None else math.ceil(num_rounds / self.num_tiers)

    @cached_property
    def half(self) -> ServerHalf:
        """The solver axis as the server's behaviour."""
        return half_for(self.method.solver)

    @cached_property
    def first_cycle(self) -> Cycle:
        """What travels when, until a schedule says otherwise."""
        return first_cycle(self.method.schedule, self.manifest)

    @cached_property
    def _first_plans(self) -> tuple[Plan, Plan]:
        """The rounds that send what the solver ends a round with, and those that skip it."""
        ends, skips = (plan(self.half, self.first_cycle, self.manifest, n, sync_every=2) for n in (2, 1))
        return ends, skips

    @property
    def has_syncs(self) -> bool:
        """Whether a round is more than one exchange with its cohort."""
        return len(self._first_plans[0]) > 1

    def plan_of(self, cycle: Cycle, round_index: int) -> Plan:
        """What the cohort of a tier's round fetches and sends, one exchange after the other."""
        every = self.method.solver.moment_every
        if cycle is self.first_cycle:
            return self._first_plans[0 if round_index % every == 0 else 1]
        return plan(self.half, cycle, self.manifest, round_index, every)

    @cached_property
    def profile(self) -> Exchange:
        """What a profile task is: the whole model comes down, nothing goes up."""
        return Exchange(1, {"weights": tuple(tensor.name for tensor in self.manifest.tensors)}, {}, last=True)

    @staticmethod
    def of(message: CreateFederation) -> "Spec":
        """Check a creation request as a whole.

        Raises:
            Unprocessable: If its manifest cannot be a model or its settings contradict each other.
        """
        tiering = message.tiering
        method = resolve(message.method)
        _require_tiers(method, tiering)
        if tiering.rule == "quantiles" and len(tiering.quantiles) != tiering.num_tiers - 1:
            raise Unprocessable(
                f"{tiering.num_tiers} tiers need {tiering.num_tiers - 1} quantiles, "
                f"got {len(tiering.quantiles)}",
                "tiering.quantiles",
            )
        if list(tiering.quantiles) != sorted(set(tiering.quantiles)):
            raise Unprocessable(f"quantiles must ascend, got {list(tiering.quantiles)}", "tiering.quantiles")
        try:
            manifest = message.manifest.to_manifest()
        except ManifestError as error:
            raise Unprocessable(str(error), "manifest") from error
        _require_learning(method, manifest)
        spec = Spec(
            name=message.name,
            method=method,
            manifest=manifest,
            tiering=tiering,
            rounds=message.rounds,
            stop=message.stop,
            seed=message.seed,
            uploads_model=message.initial_model == "upload",
        )
        try:
            spec.plan_of(spec.first_cycle, 1)
        except RuleError as error:
            raise Unprocessable(str(error), "method.schedule") from error
        return spec
