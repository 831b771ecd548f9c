import asyncio
import os
import signal

import pytest

from fedat_service.errors import FleetFailed
from workers.fleet import launch as launching
from workers.fleet.creation import create_federation, describe_model
from workers.fleet.launch import launch

pytestmark = pytest.mark.e2e


def create(url, settings, federation):
    asyncio.run(create_federation(url, federation(settings), describe_model(settings)))


def test_processes_share_a_fleet_and_work_a_federation_off(live_url, fleet, federation):
    settings = fleet(url=live_url, federation="launched", latency="uniform:0:5")
    create(live_url, settings, federation)
    tally = asyncio.run(launch(settings))
    assert tally.finished
    assert tally.tasks >= 12


def test_the_error_of_one_process_ends_the_fleet_with_its_message(live_url, fleet):
    with pytest.raises(FleetFailed, match="no federation 'nowhere'"):
        asyncio.run(launch(fleet(url=live_url, federation="nowhere", num_processes=1)))


class Started:
    """The processes of a fleet, and when both are there."""

    def __init__(self):
        self.processes = []
        self.both = asyncio.Event()

    def add(self, process):
        self.processes.append(process)
        if len(self.processes) == 2:
            self.both.set()

    def are_gone(self):
        for process in self.processes:
            with pytest.raises(ProcessLookupError):
                os.kill(process.pid, 0)
        return len(self.processes) == 2


@pytest.fixture
def started(monkeypatch):
    started = Started()
    start = launching._start

    async def noted(index):
        process = await start(index)
        started.add(process)
        return process

    monkeypatch.setattr(launching, "_start", noted)
    return started


def test_a_process_that_is_killed_ends_the_fleet_and_no_process_stays_behind(live_url, fleet, started):
    async def main():
        running = asyncio.ensure_future(launch(fleet(url=live_url)))
        await started.both.wait()
        started.processes[1].send_signal(signal.SIGKILL)
        with pytest.raises(FleetFailed, match="status -9"):
            await running

    asyncio.run(main())
    assert started.are_gone()


def test_a_fleet_that_is_cancelled_leaves_no_process_behind(live_url, fleet, started):
    async def main():
        running = asyncio.ensure_future(launch(fleet(url=live_url)))
        await started.both.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    assert started.are_gone()


def test_a_process_ends_when_whoever_started_it_is_gone(fleet):
    async def main():
        process = await launching._start(0)
        process.stdin.close()
        return await asyncio.wait_for(process.wait(), 60)

    assert asyncio.run(main()) != 0
