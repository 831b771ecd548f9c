"""What an interrupted run has computed: a run that is started again takes it from disk, and goes on.

Virtual time cannot be stored, but a run is a pure function of its conditions: it is executed again from the
start, and the arithmetic, which is nearly all of its work, is looked up. Where the results end it goes on.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import version
from json import JSONDecodeError
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, get_type_hints

from fedat_service.errors import ConfigError, FedATError
from loadtest.experiments.arrays import from_bytes, to_bytes
from loadtest.experiments.files import write_atomically

P = ParamSpec("P")
T = TypeVar("T")

_CONDITIONS = "conditions.json"


@contextmanager
def unfinished(folder: Path, conditions: Mapping[str, Any]) -> Iterator[None]:
    """Have a folder for a run's results until the run has come to its end.

    It stays when the run is interrupted. A run that fails by itself would fail again, and leaves nothing.

    Args:
        folder: Of this run alone.
        conditions: All that the run follows from.

    Raises:
        ConfigError: If the folder is that of a run under other conditions; the message names them.
        OSError: If the folder cannot be written to.
    """
    now = {"package": version("fedat-service"), "torch": version("torch"), **conditions}
    path = folder / _CONDITIONS
    with suppress(FileNotFoundError, JSONDecodeError):
        _require_same(json.loads(path.read_bytes()), now, folder)
    write_atomically(path, json.dumps(now, indent=2).encode())
    try:
        yield
    except FedATError:
        forget(folder)
        raise
    forget(folder)


def forget(folder: Path) -> None:
    """Throw an unfinished run away, if there is one.

    Raises:
        OSError: If it cannot be removed.
    """
    if folder.exists():
        shutil.rmtree(folder)


class ResumingExecutor(Executor):
    """Does only work whose result is not on disk yet, and keeps each result in a file of its own.

    Whole stacks are kept, as they are given to the pool: the last bits of a client's training depend on who
    is trained together with it.

    Args:
        pool: Where work is done. It must be functions of a module, with a result that follows from the
            arguments alone and is of the annotated type.
        folder: Of the results.
    """

    def __init__(self, pool: Executor, folder: Path) -> None:
        self._pool = pool
        self._folder = folder

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Look the result up, or have the pool compute it."""
        wanted: Future[T] = Future()
        asked = to_bytes([fn.__module__, fn.__qualname__, args, kwargs])
        path = self._folder / hashlib.sha256(asked).hexdigest()
        try:
            wanted.set_result(from_bytes(path.read_bytes(), get_type_hints(fn)["return"]))
        except (FileNotFoundError, ValueError):  # not there, or torn when the machine stopped
            self._pool.submit(fn, *args, **kwargs).add_done_callback(partial(_keep, path, wanted))
        return wanted


def _keep(path: Path, wanted: Future[T], done: Future[T]) -> None:
    """Pass a result on when it is on disk."""
    if not wanted.set_running_or_notify_cancel():
        return
    try:
        result = done.result()
        write_atomically(path, to_bytes(result))
        wanted.set_result(result)
    except BaseException as error:  # noqa: BLE001 - it is the future's, as in every executor
        wanted.set_exception(error)


def _require_same(before: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> None:
    was, wants = _flat(before), _flat(now)
    other = [
        f"{name} was {was.get(name)!r} and is {wants.get(name)!r}"
        for name in sorted(was.keys() | wants.keys())
        if was.get(name) != wants.get(name)
    ]
    if other:
        raise ConfigError(
            f"{folder} is an interrupted run with other settings: {', '.join(other)}; go on with its own, "
            "use another --out, or begin anew with --fresh"
        )


def _flat(conditions: Mapping[str, Any], within: str = "") -> dict[str, Any]:
    """Values by their dotted names."""
    flat: dict[str, Any] = {}
    for name, value in conditions.items():
        dotted = f"{within}{name}"
        flat |= _flat(value, f"{dotted}.") if isinstance(value, dict) else {dotted: value}
    return flat
