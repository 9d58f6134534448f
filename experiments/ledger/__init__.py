"""The claims ledger: what the article and the papers say, beside what was measured here.

    python -m experiments claims            # writes CLAIMS.md from the committed records
    python -m experiments claims --check    # writes nothing; exits with 1 where CLAIMS.md says something else

The article is a Chinese essay on why attention is split into heads; its 22 claims are in our words. Of the papers there
is only what was read in them, or in a careful account of them.

A claim is an `Entry`: where it is said, which record files can tell, and a rule that makes `Part`s of them: under which
condition, whether the claim holds there, fails there or is left open, and the numbers. All parts hold: ``holds``; some:
``holds where ...``; none, and some are contradicted: ``fails``; all are left open: ``undecided``. Left open is a
comparison whose 95% interval holds both what is claimed and its contrary (`experiments.intervals`). No records, no
verdict: ``not tested``, with the command that would give one. What counts as
holding is written in the entry, so that each rule can fail; nothing in CLAIMS.md is typed by hand.

Modules: `entry` (what a row is), `books` (records by name), `checks` (what follows from the kernels), then the rules by
subject: `channel`, `superposition`, `retrieval`, `representation`, `text`, `models`, `training`, `cost`; `rows` (all of
them in order), `markdown` and `command`.
"""

from experiments.ledger.books import Books
from experiments.ledger.entry import Entry, Part, Row
from experiments.ledger.rows import ENTRIES, judge_all

__all__ = ["ENTRIES", "Books", "Entry", "Part", "Row", "judge_all"]
