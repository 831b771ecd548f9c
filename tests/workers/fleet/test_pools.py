import os
import signal
import time

import pytest

from fedat_service.errors import ConfigError, FleetFailed
from workers.fleet.pools import open_pool


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


def kill_one():
    with open_pool("processes", 2) as pool:
        os.kill(pool.submit(os.getpid).result(), signal.SIGKILL)
        pool.submit(time.sleep, 60).result()


def test_a_process_that_is_killed_is_one_error_of_ours():
    with pytest.raises(FleetFailed, match="out of memory"):
        kill_one()
