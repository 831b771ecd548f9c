import math
import re
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import httpx
import numpy as np
import pytest

from fedat_service.errors import ManifestError, NotNow, ServiceRefused, TrainingError
from fedat_service.params import Manifest
from fedat_service.wire.messages import Evaluation, RegisterClient
from workers.training.jobs import DueFirst, ExecutorTraining, FutureJob, InlineExecutor
from workers.training.trainer import EvaluationResult
from workers.worker import Pace, Tally, check_manifest


def test_a_client_registers_works_off_its_tasks_and_ends_with_the_federation(work, service):
    service.tasks = [service.task(n) for n in (1, 2, 3)]
    tally, _ = work()
    assert tally == Tally(tasks=3, finished=True)
    assert service.calls == {
        "POST clients": 1, "GET task": 4, "GET model": 3, "PUT update": 3
    }  # fmt: skip
    assert RegisterClient.model_validate_json(service.requests[0].content).num_examples == 8


def test_an_update_is_what_training_gave(work, service, trainer):
    service.tasks = [service.task()]
    work()
    (bundle,) = service.updates
    assert (bundle.base_version, bundle.num_examples) == (3, 8)
    ((_, solver, seed, *_),) = trainer.given
    assert (solver, seed) == (service.task().solver, 1)


@pytest.mark.parametrize("rate", [1.0, 50.0])
def test_a_task_takes_the_latency_of_its_participation(work, service, rate):
    service.tasks = [service.task(n) for n in (1, 2, 3)]
    _, end_s = work(rate=rate, pace=Pace(lambda participation: 10.0 + participation))
    assert end_s == pytest.approx(10 + 11 + 12)
    sent_s = [at_s for at_s, r in zip(service.at_s, service.requests, strict=True) if r.method == "PUT"]
    assert sent_s == pytest.approx(np.array([10, 21, 33]) / rate)


def test_what_fetching_takes_is_part_of_the_latency(work, service):
    service.tasks = [service.task()]
    service.first["model"] = [httpx.Response(503, headers={"Retry-After": "4"})]
    _, end_s = work(pace=Pace(lambda _: 30.0))
    assert end_s == pytest.approx(30.0)


def test_a_task_that_takes_longer_than_its_latency_is_sent_at_once_and_counted_as_late(work, service):
    service.tasks = [service.task(1), service.task(2)]
    service.first["model"] = [httpx.Response(503, headers={"Retry-After": "40"})]
    tally, end_s = work(pace=Pace(lambda _: 30.0))
    assert tally == Tally(tasks=2, late=1, finished=True)
    assert 70 <= end_s < 71


def test_profiling_trains_too_and_counts_as_participation(work, service, trainer):
    service.tasks = [service.task(1, purpose="profile"), service.task(1)]
    _, end_s = work(pace=Pace(lambda participation: 5.0 + participation))
    assert end_s == pytest.approx(11.0)
    assert len(trainer.given) == 2
    assert [len(bundle.entries) for bundle in service.updates] == [0, 2]


def test_a_model_in_hand_is_not_fetched_again(work, service):
    service.tasks = [service.task(1, purpose="profile"), service.task(1)]
    work()
    fetches = [r for r in service.requests if r.url.path.endswith("/model")]
    assert ["if-none-match" in fetch.headers for fetch in fetches] == [False, True]


def test_while_there_is_nothing_to_do_it_asks_again(work, service):
    service.tasks = [httpx.Response(204)] * 3 + [service.task()]
    tally, _ = work()
    assert tally.tasks == 1


@pytest.mark.parametrize("status", [404, 410])
@pytest.mark.parametrize("where", ["model", "update", "evaluation"])
def test_a_task_whose_time_is_over_is_dropped_and_the_next_one_done(work, service, refusal, status, where):
    service.tasks = [service.task(1), service.task(2)]
    service.first[where] = [refusal(status, "gone")]
    tally, _ = work(evaluates=True)
    assert tally == Tally(tasks=2, refused=1, finished=True)
    assert len(service.updates) == 1


@pytest.mark.parametrize("status", [400, 409, 412, 413, 415, 422, 500])
def test_any_other_refusal_of_an_update_is_raised(work, service, refusal, status):
    service.tasks = [service.task(1), service.task(2)]
    service.first["update"] = [refusal(status, "wrong", "layer fc")]
    with pytest.raises(ServiceRefused, match="layer fc"):
        work()


def test_a_task_that_is_refused_and_given_again_at_once_is_raised(work, service, refusal):
    service.tasks = [service.task(1)] * 9
    service.first["model"] = [refusal(404, "not-found", "no version 3")] * 9
    with pytest.raises(ServiceRefused, match="no version 3"):
        work()
    assert service.calls["GET model"] == 2


def test_a_client_that_the_service_forgot_registers_again_and_goes_on(work, service, refusal):
    service.tasks = [service.task(1), refusal(404, "not-found"), service.task(1)]
    service.first["update"] = [refusal(404, "not-found")]
    tally, _ = work()
    assert tally == Tally(tasks=2, refused=1, finished=True)
    assert service.calls["POST clients"] == 2


def test_a_client_comes_back_after_the_service_was_down(work, service):
    service.tasks = [
        httpx.Response(503, headers={"Retry-After": "5"}),
        httpx.Response(503, headers={"Retry-After": "5"}),
        service.task(),
    ]
    tally, _ = work()
    assert tally == Tally(tasks=1, finished=True)


