"""What a person, or a log, sees while an experiment runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)


class Watch:
    """Shows how many parts of a run are done and the latest result: a bar on a terminal, lines in a log.

    Args:
        console: where to show it.
        total: parts of the run.
        quiet: show nothing.
    """

    def __init__(self, console: Console, total: int, *, quiet: bool = False) -> None:
        self._console = console
        self._total = total
        self._quiet = quiet
        self._done = 0
        self._units = 0
        self._started = self._spoke = time.monotonic()
        self._lock = threading.Lock()
        self._bar: Progress | None = None
        if console.is_terminal and not quiet:
            self._bar = Progress(
                SpinnerColumn(),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("parts"),
                TimeElapsedColumn(),
                TextColumn("{task.description}"),
                console=console,
                transient=True,
            )

    def __enter__(self) -> Watch:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("starting", total=self._total)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def part_done(self) -> None:
        """A part is done."""
        with self._lock:
            self._done += 1
            if self._bar is not None:
                self._bar.advance(self._task)

    def unit_done(self, text: str) -> None:
        """A unit is done; ``text`` says what came of it."""
        with self._lock:
            self._units += 1
            if self._bar is not None:
                self._bar.update(self._task, description=text)
                return
            now = time.monotonic()
            if not self._quiet and now - self._spoke > 10.0:
                self._spoke = now
                self._console.print(
                    f"{now - self._started:6.0f} s  {self._done}/{self._total} parts, {self._units} batches  {text}",
                    highlight=False,
                    soft_wrap=True,
                )


def show_lines(console: Console, lines: Sequence[str]) -> None:
    """Print lines as they are."""
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True, markup=False)
