"""Where units are computed: in this process, in processes of this machine, or on a cluster.

The matrices of a unit are small: two processes with a core each finish more units than one process whose
threads share them, and what a unit gives does not depend on how many workers there are. So on a CPU there is one
process for each core, each with one thread: a worker sees one core only (where the system lets a process choose), so
JAX and BLAS start one thread. On an accelerator units run in this process, unless processes are asked for: then each
has a device, or a share of one's memory.

Workers leave interrupts to their parent and end with it, however it ends. Any other `concurrent.futures.Executor`
serves as well; that of Dask is here because it reaches clusters of every kind.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any, Literal

import jax

from experiments.environment import configure, cores

ExecutorName = Literal["auto", "in-process", "processes", "dask"]
EXECUTORS: tuple[ExecutorName, ...] = ("auto", "in-process", "processes", "dask")
ATTEMPTS = 3
"""How often a unit is begun, where workers die, before the run gives up."""


MIN_DASK_BATCHES = 16
"""Batches sent to a cluster at a time where nothing is said: its workers may still be joining."""


WAIT = 60.0
"""Seconds in which a scheduler has to write its file and to answer."""
LOOK_EVERY = 10.0
"""Seconds between two looks at whether a cluster has workers."""
Say = Callable[[str], None]


class InProcess(Executor):
    """An executor that computes at once, in the caller's thread, one call at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run ``fn`` and return its finished future. Interrupts go to the caller.

        Raises:
            RuntimeError: after `shutdown`.
        """
        future: Future[Any] = Future()
        with self._lock:
            if self._stopped:
                raise RuntimeError("cannot schedule new futures after shutdown")
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:
                future.set_exception(error)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Refuse further calls, also those that wait for their turn; ``wait`` for the one that runs."""
        self._stopped = True
        if wait:
            with self._lock:
                pass


class DaskExecutor(Executor):
    """An executor of a Dask cluster. The scheduler gives units of workers that died to others.

    Args:
        address: of the scheduler, or its file, which it may write a little later.
        say: hears what the executor waits for: the scheduler's file, or workers.

    Raises:
        ValueError: without an address, or where the extra ``cluster`` is not installed.
        OSError: if no scheduler answers there.
    """

    def __init__(self, address: str | None, say: Say = lambda _: None) -> None:
        if not address:
            raise ValueError(
                "scheduler: expected the address of a Dask scheduler, such as tcp://HOST:8786, or its scheduler file"
            )
        try:
            from distributed import Client  # pyright: ignore[reportMissingImports]  # optional
        except ImportError as error:
            raise ValueError(
                f"executor: expected dask.distributed to be installed, got {error}; pip install '.[cluster]'"
            ) from None
        if address.endswith(".json"):
            self._client = _from_file(Client, Path(address), say)
        else:
            self._client = Client(address=address, timeout=10)
        self._executor = self._client.get_executor(pure=False, retries=0)
        self._closed = threading.Event()
        threading.Thread(target=self._watch_workers, args=(address, say), daemon=True).start()

    def _watch_workers(self, address: str, say: Say) -> None:
        """Say once when there are no workers, and when there are again."""
        without = False
        while not self._closed.is_set():
            try:
                none = not self.threads
            except Exception:  # closed, or lost: the batches hear of it
                return
            if none != without:
                without = none
                scheduler = f"the scheduler of {address}"
                say(f"waiting for workers: {scheduler} has none" if none else f"{scheduler} has workers")
            self._closed.wait(LOOK_EVERY)

    @property
    def threads(self) -> int:
        """Units that the cluster computes at a time, as it is now."""
        return sum(self._client.nthreads().values())

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Send a call to the cluster."""
        return self._executor.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Drop what has not been computed, and leave the cluster."""
        self._closed.set()
        self._executor.shutdown(wait=wait)
        self._client.close(timeout=2)


