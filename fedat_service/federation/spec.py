"""What a federation is, decided once when it is created."""

from dataclasses import dataclass
from functools import cached_property

from fedat_service.errors import ManifestError, Unprocessable
from fedat_service.methods.participation import ParticipationRule, rule_for
from fedat_service.params import Manifest
from fedat_service.wire.messages import CreateFederation
from fedat_service.wire.presets import resolve
from fedat_service.wire.settings import Method, Rounds, Stop, Tiering


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

    @staticmethod
    def of(message: CreateFederation) -> "Spec":
        """Check a creation request as a whole.

        Raises:
            Unprocessable: If its manifest cannot be a model or its settings contradict each other.
        """
        tiering = message.tiering
        if tiering.rule == "quantiles" and len(tiering.quantiles) != tiering.num_tiers - 1:
            raise Unprocessable(
                f"{tiering.num_tiers} tiers need {tiering.num_tiers - 1} quantiles, "
                f"got {len(tiering.quantiles)}",
                "tiering.quantiles",
            )
        if list(tiering.quantiles) != sorted(set(tiering.quantiles)):
            raise Unprocessable(f"quantiles must ascend, got {tiering.quantiles}", "tiering.quantiles")
        try:
            manifest = message.manifest.to_manifest()
        except ManifestError as error:
            raise Unprocessable(str(error), "manifest") from error
        return Spec(
            name=message.name,
            method=resolve(message.method),
            manifest=manifest,
            tiering=tiering,
            rounds=message.rounds,
            stop=message.stop,
            seed=message.seed,
            uploads_model=message.initial_model == "upload",
        )
