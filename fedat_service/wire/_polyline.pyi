"""The polyline codec's C half: see `fedat_service.wire.polyline` for what it does."""

from typing import Any

from numpy.typing import NDArray

from fedat_service.wire.polyline_numpy import Fault, Payload

class Kernels:
    """The codec's loops, built for one kind of machine."""

    def encode(self, values: NDArray[Any], factor: float, lag: int, /) -> bytes | None: ...
    def quantise(self, values: NDArray[Any], integers: NDArray[Any], factor: float, /) -> bool: ...
    def decode(self, payload: Payload, values: NDArray[Any], factor: float, lag: int, /) -> Fault | None: ...
    def check(self, payload: Payload, count: int, lag: int, /) -> Fault | None: ...
    def add(self, payload: Payload, total: NDArray[Any], weight: float, lag: int, /) -> Fault | None: ...

BUILDS: dict[str, Kernels]
