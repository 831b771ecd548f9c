"""What codecs of rounded differences have in common."""

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from fedat_service.wire.polyline_numpy import Payload


class Rounded(ABC):
    """A codec of differences to a base that both sides hold; what arrives is near them, not equal."""

    __slots__ = ()

    @property
    def scale(self) -> int:
        """1: there is no grid that all updates share."""
        return 1

    @property
    @abstractmethod
    def largest(self) -> float:
        """Largest magnitude of a model: no two such models have differences that cannot travel."""

    @abstractmethod
    def fields(self) -> dict[str, str | int]:
        """What the header of a bundle says of this codec."""

    @abstractmethod
    def size_bytes(self, count: int) -> int:
        """Bytes that `count` differences take."""

    def size_bounds(self, count: int) -> tuple[int, int]:
        """Fewest and most bytes that `count` differences can take: they are always as many."""
        size = self.size_bytes(count)
        return size, size

    def on_grid(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Values in the units of `add`."""
        return values

    def encode_from(
        self, values: NDArray[np.float32], base: NDArray[np.float32], rng: np.random.Generator
    ) -> bytes:
        """Round and encode the differences of values to other ones.

        Raises:
            WireError: If a difference is out of range.
        """
        # A difference that leaves the range is infinite, which no codec takes.
        with np.errstate(over="ignore"):
            return self.encode(np.subtract(values, base), rng)

    def decode_from(self, payload: Payload, base: NDArray[np.float32]) -> NDArray[np.float32]:
        """Add differences to the same base.

        Raises:
            WireError: If the payload is anything but as many differences.
        """
        return np.add(base, self.decode(payload, base.size))

    @abstractmethod
    def encode(self, differences: NDArray[np.float32], rng: np.random.Generator) -> bytes:
        """Round and encode differences; the generator serves codecs that round at random.

        Raises:
            WireError: If a difference is out of range.
        """

    @abstractmethod
    def decode(self, payload: Payload, count: int) -> NDArray[np.float32]:
        """Decode exactly `count` differences.

        Raises:
            WireError: If the payload is anything but `count` differences.
        """

    @abstractmethod
    def check(self, payload: Payload, count: int) -> None:
        """Go through a payload as `decode` does, but give no differences.

        Raises:
            WireError: If the payload is anything but `count` differences.
        """

    @abstractmethod
    def add(self, payload: Payload, weight: float, total: NDArray[np.float64]) -> None:
        """Add ``weight * difference`` to every element of `total`, for a payload that passed `check`.

        Raises:
            WireError: If the payload is anything but `total.size` differences.
        """
