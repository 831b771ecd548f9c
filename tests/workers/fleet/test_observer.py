import asyncio

import pytest

from fedat_service.clock import LoopClock
from fedat_service.errors import ServiceRefused
from fedat_service.wire.messages import ClientEvaluation, EvaluateVersion
from workers.fleet.observer import Observer
from workers.training.jobs import FutureJob, InlineExecutor


@pytest.fixture
def observe(virtually, connect, models, service):
    """`observe(plan)` observes every 10 s while `plan(finished)` runs; gives the versions it reported."""

    def run(plan):
        async def main():
            def evaluate(_, due_s):
                found = (ClientEvaluation(client="c000", num_examples=2, correct=1, loss=0.5),)
                return FutureJob(InlineExecutor().submit(lambda: found))

            finished = asyncio.Event()
            observer = Observer(connect(), models, LoopClock(), evaluate, 10.0)
            await asyncio.gather(observer.run(finished), plan(finished))

        virtually(main())
        reports = [r.content for r in service.requests if r.url.path.endswith("/evaluations")]
        return [EvaluateVersion.model_validate_json(report).version for report in reports]

    return run


def versions_over_time(service, versions):
    service.version = versions[0]

    async def plan(_):
        for version in versions:
            service.version = version
            await LoopClock().sleep(10.0)
        service.status = "finished"

    return plan


def test_every_version_that_is_the_newest_at_its_time_is_reported_once(observe, service):
    assert observe(versions_over_time(service, [0, 4, 4, 9])) == [0, 4, 9]


def test_the_last_version_is_reported_as_soon_as_the_end_is_known(observe, service):
    async def plan(finished):
        await LoopClock().sleep(13.0)
        service.version, service.status = 8, "finished"
        finished.set()

    assert observe(plan) == [3, 8]
    assert service.at_s[-1] == pytest.approx(13.0)


def test_the_last_version_is_reported_though_it_is_published_after_the_clients_were_sent_home(
    observe, service
):
    async def plan(finished):
        await LoopClock().sleep(13.0)
        finished.set()
        await LoopClock().sleep(2.0)
        service.version, service.status = 8, "finished"

    assert observe(plan) == [3, 8]
    assert service.at_s[-1] == pytest.approx(15.0, abs=1.0)
    assert service.calls["GET f"] < 50


def test_before_there_is_a_model_nothing_is_evaluated(observe, service):
    service.status = "awaiting-model"

    async def plan(_):
        await LoopClock().sleep(25.0)
        assert service.calls["GET model"] == 0
        service.status = "finished"

    assert observe(plan) == [3]


def test_a_version_that_somebody_else_has_evaluated_is_passed_over(observe, service, refusal):
    service.first["evaluations"] = [refusal(409, "conflict")]
    assert observe(versions_over_time(service, [1, 2])) == [1, 2]


def test_any_other_refusal_is_raised(observe, service, refusal):
    service.first["evaluations"] = [refusal(422, "unprocessable")]
    with pytest.raises(ServiceRefused):
        observe(versions_over_time(service, [1]))


def test_a_model_that_has_not_changed_is_not_sent_again(observe, service):
    observe(versions_over_time(service, [1, 1, 1]))
    fetches = [r for r in service.requests if r.url.path.endswith("/model")]
    assert ["if-none-match" in fetch.headers for fetch in fetches] == [False, True, True, True][
        : len(fetches)
    ]
