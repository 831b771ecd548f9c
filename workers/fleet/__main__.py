"""One process of a fleet: settings come in by standard input, what was done goes out by standard output."""

import asyncio
import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import stamina.instrumentation
import torch

from fedat_service.errors import FedATError
from workers.fleet.engine import LocalEngine
from workers.fleet.hosting import host
from workers.fleet.population import Population
from workers.fleet.settings import FleetSettings
from workers.worker import Tally


def main() -> int:
    """Run the share of the fleet that the first argument numbers."""
    report = sys.stdout
    # Standard output is the parent's to read: whatever else is printed belongs to people.
    sys.stdout = sys.stderr
    settings = FleetSettings.model_validate_json(_read_line())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    stamina.instrumentation.set_on_retry_hooks([])
    torch.set_num_threads(1)
    try:
        tally = asyncio.run(_host(settings, int(sys.argv[1])))
    except FedATError as error:
        report.write(json.dumps({"error": str(error)}))
        return 2
    report.write(json.dumps(asdict(tally)))
    return 0


async def _host(settings: FleetSettings, process: int) -> Tally:
    # Two threads: an update that is ready must not wait behind the trainings of other clients.
    with ThreadPoolExecutor(1) as arithmetic, ThreadPoolExecutor(1) as codecs:
        population = Population(settings)
        return await host(population, process, LocalEngine(population, arithmetic), codecs)


def _read_line() -> bytes:
    """Read standard input up to the first line end, and nothing of what follows."""
    line = b""
    while not line.endswith(b"\n"):
        if not (byte := os.read(0, 1)):
            return line
        line += byte
    return line


def _end_with_parent() -> None:
    """Wait for the end of standard input: whoever started this process is gone."""
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
