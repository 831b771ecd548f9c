"""What a federation is, decided once when it is created."""

import math
from dataclasses import dataclass
from functools import cached_property

from fedat_service.errors import ManifestError, Unprocessable
from fedat_service.methods.participation import ParticipationRule, rule_for
from fedat_service.params import Manifest
from fedat_service.wire.messages import CreateFederation
from fedat_service.wire.presets import resolve
from fedat_service.wire.settings import Method, Rounds, Stop, Tiering

_RUNS = {
    ("schedule", "name"): ("full",),
    ("solver", "name"): ("sgd", "momentum", "adam", "adamw"),
    ("solver", "reset"): ("round",),
}
"""Values whose rounds this service runs; the others have their rules, but nothing here carries them out."""


def _require_runnable(method: Method) -> None:
    for (axis, field), values in _RUNS.items():
        value = getattr(getattr(method, axis), field)
        if value not in values:
            raise Unprocessable(
                f"{axis}.{field} {value!r} is not run by this service; it runs {', '.join(values)}",
                f"method.{axis}.{field}",
            )


def _require_tiers(method: Method, tiering: Tiering) -> None:
    """Refuse to be told how to sort clients where nobody does; how many tiers there would be says nothing."""
    alone = rule_for(method.participation).num_tiers(2) == 1
    if alone and tiering != Tiering(num_tiers=tiering.num_tiers):
        raise Unprocessable(
            f"participation {method.participation.name} has one tier: of tiering it takes num_tiers only",
            "tiering",
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

    @staticmethod
    def of(message: CreateFederation) -> "Spec":
        """Check a creation request as a whole.

        Raises:
            Unprocessable: If its manifest cannot be a model or its settings contradict each other.
        """
        tiering = message.tiering
        method = resolve(message.method)
        _require_runnable(method)
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
        return Spec(
            name=message.name,
            method=method,
            manifest=manifest,
            tiering=tiering,
            rounds=message.rounds,
            stop=message.stop,
            seed=message.seed,
            uploads_model=message.initial_model == "upload",
        )
