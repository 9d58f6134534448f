"""Computing units side by side: one process for each core, each with one thread.

The matrices of a unit are small: two processes with a core each finish more units than one process whose
threads share them, and what a unit gives does not depend on how many workers there are. Each worker sees one core only
(where the system lets a process choose), so JAX and BLAS start one thread. On an accelerator units run in this process.

Workers leave interrupts to their parent and end with it, however it ends.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from typing import Any

import jax


class InProcess(Executor):
    """An executor that computes at once, in the caller's thread, one call at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run ``fn`` and return its finished future."""
        future: Future[Any] = Future()
        with self._lock:
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:
                future.set_exception(error)
        return future


def default_workers() -> int:
    """Processes to start: one for each core this process may use, none where JAX has an accelerator."""
    return _cores() if jax.default_backend() == "cpu" else 0


def make_executor(workers: int) -> Executor:
    """An executor with that many processes; with 0, one that computes in this process.

    Raises:
        ValueError: for a negative number.
    """
    if workers < 0:
        raise ValueError(f"workers: expected 0 (this process) or more, got {workers}")
    configure()
    if workers == 0:
        return InProcess()
    context = multiprocessing.get_context("spawn")
    counter = context.Value("i", 0)
    return ProcessPoolExecutor(
        workers, mp_context=context, initializer=_start_worker, initargs=(counter, os.getpid())
    )


def configure() -> None:
    """Full float32 products (GPUs round them otherwise), and no silent broadcasting between ranks."""
    jax.config.update("jax_default_matmul_precision", "highest")
    jax.config.update("jax_numpy_rank_promotion", "raise")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start_worker(counter: Any, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with counter.get_lock():
        index, counter.value = counter.value, counter.value + 1
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {allowed[index % len(allowed)]})
    configure()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
