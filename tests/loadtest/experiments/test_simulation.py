import errno
import signal
import sys
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import ModuleType
from unittest.mock import Mock, patch

import pytest
import torch

from fedat_service.clock import LoopClock
from fedat_service.coordinator.replay import replay
from fedat_service.errors import ConfigError
from fedat_service.store.jsonl import JsonLinesStore
from loadtest.experiments import simulation
from loadtest.experiments.settings import ExperimentSettings
from loadtest.experiments.simulation import simulate
from workers.data.catalog import load
from workers.training.jobs import InlineExecutor

SMALL = ExperimentSettings(
    methods=("fedat",),
    limit_per_class=20,
    model="logistic",
    num_clients=9,
    num_tiers=3,
    cohort_size=2,
    num_unstable=2,
    horizon_s=200.0,
    evaluate_every_s=20.0,
)


async def unseen(_, finished):
    await finished.wait()


@pytest.fixture
def log_of(tmp_path):
    """`log_of(engine, **fields)` is the event log of a small simulation, as bytes."""

    def run(engine, **fields):
        out = tmp_path / f"{engine}-{len(list(tmp_path.iterdir()))}"
        simulate("fedat", SMALL.changed(out=out, **fields), unseen, engine)
        return (out / "events.jsonl").read_bytes()

    return run


def test_a_simulation_is_over_when_its_time_is(tmp_path):
    run = simulate("fedat", SMALL.changed(out=tmp_path), unseen, "inline")
    assert run.federation.status == "finished"
    assert run.federation.now_s == pytest.approx(200.0, abs=0.001)
    assert run.metrics.versions[-1].at_s <= 200.0
    assert run.metrics.evaluations[-1].version == run.federation.version


@pytest.mark.no_cover
def test_one_seed_gives_one_log_whatever_trains_and_another_seed_another(log_of):
    inline = log_of("inline")
    assert log_of("inline") == inline
    assert log_of("processes", processes=2) == inline
    assert log_of("inline", seed=1) != inline


@pytest.mark.no_cover
def test_one_seed_gives_one_log_of_convolutions_rounded_or_not(log_of):
    exact = log_of("inline", model="cnn")
    assert log_of("processes", model="cnn", processes=2) == exact
    rounded = log_of("inline", model="cnn", bfloat16=True)
    assert log_of("processes", model="cnn", bfloat16=True) == rounded != exact


@pytest.mark.timeout(300)
def test_ray_gives_the_same_log(log_of):
    pytest.importorskip("ray")
    assert log_of("ray") == log_of("inline")


def test_what_was_simulated_can_be_verified_from_its_log(tmp_path):
    run = simulate("fedat", SMALL.changed(out=tmp_path, keep_updates=True), unseen, "inline")
    (played,) = replay(tmp_path / "events.jsonl", verify=True)
    assert played.verified == list(range(1, run.federation.version + 1))
    assert not played.differing


@pytest.mark.parametrize(("step", "after"), [("create", 0), ("append", 0), ("append", 30)])
def test_a_log_that_cannot_be_written_ends_the_run_at_once(step, after, monkeypatch, capsys, tmp_path):
    write, written = getattr(JsonLinesStore, step), []

    async def fail(self, *args):
        if len(written) == after:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(args)
        await write(self, *args)

    monkeypatch.setattr(JsonLinesStore, step, fail)
    settings = SMALL.changed(out=tmp_path)
    with pytest.raises(OSError, match="No space left"):
        simulate("fedat", settings, unseen, "inline")
    assert capsys.readouterr() == ("", "")
    monkeypatch.undo()
    assert settings.unfinished_of("fedat").exists() == (after > 0)
    simulate("fedat", settings, unseen, "inline")
    assert [path.name for path in tmp_path.iterdir()] == ["events.jsonl"]


def interrupted_after(seconds):
    """A watch that presses Ctrl-C."""
    # A shell starts what it puts into the background with the key ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    async def watch(_, finished):
        await LoopClock().sleep(seconds)
        signal.raise_signal(signal.SIGINT)
        await finished.wait()

    return watch


@pytest.fixture
def given(monkeypatch):
    """All that a pool in this process is given to do, by the names of its functions."""
    given = []

    class Counting(InlineExecutor):
        def submit(self, fn, /, *args, **kwargs):
            given.append(fn.__name__)
            return super().submit(fn, *args, **kwargs)

    @contextmanager
    def open_counting(_engine, _num_processes):
        yield Counting()

    monkeypatch.setattr(simulation, "open_pool", open_counting)
    return given


