"""Rounds of one: clients that are always at work, each by itself."""

import pytest

from fedat_service.aggregation.asynchronous import Blend
from fedat_service.errors import Gone, RequestError
from fedat_service.federation.effects import WakeClients
from fedat_service.federation.events import ClientReturned, TaskDelivered, UpdateAccepted, VersionPublished
from fedat_service.federation.state import next_deadline_s, ready_lease, versions_in_use

NAMES = ("a", "b", "c", "d", "e")


def solo(drive, name="fedasync", cohort_size=2, clients=NAMES, stop=None, **participation):
    driver = drive(
        method={"participation": {"name": name, **participation}},
        rounds={"cohort_size": cohort_size, "start_clients": len(clients), "deadline_s": 100.0},
        stop=stop or {},
    )
    driver.register(*clients)
    return driver


def at_work(driver):
    (tier,) = driver.state.tiers
    return [one.cohort[0] for one in tier.rounds]


def test_as_many_clients_as_a_cohort_has_are_at_work_each_with_a_task_of_its_own(drive):
    driver = solo(drive, cohort_size=3)
    first, second, third = at_work(driver)
    assert [driver.task(name) for name in (first, second, third)] == [
        f"t1.r{n}.s0.{name}" for n, name in enumerate((first, second, third), start=1)
    ]
    assert driver.effects == [WakeClients((first,)), WakeClients((second,)), WakeClients((third,))]
    assert driver.state.parked == (False,)


def test_every_update_makes_a_version_and_another_client_starts_from_it(drive):
    driver = solo(drive)
    first, second = at_work(driver)
    added, made = driver.update(first, 3.0)
    assert (added.tier, added.weight) == (1, 1.0)
    assert (made.version, made.num_updates, made.num_examples, made.weights) == (1, 1, 10, (1.0,))
    assert made.blend == Blend(0.6, 0.4)
    assert at_work(driver)[0] == second
    fresh = at_work(driver)[1]
    lease = driver.state.clients[fresh].lease
    assert (lease.task.round, lease.base_version, lease.deadline_s) == (3, 1, 103.0)


def test_an_update_counts_the_less_the_more_versions_it_missed(drive):
    driver = solo(drive)
    slow, _ = at_work(driver)
    for version in range(3):
        driver.update(at_work(driver)[1], 3.0 + version)
    *_, made = driver.update(slow, 9.0)
    assert (made.version, made.blend) == (4, Blend(0.6 * 0.5, 1 - 0.6 * 0.5))


def test_a_new_client_gets_its_task_once_its_version_is_published(drive):
    driver = solo(drive)
    first, _ = at_work(driver)
    assert not any(isinstance(effect, WakeClients) for effect in driver.send(first, 1.0))
    fresh = at_work(driver)[1]
    assert ready_lease(driver.state, fresh) is None
    assert driver.apply(VersionPublished(1.0, 1, "d")) == (WakeClients((fresh,)),)
    assert ready_lease(driver.state, fresh).base_version == 1


def test_several_versions_that_wait_wake_each_their_own(drive):
    driver = solo(drive)
    for name in at_work(driver):
        driver.send(name, 1.0)
    waiting = at_work(driver)
    woken = [driver.apply(VersionPublished(2.0, version, "d")) for version in (1, 2)]
    assert woken == [(WakeClients((name,)),) for name in waiting]


def test_what_clients_at_work_started_from_stays_and_the_rest_goes(drive):
    driver = solo(drive)
    slow, _ = at_work(driver)
    for version in range(4):
        driver.update(at_work(driver)[1], 3.0 + version)
        assert versions_in_use(driver.state) == {0, version + 1}
    driver.update(slow, 9.0)
    assert versions_in_use(driver.state) == {4, 5}


def test_with_fewer_clients_than_there_is_room_for_all_are_at_work(drive):
    driver = solo(drive, cohort_size=4, clients=("a", "b"))
    assert sorted(at_work(driver)) == ["a", "b"]
    driver.register("z", at_s=5.0)
    assert at_work(driver)[-1] == "z"
    driver.update("a", 6.0)
    assert sorted(at_work(driver)) == ["a", "b", "z"]


def test_a_lease_that_is_over_loses_its_client_and_another_is_drawn(drive):
    driver = solo(drive)
    slow, quick = at_work(driver)
    driver.update(quick, 40.0)
    task = driver.task(slow)
    driver.deliver(slow, 41.0)
    assert next_deadline_s(driver.state) == 100.0
    driver.deadline()
    assert driver.state.clients[slow].lost
    assert slow not in at_work(driver)
    assert len(at_work(driver)) == 2
    assert next_deadline_s(driver.state) == 140.0
    assert (driver.state.version, driver.state.parked) == (1, (False,))
    with pytest.raises(Gone):
        driver.apply(UpdateAccepted(101.0, task, 10, "x"))


