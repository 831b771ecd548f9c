"""Who is in which tier: profiling, moving, being lost and coming back."""

from dataclasses import replace

import pytest

from fedat_service.federation.effects import AddUpdate
from fedat_service.federation.events import ClientEvaluated, ClientReturned
from fedat_service.federation.state import next_deadline_s


@pytest.fixture
def moving(drive):
    """Two tiers, a and b against c and d, that are looked at after every version."""
    driver = drive(
        tiering={"num_tiers": 2, "retier_every": 1, "hysteresis": 0.1},
        rounds={"cohort_size": 2, "start_clients": 4, "deadline_s": 100.0},
    )
    driver.register("a", "b", "c", "d")
    driver.profile({"a": 1.0, "b": 2.0, "c": 8.0, "d": 9.0})
    for name in ("a", "b", "c", "d"):
        driver.deliver(name, 10.0)
    return driver


def test_who_moves_while_its_round_is_open_is_drawn_again_when_that_is_over(moving):
    moving.update("c", 10.5)
    moving.update("a", 11.0)
    moving.update("b", 70.0)  # slower than c by now: the two change places, but the round of c is still open
    moved = moving.state.clients["c"]
    assert (moved.lease, moved.tier) == (None, 1)
    assert moving.state.tiers[1].rounds[0].reported == ("c",)
    assert "c" not in moving.state.tiers[0].idle
    moving.update("d", 90.0)
    assert "c" in moving.state.tiers[0].idle


def test_what_a_client_said_of_its_model_moves_with_it(moving):
    moving.apply(ClientEvaluated(10.0, moving.task("b"), 10, 4, 1.0))
    moving.apply(ClientEvaluated(10.0, moving.task("c"), 20, 20, 1.0))
    assert moving.state.tier_accuracies == (0.4, 1.0)
    moving.update("a", 11.0)
    moving.update("b", 90.0)  # slower than c and d by now
    assert moving.state.clients["b"].tier == 2
    assert moving.state.tiers[0].tested == (0 if moving.state.clients["c"].tier == 2 else 20)
    assert sum(tier.correct for tier in moving.state.tiers) == 24


def test_only_the_last_word_of_a_client_counts(drive):
    driver = drive(method="fedavg")
    driver.register("a")
    for correct in (2, 7):
        driver.apply(ClientEvaluated(1.0, driver.task("a"), 10, correct, 1.0))
        driver.update("a", 2.0)
    assert driver.state.tier_accuracies == (0.7,)


def test_what_a_client_without_a_tier_says_of_its_model_counts_for_none(two_tiers):
    driver = two_tiers()
    driver.deliver("a", 0.0)
    driver.apply(ClientEvaluated(1.0, driver.task("a"), 10, 4, 1.0))
    assert driver.state.tier_accuracies == (None, None)


def test_profiling_measures_latency_and_forms_tiers(two_tiers):
    driver = two_tiers()
    assert driver.state.status == "profiling"
    driver.profile({"a": 9.0, "b": 1.0, "c": 8.0, "d": 2.0})
    assert driver.state.status == "training"
    assert [driver.members(m) for m in (1, 2)] == [("b", "d"), ("a", "c")]
    assert not any(isinstance(effect, AddUpdate) for effect in driver.effects)


def test_a_late_comer_is_profiled_and_placed_by_its_latency(two_tiers):
    driver = two_tiers()
    driver.profile({"a": 1.0, "b": 2.0, "c": 8.0, "d": 9.0})
    driver.register("e", at_s=50.0)
    assert driver.task("e") == "t0.r1.s0.e"
    driver.profile({"e": 8.5}, start_s=50.0)
    assert driver.members(2) == ("c", "d", "e")


def test_tiers_are_formed_anew_when_as_many_have_joined_as_they_were_formed_of(drive):
    driver = drive(tiering={"num_tiers": 5}, rounds={"cohort_size": 2, "start_clients": 20})
    names = [f"c{n:02d}" for n in range(20)]
    driver.register(*names)
    # A fleet that was killed: the slowest five had answered, and the others come back.
    driver.profile({name: 50.0 + n for n, name in enumerate(names[:5])})
    driver.deadline()
    assert [len(driver.members(m)) for m in range(1, 6)] == [1, 1, 1, 1, 1]
    for n, name in enumerate(names[5:]):
        driver.apply(ClientReturned(driver.state.now_s, name))
        driver.profile({name: 1.0 + n}, start_s=driver.state.now_s)
    assert [len(driver.members(m)) for m in range(1, 6)] == [4, 4, 4, 4, 4]
    assert driver.members(5) == ("c01", "c02", "c03", "c04")
    assert driver.state.clients["c00"].reason == "tiers formed anew of 20 clients"


def test_without_all_answers_the_profiled_start_at_the_deadline(two_tiers):
    driver = two_tiers()
    driver.profile({"a": 1.0, "b": 2.0, "c": 8.0})
    driver.deadline()
    assert driver.state.status == "training"
    assert driver.state.clients["d"].lost
    assert not driver.state.profiling


