import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.experiments.results import (
    centred_means,
    curve_of,
    speedup,
    summarise,
    time_to_target,
    trained_volume,
)

CLIMB = [0.1, 0.3, 0.5, 0.7, 0.6, 0.8, 0.9]
accuracies = st.lists(st.floats(0, 1), max_size=30)


def test_the_target_is_reached_in_the_middle_of_the_first_window_that_is_there():
    # Means of three: .3 .5 .6 .7 .77, belonging to positions 1..5.
    assert time_to_target([10, 20, 30, 40, 50, 60, 70], CLIMB, 0.6) == 40


def test_a_single_high_evaluation_is_not_the_target():
    assert time_to_target([1, 2, 3, 4], [0.0, 0.9, 0.0, 0.1], 0.5) is None
    assert time_to_target([1, 2, 3, 4], [0.0, 0.9, 0.0, 0.1], 0.5, window=1) == 2


def test_a_target_equal_to_constant_accuracy_is_reached():
    assert time_to_target([1, 2, 3], [0.7, 0.7, 0.7], 0.7) == 2


def test_fewer_evaluations_than_a_window_reach_nothing():
    assert time_to_target([1, 2], [1.0, 1.0], 0.5) is None


@given(accuracies, st.floats(0, 1), st.floats(0, 1))
def test_a_higher_target_is_never_reached_earlier(values, one, other):
    low, high = sorted((one, other))
    times = range(len(values))
    reached_low, reached_high = (time_to_target(times, values, target) for target in (low, high))
    assert reached_high is None or (reached_low is not None and reached_low <= reached_high)


@given(accuracies)
def test_centred_means_stay_between_the_extremes(values):
    for i, mean in enumerate(centred_means(values)):
        window = values[i : i + 3]
        assert min(window) - 1e-12 <= mean <= max(window) + 1e-12


def test_a_version_counts_from_its_publication_not_its_evaluation(make_run):
    assert curve_of(make_run("fedat", CLIMB)).at_s == (100, 200, 300, 400, 500, 600, 700)


def test_a_version_has_cost_the_messages_of_all_updates_up_to_it(make_run):
    # Two updates a version, 300 up and 400 down each.
    assert curve_of(make_run("fedat", CLIMB)).wire_bytes[:3] == (1400, 2800, 4200)


@pytest.mark.parametrize("models", [0.5, 1.0, 2.0])
def test_the_last_version_has_cost_what_the_service_counted(models, make_run):
    run = make_run("fedlama", CLIMB, models=models)
    counted = [trained_volume(run.metrics, way).wire for way in ("up", "down")]
    assert counted == [14 * 300 * models, 14 * 400 * models]
    assert curve_of(run).wire_bytes[-1] == sum(counted)


@pytest.mark.parametrize("models", [0.5, 2.0])
def test_bytes_to_the_target_are_those_of_the_messages_whatever_they_hold(models, make_run):
    to_target = summarise(make_run("scaffold", CLIMB, models=models), 0.6).bytes_to_target
    assert to_target == {"up": 4 * 2 * 300 * models, "down": 4 * 2 * 400 * models}


def test_profiling_and_observers_are_not_training(make_run):
    run = make_run("fedat", CLIMB)
    assert trained_volume(run.metrics, "down").wire == 14 * 400
    assert summarise(run, 0.6).bytes_outside_tiers["down"].wire == 450


def test_summary_holds_the_exact_numbers(make_run):
    summary = summarise(make_run("fedat", [*CLIMB, 0.8, 0.6], num_tiers=2), 0.6)
    assert summary.time_to_target_s == 400
    assert summary.first_hit_s == 400
    # The last fifth of 1000 s: versions 8 and 9.
    assert summary.final_evaluations == 2
    assert summary.final_accuracy == pytest.approx(0.7)
    assert summary.final_loss == pytest.approx(0.3)
    assert summary.client_accuracy_variance == pytest.approx(0.07)
    assert summary.best_accuracy == 0.9
    assert summary.bytes_to_target == {"up": 4 * 2 * 300, "down": 4 * 2 * 400}
    assert summary.bytes_per_parameter_up == 2.5
    assert (summary.versions, summary.updates, summary.evaluations) == (9, 18, 9)
    assert summary.tier_update_counts == (9, 0)
    assert summary.simulated_s == 1000


def test_without_late_evaluations_the_last_one_is_final(make_run):
    summary = summarise(make_run("fedat", CLIMB), 0.6)
    assert (summary.final_accuracy, summary.final_evaluations) == (0.9, 1)


def test_a_run_without_a_planned_end_lasts_until_it_was_looked_at(make_run):
    assert summarise(make_run("fedat", CLIMB, horizon_s=None), 0.6).simulated_s == 1200


def test_a_run_that_published_nothing_has_no_accuracy(make_run):
    summary = summarise(make_run("fedat", []), 0.6)
    assert summary.time_to_target_s is None
    assert summary.final_accuracy is None
    assert summary.final_loss is None
    assert summary.best_accuracy is None
    assert summary.bytes_per_parameter_up is None
    assert summary.bytes_to_target is None


def test_speedup_is_the_ratio_of_times_to_target(make_run):
    slow = summarise(make_run("fedavg", [0.0, 0.1, 0.1, 0.2, 0.2, 0.3, 0.5, 0.7, 0.8]), 0.6)
    fast = summarise(make_run("fedat", CLIMB), 0.6)
    assert slow.time_to_target_s == 800
    assert speedup(fast, slow) == 2.0


def test_speedup_over_a_method_that_never_gets_there_is_unknown(make_run):
    fast, never = (summarise(make_run("fedat", values), 0.6) for values in (CLIMB, [0.1] * 9))
    assert speedup(fast, never) is None
    assert speedup(never, fast) is None
