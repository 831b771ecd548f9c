"""All benchmarks, or those that are asked for, as one result."""

import importlib
import json
import sys
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import NotRequired, TypedDict

from rich.console import Console

from fedat_service.errors import ConfigError, FedATError, NotMeasured

SUITES = ("codec", "memory", "peers", "pool", "scale", "solvers", "stacking", "training", "upload")
"""Modules of this package; each has `measure()`. A module's results start with its name."""


class Measurement(TypedDict):
    """A measured value, what it is held against, and the first over the second.

    `versions` names the packages that either side ran, where one of them is not this build.
    """

    value: float
    baseline: float
    ratio: float
    versions: NotRequired[Mapping[str, str]]


Results = dict[str, Measurement]


def measurement(value: float, baseline: float) -> Measurement:
    """A value with its baseline."""
    return {"value": value, "baseline": baseline, "ratio": value / baseline}


def run_benchmarks(only: str, console: Console) -> Results:
    """Run the suites that can hold names starting with `only`, one after the other.

    Args:
        only: Start of the names wanted; a suite's name, or part of it, wants all of the suite.
        console: Where progress goes.

    Raises:
        ConfigError: If no suite fits.
        NotMeasured: If a suite failed, or part of it, or was interrupted; it holds the results of the others.
    """
    wanted = [suite for suite in SUITES if suite.startswith(only) or only.startswith(suite)]
    if not wanted:
        raise ConfigError(f"no benchmark starts with {only!r}; there are {', '.join(SUITES)}")
    results, failures = {}, []
    for suite in wanted:
        console.print(f"measuring {suite} ...", highlight=False)
        start_s = perf_counter()
        try:
            results[suite] = importlib.import_module(f"loadtest.benchmarks.{suite}").measure()
        except (FedATError, OSError) as error:
            results[suite] = error.results if isinstance(error, NotMeasured) else {}
            failures.append(f"{suite}: {error}")
        except KeyboardInterrupt:
            failures.append(f"{suite}: interrupted")
            break
        console.print(f"measured {suite} in {perf_counter() - start_s:.0f} s", highlight=False)
    merged = merge(results, only)
    if failures:
        raise NotMeasured("; ".join(failures), merged)
    return merged


def show(measure: Callable[[], Results]) -> None:
    """Print what is measured as one JSON object, all the same if it is not everything.

    Raises:
        NotMeasured: After that, if something could not be measured.
    """
    try:
        results, missing = measure(), None
    except NotMeasured as error:
        results, missing = error.results, error
    sys.stdout.write(json.dumps(results, indent=2, allow_nan=False) + "\n")
    if missing is not None:
        raise missing


def merge(suites: Mapping[str, Results], only: str = "") -> Results:
    """Put the suites' results together, in the order of their names.

    Raises:
        ConfigError: If two suites use one name.
    """
    merged: Results = {}
    for suite, results in suites.items():
        for name, result in results.items():
            if name in merged:
                raise ConfigError(f"two benchmarks are called {name!r}")
            if suite.startswith(only) or name.startswith(only):
                merged[name] = result
    return dict(sorted(merged.items()))
