import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedat_service.errors import ConfigError, LogDamaged
from fedat_service.federation.events import TaskDelivered, UpdateAccepted, VersionEvaluated, to_record
from loadtest.experiments.what_if import Recorded, predict, recorded, slowest_of, to_table


def log_of(tmp_path, *events):
    log = tmp_path / "f.events.jsonl"
    lines = [{"kind": "federation_created", "definition": {}}, *map(to_record, events)]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return log


def evaluation(at_s, version, accuracy):
    return VersionEvaluated(at_s, version, 3, 30, accuracy, 1.0, 0.01)


def test_latencies_and_the_worth_of_a_version_are_read_off_a_log(tmp_path):
    log = log_of(
        tmp_path,
        TaskDelivered(1.0, "t0.r1.s0.a"),
        TaskDelivered(2.0, "t0.r1.s0.b"),
        UpdateAccepted(4.0, "t0.r1.s0.a", 10, "x"),
        evaluation(5.0, 0, 0.1),
        UpdateAccepted(7.0, "t0.r1.s0.b", 10, "y"),
        TaskDelivered(10.0, "t1.r1.s0.a"),
        UpdateAccepted(11.5, "t1.r1.s0.a", 10, "z"),
        evaluation(20.0, 30, 0.4),
        evaluation(25.0, 40, 0.3),
    )
    run = recorded(log)
    assert run.latencies_s == {"a": [3.0, 1.5], "b": [5.0]}
    assert run.versions_per_point == pytest.approx(1.0)


def test_of_several_federations_in_a_log_the_last_counts(tmp_path):
    events = [TaskDelivered(1.0, "t0.r1.s0.a"), UpdateAccepted(4.0, "t0.r1.s0.a", 10, "x")]
    log = log_of(tmp_path, *events)
    first = log.read_text()
    again = log_of(tmp_path, TaskDelivered(1.0, "t0.r1.s0.b"), UpdateAccepted(3.0, "t0.r1.s0.b", 10, "x"))
    log.write_text(first + again.read_text())
    assert recorded(log).latencies_s == {"b": [2.0]}


def test_a_log_without_updates_says_nothing(tmp_path):
    with pytest.raises(ConfigError, match="no update"):
        recorded(log_of(tmp_path, TaskDelivered(1.0, "t0.r1.s0.a")))


@pytest.mark.parametrize(
    "events",
    [
        [UpdateAccepted(4.0, "t0.r1.s0.a", 10, "x")],
        [TaskDelivered(1.0, "nonsense"), UpdateAccepted(4.0, "nonsense", 10, "x")],
    ],
)
def test_an_update_that_cannot_be_is_named(tmp_path, events):
    with pytest.raises(LogDamaged, match=events[-1].task):
        recorded(log_of(tmp_path, *events))


def test_clients_that_take_no_time_make_versions_in_no_time():
    (one,) = predict(Recorded({"a": [0.0]}, versions_per_point=2.0), 1, cohort_size=1)
    assert (one.version_s, one.point_s) == (0.0, 0.0)


def test_the_slowest_of_all_draws_is_expected_between_mean_and_maximum():
    assert slowest_of([[1.0], [2.0], [3.0]], 1) == pytest.approx(2.0)
    # Two draws from {1, 2, 3}: maxima 1 (1/9), 2 (3/9), 3 (5/9).
    assert slowest_of([[3.0], [1.0, 2.0, 2.0, 1.0], [2.0, 1.0]], 1) == pytest.approx(2.0)  # 3, 1.5, 1.5
    assert slowest_of([[3.0], [1.0], [2.0]], 2) == pytest.approx((1 + 6 + 15) / 9)
    assert slowest_of([[1.0], [2.0], [3.0]], 1000) == pytest.approx(3.0)


def test_a_client_counts_once_however_often_it_was_seen():
    (one,) = predict(Recorded({"fast": [1.0] * 50, "slow": [9.0]}, None), 1, cohort_size=1)
    assert one.round_s == pytest.approx((5.0,))


@given(
    st.lists(st.lists(st.floats(0, 100), min_size=1, max_size=4), min_size=1, max_size=5), st.integers(1, 5)
)
def test_seeing_the_same_again_changes_nothing_and_more_draws_are_never_faster(seen, k):
    again = [latencies * (1 + place) for place, latencies in enumerate(seen)]
    assert slowest_of(again, k) == pytest.approx(slowest_of(seen, k))
    highest = max(map(max, seen))
    assert slowest_of(seen, k) <= slowest_of(seen, k + 1) + 1e-9 <= highest + 2e-9


def test_more_tiers_make_versions_faster_and_each_tier_as_slow_as_its_own_clients():
    run = Recorded({f"c{k}": [float(k)] for k in range(1, 9)}, versions_per_point=2.0)
    one, two, *_, eight = predict(run, 8, cohort_size=100)
    assert one.num_tiers == 1
    assert one.round_s[0] == one.version_s
    assert two.round_s[0] < one.round_s[0] < two.round_s[1]
    assert eight.round_s == pytest.approx(tuple(range(1, 9)))
    assert eight.version_s == pytest.approx(1 / sum(1 / k for k in range(1, 9)))
    assert eight.point_s == pytest.approx(2 * eight.version_s)
    seconds = [prediction.version_s for prediction in predict(run, 8, 100)]
    assert seconds == sorted(seconds, reverse=True)


@pytest.mark.parametrize(("max_tiers", "cohort"), [(0, 1), (3, 1), (1, 0)])
def test_numbers_that_make_no_sense_are_refused(max_tiers, cohort):
    with pytest.raises(ConfigError):
        predict(Recorded({"a": [1.0], "b": [2.0]}, None), max_tiers, cohort)


def test_the_table_has_a_line_for_every_number_of_tiers():
    table = to_table(predict(Recorded({"a": [1.0], "b": [3.0]}, None), 2, 1))
    assert table.splitlines()[2:] == ["| 1 | 2.0 | 2.00 | unknown |", "| 2 | 1.0, 3.0 | 0.75 | unknown |"]
