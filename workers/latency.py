"""How long a simulated client takes, and when it is gone for good.

Every draw is a pure function of (seed, client, participation, purpose), so that neither the order of the
draws nor the process that makes them changes a value. Clients and participations count from zero.
"""

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from fedat_service.errors import ConfigError

FEDAT_PARTS_S = ((0.0, 0.0), (0.0, 5.0), (6.0, 10.0), (11.0, 15.0), (20.0, 30.0))
"""FedAT (SC '21, sec. 6): the bounds of the delay of each fifth of the clients, in seconds."""

FORMS = ("none", "fedat", "uniform:LOW:HIGH", "lognormal:MEDIAN:SIGMA", "pareto:MIN:SHAPE", "trace:FILE")
"""What `parse_latency` reads; all but SIGMA and SHAPE are seconds."""

_DELAY, _PARTS, _DROPS = range(3)


class LatencyModel(Protocol):
    """How long a client's round takes."""

    def sample(self, client: int, participation: int) -> float:
        """Return the seconds that `client` takes when it trains for the `participation`-th time."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """The same `latency_s` for everybody, always."""

    latency_s: float

    def sample(self, client: int, participation: int) -> float:
        """Return `latency_s`."""
        del client, participation
        return self.latency_s


@dataclass(frozen=True)
class FedATParts:
    """FedAT's five equal parts of clients, with delays of 0, 0-5, 6-10, 11-15 and 20-30 s.

    The delay is real-valued, uniform, and drawn anew for every participation. Clients are shuffled before
    they are cut into parts, so that a client's part says nothing about its data.
    """

    num_clients: int
    seed: int

    @cached_property
    def parts(self) -> tuple[int, ...]:
        """Part 0..4 of every client, fastest part first."""
        places = _generator(self.seed, _PARTS).permutation(self.num_clients)
        return tuple(int(place) * len(FEDAT_PARTS_S) // self.num_clients for place in places)

    def sample(self, client: int, participation: int) -> float:
        """Return a delay of the client's part."""
        low_s, high_s = FEDAT_PARTS_S[self.parts[client]]
        return float(_generator(self.seed, _DELAY, client, participation).uniform(low_s, high_s))


