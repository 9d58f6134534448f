"""Claims on head count and head size in translation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from experiments.intervals import above, every, paired, signed
from experiments.ledger.books import Books, Record, interval
from experiments.ledger.entry import Entry, Part
from experiments.reading import seed_range, select
from experiments.translation.differences import by_seed

QUICK, PAPER = "translation/quick", "translation/paper"
VASWANI = "Vaswani et al. 2017, Table 3"
BHOJANAPALLI = "Bhojanapalli et al. 2020"
HEADS = "figures/translation/paper-heads"
ARMS = "figures/translation/paper-arms"
DECIDED = "by the 95% interval of the differences over shared seeds"


def _arm(books: Books, arm: str, key: str) -> dict[int, Record]:
    """An arm's settings by head count or size, of the longer runs where these are as many as the short ones.

    Each with ``by_seed``, the perplexities of its trainings.
    """
    long, short = (
        {
            row[key]: {**row, "by_seed": by_seed(books.rows(name, "points"), row)}
            for row in select(books.rows(name, "settings"), arm=arm)
            if row["perplexity"] is not None
        }
        for name in (PAPER, QUICK)
    )
    return dict(sorted((long if len(long) >= len(short) else short).items()))


def _worse(worse: Record, better: Record) -> bool | None:
    """Whether the first has the higher perplexity, by the interval of the differences over the seeds they share."""
    found = paired(worse["by_seed"], better["by_seed"])
    return None if found is None else above(0, found.low, found.high)


def _shown(row: Record) -> str:
    return interval(row["perplexity"], row["perplexity_low"], row["perplexity_high"], ".2f")


def _curve(rows: dict[int, Record], letter: str) -> str:
    seeds = seed_range(row["runs"] for row in rows.values())
    return f"perplexity ({seeds}) " + ", ".join(
        f"{letter} = {size}: {_shown(row)}" for size, row in rows.items()
    )


def _table(books: Books) -> Sequence[Part]:
    rows = _arm(books, "A", "num_heads")
    if not {1, 8, 16, 32} <= set(rows):
        return []
    rising = [rows[h] for h in rows if h <= 8]
    held = every(_worse(a, b) for a, b in pairwise(rising))
    doublings = ", ".join(
        f"{b['num_heads']} over {a['num_heads']}: {_ratio(b, a)}" for a, b in pairwise(rising)
    )
    return [
        Part("from 1 to 8 heads, every doubling better", held, f"{_curve(rows, 'h')}; {doublings}"),
        Part(
            "from 8 to 16 heads, worse", _worse(rows[16], rows[8]), f"16 over 8: {_ratio(rows[16], rows[8])}"
        ),
        Part(
            "from 16 to 32 heads, worse",
            _worse(rows[32], rows[16]),
            f"32 over 16: {_ratio(rows[32], rows[16])}",
        ),
    ]


def _ratio(row: Record, base: Record) -> str:
    """Ratio of the means, and the mean difference over shared seeds with its interval."""
    found = paired(row["by_seed"], base["by_seed"])
    shown = "one seed" if found is None else f"difference {signed(found)}"
    return f"{row['perplexity'] / base['perplexity']:.3f} ({shown})"


def _vaswani(books: Books) -> Sequence[Part]:
    rows = _arm(books, "A", "num_heads")
    if 1 not in rows or len(rows) < 3:
        return []
    best = min(rows.values(), key=lambda row: row["perplexity"])
    most = rows[max(rows)]
    found = f"best h = {best['num_heads']}"
    return [
        Part(
            "there is one head", _worse(rows[1], best), f"{found}, one head over it {_ratio(rows[1], best)}"
        ),
        Part(
            f"many heads (h = {most['num_heads']})",
            most is not best and _worse(most, best),
            f"{most['num_heads']} heads over it {_ratio(most, best)}",
        ),
    ]


def _key_size(books: Books) -> Sequence[Part]:
    rows = _arm(books, "B", "head_dim")
    own = [size for size, row in rows.items() if size <= row["value_head_dim"]]
    base = rows.get(max(own)) if own else None
    return [
        Part(
            f"d_k = {size}",
            _worse(rows[size], base),
            f"d_k = {size} over {max(own)}: {_ratio(rows[size], base)}",
        )
        for size in own
        if base is not None and size < max(own)
    ]


def _split_falls(books: Books) -> Sequence[Part]:
    rows = _arm(books, "A", "num_heads")
    return [
        Part(
            f"from {a} to {b} heads",
            _worse(rows[b], rows[a]),
            f"{b} over {a} heads: {_ratio(rows[b], rows[a])}",
        )
        for a, b in pairwise(h for h in rows if h >= 8)
    ]


def _fixed_size(books: Books) -> Sequence[Part]:
    rows = _arm(books, "F", "num_heads")
    return [
        Part(
            f"from {a} to {b} heads",
            _worse(rows[a], rows[b]),
            f"{b} over {a} heads: {_ratio(rows[b], rows[a])}",
        )
        for a, b in pairwise(rows)
    ]


def _smaller_width(books: Books) -> Sequence[Part]:
    fixed, split = (
        sorted(_arm(books, arm, "d_model").values(), key=lambda row: -row["num_params"]) for arm in ("M", "S")
    )
    return [
        Part(
            f"width {a['d_model']}",
            _worse(b, a),
            f"width {a['d_model']}, {a['num_heads']} heads of {a['head_dim']}: perplexity {_shown(a)}; width "
            f"{b['d_model']}, "
            f"{b['num_heads']} of {b['head_dim']}, as many parameters: {_shown(b)}, over it {_ratio(a, b)}",
        )
        for a, b in zip(fixed, split, strict=False)
    ]


ENTRIES = (
    Entry(
        "table-3",
        "Table 3: quality rises from 1 to 8 heads and falls at 16 and 32. (The table has the same BLEU at 8 and 16.)",
        "perplexity on held-out verses falls with every doubling up to 8 heads, rises from 8 to 16 and from 16 to 32; "
        f"{DECIDED}",
        (PAPER,),
        _table,
        HEADS,
        9,
    ),
    Entry(
        "smaller-width",
        "A head size set apart from d_model / h trains better models at a smaller embedding size.",
        "half and a quarter of the width with large heads have a lower perplexity than standard splits with as many "
        f"parameters; {DECIDED}",
        (PAPER,),
        _smaller_width,
        ARMS,
        11,
        (f"{BHOJANAPALLI}, Figures 1 and 3",),
    ),
    Entry(
        "one-or-many",
        "With compute kept constant a single head is worse than the best head count, and quality drops with "
        "too many heads.",
        f"perplexity of one head, and of the most heads, above the best; {DECIDED}",
        (PAPER,),
        _vaswani,
        HEADS,
        papers=(f"{VASWANI} (A)",),
    ),
    Entry(
        "key-size",
        "Reducing d_k alone hurts.",
        f"at fixed d_v and h, perplexity above that of the standard d_k; {DECIDED}",
        (PAPER,),
        _key_size,
        ARMS,
        papers=(f"{VASWANI} (B)",),
    ),
    Entry(
        "split-falls",
        "With heads of size d / h, quality falls as h goes from 8 to 32.",
        f"perplexity rises with every doubling from 8 heads on; {DECIDED}",
        (PAPER,),
        _split_falls,
        HEADS,
        papers=(f"{BHOJANAPALLI}, Table 1",),
    ),
    Entry(
        "fixed-size",
        "With heads of a fixed size, quality rises with their number, beyond d / d_k heads too.",
        f"every doubling of the heads lowers perplexity; {DECIDED}",
        (PAPER,),
        _fixed_size,
        ARMS,
        papers=(f"{BHOJANAPALLI}, Table 2 (A)",),
    ),
)
