"""What one event does to a federation."""

from dataclasses import replace

import pytest

from fedat_service.errors import Conflict, Gone, NotFound, Unprocessable
from fedat_service.federation.effects import Finish, WakeClients
from fedat_service.federation.events import (
    ClientEvaluated,
    DeadlinePassed,
    ModelUploaded,
    Stopped,
    TaskDelivered,
    UpdateAccepted,
    VersionEvaluated,
    VersionPublished,
)
from fedat_service.federation.state import next_deadline_s, versions_in_use
from fedat_service.federation.transition import transition

ABC = ("a", "b", "c")


def fedavg(drive, cohort_size=2, **rounds):
    return drive(method="fedavg", rounds={"cohort_size": cohort_size, "start_clients": 3, **rounds})


def test_nothing_is_given_out_before_enough_clients_are_there(drive):
    driver = fedavg(drive)
    driver.register("a", "b")
    assert driver.state.status == "waiting"
    assert driver.task("a") == driver.task("b") == ""


def test_the_last_expected_client_opens_the_first_round(drive):
    driver = fedavg(drive)
    driver.register(*ABC, at_s=5.0)
    cohort = driver.state.tiers[0].rounds[0].cohort
    assert driver.state.started_at_s == 5.0
    assert len(cohort) == 2
    assert driver.effects == [WakeClients(cohort)]


def test_tiers_go_on_without_each_other(two_tiers):
    driver = two_tiers()
    driver.profile({"a": 1.0, "b": 2.0, "c": 8.0, "d": 9.0})
    for _ in range(3):
        driver.update("a", 20.0)
        driver.update("b", 20.0)
    driver.update("c", 30.0)
    driver.update("d", 30.0)
    assert driver.state.update_counts == (3, 1)
    assert driver.state.weights == (0.25, 0.75)


@pytest.mark.parametrize(
    ("stop", "reason"),
    [({"max_versions": 1}, "reached version 1"), ({"max_time_s": 60.0}, "60 s have passed")],
)
def test_the_stop_rule_ends_the_federation(drive, stop, reason):
    driver = drive(method="fedavg", rounds={"start_clients": 1, "deadline_s": 600.0}, stop=stop)
    driver.register("a", at_s=3.0)
    if "max_versions" in stop:
        driver.update("a", 4.0)
    else:
        assert next_deadline_s(driver.state) == 63.0
        driver.deadline()
    assert (driver.state.status, driver.state.reason) == ("finished", reason)
    assert Finish(reason) in driver.effects
    assert next_deadline_s(driver.state) is None


def test_the_target_accuracy_ends_the_federation(drive):
    driver = drive(method="fedavg", stop={"target_accuracy": 0.8})
    driver.apply(VersionEvaluated(1.0, 0, 5, 50, 0.79, 1.0, 0.0))
    assert driver.state.status == "waiting"
    with pytest.raises(Conflict):
        driver.apply(VersionEvaluated(2.0, 0, 5, 50, 0.81, 1.0, 0.0))
    driver.register("a")
    driver.update("a", 2.0)
    driver.apply(VersionEvaluated(3.0, 1, 5, 50, 0.81, 1.0, 0.0))
    assert driver.state.status == "finished"
    with pytest.raises(NotFound):
        driver.apply(VersionEvaluated(4.0, 2, 5, 50, 0.9, 1.0, 0.0))


def test_the_weights_after_the_end_are_those_of_the_tiers_that_had_trained(two_tiers):
    driver = two_tiers()
    driver.profile({"a": 1.0, "b": 2.0})
    driver.deadline()
    driver.update("a", 101.0)
    driver.deadline()
    assert driver.state.parked[1]
    assert driver.state.weights == (1.0, 0.0)
    driver.apply(Stopped(900.0, "enough"))
    assert driver.state.weights == (1.0, 0.0)


def test_nobody_holds_anything_after_the_end(two_tiers):
    driver = two_tiers()
    driver.deliver("a", 1.0)
    driver.apply(Stopped(2.0, "enough"))
    assert all(client.lease is None for client in driver.state.clients.values())
    assert next_deadline_s(driver.state) is None
    assert driver.state.over


def test_the_end_is_seen_once_the_last_version_is_readable(drive):
    driver = drive(method="fedavg", stop={"max_versions": 1})
    driver.register("a")
    driver.send("a", 1.0)
    assert driver.state.status == "finished"
    assert not driver.state.over
    driver.publish(1.0)
    assert driver.state.over
    assert driver.state.now_s == 1.0


def test_an_update_for_a_task_nobody_fetched_is_refused(two_tiers):
    driver = two_tiers()
    with pytest.raises(NotFound, match="not fetched"):
        driver.apply(UpdateAccepted(1.0, "t0.r1.s0.a", 10, "x"))