def test_all_leases_of_one_moment_end_together_and_the_tier_is_parked_until_somebody_returns(drive):
    driver = solo(drive, clients=("a", "b"))
    assert driver.deadline() == ()
    assert (at_work(driver), driver.state.parked, driver.state.weights) == ([], (True,), (1.0,))
    driver.apply(ClientReturned(200.0, "b"))
    assert driver.task("b") == "t1.r3.s0.b"


def test_a_wrong_or_repeated_update_changes_nothing(drive):
    driver = solo(drive)
    first, second = at_work(driver)
    task = driver.task(first)
    driver.update(first, 1.0)
    driver.deliver(second, 1.0)
    before = driver.state
    for wrong in (task, f"t1.r9.s0.{first}", "t1.r2.s1." + second):
        with pytest.raises(RequestError):
            driver.apply(UpdateAccepted(2.0, wrong, 10, "y"))
        assert driver.state is before


def test_a_buffer_makes_one_version_of_its_updates(drive):
    driver = solo(drive, "fedbuff", buffer_size=3, cohort_size=2)
    slow, _ = at_work(driver)
    for _ in range(2):
        effects = driver.send(at_work(driver)[1], 1.0)
        assert effects[1:] == (WakeClients((at_work(driver)[1],)),)
    assert (driver.state.version, driver.state.update_counts) == (0, (0,))
    _, made = driver.send(at_work(driver)[1], 2.0)
    assert (made.version, made.num_updates, made.num_examples) == (1, 3, 30)
    assert made.blend == Blend(1.0, 1.0, ((0, -1.0),))
    driver.publish(2.0)
    assert driver.state.update_counts == (1,)
    assert driver.send(slow, 3.0)[0].weight == 2**-0.5


def test_versions_that_buffered_updates_started_from_stay_until_they_are_counted(drive):
    driver = solo(drive, "fedbuff", buffer_size=2, cohort_size=2)
    slow, _ = at_work(driver)
    for version in (1, 2, 3):
        driver.update(at_work(driver)[1], version)
        driver.update(at_work(driver)[1], version)
    driver.update(slow, 9.0)
    assert [one.base_version for one in driver.state.tiers[0].closed] == [0]
    assert versions_in_use(driver.state) == {0, 3}
    *_, made = driver.update(at_work(driver)[0], 9.0)
    assert made.blend.own == 1.0
    assert made.blend.bases == ((0, pytest.approx(-0.25)), (3, -0.5))
    assert versions_in_use(driver.state) == {3, 4}


def test_a_lost_client_leaves_the_buffer_alone(drive):
    driver = solo(drive, "fedbuff", buffer_size=2, cohort_size=2)
    driver.update(at_work(driver)[0], 50.0)
    assert driver.deadline() == (WakeClients((at_work(driver)[1],)),)
    *_, made = driver.update(at_work(driver)[0], 120.0)
    assert made.num_updates == 2


@pytest.mark.parametrize(("name", "updates"), [("fedasync", 4), ("fedbuff", 8)])
def test_the_last_version_ends_it(drive, name, updates):
    size = {"buffer_size": 2} if name == "fedbuff" else {}
    driver = solo(drive, name, stop={"max_versions": 4}, **size)
    for _ in range(updates):
        assert driver.state.status == "training"
        driver.update(at_work(driver)[0], 1.0)
    assert (driver.state.status, driver.state.reason) == ("finished", "reached version 4")
    assert all(client.lease is None for client in driver.state.clients.values())
    assert versions_in_use(driver.state) == {4}


def test_draws_do_not_depend_on_the_order_of_arrival(drive):
    def first_at_work(names):
        driver = drive(method="fedasync", seed=4, rounds={"cohort_size": 6, "start_clients": 30})
        driver.register(*names)
        return at_work(driver)

    names = [f"c{i:02d}" for i in range(30)]
    assert first_at_work(names) == first_at_work(reversed(names))
    assert len(set(first_at_work(names))) == 6


def test_latency_is_measured_as_in_any_round(drive):
    driver = solo(drive)
    name = at_work(driver)[0]
    driver.apply(TaskDelivered(2.0, driver.task(name)))
    driver.update(name, 7.0)
    assert driver.state.clients[name].latency_s == 5.0
