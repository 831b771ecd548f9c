"""A fleet as processes: started, waited for, and never left behind."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import Sequence
from contextlib import suppress

from fedat_service.errors import FleetFailed
from workers.fleet.settings import FleetSettings
from workers.worker import Tally

_GRACE_S = 5.0


async def launch(settings: FleetSettings) -> Tally:
    """Start the processes of a fleet, and wait until all are done; whatever happens, none stays behind.

    Returns:
        What all clients did.

    Raises:
        FleetFailed: If one of its processes fails: the others are ended, and the message is its own.
    """
    processes: list[Process] = []
    try:
        for index in range(settings.num_processes):
            processes.append(await _start(index))  # noqa: PERF401 - a failing start ends those before it
        tallies = await asyncio.gather(*(_outcome(process, settings) for process in processes))
    finally:
        await _end(processes)
    return sum(tallies, Tally())


async def _start(index: int) -> Process:
    # A session of its own: an interrupt from the keyboard reaches us first, and we end it in order.
    return await create_subprocess_exec(
        sys.executable,
        "-m",
        "workers.fleet",
        str(index),
        stdin=PIPE,
        stdout=PIPE,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


async def _outcome(process: Process, settings: FleetSettings) -> Tally:
    """Tell a process what to do, and wait until it has."""
    if process.stdin is None or process.stdout is None:
        raise FleetFailed("a worker process has no pipes")
    with suppress(ConnectionError):
        # Its standard input stays open: when it ends, so does the process.
        process.stdin.write(settings.model_dump_json().encode() + b"\n")
        await process.stdin.drain()
    told = await process.stdout.read()
    status = await process.wait()
    if status == 0:
        return Tally(**json.loads(told))
    if not told:
        raise FleetFailed(f"a worker process ended with status {status}")
    raise FleetFailed(json.loads(told)["error"])


async def _end(processes: Sequence[Process]) -> None:
    for process in processes:
        if process.stdin is not None:
            process.stdin.close()
        with suppress(ProcessLookupError):
            process.terminate()
    for process in processes:
        try:
            await asyncio.wait_for(process.wait(), _GRACE_S)
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
