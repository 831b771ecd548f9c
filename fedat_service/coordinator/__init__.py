"""The one mutable object of a federation: it holds the state, applies events and wakes who waits."""