def test_a_service_that_is_gone_for_good_is_given_up(work, service):
    service.first["clients"] = [httpx.ConnectError("refused")] * 1000
    with pytest.raises(NotNow, match="refused"):
        work()


def test_a_federation_that_is_finished_already_ends_the_client(work, service, refusal):
    service.first["clients"] = [refusal(410, "gone")]
    assert work()[0] == Tally(finished=True)


@pytest.mark.parametrize("drop_at_s", [25.0, 30.0])
def test_a_client_that_drops_out_takes_its_work_with_it(work, service, drop_at_s):
    service.tasks = [service.task(1), service.task(2)]
    tally, end_s = work(pace=Pace(lambda _: 15.0, drop_at_s))
    assert tally == Tally(tasks=2)
    assert end_s == pytest.approx(drop_at_s)
    assert len(service.updates) == 1


def test_a_client_that_drops_out_while_it_waits_asks_no_longer_than_it_lives(work, service):
    service.tasks = [httpx.Response(204, headers={"Retry-After": "8"})] * 99
    tally, end_s = work(rate=2.0, pace=Pace(drop_at_s=100.0))
    assert tally == Tally()
    assert end_s >= 100.0
    waits_s = [float(r.url.params["wait"]) for r in service.requests if "wait" in r.url.params]
    assert waits_s == pytest.approx([30, 30, 30, 26, 18, 10, 2])


def test_a_client_evaluates_the_models_it_is_to_train_if_it_is_told_to(work, service):
    service.tasks = [service.task(1, purpose="profile"), service.task(2)]
    work(evaluates=True)
    (report,) = (r for r in service.requests if r.url.path.endswith("/evaluation"))
    assert "t1.r2.s0.c000" in report.url.path
    found = Evaluation.model_validate_json(report.content)
    assert (found.num_examples, found.correct, found.loss) == (4, 3, 0.5)


def test_a_client_without_test_data_reports_nothing(work, service, trainer):
    trainer.found = EvaluationResult(0, 0, 0.0)
    service.tasks = [service.task()]
    assert work(evaluates=True)[0].tasks == 1
    assert service.calls["POST evaluation"] == 0


@pytest.mark.parametrize("loss", [math.inf, math.nan, 1e31, -0.5])
def test_a_loss_that_cannot_be_reported_ends_the_client_with_its_value(work, service, trainer, loss):
    trainer.found = EvaluationResult(4, 0, loss)
    service.tasks = [service.task()]
    with pytest.raises(TrainingError, match=rf"c000.*loss {re.escape(str(loss))}\b"):
        work(evaluates=True)
    assert service.calls["POST evaluation"] == 0


def test_training_that_is_not_done_when_the_round_is_over_is_given_up(work, service, trainer):
    class Endless(ExecutorTraining):
        def train(self, *args):
            futures.append(Future())
            return FutureJob(futures[-1])

    futures = []
    service.tasks = [service.task(1, deadline_in_s=40.0), service.task(2, deadline_in_s=40.0)]
    tally, end_s = work(Endless(trainer, DueFirst(InlineExecutor())), rate=2.0)
    assert tally == Tally(tasks=2, late=2, refused=2, finished=True)
    assert end_s == pytest.approx(80.0)
    assert all(future.cancelled() for future in futures)
    assert service.calls["PUT update"] == 0


def test_training_that_fails_ends_the_client_with_its_error(work, service, trainer, monkeypatch):
    def diverge(*_):
        raise TrainingError("fc.weight is NaN")

    monkeypatch.setattr(trainer, "train", diverge)
    service.tasks = [service.task()]
    with pytest.raises(TrainingError, match="NaN"):
        work()


def test_training_runs_where_the_executor_says(work, service, trainer, monkeypatch):
    def train(*args):
        threads.append(threading.current_thread())
        return Adding.train(trainer, *args)

    threads, Adding = [], type(trainer)
    monkeypatch.setattr(trainer, "train", train)
    service.tasks = [service.task()]
    with ThreadPoolExecutor(1) as executor:
        work(ExecutorTraining(trainer, DueFirst(executor)))
    assert threads[0] is not threading.main_thread()


def test_equal_manifests_pass(service):
    check_manifest(service.manifest, Manifest(service.manifest.tensors))


def test_a_manifest_that_differs_is_refused_by_its_first_difference(service):
    weight, bias = service.manifest.tensors
    other = Manifest((weight, replace(bias, shape=(4,))))
    with pytest.raises(ManifestError, match=r"fc\.bias .*\[3\], the federation's has fc\.bias .*\[4\]"):
        check_manifest(service.manifest, other)


@pytest.mark.parametrize("swap", [False, True])
def test_a_tensor_too_many_is_named(service, swap):
    short = Manifest(service.manifest.tensors[:1])
    own, federation = (short, service.manifest) if swap else (service.manifest, short)
    with pytest.raises(ManifestError, match=r"fc\.bias"):
        check_manifest(own, federation)


def test_a_real_client_takes_no_time_of_its_own_and_never_drops_out():
    assert (Pace().latency_s(5), Pace().drop_at_s) == (0.0, math.inf)
