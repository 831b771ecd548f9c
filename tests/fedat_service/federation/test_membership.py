"""Clients that change tier: what they are in the middle of, and what they have said."""

import pytest

from fedat_service.federation.events import ClientEvaluated


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
