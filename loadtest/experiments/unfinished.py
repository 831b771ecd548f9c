"""What an interrupted run has computed: a run that is started again takes it from disk, and goes on.

Virtual time cannot be stored, but a run is a pure function of its conditions: it is executed again from the
start, and the arithmetic, which is nearly all of its work, is looked up. Where the results end it goes on.
"""

import json
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, get_type_hints

from fedat_service.errors import ConfigError
from loadtest.experiments.arrays import ArrayDigests, digest, from_bytes, to_pieces
from loadtest.experiments.files import remove_drafts, write_atomically

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
        remove_drafts(folder)
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
    is trained together with it. Nobody waits for the disk: a result is written while the run goes on, and
    what it had no time for is computed again.

    Args:
        pool: Where work is done. It must be functions of a module, with a result that follows from the
            arguments alone and is of the annotated type; nobody changes arguments or a result.
        folder: Of the results.
    """

    def __init__(self, pool: Executor, folder: Path) -> None:
        self._pool = pool
        self._folder = folder
        self._digests = ArrayDigests()
        self._writer = ThreadPoolExecutor(1)
        self._writes: deque[Future[None]] = deque()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Look the result up, or have the pool compute it.

        Raises:
            OSError: If an earlier result could not be written.
        """
        self._require_written()
        wanted: Future[T] = Future()
        path = self._folder / digest([fn.__module__, fn.__qualname__, args, kwargs], self._digests)
        try:
            wanted.set_result(from_bytes(path.read_bytes(), get_type_hints(fn)["return"]))
        except (FileNotFoundError, ValueError):  # not there, or torn when the machine stopped
            self._pool.submit(fn, *args, **kwargs).add_done_callback(partial(self._keep, path, wanted))
        return wanted

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the pool when what it has begun is done, and write what is not on disk yet.

        Raises:
            OSError: If a result could not be written.
        """
        self._pool.shutdown(cancel_futures=True)
        self._writer.shutdown()
        self._require_written()

    def _keep(self, path: Path, wanted: Future[T], done: Future[T]) -> None:
        """Pass a result on, and write it."""
        if not wanted.set_running_or_notify_cancel():
            return
        try:
            result = done.result()
            self._writes.append(self._writer.submit(_write, path, result))
        except BaseException as error:  # noqa: BLE001 - it is the future's, as in every executor
            wanted.set_exception(error)
        else:
            wanted.set_result(result)

    def _require_written(self) -> None:
        """Wait for the disk: it falls behind by the work of one instant at most."""
        while self._writes:
            self._writes.popleft().result()


def _write(path: Path, result: object) -> None:
    write_atomically(path, *to_pieces(result))


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
