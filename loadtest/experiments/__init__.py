"""Experiments on real processes: what is run, what is measured, what is reported."""
