"""Working through units: what is in the store is taken from there, the rest is computed side by side and kept.

An experiment is a set of tasks that each ask for units one after the other, often depending on the answers (a search).
Tasks wait in threads, units are computed by an executor (see `experiments.workers`), and every finished unit goes to
the store before the task hears of it. Tasks that ask for one unit share it. An error or an interrupt stops all of them;
what is finished is in the store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, Executor, Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from experiments.store import Record, Store, canonical

T = TypeVar("T")
Compute = Callable[[dict[str, Any]], list[Record]]
Listener = Callable[[dict[str, Any], list[Record]], None]


class Runner:
    """Gives the records of units, computing each at most once."""

    def __init__(
        self,
        store: Store,
        executor: Executor,
        compute: Compute,
        listener: Listener | None = None,
        *,
        width: int = 3,
    ) -> None:
        """Take units from ``store`` or compute them; ``width`` tasks are under way at a time, in their order."""
        self._store = store
        self._executor = executor
        self._compute = compute
        self._listener = listener
        self._lock = threading.Lock()
        self._flights: dict[str, Future[list[Record]]] = {}
        self._stopped = False
        self._width = width

    def records(self, unit: dict[str, Any]) -> list[Record]:
        """Records of one unit; waits until they are computed and kept.

        Raises:
            CancelledError: if the run was stopped.
        """
        key = canonical(unit)
        with self._lock:
            known = self._store.get(unit)
            if known is not None:
                return known
            if self._stopped:
                raise CancelledError
            flight = self._flights.get(key)
            mine = flight is None
            if flight is None:
                flight = self._flights[key] = Future()
        if mine:
            try:
                records = self._executor.submit(self._compute, unit).result()
                with self._lock:
                    self._store.put(unit, records)
                flight.set_result(records)
            except BaseException as error:
                flight.set_exception(error)
                raise
            if self._listener is not None:
                self._listener(unit, records)
        return flight.result()

    def run(self, tasks: Sequence[Callable[[], T]], finished: Callable[[], None] | None = None) -> list[T]:
        """Run tasks side by side and return their results in order; stops all at the first error.

        ``finished`` hears the number of each task that is done.
        """
        if not tasks:
            return []
        with ThreadPoolExecutor(self._width) as pool:
            futures = [pool.submit(task) for task in tasks]
            if finished is not None:
                for future in futures:
                    future.add_done_callback(lambda _: finished())
            try:
                done, _ = wait(futures, return_when=FIRST_EXCEPTION)
                errors = [error for future in done if (error := future.exception()) is not None]
                if errors:
                    raise next((e for e in errors if not isinstance(e, CancelledError)), errors[0])
                return [future.result() for future in futures]
            except BaseException:
                self._stop()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _stop(self) -> None:
        with self._lock:
            self._stopped = True
        stop_executor(self._executor)


def stop_executor(executor: Executor) -> None:
    """Drop what has not begun and end the workers, without waiting for units in flight."""
    processes = list((getattr(executor, "_processes", None) or {}).values())
    executor.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
