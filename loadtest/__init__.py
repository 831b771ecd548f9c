"""Load tests, experiments and benchmarks."""
