"""Where a simulation's arithmetic runs: in its own process, in a pool of processes, or on a Ray cluster."""

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar
from weakref import ref

from fedat_service.errors import ConfigError, FleetFailed
from workers.fleet.parcels import Parcel, discard, pack, parcel_folder, unpack
from workers.training.jobs import InlineExecutor
from workers.training.memory import keep_freed_memory

P = ParamSpec("P")
T = TypeVar("T")

EngineName = Literal["inline", "processes", "ray"]


def require_engine(engine: EngineName) -> None:
    """Refuse an engine that is not installed, before anything is begun for it.

    Raises:
        ConfigError: If it is that of Ray, and there is no Ray.
    """
    if engine == "ray" and find_spec("ray") is None:
        raise ConfigError("the ray engine needs the extra: pip install 'fedat-service[ray]'")


@contextmanager
def open_pool(engine: EngineName, num_processes: int) -> Iterator[Executor]:
    """Open a pool of processes that train one stack each at a time.

    Args:
        engine: `inline` needs no other process; `ray` needs the extra of that name.
        num_processes: How many; one a core is best.

    Raises:
        ConfigError: If the number is not positive, or there is no Ray, or the system has no room for a pool.
        FleetFailed: If one of the processes is ended from outside.
    """
    if num_processes < 1:
        raise ConfigError(f"a pool needs at least one process, got {num_processes}")
    if engine == "inline":
        keep_freed_memory()
        yield InlineExecutor()
    elif engine == "processes":
        with _single_threaded(), parcel_folder() as folder:
            pool = _opened(num_processes, folder)
            try:
                yield pool
            except BrokenProcessPool as error:
                raise FleetFailed(
                    "a process that trains was ended from outside: killed, or out of memory"
                ) from error
            finally:
                # Who is interrupted waits for what is being computed, not for what has not begun.
                pool.shutdown(cancel_futures=True)
    else:
        with RayExecutor(num_processes) as ray_pool:
            yield ray_pool


class _ProcessPool(ProcessPoolExecutor):
    """Processes that no interrupt from the keyboard ends, which reaches all: whoever started them does.

    Args:
        num_processes: How many.
        folder: Where arrays are put on their way there and back.
    """

    def __init__(self, num_processes: int, folder: Path) -> None:
        super().__init__(num_processes, get_context("spawn"), initializer=_settle, initargs=(folder,))
        self._folder = folder

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """See `concurrent.futures.Executor`. Here processes start, when there are too few."""
        parcel = pack((fn, args, kwargs), self._folder)
        try:
            with _interrupts_blocked():
                sent = super().submit(_work, parcel, self._folder)
        except BaseException:
            discard(parcel)
            raise
        wanted: Future[T] = Future()
        sent.add_done_callback(partial(_hand_over, wanted, parcel))
        # Weakly: a cycle would keep a result, and its file, until somebody looks for garbage.
        wanted.add_done_callback(partial(_call_off, ref(sent)))
        return wanted


def _opened(num_processes: int, folder: Path) -> _ProcessPool:
    try:
        return _ProcessPool(num_processes, folder)
    except OSError as error:
        raise ConfigError(
            f"processes that train need semaphores in /dev/shm: {error}; `--engine inline` needs none"
        ) from error


def _work(parcel: Parcel, folder: Path) -> Parcel:
    """Do in a process of the pool what was submitted."""
    fn, args, kwargs = unpack(parcel)
    return pack(fn(*args, **kwargs), folder)


def _hand_over(wanted: Future[Any], parcel: Parcel, sent: Future[Parcel]) -> None:
    """Unpack a result, also one that nobody wants any more: its file must go."""
    if sent.cancelled():
        discard(parcel)
        wanted.cancel()
        return
    try:
        result, failure = unpack(sent.result()), None
    except BaseException as error:  # noqa: BLE001 - it is the future's, as in every executor
        result, failure = None, error
    if not wanted.set_running_or_notify_cancel():
        return
    if failure is not None:
        wanted.set_exception(failure)
    else:
        wanted.set_result(result)


def _call_off(sent: ref[Future[Parcel]], _: Future[Any]) -> None:
    """Cancel work that nobody waits for any more; what is done is not changed by it."""
    if (future := sent()) is not None:
        future.cancel()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Have interrupts wait: a process that starts meanwhile inherits that, and is safe before it can ask."""
    if not hasattr(signal, "pthread_sigmask"):  # nowhere but on Windows, which inherits nothing
        yield
        return
    # It unblocks interrupts when it starts, which would otherwise be now.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _settle(folder: Path) -> None:
    """Begin a process of a pool."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if (parent := parent_process()) is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel, folder), daemon=True).start()
    keep_freed_memory()


def _end_with(sentinel: int, folder: Path) -> None:
    """Wait for the end of whoever started this process: who is killed ends nobody and tidies nothing."""
    wait([sentinel])
    while folder.exists():  # what is still at work here may put another file into it
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


@contextmanager
def _single_threaded() -> Iterator[None]:
    """Have processes that start meanwhile compute on one thread each: more would get in each other's way."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


class RayExecutor(Executor):
    """Runs work as Ray tasks of one CPU each: on a cluster that is running, or on one of its own here.

    A cluster is found as Ray does (`RAY_ADDRESS`); one of its own needs neither token nor statistics.

    Raises:
        ConfigError: If Ray is not installed.
    """

    def __init__(self, num_processes: int) -> None:
        require_engine("ray")
        import ray

        self._ray: Any = ray
        self._remote: dict[Callable[..., Any], Any] = {}
        terminate = signal.getsignal(signal.SIGTERM)
        if "RAY_ADDRESS" in os.environ:
            ray.init(log_to_driver=False)
        else:
            os.environ.setdefault("RAY_AUTH_MODE", "disabled")
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            ray.init(num_cpus=num_processes, include_dashboard=False, log_to_driver=False)
        # Ray takes the signal for itself; whoever started us ends us in order.
        signal.signal(signal.SIGTERM, terminate)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """See `concurrent.futures.Executor`."""
        if fn not in self._remote:
            self._remote[fn] = self._ray.remote(num_cpus=1)(fn)
        future: Future[T] = self._remote[fn].remote(*args, **kwargs).future()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster; end it if it is our own."""
        self._ray.shutdown()
