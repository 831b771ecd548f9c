import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fedat_service.errors import ConfigError, FleetFailed
from workers.fleet import pools
from workers.fleet.parcels import pack, unpack
from workers.fleet.pools import open_pool

POOL = """
import time
from workers.fleet.pools import open_pool

if __name__ == "__main__":
    with open_pool("processes", 1) as pool:
        pool.submit(print, "begun", flush=True).result()
        print(*pool._processes, flush=True)
        print(pool._folder, flush=True)
        time.sleep(60)
"""


def test_a_pool_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="0"), open_pool("processes", 0):
        pass


def test_an_interrupt_does_not_reach_a_process_that_is_only_just_starting():
    with open_pool("processes", 1) as pool:
        working = pool.submit(os.getpid)
        (child,) = pool._processes
        # At once: it has not even begun to import anything.
        os.kill(child, signal.SIGINT)
        assert working.result() == child


def test_whoever_opens_a_pool_can_be_interrupted_afterwards():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with open_pool("processes", 1) as pool:
        pool.submit(os.getpid).result()
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


DESCRIPTORS = Path("/proc/self/fd")


def in_use_in(pool):
    """Files that nobody would use again."""
    return [path for path in pool._folder.iterdir() if path.name != "lock" and path.suffix != ".free"]


def test_large_arrays_take_the_file_in_both_directions(monkeypatch):
    packed, unpacked = [], []
    monkeypatch.setattr(pools, "pack", lambda *given: (packed.append(pack(*given)), packed[-1])[1])
    monkeypatch.setattr(pools, "unpack", lambda parcel: (unpacked.append(parcel), unpack(parcel))[1])
    with open_pool("processes", 1) as pool:
        assert pool.submit(doubled, np.ones(100_000)).result().sum() == 200_000
    assert [parcel.path is not None for parcel in packed + unpacked] == [True, True]


def test_who_is_cancelled_is_not_worked_for_and_leaves_nothing():
    with open_pool("processes", 1) as pool:
        first = pool.submit(slowly, np.zeros(100_000))
        rest = [pool.submit(slowly, np.full(100_000, one)) for one in range(1, 9)]
        assert all(future.cancel() for future in (first, *rest))
        # One may have begun and one lie ready for the process; nobody waits for eight.
        start_s = time.monotonic()
        assert pool.submit(doubled, np.ones(1)).result().tolist() == [2]
        assert time.monotonic() - start_s < 6
        assert in_use_in(pool) == []


def test_what_a_closed_pool_refuses_leaves_nothing():
    with open_pool("processes", 1) as pool:
        assert pool.submit(doubled, np.ones(1)).result().tolist() == [2]
        pool.shutdown()
        with pytest.raises(RuntimeError, match="after shutdown"):
            pool.submit(doubled, np.ones(100_000))
        assert in_use_in(pool) == []


@pytest.mark.skipif(not DESCRIPTORS.exists(), reason="the system does not tell its descriptors")
def test_a_pool_that_is_closed_has_nothing_open():
    before = len(list(DESCRIPTORS.iterdir()))
    with open_pool("processes", 2) as pool:
        for _ in range(5):
            pool.submit(doubled, np.ones(100_000)).result()
    assert len(list(DESCRIPTORS.iterdir())) <= before


def test_what_has_not_begun_when_a_pool_closes_is_cancelled():
    with open_pool("processes", 1) as pool:
        futures = [pool.submit(slowly, np.zeros(1)) for _ in range(8)]
    assert futures[-1].cancelled()
    assert all(future.done() for future in futures)


def slowly(values):
    time.sleep(1)
    return values


def test_a_system_without_room_for_a_pool_is_named(monkeypatch):
    def fail(*args, **kwargs):
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(pools, "_ProcessPool", fail)
    with pytest.raises(ConfigError, match=r"semaphores.*--engine inline"), open_pool("processes", 1):
        pass


def doubled(values):
    return 2 * values


def test_large_arrays_go_there_and_back_and_nothing_stays():
    with open_pool("processes", 2) as pool:
        futures = [pool.submit(doubled, np.full(100_000, one)) for one in range(5)]
        assert [set(future.result().tolist()) for future in futures] == [{0}, {2}, {4}, {6}, {8}]
        del futures
        deadline = time.monotonic() + 10
        while in_use_in(pool):  # the thread that handed the last one over may still have it
            assert time.monotonic() < deadline
    assert not pool._folder.exists()


def test_what_fails_is_raised_to_whoever_waits():
    with open_pool("processes", 1) as pool, pytest.raises(TypeError, match="unsupported operand"):
        pool.submit(doubled, {}).result()


def kill_one():
    with open_pool("processes", 2) as pool:
        os.kill(pool.submit(os.getpid).result(), signal.SIGKILL)
        pool.submit(time.sleep, 60).result()


def test_a_process_that_is_killed_is_one_error_of_ours():
    with pytest.raises(FleetFailed, match="out of memory"):
        kill_one()


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_processes_end_with_whoever_started_them_however_that_ends(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(POOL)
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline() == "begun\n"
        children = [int(word) for word in parent.stdout.readline().split()]
        folder = Path(parent.stdout.readline().strip())
        assert folder.is_dir()
        assert all(is_running(child) for child in children)
        parent.kill()
    deadline = time.monotonic() + 10
    while folder.exists() or any(is_running(child) for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.02)
