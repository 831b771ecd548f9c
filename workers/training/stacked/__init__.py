"""Cohort training: clients that train the same module are trained at once, as one stacked model."""
