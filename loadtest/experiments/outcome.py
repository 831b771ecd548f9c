"""What came out of an experiment: every method's run with every seed."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from loadtest.experiments.experiment import Experiment
from loadtest.experiments.quantities import QUANTITIES, Ratios, Spread, spread_of
from loadtest.experiments.results import MethodRun, Summary, speedup, summarise


@dataclass(frozen=True)
class Outcome:
    """All runs of an experiment.

    Attributes:
        experiment: What was run; of its seed, `seeds` take the place.
        seeds: In this order.
        runs: By method, one a seed.
        virtual: Whether they ran in virtual time.
    """

    experiment: Experiment
    seeds: tuple[int, ...]
    runs: Mapping[str, tuple[MethodRun, ...]]
    virtual: bool

    @cached_property
    def summaries(self) -> dict[str, tuple[Summary, ...]]:
        """By method, one a seed."""
        target = self.experiment.target_accuracy
        return {name: tuple(summarise(run, target) for run in runs) for name, runs in self.runs.items()}

    def by_seed(self) -> "list[Outcome]":
        """The same, each seed by itself."""
        return [
            Outcome(
                self.experiment.changed(seed=seed),
                (seed,),
                {name: (runs[at],) for name, runs in self.runs.items()},
                self.virtual,
            )
            for at, seed in enumerate(self.seeds)
        ]

    def spread(self, method: str, quantity: str) -> Spread:
        """One of `QUANTITIES` of a method over the seeds."""
        return spread_of(quantity, self.summaries[method])

    def ratio(self, method: str, quantity: str) -> Ratios:
        """How many times the reference's a quantity is, seed by seed; unknown without a reference."""
        reference = self.summaries.get(self.experiment.reference, ())
        if not reference:
            return Ratios((None,) * len(self.seeds))
        value = QUANTITIES[quantity].value
        pairs = [(value(one), value(own)) for one, own in zip(self.summaries[method], reference, strict=True)]
        return Ratios(tuple(None if one is None or not own else one / own for one, own in pairs))

    @property
    def speedups(self) -> dict[str, Ratios]:
        """How many times less simulated time to the target the reference took than each other method."""
        reference = self.summaries.get(self.experiment.reference)
        if reference is None:
            return {}
        return {
            name: Ratios(tuple(map(speedup, reference, ones)))
            for name, ones in self.summaries.items()
            if name != self.experiment.reference
        }
