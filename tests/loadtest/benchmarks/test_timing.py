"""Ways are timed by turns, each once before it counts."""

from loadtest.benchmarks import timing


def test_every_way_runs_once_for_nothing_and_then_they_take_turns():
    calls = []
    timing.medians_s({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3)
    assert "".join(calls) == "ab" + "ab" * 3


def test_a_median_is_of_the_times_of_its_own_way(monkeypatch):
    now_s = [0.0]
    took_s = {"a": iter([9.0, 1.0, 5.0, 2.0]), "b": iter([0.0, 3.0, 3.0, 4.0])}

    def spend(name):
        now_s[0] += next(took_s[name])

    monkeypatch.setattr(timing, "perf_counter", lambda: now_s[0])
    found = timing.medians_s({name: lambda name=name: spend(name) for name in took_s}, 3)
    assert found == {"a": 2.0, "b": 3.0}
