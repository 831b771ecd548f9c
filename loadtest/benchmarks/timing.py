"""How long several ways of doing the same take."""

from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter


def medians_s(ways: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Seconds that each way takes: the median of calls made by turns, after one of each that does not count.

    By turns, so that whatever else the machine does falls on all of them alike.
    """
    times_s: dict[str, list[float]] = {name: [] for name in ways}
    for run in ways.values():
        run()
    for _ in range(repeats):
        for name, run in ways.items():
            start_s = perf_counter()
            run()
            times_s[name].append(perf_counter() - start_s)
    return {name: median(times) for name, times in times_s.items()}
