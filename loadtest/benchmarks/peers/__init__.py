"""Other frameworks on the same work as ours, each in its own environment; see `run`."""
