import pytest

from loadtest.benchmarks.peers.comparison import Run, compare, noise

SECONDS = "peers_cnn_e3_round_s_ours_vs_loop"
ACCURACY = "peers_cnn_e3_round_accuracy_ours_vs_loop"
DIFFERENCE = "peers_cnn_e3_round_accuracy_difference_ours_vs_loop"
VERSIONS = {"ours": {"torch": "2", "us": "1"}, "loop": {"torch": "3"}}


def runs(contestant, *seconds, kind="round", workload="cnn_e3", accuracies=(0.5,) * 3, first_seed=0):
    return [
        Run(contestant, workload, kind, seed, took_s, accuracy, VERSIONS.get(contestant, {}))
        for seed, (took_s, accuracy) in enumerate(zip(seconds, accuracies, strict=False), first_seed)
    ]


def numbers(one):
    return one["value"], one["baseline"], one["ratio"]


def judged(ours, loop):
    return compare(runs("ours", *ours, accuracies=ours) + runs("loop", *loop, accuracies=loop))[DIFFERENCE]


def test_a_ratio_is_ours_over_theirs():
    found = compare(runs("ours", 1.0, accuracies=[0.4]) + runs("loop", 4.0))
    assert {name: numbers(one) for name, one in found.items()} == {
        SECONDS: (1.0, 4.0, 0.25),
        ACCURACY: (0.4, 0.5, 0.8),
    }


def test_seconds_count_by_the_median_of_the_seeds():
    found = compare(runs("ours", 1.0, 9.0, 2.0) + runs("loop", 8.0, 7.0, 90.0))
    assert numbers(found[SECONDS])[:2] == (2.0, 8.0)


def test_accuracies_count_by_the_mean_of_the_seeds():
    found = compare(runs("ours", 1.0, 1.0, accuracies=[0.3, 0.5]) + runs("loop", 1.0, 1.0))
    assert found[ACCURACY]["value"] == pytest.approx(0.4)


def test_only_seeds_that_both_have_done_count():
    found = compare(runs("ours", 1.0, 9.0, 2.0) + runs("loop", 8.0, first_seed=2))
    assert numbers(found[SECONDS])[:2] == (2.0, 8.0)


def test_every_result_names_what_both_sides_ran():
    found = compare(runs("ours", 1.0, 1.0) + runs("loop", 4.0, 4.0))
    assert len(found) == 3
    assert all(one["versions"] == {"ours": "torch 2, us 1", "loop": "torch 3"} for one in found.values())


def test_both_of_ours_are_held_against_each_of_the_others():
    found = compare([one for name in ("ours", "ours-bfloat16", "pfl", "flower") for one in runs(name, 1.0)])
    assert {name for name in found if "_round_s_" in name} == {
        f"peers_cnn_e3_round_s_{ours}_vs_{peer}"
        for ours in ("ours", "ours-bfloat16")
        for peer in ("pfl", "flower")
    }


@pytest.mark.parametrize("other", [{"kind": "job"}, {"workload": "cnn_e1"}])
def test_only_like_is_compared_with_like(other):
    assert not compare(runs("ours", 1.0) + runs("loop", 4.0, **other))


def test_a_contestant_without_runs_takes_nothing_from_the_others():
    assert SECONDS in compare(runs("ours", 1.0) + runs("loop", 4.0) + runs("pfl"))


def test_accuracies_that_scatter_around_the_same_lie_within_noise():
    assert judged(ours=[0.55, 0.37, 0.40], loop=[0.54, 0.38, 0.41])["ratio"] < 1


@pytest.mark.parametrize("sign", [1, -1])
def test_a_difference_that_every_seed_shows_is_no_noise(sign):
    loop = [0.54, 0.38, 0.41]
    ours = [accuracy + sign * off for accuracy, off in zip(loop, [0.10, 0.11, 0.12], strict=True)]
    found = judged(ours, loop)
    assert found["value"] == pytest.approx(0.11)
    assert found["ratio"] > 1


def test_one_seed_says_nothing_about_noise():
    assert DIFFERENCE not in compare(runs("ours", 1.0) + runs("loop", 4.0))


def test_equal_accuracies_lie_within_noise():
    value, one_image, ratio = numbers(judged([0.5] * 3, [0.5] * 3))
    assert (value, ratio) == (0, 0)
    assert one_image == pytest.approx(1 / 10_000)


def test_noise_is_the_half_width_of_students_interval():
    # scipy.stats.ttest_1samp gives -0.0397 to 0.0597.
    assert noise([0.01, 0.03, -0.01]) == pytest.approx(0.0497, abs=5e-5)


def test_more_seeds_make_less_noise():
    found = [noise([0.01, -0.01] * half) for half in range(1, 10)]
    assert found == sorted(found, reverse=True)
