"""Rounds of a cohort: closed by the last update, or by the deadline with a quorum."""

import pytest

from fedat_service.errors import Gone
from fedat_service.federation.effects import AddUpdate, DropRound, MakeVersion, WakeClients
from fedat_service.federation.events import UpdateAccepted, VersionPublished
from fedat_service.federation.state import ready_lease

ABC = ("a", "b", "c")


def fedavg(drive, cohort_size=2, **rounds):
    return drive(method="fedavg", rounds={"cohort_size": cohort_size, "start_clients": 3, **rounds})


def test_a_round_closes_with_its_last_update(drive):
    driver = fedavg(drive)
    driver.register(*ABC)
    first, second = driver.state.tiers[0].rounds[0].cohort
    driver.deliver(first, 1.0)
    driver.deliver(second, 1.0)
    assert driver.update(first, 3.0) == (AddUpdate(1, 10, round=1),)
    made = MakeVersion(
        version=1,
        tier=1,
        weights=(1.0,),
        update_counts=(1,),
        num_updates=2,
        num_examples=20,
        num_clients=3,
        rounds=(1,),
        cycle=driver.state.spec.first_cycle,
    )
    assert driver.update(second, 4.0) == (AddUpdate(1, 10, round=1), made)
    assert driver.state.version == driver.state.published == 1
    assert driver.state.tiers[0].rounds[0].base_version == 1


def test_the_next_cohort_gets_its_task_once_its_version_is_published(drive):
    driver = fedavg(drive, cohort_size=3)
    driver.register(*ABC)
    for name in ABC:
        driver.send(name, 1.0)
    assert ready_lease(driver.state, "a") is None
    assert driver.apply(VersionPublished(1.0, 1, "d")) == (WakeClients(ABC),)
    assert ready_lease(driver.state, "a").base_version == 1


def test_uniform_weighting_counts_every_update_once(drive):
    driver = drive(
        method={"participation": {"name": "fedavg", "weighting": "uniform"}}, rounds={"start_clients": 1}
    )
    driver.register("a", num_examples=99)
    assert driver.update("a", 1.0, num_examples=99)[0] == AddUpdate(1, 1, round=1)


def test_at_the_deadline_a_quorum_closes_the_round(drive):
    driver = fedavg(drive, cohort_size=3, deadline_s=60.0, quorum=0.6)
    driver.register(*ABC)
    driver.update("a", 1.0)
    driver.update("b", 1.0)
    (made,) = [e for e in driver.deadline() if isinstance(e, MakeVersion)]
    assert made.num_updates == 2
    assert driver.state.clients["c"].lost
    assert driver.state.tiers[0].rounds[0].cohort == ("a", "b")


def test_without_a_quorum_the_round_is_abandoned_and_opened_afresh(drive):
    driver = fedavg(drive, cohort_size=3, deadline_s=60.0, quorum=0.6)
    driver.register(*ABC)
    driver.update("a", 1.0)
    effects = driver.deadline()
    assert effects == (DropRound(1, round=1, num_updates=1, num_clients=3), WakeClients(("a",)))
    assert driver.state.version == 0
    assert driver.task("a") == "t1.r2.s0.a"


def test_an_update_for_a_closed_round_is_gone(drive):
    driver = fedavg(drive, cohort_size=3, deadline_s=60.0)
    driver.register(*ABC)
    task = driver.task("c")
    driver.update("a", 1.0)
    driver.update("b", 1.0)
    driver.deadline()
    with pytest.raises(Gone):
        driver.apply(UpdateAccepted(61.0, task, 10, "x"))
