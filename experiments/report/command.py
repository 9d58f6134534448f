"""The command ``python -m experiments report``."""

from __future__ import annotations

from pathlib import Path

from experiments import style
from experiments.ledger.books import ROOT, committed
from experiments.ledger.rows import judge_all
from experiments.report.captions import groups
from experiments.report.html import page

DEFAULT = Path("build") / "report.html"
"""From the root; the folder is not under version control."""


def write_report(out: Path | None = None, root: Path = ROOT) -> int:
    """Write the page of the clone ``root`` to ``out`` (default: its build/report.html).

    Returns:
        Exit status 0.

    Raises:
        FileNotFoundError: there are no figures.
    """
    found = groups(root)
    if not found:
        raise FileNotFoundError(f"{root / 'figures'}: expected figures with captions, found none")
    text = page(found, judge_all(committed(root)), root).encode("utf-8")
    path = root / DEFAULT if out is None else out
    style.write(path, text)
    figures = sum(len(group.captions) for group in found)
    print(f"{path}: {figures} figures, {len(text) / 1e6:.1f} MB; open it in a browser, it needs no network")
    return 0
