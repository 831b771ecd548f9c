"""Which tier trains next when one at a time does, and who in it; cohorts of any tier."""

from collections import Counter
from itertools import product

import pytest

from fedat_service.federation.drawing import draw_ranks
from fedat_service.federation.events import ClientEvaluated, ClientReturned, VersionEvaluated

LATENCIES = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0, "e": 5.0, "f": 6.0}


def tifl(drive, seed=0, stop=None, **participation):
    driver = drive(
        method={"participation": {"name": "tifl", **participation}},
        tiering={"num_tiers": 3},
        rounds={"cohort_size": 2, "start_clients": 6, "deadline_s": 100.0},
        stop=stop or {},
        seed=seed,
    )
    driver.register(*LATENCIES)
    driver.profile(LATENCIES)
    return driver


def training(driver):
    (number,) = [tier.number for tier in driver.state.tiers if tier.rounds]
    return number


def do_round(driver, at_s=20.0):
    """Have the open round closed, and return its tier."""
    number = training(driver)
    for name in driver.state.tiers[number - 1].rounds[0].cohort:
        driver.update(name, at_s)
    return number


def draws(driver, rounds):
    return [do_round(driver) for _ in range(rounds)]


def test_one_tier_at_a_time_trains_and_is_the_model(drive):
    driver = tifl(drive)
    for version in range(1, 8):
        number = training(driver)
        one_hot = tuple(float(m == number) for m in (1, 2, 3))
        assert driver.state.weights == one_hot
        do_round(driver)
        made = driver.made[-1]
        assert (made.version, made.tier, made.weights) == (version, number, one_hot)
        assert sum(driver.state.update_counts) == version


def test_before_anybody_trains_and_after_the_end_the_shares_say_whose_the_model_is(drive):
    driver = tifl(drive, stop={"max_versions": 2})
    fresh = drive(method="tifl", tiering={"num_tiers": 4})
    assert fresh.state.weights == (0.25,) * 4
    *_, last = draws(driver, 2)
    assert driver.state.status == "finished"
    assert driver.state.weights == tuple(float(m == last) for m in (1, 2, 3))


def test_without_any_accuracy_all_tiers_are_drawn_alike(drive):
    counts = Counter(draws(tifl(drive, seed=3), 150))
    assert all(30 < counts[m] < 70 for m in (1, 2, 3))


def test_draws_depend_on_the_seed_alone(drive):
    one, same, other = (draws(tifl(drive, seed=seed), 30) for seed in (1, 1, 2))
    assert one == same != other


def test_a_tier_in_which_the_model_does_badly_is_drawn_oftener(drive):
    driver = tifl(drive, interval=1)
    driver.apply(VersionEvaluated(10.0, 0, 6, 60, 0.5, 1.0, 0.0, (0.9, 0.1, 0.5)))
    do_round(driver)
    assert driver.state.chances == pytest.approx((1 / 6, 3 / 6, 2 / 6))
    counts = Counter(draws(driver, 120))
    assert counts[2] > counts[3] > counts[1]


def test_chances_are_looked_at_after_every_interval(drive):
    driver = tifl(drive)
    driver.apply(VersionEvaluated(10.0, 0, 6, 60, 0.5, 1.0, 0.0, (0.9, 0.1, 0.5)))
    seen = []
    for _ in range(4):
        do_round(driver)
        seen.append(driver.state.chances != ())
    assert seen == [False, False, True, True]
    driver.apply(VersionEvaluated(30.0, 4, 6, 60, 0.5, 1.0, 0.0, (0.1, 0.9, 0.5)))
    draws(driver, 2)
    assert driver.state.chances == pytest.approx((3 / 6, 1 / 6, 2 / 6))


def test_what_clients_report_themselves_counts_if_no_observer_says_more(drive):
    driver = tifl(drive, interval=1)
    accuracies = {"a": 9, "b": 9, "c": 1, "d": 2, "e": 5, "f": 6}
    while any(driver.state.tier_accuracies[m] is None for m in range(3)):
        for name in driver.state.tiers[training(driver) - 1].rounds[0].cohort:
            driver.apply(ClientEvaluated(20.0, driver.task(name), 10, accuracies[name], 1.0))
        do_round(driver)
    assert driver.state.tier_accuracies == (0.9, 0.15, 0.55)
    do_round(driver)
    assert driver.state.chances == pytest.approx((1 / 6, 3 / 6, 2 / 6))
    driver.apply(VersionEvaluated(20.0, 0, 2, 20, 0.5, 1.0, 0.0, (None, None, 0.05)))
    assert driver.state.tier_accuracies == (0.9, 0.15, 0.05)