def works(given):
    """The work with a result, which is kept."""
    return sorted(name for name in given if name != "_prepare")


def test_all_processes_of_a_pool_start_before_there_is_work(given, tmp_path):
    simulate("fedat", SMALL.changed(out=tmp_path, processes=3), unseen)
    assert given[:4] == ["_prepare", "_prepare", "_prepare", "_evaluate_piece"]


@pytest.mark.parametrize("method", ["fedat", "fedasync"])
def test_an_interrupted_run_goes_on_to_the_log_of_an_uninterrupted_one(method, given, tmp_path):
    settings = SMALL.changed(methods=(method,), reference=method)
    whole, parts = settings.changed(out=tmp_path / "whole"), settings.changed(out=tmp_path / "parts")
    simulate(method, whole, unseen)
    expected, before = (tmp_path / "whole" / "events.jsonl").read_bytes(), works(given)
    given.clear()
    for at_s in (70.0, 140.0):
        with pytest.raises(KeyboardInterrupt):
            simulate(method, parts, interrupted_after(at_s))
    assert 0 < len(works(given)) < len(before)
    simulate(method, parts, unseen)
    assert works(given) == before
    assert (tmp_path / "parts" / "events.jsonl").read_bytes() == expected
    assert [path.name for path in (tmp_path / "parts").iterdir()] == ["events.jsonl"]


def test_a_refusal_takes_nothing_from_an_interrupted_run(tmp_path):
    settings = SMALL.changed(out=tmp_path, methods=("fedat",))
    with pytest.raises(KeyboardInterrupt):
        simulate("fedat", settings, interrupted_after(70.0), "inline")
    before = set(settings.unfinished_of("fedat").iterdir())
    with patch.dict("sys.modules", ray=None), pytest.raises(ConfigError, match="ray"):
        simulate("fedat", settings, unseen, "ray")
    assert set(settings.unfinished_of("fedat").iterdir()) == before


def test_an_interrupted_run_is_not_mixed_with_one_of_other_settings(tmp_path):
    settings = SMALL.changed(out=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        simulate("fedat", settings, interrupted_after(70.0), "inline")
    with pytest.raises(ConfigError, match=r"method\.solver\.lr was 0\.01 and is 0\.02"):
        simulate("fedat", settings.changed(lr=0.02), unseen, "inline")
    simulate("fedat", settings.changed(processes=1, target_accuracy=0.9), unseen, "inline")


def test_an_interrupted_run_is_not_mixed_with_one_of_other_files(tmp_path):
    trace = tmp_path / "trace.csv"
    settings = SMALL.changed(out=tmp_path / "out", latency=f"trace:{trace}")
    trace.write_text("".join(f"{client},3.5\n" for client in range(9)))
    with pytest.raises(KeyboardInterrupt):
        simulate("fedat", settings, interrupted_after(70.0), "inline")
    trace.write_text("".join(f"{client},4.5\n" for client in range(9)))
    with pytest.raises(ConfigError, match=r"content\.latency was '[0-9a-f]+' and is '[0-9a-f]+'"):
        simulate("fedat", settings, unseen, "inline")


def test_all_processes_train_on_the_device_that_was_found_here(tmp_path, monkeypatch):
    """A process of a pool may see other devices than the one that opened it."""
    fleets = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    monkeypatch.setattr(simulation, "CohortEngine", lambda fleet, *_, **__: fleets.append(fleet) or 1 / 0)
    for device in ("auto", "cpu", "cuda:1"):
        with pytest.raises(ZeroDivisionError):
            simulate("fedat", SMALL.changed(out=tmp_path, device=device), unseen, "inline")
    assert [fleet.device for fleet in fleets] == ["cuda:0", "cpu", "cuda:1"]


def test_a_run_sees_the_data_as_it_is_now(monkeypatch, tmp_path):
    mine = ModuleType("mine")
    monkeypatch.setitem(sys.modules, "mine", mine)
    digits = load("digits")
    logs = []
    for labels in (digits.labels, digits.labels[::-1].copy(), digits.labels):
        mine.load = Mock(side_effect=partial(replace, digits, labels=labels))
        out = tmp_path / str(len(logs))
        simulate("fedat", SMALL.changed(out=out, data="mine:load"), unseen, "inline")
        logs.append((out / "events.jsonl").read_bytes())
        assert mine.load.call_count == 1
    assert logs[0] == logs[2] != logs[1]
