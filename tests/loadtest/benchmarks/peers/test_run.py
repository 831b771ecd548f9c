import pytest

from loadtest.benchmarks.peers.run import Run, ratios

NAME = "peers_cnn_e3_round_ours_vs_loop"


def runs(contestant, *seconds, what="round", workload="cnn_e3"):
    return [Run(contestant, workload, what, one) for one in seconds]


def test_a_ratio_is_ours_over_theirs():
    assert ratios(runs("ours", 1.0) + runs("loop", 4.0)) == {
        NAME: {"value": 1.0, "baseline": 4.0, "ratio": 0.25}
    }


def test_repeats_count_by_their_median():
    found = ratios(runs("ours", 1.0, 9.0, 2.0) + runs("loop", 8.0, 7.0, 90.0))
    assert (found[NAME]["value"], found[NAME]["baseline"]) == (2.0, 8.0)


def test_both_of_ours_are_held_against_each_of_the_others():
    found = ratios([one for name in ("ours", "ours-bfloat16", "pfl", "flower") for one in runs(name, 1.0)])
    assert set(found) == {
        f"peers_cnn_e3_round_{ours}_vs_{peer}"
        for ours in ("ours", "ours-bfloat16")
        for peer in ("pfl", "flower")
    }


@pytest.mark.parametrize("other", [{"what": "job"}, {"workload": "cnn_e1"}])
def test_only_like_is_compared_with_like(other):
    assert not ratios(runs("ours", 1.0) + runs("loop", 4.0, **other))
