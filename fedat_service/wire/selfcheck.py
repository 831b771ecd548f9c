"""Does the codec on this machine do what it should? For `fedat doctor`: findings, not exceptions."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import polyline as package
from numpy.typing import NDArray

from fedat_service.errors import WireError
from fedat_service.wire.polyline import BACKENDS, DEFAULT, PRECISIONS, Backend, Layout

_LAYOUTS: tuple[Layout, ...] = ("pairs", "flat", "plain")
_TWIN = BACKENDS["numpy"]
_SEED = 20260101


@dataclass(frozen=True, slots=True)
class Finding:
    """One comparison; `detail` says what is wrong, and is empty if nothing is."""

    name: str
    detail: str = ""

    @property
    def ok(self) -> bool:
        """Whether both sides agree."""
        return not self.detail


@dataclass(frozen=True, slots=True)
class Report:
    """Which backend runs, and what was found."""

    backend: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return all(finding.ok for finding in self.findings)


def check_codec(backends: Iterable[Backend] = tuple(BACKENDS.values())) -> Report:
    """Hold every backend against the `polyline` package and against the NumPy twin.

    The data are fixed: normal weights, ties, signed zeros, denormals, the ends of the range; odd and even
    numbers of them, and none.
    """
    findings = []
    for backend in backends:
        for precision in PRECISIONS:
            name = f"{backend.name}, precision {precision}"
            findings.append(_finding(f"{name}: as the polyline package", _package(backend, precision)))
            findings.append(_finding(f"{name}: as the NumPy twin", _twin(backend, precision)))
    return Report(DEFAULT.name, tuple(findings))


def _finding(name: str, complaints: Iterator[str]) -> Finding:
    try:
        return Finding(name, next(complaints, ""))
    except (WireError, ValueError) as error:
        return Finding(name, f"{type(error).__name__}: {error}")


def _data(precision: int) -> Iterator[NDArray[np.float32]]:
    rng = np.random.default_rng(_SEED)
    ties = (rng.integers(-3000, 3000, 999) + 0.5) / 10**precision
    edges = [0.0, -0.0, 1e-42, -1e-42, 1e-38, 1e9 / 10**precision, -1e9 / 10**precision]
    weights = rng.normal(0.0, 0.05, 5000)
    for values in (weights, ties, edges, weights[:3], weights[:1], weights[:0]):
        yield np.asarray(values, np.float32)


def _package(backend: Backend, precision: int) -> Iterator[str]:
    """Yield what differs from the package, for the layout it knows."""
    for values in _data(precision):
        # As Python floats: the package rounds NumPy's float32 scalars in float32.
        column = values.tolist()
        padded = column + column[-2:-1] if len(column) > 1 else [*column, 0.0]
        pairs = list(zip(padded[::2], padded[1::2], strict=False))
        expected = package.encode(pairs, precision).encode() if column else b""
        if backend.encode(values, precision) != expected:
            yield f"other bytes for {values.size} values"
        decoded = [x for pair in package.decode(expected.decode(), precision) for x in pair]
        if not _same(backend.decode(expected, values.size, precision), decoded[: values.size]):
            yield f"other values from {len(expected)} bytes"


def _twin(backend: Backend, precision: int) -> Iterator[str]:
    """Yield what differs from NumPy, in every layout."""
    for values in _data(precision):
        if not _same(backend.quantise(values, precision), _TWIN.quantise(values, precision)):
            yield f"other integers for {values.size} values"
        for layout in _LAYOUTS:
            payload = _TWIN.encode(values, precision, layout)
            if backend.encode(values, precision, layout) != payload:
                yield f"other bytes for {values.size} values in {layout}"
            backend.check(payload, values.size, layout)
            if not _same(
                backend.decode(payload, values.size, precision, layout),
                _TWIN.decode(payload, values.size, precision, layout),
            ):
                yield f"other values from {len(payload)} bytes in {layout}"
            if not _same(
                _sum(backend, payload, values.size, layout), _sum(_TWIN, payload, values.size, layout)
            ):
                yield f"other sums from {len(payload)} bytes in {layout}"


def _sum(backend: Backend, payload: bytes, count: int, layout: Layout) -> NDArray[np.float64]:
    total = np.ones(count)
    backend.add(payload, 3.0, total, layout)
    return total


def _same(found: NDArray[np.generic], expected: NDArray[np.generic] | list[float]) -> bool:
    return np.array_equal(found, np.asarray(expected, found.dtype))
