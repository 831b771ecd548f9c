"""How simulations and benchmarks call a service in their own process, and how long its clients wait."""

URL = "http://simulated"
"""What the service is called; nothing listens there."""

LONGEST_POLL_S = 3600.0
"""What the API allows: an idle client costs nothing while it waits, and nothing can get lost on the way."""
