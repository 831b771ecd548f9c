import pytest

from loadtest.experiments import Experiment
from loadtest.experiments.claims import judge
from loadtest.experiments.outcome import Outcome

EARLY = [0.7] * 9
LATE = [0.0] * 6 + [0.7] * 3
NEVER = [0.0] * 9
"""The target 0.6 is reached at 200 s, at 800 s, or not within 1000 s."""


@pytest.fixture
def verdict_on(make_run):
    """`verdict_on(own, other, quantity=..., at_most=...)` judges fedat against fedavg, one list a seed."""

    def judged(own, other, quantity="time_to_target_s", **bound):
        runs = {
            name: tuple(make_run(name, accuracies) for accuracies in seeds)
            for name, seeds in (("fedat", own), ("fedavg", other))
        }
        expect = {"quantity": quantity, "method": "fedat", "of": ("fedavg",), **bound}
        experiment = Experiment(name="e", target_accuracy=0.6, expect=(expect,))
        (verdict,) = judge(Outcome(experiment, tuple(range(len(own))), runs, virtual=True))
        return verdict

    return judged


def test_a_claim_shows_if_every_seed_shows_it(verdict_on):
    assert verdict_on([EARLY, EARLY], [LATE, LATE], at_most=0.25).holds
    mixed = verdict_on([EARLY, LATE], [LATE, LATE], at_most=0.25)
    assert mixed.shows == (True, False)
    assert not mixed.holds
    assert mixed.ratios == ("0.250", "1.000")


def test_a_method_that_never_arrives_is_slower_than_its_whole_run(verdict_on):
    verdict = verdict_on([EARLY], [NEVER], at_most=0.2)
    assert verdict.holds
    assert verdict.ratios == ("< 0.200",)
    assert not verdict_on([EARLY], [NEVER], at_most=0.1).holds


def test_who_never_arrives_shows_no_speed(verdict_on):
    assert not verdict_on([NEVER], [LATE], at_most=100.0).holds
    assert verdict_on([NEVER], [LATE], at_most=1.0).ratios == ("> 1.250",)
    assert verdict_on([NEVER], [LATE], at_least=1.25).holds


def test_two_that_never_arrive_show_nothing(verdict_on):
    assert not verdict_on([NEVER], [NEVER], at_most=1.0).holds
    assert not verdict_on([NEVER], [NEVER], at_least=1.0).holds


def test_the_larger_value_shows_at_least(verdict_on):
    assert verdict_on([EARLY], [NEVER], quantity="best_accuracy", at_least=1.0).holds
    assert not verdict_on([NEVER], [EARLY], quantity="best_accuracy", at_least=1.0).holds


def test_what_was_not_measured_shows_nothing(verdict_on):
    verdict = verdict_on([[]], [EARLY], quantity="best_accuracy", at_most=1.0)
    assert not verdict.holds
    assert verdict.ratios == ("unknown",)


def test_a_method_that_was_not_run_is_not_judged(make_run):
    expect = ({"quantity": "best_accuracy", "method": "fedat", "at_least": 1.0, "of": ("tifl",)},)
    experiment = Experiment(name="e", methods=("fedat",), expect=expect)
    assert judge(Outcome(experiment, (0,), {"fedat": (make_run("fedat", EARLY),)}, virtual=True)) == []
