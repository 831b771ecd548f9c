"""Memory of the service: it must follow the model and the cohort, not the number of clients."""

import re
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path

from fedat_service.errors import ConfigError
from loadtest.benchmarks.run import Results, measurement
from loadtest.benchmarks.traffic import (
    Connection,
    cohort_of,
    encode_update,
    fetch_model,
    fetch_task,
    open_federation,
    random_model,
    update_path,
)
from loadtest.experiments.service import fedat_serve, running

_FEW = 20
_MANY = 200
_COHORT_SIZE = 10
_ROUNDS = 5
_FEDERATION = "memory"


def measure() -> Results:
    """Resident bytes of the service with many clients against few, after rounds of real uploads."""
    return {"memory_many_clients_vs_few": measurement(_resident_bytes(_MANY), _resident_bytes(_FEW))}


def _resident_bytes(num_clients: int) -> int:
    model = random_model(seed=0)
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        service = stack.enter_context(running(fedat_serve(rate=1.0), logs / "service.log"))
        connection = stack.enter_context(closing(Connection(service.url)))
        open_federation(connection, _FEDERATION, num_clients, _COHORT_SIZE)
        for _ in range(_ROUNDS):
            for client in cohort_of(connection, _FEDERATION):
                task = fetch_task(connection, _FEDERATION, client)
                fetch_model(connection, task)
                connection.send("PUT", update_path(task), encode_update(task, model))
        return _process_bytes(service.pid)


def _process_bytes(pid: int) -> int:
    """Resident set of a process.

    Raises:
        ConfigError: If this system does not tell.
    """
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        raise ConfigError("the memory benchmark reads /proc, which this system does not have")
    found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text())
    if found is None:
        raise ConfigError(f"{status} does not say how much memory the process has")
    return int(found[1]) * 1024