def test_an_older_version_s_evaluation_does_not_hide_a_newer_one_s(drive):
    driver = tifl(drive)
    do_round(driver)
    driver.apply(VersionEvaluated(30.0, 1, 6, 60, 0.5, 1.0, 0.0, (0.1, 0.2, 0.3)))
    driver.apply(VersionEvaluated(31.0, 0, 6, 60, 0.5, 1.0, 0.0, (0.7, 0.8, 0.9)))
    assert driver.state.tier_accuracies == (0.1, 0.2, 0.3)


def test_a_tier_is_drawn_for_its_part_of_the_rounds_and_then_it_is_over(drive):
    driver = tifl(drive, num_rounds=10)
    counts = Counter(draws(driver, 12))
    assert counts == {1: 4, 2: 4, 3: 4}
    assert (driver.state.status, driver.state.reason) == ("finished", "no tier has credits left")


def test_an_abandoned_round_costs_no_credit(drive):
    driver = tifl(drive, num_rounds=3)
    number = training(driver)
    driver.deadline()
    assert driver.state.update_counts == (0, 0, 0)
    for name in driver.members(number) or sorted(LATENCIES):
        driver.apply(ClientReturned(200.0, name))
    draws(driver, 3)
    assert driver.state.update_counts == (1, 1, 1)


def test_a_tier_whose_members_are_gone_is_not_drawn_until_one_returns(drive):
    driver = tifl(drive)
    dead = training(driver)
    gone = driver.members(dead)
    driver.deadline()
    assert driver.state.parked == tuple(m == dead for m in (1, 2, 3))
    assert dead not in draws(driver, 20)
    driver.apply(ClientReturned(300.0, gone[0]))
    assert dead in draws(driver, 20)
    assert driver.state.clients[gone[0]].done.tier == dead


def test_with_everybody_gone_it_waits_for_the_first_to_return(drive):
    driver = tifl(drive)
    for _ in range(3):
        driver.deadline()
    assert driver.state.parked == (True, True, True)
    assert sum(driver.state.weights) == 1.0
    driver.apply(ClientReturned(400.0, "e"))
    assert driver.task("e") == "t3.r2.s0.e"


def test_cohorts_depend_on_the_seed_and_not_on_the_order_of_arrival(drive):
    def cohort(names, seed):
        driver = drive(method="fedavg", seed=seed, rounds={"cohort_size": 3, "start_clients": 20})
        driver.register(*names)
        return driver.state.tiers[0].rounds[0].cohort

    names = [f"c{i:02d}" for i in range(20)]
    assert cohort(names, 1) == cohort(reversed(names), 1)
    assert len({cohort(names, seed) for seed in range(10)}) > 5


def test_a_cohort_has_nobody_twice_and_only_the_idle():
    ranks = draw_ranks(seed=0, tier=1, number=1, num_idle=30, size=10)
    assert len(set(ranks)) == 10
    assert set(ranks) <= set(range(30))


@pytest.mark.parametrize("num_idle", [0, 1, 9])
def test_too_few_idle_are_all_drawn(num_idle):
    assert sorted(draw_ranks(0, 1, 1, num_idle, 10)) == list(range(num_idle))


def test_every_seed_tier_and_round_draws_for_itself():
    drawn = {tuple(draw_ranks(*key, 1000, 10)) for key in product(range(3), range(1, 4), range(1, 4))}
    assert len(drawn) == 27


def test_the_same_round_draws_the_same():
    assert draw_ranks(4, 2, 7, 100, 10) == draw_ranks(4, 2, 7, 100, 10)


def test_over_many_rounds_all_are_drawn_equally_often():
    counts = Counter(rank for number in range(1, 2001) for rank in draw_ranks(0, 1, number, 20, 5))
    # Binomial: 500 each, with a standard deviation of 19.
    assert all(abs(counts[rank] - 500) < 80 for rank in range(20))
