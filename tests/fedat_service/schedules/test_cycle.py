import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedat_service.errors import RuleError
from fedat_service.schedules.cycle import Cycle, uniform

CYCLES = st.integers(1, 24).flatmap(
    lambda length: st.lists(
        st.sampled_from([i for i in range(1, length + 1) if length % i == 0]), min_size=1, max_size=6
    ).map(lambda intervals: Cycle(length, {f"t{i}": n for i, n in enumerate(intervals)}))
)


@given(CYCLES)
def test_a_round_ends_with_everything_in_sync(cycle):
    assert cycle.due(cycle.length) == tuple(cycle.intervals)


@given(CYCLES)
def test_a_tensor_is_due_as_often_as_its_interval_says(cycle):
    due = [name for sync in cycle.syncs() for name in cycle.due(sync)]
    assert {name: due.count(name) for name in cycle.intervals} == {
        name: cycle.length // interval for name, interval in cycle.intervals.items()
    }


@given(CYCLES)
def test_a_sync_without_a_due_tensor_is_no_sync(cycle):
    assert cycle.syncs() == tuple(s for s in range(1, cycle.length + 1) if cycle.due(s))


@pytest.mark.parametrize("sync", [0, 5])
def test_a_round_has_no_sync_beside_its_own(sync):
    with pytest.raises(RuleError, match=f"a round of 4 syncs has no sync {sync}"):
        uniform(["a"], 4).due(sync)


@pytest.mark.parametrize("interval", [0, 3, 8])
def test_an_interval_that_does_not_divide_the_round_is_refused(interval):
    with pytest.raises(RuleError, match=f"tensor 'b': interval {interval} does not divide a round of 4"):
        Cycle(4, {"a": 2, "b": interval})


def test_a_round_without_syncs_is_refused():
    with pytest.raises(RuleError, match="got length 0"):
        Cycle(0, {"a": 1})


def test_a_schedule_that_names_nothing_is_refused():
    with pytest.raises(RuleError, match="at least one tensor"):
        uniform([])


def test_a_cycle_does_not_change_with_what_it_was_made_of():
    intervals = {"a": 1}
    cycle = Cycle(2, intervals)
    intervals["a"] = 2
    assert cycle.due(1) == ("a",)
    with pytest.raises(TypeError):
        cycle.intervals["a"] = 2
