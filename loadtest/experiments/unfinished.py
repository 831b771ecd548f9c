"""What an interrupted run has computed: a run that is started again takes it from disk, and goes on.

Virtual time cannot be stored, but a run is a pure function of its conditions: it is executed again from the
start, and the arithmetic, which is nearly all of its work, is looked up. Where the results end it goes on.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, get_type_hints

from fedat_service.errors import ConfigError
from loadtest.experiments.arrays import digest, from_bytes, to_pieces
from loadtest.experiments.files import write_atomically

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

P = ParamSpec("P")
T = TypeVar("T")

_CONDITIONS = "conditions.json"
_LOCK = "lock"


@contextmanager
def unfinished(folder: Path, conditions: Mapping[str, Any]) -> Iterator[None]:
    """Have a folder for a run's results until the run has come to its end.

    It stays when the run is interrupted, and when it fails: what is wrong may be mended. Without results
    nothing stays. One process at a time has it.

    Args:
        folder: Of this run alone.
        conditions: All that the run follows from.

    Raises:
        ConfigError: If the folder is that of a run under other conditions, which the message names, or
            another process is at work there.
        OSError: If the folder cannot be written to.
    """
    now = {"package": version("fedat-service"), "torch": version("torch"), **conditions}
    path = folder / _CONDITIONS
    with _locked(folder):
        if (before := _conditions_at(path)) is not None:
            _require_same(before, now, folder)
        try:
            write_atomically(path, json.dumps(now, indent=2).encode())
            yield
        except BaseException:
            if {one.name for one in folder.iterdir()} <= {_CONDITIONS, _LOCK}:
                shutil.rmtree(folder)
            raise
        shutil.rmtree(folder)


def forget(folder: Path) -> None:
    """Throw an unfinished run away, if there is one.

    Raises:
        ConfigError: If another process is at work there.
        OSError: If it cannot be removed.
    """
    if folder.exists():
        with _locked(folder):
            shutil.rmtree(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Have a folder for this process alone, where the system has such locks; who is killed holds none."""
    if fcntl is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"{folder}: another process is at work there; wait for it, or use another --out"
            ) from None
        except OSError:
            pass  # A file system without locks.
        yield


class ResumingExecutor(Executor):
    """Does only work whose result is not on disk yet, and keeps each result in a file of its own.

    Whole stacks are kept, as they are given to the pool: the last bits of a client's training depend on who
    is trained together with it. Who computes a result writes it, so that the event loop, which all others
    wait for, does not. Another machine of a cluster does so only where it has the folder, on a shared disk.

    Args:
        pool: Where work is done. It must be functions of a module, with a result that follows from the
            arguments alone and is of the annotated type; nobody changes a result.
        folder: Of the results.
    """

    def __init__(self, pool: Executor, folder: Path) -> None:
        self._pool = pool
        self._folder = folder

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Look the result up, or have the pool compute it; if it cannot be written, that is an `OSError`."""
        path = self._folder / digest([fn.__module__, fn.__qualname__, args, kwargs])
        try:
            kept = from_bytes(path.read_bytes(), get_type_hints(fn)["return"])
        except (FileNotFoundError, ValueError):  # not there, or torn when the machine stopped
            return self._pool.submit(_compute, path, fn, *args, **kwargs)
        found: Future[T] = Future()
        found.set_result(kept)
        return found

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the pool when what it has begun is done, and written."""
        self._pool.shutdown(cancel_futures=True)


def _compute(path: Path, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Compute a result and write it."""
    result = fn(*args, **kwargs)
    if path.parent.exists():
        write_atomically(path, *to_pieces(result))
    return result


def _conditions_at(path: Path) -> dict[str, Any] | None:
    """Those that were written down, if they are there and whole."""
    try:
        conditions = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    return conditions if isinstance(conditions, dict) else None


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
