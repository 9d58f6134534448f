"""Claims on why heads help: several judgements, subspaces, interference."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from experiments.intervals import at_least, at_most, every, median_interval
from experiments.ledger.books import Books, Record, interval, proportion, share, small, span
from experiments.ledger.checks import SUM_ERROR
from experiments.ledger.entry import Entry, Part
from experiments.reading import select

RELATIONS, BANDS, CONSTRUCTIONS = "relations/quick", "bands/quick", "constructions/quick"
SEPARATE = 0.5
"""Overlap of subspaces over that of random ones, below which they count as separate."""
NOISE = 0.15
"""Largest relative difference of a variance from its prediction."""


def _two_judgements(books: Books) -> Sequence[Part]:
    """One head on several relations, by read-out, values and attention."""
    parts = []
    rows = [row for row in books.rows(RELATIONS, "curves") if row["least_error"] is not None]
    one = [row for row in rows if row["num_heads"] == 1 and row["num_relations"] > 1]
    for key in dict.fromkeys((r["readout"], r["values"], r["attention"]) for r in one):
        own = [r for r in one if (r["readout"], r["values"], r["attention"]) == key]
        errors = [r["least_error"] for r in own]
        floors = [r["predicted_error_floor"] for r in own]
        holds = all(error >= floor / 2 for error, floor in zip(errors, floors, strict=True))
        enough = [
            r["least_error"]
            for r in select(rows, readout=key[0], values=key[1], attention=key[2])
            if r["num_heads"] == r["num_relations"] > 1
            and r["total_key_dim"] == max(x["total_key_dim"] for x in own)
        ]
        many = f", h = R {span(enough, '.3f')}" if enough else ""
        text = f"{_setting(*key)}: one head leaves {span(errors, '.3f')} (floor {span(floors, '.2f')}){many}"
        parts.append(Part(_setting(*key), holds, text))
    return parts


def _setting(readout: str, values: str, attention: str) -> str:
    reader = "a linear read-out" if readout == "linear" else "an MLP"
    how = (
        ""
        if attention == "trained"
        else f", attention {'set by hand' if attention == 'mixed' else attention}"
    )
    return f"{reader} reads {'values of +1 and -1' if values == 'signs' else 'Gaussian values'}{how}"


def _definition(books: Books) -> Sequence[Part]:
    [row] = books.rows("checks/heads", "heads")
    normal, apart = row["largest_sum_error"] <= SUM_ERROR, row["other_change"] == 0 < row["own_change"]
    return [
        Part(
            "one normalisation",
            normal,
            f"rows sum to 1 within {SUM_ERROR:g}" if normal else "rows do not sum to 1",
        ),
        _apart(row, apart),
    ]


def _apart(row: Record, apart: bool) -> Part:
    text = f"another query of one head changes the weights of the other heads by {small(row['other_change'])}"
    return Part("scores of other heads", apart, text)


def _subspaces(books: Books) -> Sequence[Part]:
    [row] = books.rows("checks/heads", "heads")
    return [_apart(row, row["other_change"] == 0 < row["own_change"]), *_overlaps(books)]


def _overlaps(books: Books) -> Sequence[Part]:
    """Do trained heads read subspaces of their own?"""
    parts = []
    exact = select(books.rows(BANDS, "points"), graph="words", exact_recovery=True)
    for trainer in ("joint", "greedy"):
        rows = [r for r in select(exact, trainer=trainer) if r["query_overlap"] is not None]
        if rows:
            ratios = {
                name: [r[f"{name}_overlap"] / r["random_overlap"] for r in rows] for name in ("query", "key")
            }
            ends = [median_interval(values) or (None, None) for values in ratios.values()]
            text = ", ".join(
                f"{name} {interval(median(values), *own, '.2f')}"
                for (name, values), own in zip(ratios.items(), ends, strict=True)
            )
            parts.append(
                Part(
                    f"subspaces of their own ({trainer} training)",
                    every(at_most(SEPARATE, *own) for own in ends),
                    f"{trainer}: overlap of heads' subspaces over random ones': {text} (median of {len(rows)} "
                    f"channels)",
                )
            )
    return parts


def _superposition(books: Books) -> Sequence[Part]:
    return [*_noise(books), *_kinds(books), *_overlaps(books)]


_CLOSE = {True: "", None: ", kinds of pairs measured less finely", False: ", other kinds of pairs"}


def _noise(books: Books) -> Sequence[Part]:
    """Variance of scores over its prediction, the kinds of pairs apart by what their intervals say."""
    groups: dict[bool | None, list[float]] = {close: [] for close in _CLOSE}
    for row in books.rows(CONSTRUCTIONS, "noise_curves"):
        if row["block_size"] < 16 or row["predicted_variance"] <= 0:
            continue
        ratio, error = (row[name] / row["predicted_variance"] for name in ("variance", "standard_error"))
        low, high = ratio - 1.96 * error, ratio + 1.96 * error
        groups[every((at_least(1 - NOISE, low, high), at_most(1 + NOISE, low, high)))].append(ratio)
    what = "interference of overlapping encodings (heads that are written down)"
    text = "variance of their scores over that predicted from overlap"
    return [
        Part(
            f"{what}{beside}",
            close,
            f"{text}{beside}: {span(groups[close])} ({len(groups[close])} kinds of pairs)",
        )
        for close, beside in _CLOSE.items()
        if groups[close]
    ]


def _kinds(books: Books) -> Sequence[Part]:
    """Do trained heads take kinds of relations?"""
    exact = select(books.rows(BANDS, "points"), graph="words", exact_recovery=True)
    parts = []
    for trainer in ("joint", "greedy"):
        own = select(exact, trainer=trainer)
        if own:
            above = sum(r["information"] > r["shuffled_high"] for r in own)
            parts.append(
                Part(
                    f"heads divide kinds of relations ({trainer} training)",
                    at_least(0.5, *proportion(above, len(own))[1:]),
                    f"{trainer}: winning head tells the kind of a pair better than chance in "
                    f"{share(above, len(own))} channels "
                    f"(information {median(r['information'] for r in own):.2f} of 1)",
                )
            )
    return parts


_RECOVERED_BY_NONE = {"reached": False, "not_reached": True}


def _compressed(books: Books) -> Sequence[Part]:
    """One head where items are as many as dimensions; several where they are more."""
    parts = []
    square = [r for r in books.rows(CONSTRUCTIONS, "thresholds") if r["num_items"] == r["d_model"]]
    for size in sorted({r["num_items"] for r in square}):
        reached = [r for r in select(square, num_items=size, num_heads=1) if r["status"] == "reached"]
        least = min((r["measured_total_key_dim"] for r in reached), default=None)
        found = (
            "no head written down holds all"
            if least is None
            else f"one head holds all from D_K = {least:.0f} on"
        )
        parts.append(Part(f"m = d = {size}: one head is enough", bool(reached), f"m = d = {size}: {found}"))
    rows = [r for r in books.rows("capacity/quick", "transitions") if r["trainer"] == "best"]
    rows = select(rows, embedding="gaussian", graph="permutation")
    one = select(rows, num_heads=1)
    many = [r for r in rows if r["num_heads"] > 1 and r["measured_total_key_dim"] is not None]
    if one and many:
        best = min(many, key=lambda r: r["measured_total_key_dim"])
        shown = interval(best["measured_total_key_dim"], best["ci_low"], best["ci_high"])
        text = (
            f"m = {best['num_items']}, d = {best['d_model']}: one head {one[0]['status'].replace('_', ' ')}, "
        )
        where = f"m = {best['num_items']} > d = {best['d_model']}: several small heads are better"
        parts.append(
            Part(
                where,
                _RECOVERED_BY_NONE.get(one[0]["status"]),
                f"{text}{best['num_heads']} heads from D_K = {shown} on",
            )
        )
    return parts


def _ranges_apart(higher: Record, lower: Record, name: str) -> bool | None:
    """Whether all seeds of one are above all of the other; no where all are below (or equal); else open."""
    if higher[f"least_{name}"] > lower[f"largest_{name}"]:
        return True
    return False if higher[f"largest_{name}"] <= lower[f"least_{name}"] else None


def _softmax(books: Books) -> Sequence[Part]:
    parts = []
    for arm, what in (
        ("weights", "softmax heads say where they look"),
        ("values", "softmax heads route values"),
    ):
        rows = [
            r for r in books.rows("softmax/quick", "curves") if r["arm"] == arm and r["median_f1"] is not None
        ]
        for budget in sorted({r["total_key_dim"] for r in rows}):
            own = {r["num_heads"]: r for r in select(rows, total_key_dim=budget)}
            if 1 not in own or len(own) < 2:
                continue
            best = max((h for h in own if h > 1), key=lambda h: own[h]["median_f1"])
            one, top = own[1], own[best]
            text = ", ".join(
                f"h = {r['num_heads']}: {interval(r['median_f1'], r['least_f1'], r['largest_f1'], '.2f')}"
                for r in (one, top)
            )
            holds = _ranges_apart(top, one, "f1")
            parts.append(Part(f"{what} (D_K = {budget})", holds, f"{arm}, D_K = {budget}: F1 {text}"))
    return parts


def _block(books: Books) -> Sequence[Part]:
    parts = []
    rows = [
        r
        for r in books.rows("block/quick", "curves")
        if r["arm"] == "block" and r["mean_accuracy"] is not None
    ]
    for place in dict.fromkeys((r["num_items"], r["d_model"], r["total_key_dim"]) for r in rows):
        wanted = dict(zip(("num_items", "d_model", "total_key_dim"), place, strict=True))
        own = {r["num_heads"]: r for r in select(rows, **wanted)}
        if 1 not in own or len(own) < 2:
            continue
        best = max((h for h in own if h > 1), key=lambda h: own[h]["mean_accuracy"])
        text = ", ".join(
            f"h = {h}: {interval(own[h]['mean_accuracy'], own[h]['least_accuracy'], own[h]['largest_accuracy'], '.2f')}"
            for h in (1, best)
        )
        holds = _ranges_apart(own[best], own[1], "accuracy")
        where = f"{place[0]} items in {place[1]} dimensions, D_K = {place[2]}"
        parts.append(Part(where, holds, f"{where}: accuracy {text}"))
    return parts


ADLER = "Adler 2025 (abstract)"
_RANGES = (
    "the best of several heads' worst seed is above one head's best seed (contradicted: its best seed is not above one "
    "head's worst)"
)

ENTRIES = (
    Entry(
        "two-judgements",
        "One query and one dot product cannot serve two unrelated judgements well.",
        "one head leaves at least half of the floor (R - h) / R of the targets' variance (a theorem for linear "
        "read-outs and for Gaussian values)",
        (RELATIONS,),
        _two_judgements,
        "figures/relations/quick-heads",
        1,
    ),
    Entry(
        "definition",
        "A head is one score card, normalised once; heads score independently.",
        f"by definition: weights sum to 1 within {SUM_ERROR:g}; another query of one head changes no other "
        f"head's weights",
        ("checks/heads",),
        _definition,
        article=2,
    ),
    Entry(
        "subspaces",
        "Heads do not disturb each other, because they live in different subspaces.",
        f"no other head enters a head's scores; query and key subspaces overlap less than {SEPARATE} times as much as "
        "random ones",
        ("checks/heads", BANDS),
        _subspaces,
        "figures/bands/quick-heads",
        3,
    ),
    Entry(
        "superposition",
        "The cause is superposition: encodings of different relations overlap and disturb each other; "
        "separate heads give "
        "each kind of relation a band of its own.",
        f"noise of written-down heads within {NOISE:.0%} of that predicted from overlap, with its interval; winning "
        f"heads tell kinds better than chance in half of the channels; overlap of subspaces below {SEPARATE} of random "
        "ones'; the last two by 95% intervals of the share and of the median",
        (CONSTRUCTIONS, BANDS),
        _superposition,
        "figures/constructions/quick-noise",
        18,
    ),
    Entry(
        "compressed",
        "With as many dimensions as items one head is enough for a permutation; with more items than "
        "dimensions many small "
        "heads are better at a fixed budget.",
        "a head that is written down holds a permutation of m = d Gaussian items; at m > d no single head "
        "does, several do",
        (CONSTRUCTIONS, "capacity/quick"),
        _compressed,
        "figures/capacity/quick-threshold",
        papers=(ADLER,),
    ),
    Entry(
        "softmax",
        "The advantage of several heads stays with softmax normalisation and with values routed.",
        _RANGES,
        ("softmax/quick",),
        _softmax,
        "figures/softmax/quick-sweep",
        papers=(ADLER,),
    ),
    Entry(
        "block",
        "The advantage of several heads stays in a whole Transformer block on frozen real embeddings.",
        _RANGES,
        ("block/quick",),
        _block,
        "figures/block/quick-heads",
        papers=(ADLER,),
    ),
)
