"""Measurements of this build against baselines taken in the same minute, on the same machine."""