@dataclass(frozen=True, slots=True)
class Uniform:
    """Uniform between `low_s` and `high_s`."""

    low_s: float
    high_s: float
    seed: int

    def __post_init__(self) -> None:
        if not 0 <= self.low_s <= self.high_s < math.inf:
            raise ConfigError(f"uniform latency needs 0 <= low <= high, got {self.low_s} and {self.high_s}")

    def sample(self, client: int, participation: int) -> float:
        """Return a value of the interval."""
        return float(_generator(self.seed, _DELAY, client, participation).uniform(self.low_s, self.high_s))


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Log-normal: ``median_s * exp(sigma * z)`` with a standard normal z."""

    median_s: float
    sigma: float
    seed: int

    def __post_init__(self) -> None:
        if not (0 < self.median_s < math.inf and 0 <= self.sigma <= 10):
            raise ConfigError(
                f"log-normal latency needs median > 0, sigma in 0..10, got {self.median_s} and {self.sigma}"
            )

    def sample(self, client: int, participation: int) -> float:
        """Return a positive value."""
        z = _generator(self.seed, _DELAY, client, participation).standard_normal()
        return self.median_s * math.exp(self.sigma * z)


@dataclass(frozen=True, slots=True)
class Pareto:
    """Pareto: ``P(latency > x) = (min_s / x)^shape`` for ``x >= min_s``; the smaller `shape`, the heavier."""

    min_s: float
    shape: float
    seed: int

    def __post_init__(self) -> None:
        if not (0 < self.min_s < math.inf and 0.1 <= self.shape < math.inf):
            raise ConfigError(
                f"Pareto latency needs min > 0 and shape >= 0.1, got {self.min_s} and {self.shape}"
            )

    def sample(self, client: int, participation: int) -> float:
        """Return a value of `min_s` or more."""
        tail = _generator(self.seed, _DELAY, client, participation).pareto(self.shape)
        return self.min_s * (1 + float(tail))


@dataclass(frozen=True, slots=True)
class Trace:
    """Recorded latencies by client, one a participation, from the start again when they are used up."""

    latencies_s: Mapping[int, tuple[float, ...]]

    def sample(self, client: int, participation: int) -> float:
        """Return the recorded value."""
        recorded = self.latencies_s[client]
        return recorded[participation % len(recorded)]


@dataclass(frozen=True, slots=True)
class WithCompute:
    """A constant compute time before the latency of the network."""

    compute_s: float
    network: LatencyModel

    def sample(self, client: int, participation: int) -> float:
        """Return the sum of both."""
        return self.compute_s + self.network.sample(client, participation)


@dataclass(frozen=True)
class DropOuts:
    """Clients that are gone for good at a time drawn from U(0, horizon); FedAT has 10 of 100.

    Raises:
        ConfigError: If more clients are unstable than there are, or `horizon_s` is not positive.
    """

    num_clients: int
    num_unstable: int
    horizon_s: float
    seed: int

    def __post_init__(self) -> None:
        if not 0 <= self.num_unstable <= self.num_clients:
            raise ConfigError(f"{self.num_unstable} of {self.num_clients} clients cannot be unstable")
        if not 0 < self.horizon_s < math.inf:
            raise ConfigError(f"the horizon of drop-outs must be positive and finite, got {self.horizon_s}")

    @cached_property
    def unstable(self) -> frozenset[int]:
        """The clients that drop out."""
        order = _generator(self.seed, _DROPS).permutation(self.num_clients)
        return frozenset(order[: self.num_unstable].tolist())

    def drop_time_s(self, client: int) -> float:
        """Return when `client` is gone, in seconds from the start; infinity if it stays."""
        if client not in self.unstable:
            return math.inf
        return float(_generator(self.seed, _DROPS, client).uniform(0, self.horizon_s))


_DISTRIBUTIONS: Mapping[str, Callable[[float, float, int], LatencyModel]] = {
    "uniform": Uniform,
    "lognormal": LogNormal,
    "pareto": Pareto,
}


def parse_latency(text: str, num_clients: int, seed: int, compute_s: float = 0.0) -> LatencyModel:
    """Read a latency model from a short string; `FORMS` has them all.

    Args:
        text: For example ``fedat``, ``uniform:0:5``, ``lognormal:1.0:0.5``, ``pareto:2:1.5``,
            ``trace:latencies.csv``, ``none``.
        num_clients: Number of clients.
        seed: Equal seeds give equal latencies.
        compute_s: Constant compute time of every round, added to the latency.

    Raises:
        ConfigError: If the text, a number or a line of the trace makes no sense.
    """
    if num_clients < 1 or not 0 <= compute_s < math.inf:
        raise ConfigError(f"latency needs clients and a compute time >= 0, got {num_clients} and {compute_s}")
    if (trace := trace_of(text)) is not None:
        model: LatencyModel = read_trace(trace, num_clients)
    elif text in ("none", "fedat"):
        model = Constant(0.0) if text == "none" else FedATParts(num_clients, seed)
    else:
        model = _distribution(text, seed)
    return WithCompute(compute_s, model) if compute_s else model


def trace_of(text: str) -> Path | None:
    """The file of recorded latencies that a model is read from, if it is ``trace:FILE``."""
    kind, _, rest = text.partition(":")
    return Path(rest) if kind == "trace" and rest else None


def read_trace(path: Path, num_clients: int) -> Trace:
    """Read recorded latencies: CSV lines ``client,latency`` or, from ``*.jsonl``, objects with these keys.

    A CSV file may begin with a line of names. The lines of one client are its participations, in order.

    Raises:
        ConfigError: If the file cannot be read, a line makes no sense (the message has its number), or one
            of the clients has no line.
    """
    recorded: dict[int, list[float]] = {}
    for line, client, latency in _trace_lines(path):
        try:
            number, latency_s = int(str(client)), float(str(latency))
        except ValueError as error:
            raise ConfigError(f"{path}, line {line}: {client!r}, {latency!r} are not numbers") from error
        if number < 0 or not 0 <= latency_s < math.inf:
            raise ConfigError(f"{path}, line {line}: {number}, {latency_s} must be >= 0 and finite")
        recorded.setdefault(number, []).append(latency_s)
    if missing := set(range(num_clients)).difference(recorded):
        raise ConfigError(f"{path}: no latency for client {min(missing)} of {num_clients}")
    return Trace({client: tuple(values) for client, values in recorded.items()})


def _trace_lines(path: Path) -> Iterator[tuple[int, object, object]]:
    """Number, client and latency of every line."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"trace {path} cannot be read: {error}") from error
    return _json_lines(path, lines) if path.suffix == ".jsonl" else _csv_lines(path, lines)


def _json_lines(path: Path, lines: Iterable[str]) -> Iterator[tuple[int, object, object]]:
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            yield number, record["client"], record["latency"]
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ConfigError(
                f'{path}, line {number}: not {{"client": 0, "latency": 1.5}}: {line!r}'
            ) from error


def _csv_lines(path: Path, lines: Iterable[str]) -> Iterator[tuple[int, object, object]]:
    for number, cells in enumerate(csv.reader(lines), 1):
        if len(cells) != 2:
            raise ConfigError(f"{path}, line {number}: not 'client,latency': {cells!r}")
        if number > 1 or cells[0].strip() != "client":
            yield number, cells[0], cells[1]


def _distribution(text: str, seed: int) -> LatencyModel:
    kind, *numbers = text.split(":")
    if kind not in _DISTRIBUTIONS or len(numbers) != 2:
        raise ConfigError(f"unknown latency {text!r}: one of {', '.join(FORMS)}")
    try:
        first, second = map(float, numbers)
    except ValueError as error:
        raise ConfigError(f"latency {text!r}: {':'.join(numbers)} are not two numbers") from error
    return _DISTRIBUTIONS[kind](first, second, seed)


def _generator(seed: int, purpose: int, *key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose, *key)))