def test_a_finished_federation_refuses_work(drive):
    driver = fedavg(drive)
    driver.apply(Stopped(1.0, "enough"))
    with pytest.raises(Gone, match="enough"):
        driver.register("a")


def test_uploaded_model_is_waited_for(drive):
    driver = drive(method="fedavg", initial_model="upload")
    driver.register("a")
    assert driver.state.status == "awaiting-model"
    driver.apply(ModelUploaded(2.0, "digest"))
    assert driver.task("a") == "t1.r1.s0.a"
    with pytest.raises(Conflict):
        driver.apply(ModelUploaded(3.0, "digest"))


def test_latency_counts_from_delivery_not_from_opening(drive):
    driver = drive(method="fedavg")
    driver.register("a")
    driver.deliver("a", 7.0)
    with pytest.raises(Conflict):
        driver.deliver("a", 9.0)
    driver.update("a", 10.0)
    assert driver.state.clients["a"].latency_s == 3.0


@pytest.mark.parametrize(
    ("task", "error"),
    [
        ("t1.r2.s0.a", NotFound),
        ("t2.r1.s0.a", NotFound),
        ("t0.r1.s0.a", NotFound),
        ("t1.r1.s0.zoe", NotFound),
        ("no task", NotFound),
        ("t1.r1.s0.b\n", NotFound),
    ],
)
def test_an_update_for_a_task_nobody_gave_out_is_refused(drive, task, error):
    driver = drive(method="fedavg")
    driver.register("a")
    with pytest.raises(error):
        driver.apply(UpdateAccepted(1.0, task, 10, "x"))


def test_other_bytes_for_a_counted_task_are_a_conflict(drive):
    driver = drive(method="fedavg", rounds={"cohort_size": 2, "start_clients": 2})
    driver.register("a", "b")
    task = driver.task("a")
    driver.send("a", 1.0)
    for digest in ("x", "y"):
        with pytest.raises(Conflict):
            driver.apply(UpdateAccepted(2.0, task, 10, digest))


def test_more_examples_than_registered_are_refused(drive):
    driver = drive(method="fedavg")
    driver.register("a")
    driver.deliver("a", 0.5)
    before = driver.state
    with pytest.raises(Unprocessable) as refusal:
        driver.apply(UpdateAccepted(1.0, driver.task("a"), 11, "x"))
    assert refusal.value.field == "num_examples"
    assert driver.state is before


def test_a_delivery_of_an_expired_task_is_gone(drive):
    driver = drive(method="fedavg")
    driver.register("a")
    with pytest.raises(Gone):
        driver.apply(TaskDelivered(1.0, "t1.r9.s0.a"))


def test_a_version_is_published_once_and_in_order(drive):
    driver = drive(method="fedavg")
    driver.register("a")
    for version in (0, 1, 2):
        with pytest.raises(Conflict):
            driver.apply(VersionPublished(1.0, version, "d"))


def test_a_task_is_evaluated_once_while_it_is_held_or_just_done(drive):
    driver = drive(method="fedavg")
    driver.register("a")
    task = driver.task("a")
    driver.update("a", 1.0)
    driver.apply(ClientEvaluated(2.0, task, 10, 7, 0.5))
    assert driver.state.clients["a"].accuracy == 0.7
    with pytest.raises(Conflict):
        driver.apply(ClientEvaluated(3.0, task, 10, 8, 0.5))


def test_a_deadline_that_rings_early_changes_nothing(drive):
    driver = fedavg(drive)
    driver.register(*ABC)
    before = driver.state
    driver.apply(DeadlinePassed(1.0))
    assert replace(driver.state, now_s=0.0) == before


def test_time_never_runs_back(drive):
    driver = drive(method="fedavg")
    driver.register("a", at_s=9.0)
    driver.register("b", at_s=4.0)
    assert driver.state.now_s == 9.0


def test_versions_in_use_are_the_newest_and_the_bases(two_tiers):
    driver = two_tiers()
    driver.profile({"a": 1.0, "b": 2.0, "c": 8.0, "d": 9.0})
    for _ in range(5):
        driver.update("a", 20.0)
        driver.update("b", 20.0)
    assert versions_in_use(driver.state) == {0, 5}


def test_transition_leaves_the_old_state_alone(drive):
    driver = drive(method="fedavg")
    driver.register("a")
    driver.deliver("a", 0.5)
    before = driver.state
    transition(before, UpdateAccepted(1.0, driver.task("a"), 10, "x"))
    assert before.version == 0
    assert driver.task("a") == "t1.r1.s0.a"
