"""Claims on averaging, approximation and copying, told by retrieval of several tokens."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.intervals import above, at_least, every
from experiments.ledger.books import Books, Record, interval, small, span
from experiments.ledger.entry import Entry, Part
from experiments.reading import select

QUICK, TARGETS = "retrieval/quick", "retrieval/targets"
YU = "Yu et al. 2025"
FALL = 10
"""Factor by which the error falls from D - 1 to D heads that counts as a jump."""
USED = 2.0
"""Factor by which uniform weights raise the error of a model that uses its attention."""


def _curves(books: Books, curve: str) -> list[Record]:
    return [row for row in select(books.rows(QUICK, "curves"), curve=curve) if row["best_nmse"] is not None]


def _averaging(books: Books) -> Sequence[Part]:
    parts = []
    rows = [r for r in _curves(books, "main") if r["num_heads"] == 1 < r["num_targets"]]
    if rows:
        pairs = [(r["best_nmse"], 1 - 1 / r["num_targets"]) for r in rows]
        text = ", ".join(
            f"D = {r['num_targets']}, T = {r['length']}: {small(r['best_nmse'])}, {r['num_targets']} heads "
            f"{small(many['best_nmse'])}"
            for r in rows
            if r["length"] == max(x["length"] for x in rows)
            for many in select(
                _curves(books, "main"),
                num_targets=r["num_targets"],
                length=r["length"],
                num_heads=r["num_targets"],
            )
        )
        holds = all(error >= left / 2 for error, left in pairs)
        parts.append(Part("linear encoder", holds, f"linear encoder, one head ({text})"))
    for row in _curves(books, "mlp-uniform"):
        holds = row["best_nmse"] >= (1 - 1 / row["num_targets"]) / 2
        text = f"MLP encoder, uniform attention, T = {row['length']}, h = {row['num_heads']}: {small(row['best_nmse'])}"
        parts.append(Part("MLP encoder before the average", holds, text))
    return parts


def _jumps(books: Books) -> Sequence[Part]:
    parts = []
    names = {
        "main": "a linear encoder and orthonormal directions",
        "random": "random directions",
        "fixed-width": "a fixed n h",
        "mlp": "an MLP encoder",
        "general": "the general task of minima, not trained to its end",
    }
    rows = [row for name in (QUICK, TARGETS) for row in books.rows(name, "jumps")]
    for curve, what in names.items():
        own = select(rows, curve=curve)
        if not own:
            continue
        right = [_jump(row) for row in own]
        worst = min(own, key=lambda r: r["seed_ratio"] or 0)
        fall = interval(worst["seed_ratio"] or 0, worst["ratio_low"], worst["ratio_high"], ",.0f")
        text = f"{what}: at h = D in {right.count(True)} of {len(own)} curves, least factor {fall}"
        parts.append(Part(what, every(right), text))
    return parts


def _jump(row: Record) -> bool | None:
    """Whether the error falls most at the expected head count, by a factor whose interval is above `FALL`."""
    if row["best_jump_at"] != row["expected_heads"]:
        return False
    return at_least(FALL, row["ratio_low"], row["ratio_high"])


def _layers(books: Books) -> Sequence[Part]:
    return [
        Part(
            f"D = {r['num_targets']}",
            above(1, r["ratio_low"], r["ratio_high"]) if r["best_jump_at"] == r["expected_heads"] else False,
            f"D = {r['num_targets']}: with {r['num_layers']} layers at h = {r['best_jump_at']} (expected "
            f"{r['expected_heads']}), by a factor {interval(r['seed_ratio'], r['ratio_low'], r['ratio_high'], ',.0f')}",
        )
        for r in select(books.rows(QUICK, "jumps"), curve="two-layer")
    ]


def _uses(rows: Sequence[Record]) -> list[float]:
    """By what factor uniform weights raise the error, of the best read-out for each length."""
    best: dict[int, Record] = {}
    for row in rows:
        if row["length"] not in best or row["best_nmse"] < best[row["length"]]["best_nmse"]:
            best[row["length"]] = row
    return [row["best_nmse_uniform"] / row["best_nmse"] for row in best.values()]


def _memorises(books: Books) -> Sequence[Part]:
    parts = []
    copy = _curves(books, "copy")
    if copy:
        least = {
            t: min(r["best_nmse"] for r in select(copy, length=t))
            for t in sorted({r["length"] for r in copy})
        }
        short = min(least)
        text = ", ".join(f"T = {t}: {small(error)}" for t, error in least.items())
        parts.append(
            Part(
                f"uniform attention, short sequences (T = {short})",
                least[short] < 0.1,
                f"copied by uniform attention, read by an MLP of up to "
                f"{max(r['readout_width'] for r in copy)} units: {text}",
            )
        )
    wide = _uses(_curves(books, "wide"))
    if wide:
        parts.append(
            Part(
                "a wide head whose attention is trained",
                max(wide) <= 1.1,
                f"uniform weights in a trained wide head: error times {span(wide, '.1f')}",
            )
        )
    return parts


def _keeps(books: Books) -> Sequence[Part]:
    heads, wide = _uses(_curves(books, "heads")), _uses(_curves(books, "wide"))
    parts = []
    if heads:
        text = f"uniform weights in D trained heads: error times {span(heads, ',.0f')}"
        parts.append(Part("D heads use their attention", min(heads) >= USED, text))
    if wide:
        text = f"in a trained wide head: times {span(wide, '.1f')}"
        parts.append(Part("a single wide head copies", max(wide) <= 1.1, text))
    return parts


ENTRIES = (
    Entry(
        "averaging",
        "One head averages, and averaging mixes signals.",
        "one head leaves at least half of (D - 1) / D of the variance, whatever the length; so does averaging evenly",
        (QUICK,),
        _averaging,
        "figures/retrieval/quick-heads",
        5,
        ("there quoted from Vaswani et al. 2017",),
    ),
    Entry(
        "memorises",
        "One head with an embedding near the sequence length memorises the input, and the feed-forward layer does the "
        "recognising. (The theorem needs T times the token's width.)",
        "with uniform attention the read-out reaches an error below 0.1; a wide head that is trained ends up uniform "
        "(uniform weights raise its error by at most a tenth)",
        (QUICK,),
        _memorises,
        "figures/retrieval/quick-copying",
        20,
        (f"{YU}, theorem 2",),
    ),
    Entry(
        "keeps",
        "Several heads keep attention from degenerating into copying.",
        f"uniform weights raise the error of D heads {USED:g} times or more, that of one wide head by at most a tenth",
        (QUICK,),
        _keeps,
        "figures/retrieval/quick-copying",
        21,
    ),
    Entry(
        "jump",
        "D heads are enough to retrieve D things; with fewer the error stays, or parameters explode.",
        f"the error falls most from D - 1 to D heads, at least {FALL} times with its 95% interval, on every curve",
        (QUICK, TARGETS),
        _jumps,
        "figures/retrieval/quick-heads",
        papers=(f"{YU}, theorem 2 and experiments",),
    ),
    Entry(
        "layers",
        "With L layers, L h >= D heads are enough (a conjecture).",
        "with two layers the error falls most at h = D / 2",
        (QUICK,),
        _layers,
        "figures/retrieval/quick-settings",
        papers=(f"{YU}, conjecture",),
    ),
    Entry(
        "exponential",
        "With h < D heads the number of parameters grows at least like (1 / error)^k, k of order T.",
        "a rate of unknown constant for the supremum error with bounded weights",
        (QUICK,),
        lambda books: (),
        "figures/retrieval/quick-theorem",
        papers=(f"{YU}, theorem 2",),
        untested="no run can test it: it is a rate without a constant, of the supremum error with weights of "
        "at most 1; "
        "runs beside it only illustrate",
    ),
)
