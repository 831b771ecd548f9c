import errno
import signal
import subprocess
import sys
from concurrent.futures import CancelledError, Future
from pathlib import Path

import numpy as np
import pytest

from fedat_service.errors import ConfigError, TrainingError
from loadtest.experiments.unfinished import ResumingExecutor, forget, unfinished
from workers.training.jobs import InlineExecutor
from workers.training.trainer import TrainResult

CONDITIONS = {"seed": 1, "method": {"solver": {"name": "adam", "lr": 0.1}}}


class CountingExecutor(InlineExecutor):
    """Notes what it was given."""

    def __init__(self):
        self.done = []

    def submit(self, fn, /, *args, **kwargs):
        self.done.append(args)
        return super().submit(fn, *args, **kwargs)


def double(start: dict, seed: int) -> list[TrainResult]:
    return [TrainResult({name: 2 * array for name, array in start.items()}, seed, {"loss": 0.1})]


def triple(start: dict, seed: int) -> list[TrainResult]:
    return [TrainResult({name: 3 * array for name, array in start.items()}, seed, {"loss": 0.1})]


def refuse(seed: int) -> int:
    raise TrainingError(f"seed {seed}")


START = {"w": np.arange(3, dtype=np.float32)}


@pytest.fixture
def counting():
    return CountingExecutor()


def test_the_same_work_is_done_once(counting, tmp_path):
    with ResumingExecutor(counting, tmp_path) as executor:
        first = executor.submit(double, START, 1).result()
    with ResumingExecutor(counting, tmp_path) as executor:
        again = executor.submit(double, {"w": START["w"].copy()}, 1).result()
    assert len(counting.done) == 1
    assert again[0].params["w"].tolist() == first[0].params["w"].tolist() == [0, 2, 4]


def test_other_work_is_done(counting, tmp_path):
    works = [(double, START, 1), (double, START, 2), (double, {"w": START["w"] + 1}, 1), (triple, START, 1)]
    with ResumingExecutor(counting, tmp_path) as executor:
        results = [executor.submit(*work).result()[0] for work in works]
    assert len(counting.done) == 4
    assert [one.params["w"].tolist()[-1] for one in results] == [4, 4, 6, 6]


@pytest.mark.parametrize(
    "damaged",
    [
        lambda content: content[:-3],
        lambda content: content[:-12] + bytes(12),
        lambda content: content.replace(b"<f4", b"<q4"),
        lambda content: b"\xff\xfe\xfa",
        lambda content: b"",
    ],
    ids=["cut off", "zeroed", "another type", "other bytes", "empty"],
)
def test_a_damaged_result_is_computed_again(damaged, counting, tmp_path):
    with ResumingExecutor(counting, tmp_path) as executor:
        executor.submit(double, START, 1).result()
    (path,) = tmp_path.iterdir()
    path.write_bytes(damaged(path.read_bytes()))
    for _ in range(2):
        with ResumingExecutor(counting, tmp_path) as executor:
            assert executor.submit(double, START, 1).result()[0].params["w"].tolist() == [0, 2, 4]
    assert len(counting.done) == 2


def test_a_failure_is_raised_and_not_kept(counting, tmp_path):
    executor = ResumingExecutor(counting, tmp_path)
    for _ in range(2):
        with pytest.raises(TrainingError, match="seed 3"):
            executor.submit(refuse, 3).result()
    assert len(counting.done) == 2


class Later(InlineExecutor):
    """Work that begins when the test says so."""

    def submit(self, fn, /, *args, **kwargs):
        self.future = Future()
        return self.future


def test_cancelled_work_is_neither_awaited_nor_kept(tmp_path):
    later = Later()
    with ResumingExecutor(later, tmp_path) as executor:
        assert executor.submit(double, START, 1).cancel()
        later.future.set_result(double(START, 1))
    assert not list(tmp_path.iterdir())


def test_work_that_the_pool_cancels_is_cancelled(tmp_path):
    later = Later()
    wanted = ResumingExecutor(later, tmp_path).submit(double, START, 1)
    later.future.cancel()
    with pytest.raises(CancelledError):
        wanted.result()