def test_quantiles_cut_the_tiers(two_tiers):
    driver = two_tiers(tiering={"rule": "quantiles", "quantiles": [0.7]})
    driver.profile({"a": 1.0, "b": 2.0, "c": 3.0, "d": 9.0})
    assert [driver.members(m) for m in (1, 2)] == [("a", "b", "c"), ("d",)]


def test_a_dead_tier_is_parked_and_the_others_share_its_weight(two_tiers):
    driver = two_tiers()
    driver.profile({"a": 1.0, "b": 2.0, "c": 8.0, "d": 9.0})
    driver.update("a", 20.0)
    driver.update("b", 20.0)
    for name in ("a", "b"):
        driver.update(name, 50.0)
    driver.deadline()
    assert driver.state.parked == (False, True)
    assert driver.state.weights == (1.0, 0.0)


def test_a_parked_tier_revives_when_a_member_returns(two_tiers):
    driver = two_tiers()
    driver.profile({"a": 1.0, "b": 2.0, "c": 8.0, "d": 9.0})
    driver.deadline()
    driver.apply(ClientReturned(200.0, "c"))
    assert driver.state.parked == (True, False)
    assert driver.task("c") == "t2.r2.s0.c"
    assert driver.state.clients["c"].latency_s == 100.0


def test_a_client_lost_in_profiling_is_profiled_when_it_returns(two_tiers):
    driver = two_tiers()
    driver.deadline()
    assert driver.state.status == "profiling"
    driver.apply(ClientReturned(200.0, "a"))
    driver.profile({"a": 3.0}, start_s=200.0)
    assert driver.state.status == "training"
    assert driver.members(1) == ("a",)


def test_clients_that_profiling_never_waited_long_enough_for_are_given_more_time_each_time(two_tiers):
    driver = two_tiers()
    waited_s = []
    for _ in range(9):
        start_s = driver.state.now_s
        driver.deadline()
        waited_s.append(driver.state.now_s - start_s)
        for name in ("a", "b", "c", "d"):
            driver.apply(ClientReturned(driver.state.now_s, name))
    first_s = driver.state.spec.rounds.deadline_s
    assert waited_s == [first_s * factor for factor in (1, 2, 4, 8, 16, 32, 64, 64, 64)]


def test_registering_again_changes_nothing_but_the_examples(drive):
    driver = drive(method="fedavg")
    driver.register("a", "b", "c")
    before = driver.state
    driver.register("a", num_examples=12)
    assert replace(driver.state, clients=before.clients) == before
    assert driver.state.clients["a"].num_examples == 12


def test_a_client_that_moved_is_sampled_by_its_new_tier_only_when_free(two_tiers):
    driver = two_tiers(tiering={"retier_every": 1, "hysteresis": 0.1})
    driver.profile({"a": 1.0, "b": 2.0, "c": 8.0, "d": 9.0})
    for name in ("a", "b", "c", "d"):
        driver.deliver(name, 10.0)
    driver.update("a", 11.0)
    driver.update("b", 90.0)  # slower than c and d now: it belongs to the slow tier
    assert driver.state.clients["b"].tier == 2
    assert driver.members(1) != driver.members(2)
    in_round = [name for tier in driver.state.tiers for one in tier.rounds for name in one.cohort]
    assert len(in_round) == len(set(in_round))


def test_late_comers_do_not_put_off_each_other_s_deadline(two_tiers):
    driver = two_tiers()
    driver.register("e", at_s=90.0)
    assert next_deadline_s(driver.state) == 100.0
    for name in ("a", "b"):
        driver.deliver(name, 1.0)
        driver.update(name, 3.0)
    driver.deadline()
    assert driver.state.status == "profiling"
    assert sorted(c.name for c in driver.state.clients.values() if c.lost) == ["c", "d"]
    assert next_deadline_s(driver.state) == 190.0


def test_a_tier_whose_member_was_busy_elsewhere_opens_when_it_is_free(two_tiers):
    driver = two_tiers(tiering={"retier_every": 1, "hysteresis": 0.0})
    driver.profile({"a": 1.0, "b": 2.0, "c": 8.0, "d": 9.0})
    for name in ("a", "b", "c", "d"):
        driver.deliver(name, 10.0)
    for name, at_s in (("a", 80.0), ("b", 80.0), ("c", 81.0), ("d", 81.0)):
        driver.update(name, at_s)
    for tier in driver.state.tiers:
        free = [n for n in driver.members(tier.number) if driver.state.clients[n].lease is None]
        assert tier.rounds or not free


def test_coming_back_without_being_lost_changes_nothing(drive):
    driver = drive(method="fedavg")
    driver.register("a")
    before = driver.state
    driver.apply(ClientReturned(0.0, "a"))
    assert driver.state == before
