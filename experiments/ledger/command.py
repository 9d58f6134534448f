"""The command ``python -m experiments claims``."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

from experiments import style
from experiments.ledger.books import ROOT, committed
from experiments.ledger.markdown import counts, ledger
from experiments.ledger.rows import judge_all

NAME = "CLAIMS.md"


def write_claims(root: Path = ROOT, *, check: bool = False) -> int:
    """Write CLAIMS.md from the records under ``root``.

    Args:
        root: of a clone.
        check: write nothing.

    Returns:
        Exit status: 1 where ``check`` finds a difference.
    """
    rows = judge_all(committed(root))
    path = root / NAME
    text, former = ledger(rows, root), path.read_text("utf-8") if path.exists() else ""
    if text == former:
        print(f"{NAME} says what the records say: {counts(rows)}")
        return 0
    lines = former.splitlines(True), text.splitlines(True)
    print("".join(difflib.unified_diff(*lines, NAME, "records", n=0)), end="")
    if check:
        print(f"{NAME} differs from the records: make readme", file=sys.stderr)
        return 1
    style.write(path, text.encode("utf-8"))
    print(f"{NAME} written: {counts(rows)}")
    return 0