@pytest.mark.parametrize(
    "end", [lambda executor: executor.submit(double, START, 2), ResumingExecutor.shutdown]
)
def test_a_result_that_cannot_be_kept_ends_the_run(end, tmp_path):
    later, folder = Later(), tmp_path / "run"
    executor = ResumingExecutor(later, folder)
    wanted = executor.submit(double, START, 1)
    folder.touch()
    later.future.set_result(double(START, 1))
    assert wanted.result()[0].num_examples == 1
    with pytest.raises(FileExistsError, match="run"):
        end(executor)


def test_nobody_waits_for_ever_for_a_result_that_comes_after_the_end(tmp_path):
    later = Later()
    executor = ResumingExecutor(later, tmp_path)
    wanted = executor.submit(double, START, 1)
    executor.shutdown()
    later.future.set_result(double(START, 1))
    with pytest.raises(RuntimeError, match="shutdown"):
        wanted.result(timeout=1)


def stop(folder, error=None, conditions=CONDITIONS):
    with unfinished(folder, conditions):
        (folder / "result").touch()
        if error:
            raise error


def test_results_stay_when_a_run_is_interrupted_and_go_when_it_is_over(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        stop(folder, KeyboardInterrupt())
    assert (folder / "result").exists()
    stop(folder)
    assert not folder.exists()


@pytest.mark.parametrize("error", [TrainingError("no"), ConfigError("no ray"), OSError("no disk")])
def test_results_stay_when_a_run_fails(tmp_path, error):
    with pytest.raises(type(error)):
        stop(tmp_path / "run", error)
    assert (tmp_path / "run" / "result").exists()


def test_a_run_that_fails_before_it_has_results_leaves_nothing(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(ConfigError), unfinished(folder, CONDITIONS):
        raise ConfigError("no ray")
    assert not folder.exists()


def test_drafts_of_a_process_that_was_killed_are_no_results(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".result.123.part").touch()
    with pytest.raises(KeyboardInterrupt), unfinished(folder, CONDITIONS):
        raise KeyboardInterrupt
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_to_is_not_begun(tmp_path, monkeypatch):
    real_open = Path.open

    def fail(path, mode="r", **rest):
        if mode == "wb":
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_open(path, mode, **rest)

    folder = tmp_path / "run"
    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(OSError, match="No space left"):
        stop(folder)
    assert not folder.exists()


def test_an_interrupted_run_with_other_settings_is_refused_by_their_names(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        stop(folder, KeyboardInterrupt())
    other = {"seed": 1, "method": {"solver": {"name": "adam", "lr": 0.2}}}
    with pytest.raises(ConfigError, match=r"method\.solver\.lr was 0\.1 and is 0\.2; .*--fresh"):
        stop(folder, conditions=other)
    assert (folder / "result").exists()
    forget(folder)
    stop(folder, conditions=other)


@pytest.mark.parametrize("torn", [b'{"se', b"", b"\xff\xfe\xfa", b"[]", b"null", b"[" * 9_999])
def test_torn_conditions_are_those_of_nobody(tmp_path, torn):
    (tmp_path / "conditions.json").write_bytes(torn)
    stop(tmp_path)


@pytest.mark.parametrize("use", [stop, forget])
def test_a_folder_belongs_to_one_process_at_a_time(use, tmp_path):
    folder = tmp_path / "run"
    with unfinished(folder, CONDITIONS):
        (folder / "result").touch()
        with pytest.raises(ConfigError, match=f"{folder}: another process"):
            use(folder)
        assert (folder / "result").exists()
    stop(folder)


def test_a_process_that_was_killed_holds_nothing(tmp_path):
    folder = tmp_path / "run"
    program = (
        "import os, pathlib; from loadtest.experiments.unfinished import unfinished\n"
        f"with unfinished(pathlib.Path({str(folder)!r}), {CONDITIONS}): os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == -signal.SIGKILL
    stop(folder)
    assert not folder.exists()


def test_forgetting_nothing_does_nothing(tmp_path):
    forget(tmp_path / "run")
