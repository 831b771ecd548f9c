"""The sans-I/O core: a federation is a fold of `transition` over its events."""
