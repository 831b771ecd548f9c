"""Experiments, in virtual time or on real processes: what is run, what is measured, what is reported."""

from loadtest.experiments.compare import Comparison, compare, simulate_all
from loadtest.experiments.experiment import Experiment, load_experiment, suite_names

__all__ = ["Comparison", "Experiment", "compare", "load_experiment", "simulate_all", "suite_names"]
