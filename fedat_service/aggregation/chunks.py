"""Walking a long vector in parts that stay in the cache."""

from collections.abc import Iterator

CHUNK = 1 << 15
"""Elements per part: 256 KiB of float64, so that a part and its product fit the second-level cache."""


def chunks(size: int) -> Iterator[slice]:
    """Yield the parts of a vector of `size` elements, in order."""
    return (slice(start, start + CHUNK) for start in range(0, size, CHUNK))
