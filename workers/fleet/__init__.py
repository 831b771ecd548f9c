"""Fleets: many simulated clients in a few processes, or one real client."""
