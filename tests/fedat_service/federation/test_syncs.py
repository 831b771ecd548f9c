"""Rounds of several syncs: one cohort that goes on with the means of what was due."""

import math

import pytest

from fedat_service.errors import Conflict, Gone
from fedat_service.federation.effects import AddUpdate, CloseSync, DropRound, MakeVersion, WakeClients
from fedat_service.federation.events import ClientReturned, SyncClosed, UpdateAccepted, VersionPublished
from fedat_service.wire.messages import ManifestMessage, TensorMessage

TENSORS = [TensorMessage(name=f"{layer}.weight", shape=(2, 3)) for layer in ("body", "head")]
MANIFEST = ManifestMessage(tensors=tuple(TENSORS)).model_dump()
NAMES = ("a", "b", "c", "d", "e", "f", "g", "h")


def two_syncs(drive, clients, cohort_size):
    """Rounds of two syncs: the head at each, the body at the last."""
    driver = drive(
        manifest=MANIFEST,
        method={"participation": {"name": "fedavg"}, "schedule": {"name": "fedals", "alpha": 2}},
        rounds={
            "cohort_size": cohort_size,
            "start_clients": len(clients),
            "deadline_s": 100.0,
            "quorum": 0.5,
        },
    )
    driver.register(*clients)
    return driver


@pytest.fixture
def fedals(drive):
    """Two clients."""
    return two_syncs(drive, ("a", "b"), cohort_size=2)


def closed(driver, at_s=5.0, round_=1, sync=0):
    return driver.apply(SyncClosed(at_s, 1, round_, sync, "digest"))


def test_a_cohort_goes_on_once_what_was_due_is_averaged(fedals):
    fedals.update("a", 1.0)
    effects = fedals.update("b", 2.0)
    assert effects == (AddUpdate(1, 10, 1, is_last=False), CloseSync(1, 1, 0, 0, 2, 2))
    assert fedals.task("a") == ""
    assert fedals.state.tiers[0].rounds[0].deadline_s == math.inf
    assert closed(fedals) == (WakeClients(("a", "b")),)
    assert fedals.task("a") == "t1.r1.s1.a"
    assert fedals.state.tiers[0].rounds[0].deadline_s == 105.0
    fedals.update("b", 6.0)
    added, made, *_ = fedals.update("a", 7.0)
    assert added == AddUpdate(1, 10, 1, is_last=True)
    assert isinstance(made, MakeVersion)
    assert (made.version, made.rounds, made.num_examples) == (1, (1,), 20)
    assert fedals.task("a") == "t1.r2.s0.a"


def test_who_misses_a_sync_is_out_of_the_round_and_free_when_it_returns(fedals):
    fedals.update("a", 1.0)
    assert fedals.deadline()[-1] == CloseSync(1, 1, 0, 0, 1, 2)
    assert fedals.state.clients["b"].lost
    closed(fedals, 101.0)
    assert fedals.state.tiers[0].rounds[0].cohort == ("a",)
    fedals.apply(ClientReturned(102.0, "b"))
    assert "b" in fedals.state.tiers[0].idle
    fedals.update("a", 103.0)
    assert fedals.state.version == 1


@pytest.mark.parametrize(
    ("first", "second", "version"), [(4, 4, 1), (5, 4, 1), (8, 4, 1), (5, 3, 0), (4, 2, 0)]
)
def test_the_quorum_is_of_those_the_round_was_opened_with_at_every_sync(drive, first, second, version):
    driver = two_syncs(drive, NAMES, cohort_size=8)
    for name in NAMES[:first]:
        driver.update(name, 1.0)
    if first < 8:
        driver.deadline()
    closed(driver, 101.0)
    for name in NAMES[:second]:
        driver.update(name, 102.0)
    effects = driver.deadline() if second < first else ()
    assert driver.state.version == version
    assert (DropRound(1, 1, second, num_clients=8) in effects) == (version == 0)


def test_a_round_of_fewer_clients_than_a_cohort_has_takes_the_quorum_of_those(drive):
    driver = two_syncs(drive, ("a", "b"), cohort_size=8)
    driver.update("a", 1.0)
    driver.update("b", 1.0)
    closed(driver)
    driver.update("a", 6.0)
    driver.deadline()
    assert driver.state.version == 1


def test_a_round_that_nobody_goes_on_with_is_dropped_with_all_its_syncs(fedals):
    fedals.update("a", 1.0)
    fedals.update("b", 2.0)
    closed(fedals)
    assert DropRound(1, 1, num_updates=0, num_clients=2) in fedals.deadline()
    assert fedals.state.version == 0


def test_an_update_of_a_sync_that_is_over_is_gone(fedals):
    fedals.update("b", 1.0)
    fedals.update("a", 2.0)
    closed(fedals)
    fedals.update("a", 3.0)
    with pytest.raises(Gone):
        fedals.apply(UpdateAccepted(6.0, "t1.r1.s0.a", 10, "other"))


@pytest.mark.parametrize(("round_", "when"), [(1, "open"), (2, "unknown")])
def test_only_a_round_that_waits_for_its_means_goes_on(fedals, round_, when):
    before = fedals.state
    with pytest.raises(Conflict):
        closed(fedals, round_=round_)
    assert fedals.state == before


def test_intervals_that_changed_count_from_the_round_that_begins_with_the_version(drive):
    driver = drive(
        manifest=MANIFEST,
        method={"participation": {"name": "fedavg"}, "schedule": {"name": "fedlama", "phi": 2}},
        rounds={"cohort_size": 1, "start_clients": 1},
    )
    driver.register("a")
    driver.send("a", 1.0)
    closed(driver, 2.0)
    driver.send("a", 3.0)
    assert [sorted(e.up["weights"]) for e in driver.state.tiers[0].rounds[0].plan] == [
        ["body.weight", "head.weight"],
        ["body.weight", "head.weight"],
    ]
    driver.apply(VersionPublished(4.0, 1, "digest", 1, (2, 1)))
    assert [sorted(e.up["weights"]) for e in driver.state.tiers[0].rounds[0].plan] == [
        ["head.weight"],
        ["body.weight", "head.weight"],
    ]
    driver.send("a", 5.0)
    closed(driver, 5.0, round_=2)
    driver.send("a", 6.0)
    with pytest.raises(Conflict, match="2 tensors travel, not 3"):
        driver.apply(VersionPublished(6.0, 2, "digest", 1, (2, 1, 1)))