def _from_file(client: Callable[..., Any], path: Path, say: Say) -> Any:
    """A client of the scheduler that a file names, which may be an older one's until the new one has written it."""
    until = time.monotonic() + WAIT
    said, why = False, f"[Errno 2] No such file: {path}"
    while True:
        if path.exists():
            try:
                return client(address=json.loads(path.read_text(encoding="utf-8"))["address"], timeout=10)
            except (OSError, ValueError, KeyError, TypeError) as error:
                why = f"{type(error).__name__}: {error}"
        if time.monotonic() >= until:
            raise OSError(
                f"scheduler: expected one whose file is {path}, got none in {WAIT:.0f} s ({why}); "
                "is it running, and is the file its own, not one that was left over?"
            )
        if not said:
            said = True
            say(f"waiting up to {WAIT:.0f} s for the scheduler of {path}: {why}")
        time.sleep(min(0.5, WAIT / 4))


def default_workers() -> int:
    """Processes to start: one for each core this process may use, none where JAX has an accelerator."""
    return cores() if jax.default_backend() == "cpu" else 0


def choose(name: ExecutorName, workers: int | None) -> tuple[ExecutorName, int | None]:
    """Settle what ``auto`` and a missing number stand for.

    Raises:
        ValueError: for a negative number, or one that the executor cannot have.
    """
    if workers is not None and workers < 0:
        raise ValueError(f"workers: expected 0 (this process) or more, got {workers}")
    if name == "auto":
        workers = default_workers() if workers is None else workers
        return ("processes", workers) if workers else ("in-process", 0)
    if name == "in-process" and workers:
        raise ValueError(f"workers: expected none with the executor in-process, got {workers}")
    if name != "in-process" and workers == 0:
        raise ValueError(f"workers: expected 1 or more with the executor {name}, got 0")
    if name == "processes" and workers is None:
        workers = max(1, len(_devices()) or cores())
    return name, workers


def make_executor(
    name: ExecutorName,
    workers: int | None,
    scheduler: str | None = None,
    say: Say = lambda _: None,
) -> tuple[Executor, int]:
    """An executor as `choose` settled it, and how many units it computes at a time.

    Raises:
        ValueError: for another name, or as `DaskExecutor`.
    """
    configure()
    if name == "in-process":
        return InProcess(), 1
    if name == "processes":
        assert workers is not None
        context = multiprocessing.get_context("spawn")
        counter = context.Value("i", 0)
        initargs = (counter, os.getpid(), workers, _devices())
        return ProcessPoolExecutor(
            workers, mp_context=context, initializer=_start_worker, initargs=initargs
        ), workers
    if name == "dask":
        executor = DaskExecutor(scheduler, say)
        return executor, workers or max(MIN_DASK_BATCHES, executor.threads)
    raise ValueError(f"executor: expected one of {', '.join(EXECUTORS)}, got {name!r}")


def stop_executor(executor: Executor) -> None:
    """Drop what has not begun and end the workers, without waiting for units in flight."""
    processes = list((getattr(executor, "_processes", None) or {}).values())
    executor.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()


def _devices() -> list[str]:
    """CUDA devices that workers may share, without starting JAX on them here."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [device for device in visible.split(",") if device.strip()]
    return [str(i) for i, _ in enumerate(Path("/proc/driver/nvidia/gpus").glob("*"))]


def device_share(index: int, workers: int, devices: list[str]) -> dict[str, str]:
    """Environment variables that give worker ``index`` of ``workers`` its own device, or its share of one's memory."""
    if not devices:
        return {}
    place = index % len(devices)
    sharers = len(range(place, workers, len(devices)))
    share = {"CUDA_VISIBLE_DEVICES": devices[place]}
    return share if sharers <= 1 else share | {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 / sharers:.3f}"}


def _start_worker(counter: Any, parent: int, workers: int, devices: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with counter.get_lock():
        index, counter.value = counter.value, counter.value + 1
    os.environ.update(device_share(index % workers, workers, devices))
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {allowed[index % len(allowed)]})
    configure()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
