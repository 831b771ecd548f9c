from pathlib import Path

import pytest
import typer

from loadtest.benchmarks.peers.run import Run, compare, python_of

SECONDS = "peers_cnn_e3_round_s_ours_vs_loop"
ACCURACY = "peers_cnn_e3_round_accuracy_ours_vs_loop"


def runs(contestant, *seconds, kind="round", workload="cnn_e3", accuracy=0.5):
    return [Run(contestant, workload, kind, one, accuracy) for one in seconds]


def test_a_ratio_is_ours_over_theirs():
    found = compare(runs("ours", 1.0, accuracy=0.4) + runs("loop", 4.0, accuracy=0.5))
    assert found == {
        SECONDS: {"value": 1.0, "baseline": 4.0, "ratio": 0.25},
        ACCURACY: {"value": 0.4, "baseline": 0.5, "ratio": 0.8},
    }


def test_seconds_count_by_the_median_of_the_repeats():
    found = compare(runs("ours", 1.0, 9.0, 2.0) + runs("loop", 8.0, 7.0, 90.0))
    assert (found[SECONDS]["value"], found[SECONDS]["baseline"]) == (2.0, 8.0)


def test_accuracies_count_by_the_mean_of_the_repeats():
    ours = runs("ours", 1.0, accuracy=0.3) + runs("ours", 1.0, accuracy=0.5)
    assert compare(ours + runs("loop", 1.0))[ACCURACY]["value"] == pytest.approx(0.4)


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


def test_a_peer_without_its_environment_is_refused_with_the_place_where_it_should_be():
    with pytest.raises(typer.BadParameter, match="nowhere/pfl/bin/python"):
        python_of("pfl", Path("nowhere"))
