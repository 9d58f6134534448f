"""Working through units: what is in the store is taken from there, the rest is computed side by side and kept.

An experiment is a set of tasks that each ask for units one after the other, often depending on the answers (a search).
Tasks wait in threads, units are computed by an executor (see `experiments.workers`), and every finished unit goes to
the store before the task hears of it. Tasks that ask for one unit share it. An error or an interrupt stops all of them
at once, without waiting for units in flight; what is finished is in the store. Where workers die (killed, out of
memory), the executor is started anew and their units are begun again, a few times.

Workers that begin units of one program at once would each compile it. So units wait here for a worker that is free,
rather than in the executor, and the first in line is one whose programs nobody is about to compile. If there is none,
the first goes all the same, after a moment: no worker idles for the sake of it.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from typing import Any, TypeVar

from experiments.computing import Answer
from experiments.points import Record, Unit
from experiments.store import Store, canonical
from experiments.workers import ATTEMPTS, stop_executor

T = TypeVar("T")


PATIENCE = 0.2
"""Seconds for which a place stays free for a unit that would not compile what another is compiling."""
THREAD_NAME = "experiments-batch"
"""Name of the threads in which tasks wait, and in which batches are computed that go to no other process."""


class BatchError(RuntimeError):
    """The computation of a batch failed; what it raised is the cause, with its traceback."""


Compute = Callable[[Unit], Answer]
Listener = Callable[[Unit, list[Record]], None]


class Line:
    """Units in line for a number of places. One whose programs another is about to compile lets the next go first.

    Args:
        places: units under way at a time.
    """

    def __init__(self, places: int) -> None:
        self._changed = threading.Condition()
        self._free = places
        self._waiting: list[object] = []
        self._programs: dict[object, Hashable] = {}
        self._begun: set[Hashable] = set()
        self._known: set[Hashable] = set()

    @contextlib.contextmanager
    def place(self, program: Hashable) -> Iterator[None]:
        """Wait for a place and hold it; ``program`` says what the unit needs compiled, None for nothing of note."""
        unit = object()
        with self._changed:
            self._waiting.append(unit)
            self._programs[unit] = program
            until = None
            while not self._goes(unit):
                # With a place free, this unit is the last choice: let others that are on their way get in line.
                alone = self._free > 0 and self._waiting[0] is unit
                until = (until or time.monotonic() + PATIENCE) if alone else None
                if until is not None and time.monotonic() >= until:
                    break
                self._changed.wait(PATIENCE if alone else None)
            self._waiting.remove(unit)
            del self._programs[unit]
            self._free -= 1
            self._begun.add(program)
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._free += 1
                self._known.add(program)
                self._changed.notify_all()

    def _goes(self, unit: object) -> bool:
        compiling = self._begun - self._known - {None}
        ready = (other for other in self._waiting if self._programs[other] not in compiling)
        return self._free > 0 and next(ready, None) is unit


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
        places: int | None = None,
        program: Callable[[Unit], Hashable] = lambda _: None,
        restart: Callable[[], Executor] | None = None,
    ) -> None:
        """Take units from ``store`` or compute them.

        Args:
            store: where finished units are.
            executor: computes the others.
            compute: what a worker does; sent to it.
            listener: hears of every unit that was computed and kept.
            width: tasks under way at a time, in their order.
            places: units that the executor computes at a time; units wait here for one. None: in the executor.
            program: what a unit needs compiled, for their order; see `Line`.
            restart: gives a new executor for one whose workers died; without it that is an error.
        """
        self._store = store
        self._executor = executor
        self._compute = compute
        self._listener = listener
        self._lock = threading.Lock()
        self._flights: dict[str, Future[list[Record]]] = {}
        self._stopped = False
        self._width = width
        self._line = Line(width if places is None else places)
        self._program = program
        self._restart = restart

    def records(self, unit: Unit) -> list[Record]:
        """Records of one unit; waits until they are computed and kept.

        Raises:
            CancelledError: if the run was stopped.
            BatchError: if its computation raises.
            RuntimeError: if workers die of it, or the executor gives it up.
        """
        key = canonical(unit)
        with self._lock:
            if self._stopped:
                raise CancelledError
            known = self._store.get(unit)
            if known is not None:
                return known
            flight = self._flights.get(key)
            mine = flight is None
            if flight is None:
                flight = self._flights[key] = Future()
        if mine:
            try:
                with self._line.place(self._program(unit)):
                    answer = self._computed(unit)
                with self._lock:
                    if self._stopped:
                        raise CancelledError
                    self._store.put(unit, answer.records, answer.notes)
                flight.set_result(answer.records)
            except BaseException as error:
                flight.set_exception(error)
                raise
            if self._listener is not None:
                self._listener(unit, answer.records)
        return flight.result()

    def _computed(self, unit: Unit) -> Answer:
        for _ in range(ATTEMPTS):
            with self._lock:
                if self._stopped:
                    raise CancelledError
                executor = self._executor
            try:
                return executor.submit(self._compute, unit).result()
            except BrokenExecutor as error:
                if self._restart is None:
                    raise RuntimeError(f"a worker died: {error}") from error
                with self._lock:
                    if not self._stopped and self._executor is executor:
                        stop_executor(executor)
                        self._executor = self._restart()
            except CancelledError:
                if self._stopped:
                    raise
                raise RuntimeError("the executor gave up a batch: is its scheduler still there?") from None
            except Exception as error:
                if type(error).__name__ == "KilledWorker":  # Dask's, after several workers
                    raise RuntimeError(f"workers died (out of memory?): {error}") from error
                raise BatchError(f"batch {canonical(unit)}: {type(error).__name__}: {error}") from error
        raise RuntimeError(
            f"workers died {ATTEMPTS} times (out of memory?) while they computed {canonical(unit)}"
        )

    def run(self, tasks: Sequence[Callable[[], T]], finished: Callable[[int], None] | None = None) -> list[T]:
        """Run tasks side by side and return their results in order; stops all at the first error.

        ``finished`` hears the number of each task that is done.
        """
        waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in range(len(tasks)):
            waiting.put(number)
        outcomes: queue.SimpleQueue[tuple[int, T | None, BaseException | None]] = queue.SimpleQueue()

        def work() -> None:
            while not self._stopped:
                try:
                    number = waiting.get_nowait()
                except queue.Empty:
                    return
                try:
                    outcomes.put((number, tasks[number](), None))
                except BaseException as error:
                    outcomes.put((number, None, error))

        # Daemons: an interrupt does not wait for a unit that is computed in this process.
        for _ in range(min(self._width, len(tasks))):
            threading.Thread(target=work, daemon=True, name=THREAD_NAME).start()
        results: dict[int, Any] = {}
        try:
            while len(results) < len(tasks):
                number, result, error = outcomes.get()
                if error is not None:
                    raise error
                results[number] = result
                if finished is not None:
                    finished(number)
        except BaseException:
            self._stop()
            raise
        return [results[number] for number in range(len(tasks))]

    @property
    def executor(self) -> Executor:
        """The executor in use."""
        return self._executor

    def _stop(self) -> None:
        with self._lock:
            self._stopped = True
        stop_executor(self._executor)
