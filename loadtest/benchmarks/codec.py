"""The polyline codec against the reference package, and against copying the same floats.

A million weights, precision 4, layout `pairs`, one thread. Speeds in million values a second; a name ending
in `_ms` is a time against the most it may take.
"""

from collections.abc import Callable, Mapping
from time import perf_counter

import numpy as np
import polyline as package

from fedat_service.errors import WireError
from fedat_service.wire.polyline import BACKENDS, Backend
from loadtest.benchmarks.run import Results, measurement
from loadtest.benchmarks.timing import medians_s

_COUNT = 1_000_000
_PRECISION = 4
_SPREAD = 0.05
"""Standard deviation of a trained network's weights (FedAT's models)."""
_REPEATS = 15
_PACKAGE_REPEATS = 3
"""Each takes about two seconds."""
_REFUSAL_LIMIT_MS = 50.0


def measure() -> Results:
    """Median speeds of interleaved repetitions, of the fastest C build (if there is one) and of NumPy."""
    values = np.random.default_rng(0).normal(0.0, _SPREAD, _COUNT).astype(np.float32)
    contestants = {kind: backend for kind, backend in _contestants().items() if backend is not None}
    text = BACKENDS["numpy"].encode(values, _PRECISION)
    copied = np.empty_like(values)
    pairs = list(zip(values[::2].tolist(), values[1::2].tolist(), strict=True))
    slow = {
        "package_encode": lambda: package.encode(pairs, _PRECISION),
        "package_decode": lambda: package.decode(text.decode(), _PRECISION),
    }
    fast: dict[str, Callable[[], object]] = {"memcpy": lambda: np.copyto(copied, values)}
    for kind, backend in contestants.items():
        fast |= _operations(kind, backend, values, text)
    speeds = _speeds(slow, _PACKAGE_REPEATS) | _speeds(fast, _REPEATS)
    refusals = [_refusal_ms(backend) for backend in contestants.values()]
    return _results(speeds) | {
        "codec_refuse_tilde_megabyte_ms": measurement(max(refusals), _REFUSAL_LIMIT_MS)
    }


def _contestants() -> dict[str, Backend | None]:
    fastest = next(iter(BACKENDS.values()))
    return {"c": None if fastest is BACKENDS["numpy"] else fastest, "numpy": BACKENDS["numpy"]}


def _operations(
    kind: str, backend: Backend, values: np.typing.NDArray[np.float32], text: bytes
) -> dict[str, Callable[[], object]]:
    total = np.zeros(values.size)

    def check_add() -> None:
        backend.check(text, values.size)
        backend.add(text, 1.0, total)

    return {
        f"encode_{kind}": lambda: backend.encode(values, _PRECISION),
        f"decode_{kind}": lambda: backend.decode(text, values.size, _PRECISION),
        f"check_add_{kind}": check_add,
    }


def _speeds(operations: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Million values a second, by name."""
    return {name: _COUNT / time_s / 1e6 for name, time_s in medians_s(operations, repeats).items()}


def _results(speeds: Mapping[str, float]) -> Results:
    results: Results = {}
    for kind in ("c", "numpy"):
        if f"encode_{kind}" not in speeds:
            continue
        for way in ("encode", "decode"):
            speed = speeds[f"{way}_{kind}"]
            results[f"codec_{way}_{kind}_vs_package"] = measurement(speed, speeds[f"package_{way}"])
        for way in ("encode", "decode", "check_add"):
            results[f"codec_{way}_{kind}_vs_memcpy"] = measurement(speeds[f"{way}_{kind}"], speeds["memcpy"])
    return results


def _refusal_ms(backend: Backend) -> float:
    """Milliseconds to refuse a megabyte of characters that never end a value."""
    endless = b"~" * 1_000_000
    start_s = perf_counter()
    try:
        backend.decode(endless, _COUNT, _PRECISION)
    except WireError:
        return (perf_counter() - start_s) * 1e3
    raise WireError("a megabyte of '~' was taken for values")
