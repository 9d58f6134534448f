"""Tables of results before they have a form: for the terminal and, the same, in Markdown; and lines of text."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table


@dataclass(frozen=True)
class Cells:
    """A table before it has a form: strings, rows as long as `columns`, line breaks for the terminal."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def rich(self) -> Table:
        """For the terminal."""
        table = Table(
            title=self.title,
            caption=self.note or None,
            caption_justify="left",
            box=box.SIMPLE_HEAD,
            show_edge=False,
            padding=(0, 1, 0, 0),
        )
        for index, column in enumerate(self.columns):
            # A measurement and its interval may take two lines in a narrow terminal, nothing else is broken.
            measurement = any("[" in row[index] for row in self.rows)
            side = "left" if index == 0 else "right"
            table.add_column(column, justify=side, no_wrap=not measurement, overflow="fold")
        for row in self.rows:
            table.add_row(*(escape(cell) for cell in row))
        return table

    def markdown(self) -> str:
        """For a README; the title in bold above, the note below, and a newline at the end."""
        lines = [
            f"**{self.title}**",
            "",
            _line(self.columns),
            _line([":---", *["---:"] * (len(self.columns) - 1)]),
        ]
        lines += [_line(row) for row in self.rows]
        lines += ["", self.note] if self.note else []
        return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def markdown_of(make: Callable[[Mapping[str, Any]], Cells | None]) -> Callable[[Mapping[str, Any]], str]:
    """From a function that makes a table of a run's records, one that gives it in Markdown."""

    def block(data: Mapping[str, Any]) -> str:
        cells = make(data)
        return cells.markdown() if cells is not None else "No records.\n"

    return block


def show_lines(console: Console, lines: Sequence[str]) -> None:
    """Print lines as they are."""
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True, markup=False)
