"""Claims on the number of heads at a fixed budget, told by the key-query channel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

from experiments.intervals import Interval, above, at_least, at_most, difference, every, ratio, signed, some
from experiments.ledger.books import Books, Record, interval, proportion, ranges, share, span
from experiments.ledger.entry import Entry, Part
from experiments.reading import select
from theory.bounds import one_dimensional_f1_cap

QUICK, PAPER, REGIMES = "capacity/quick", "capacity/paper", "regimes/quick"
EXPONENT = 0.1
"""So near are exponents to those of a law that are called the same."""
RECOVERED = 0.99
"""F1 from which on a graph counts as recovered."""
RISE = 0.9
"""Rise of the share of graphs, from one head count to the next, that counts as sharp."""
NEAR_THEOREM = 1.25
"""A threshold within this factor of a lower bound counts as close to it."""
LAW_SPREAD = 1.5
"""Largest over smallest constant of a scaling law that counts as one constant."""
ADLER = "Adler 2025"
_PLAIN = {"embedding": "gaussian", "graph": "permutation"}


def _recovered(books: Books, budget: int) -> dict[int, tuple[int, int]]:
    """Seeds that any trainer recovers, and seeds, by head count at a budget."""
    best: dict[tuple[int, int], float] = {}
    for row in select(books.rows(QUICK, "points"), total_key_dim=budget, **_PLAIN):
        place = row["num_heads"], row["seed"]
        best[place] = max(row["best_f1"] or 0.0, best.get(place, 0.0))
    counts: dict[int, tuple[int, int]] = {}
    for (heads, _), value in sorted(best.items()):
        good, all_ = counts.get(heads, (0, 0))
        counts[heads] = good + (value >= RECOVERED), all_ + 1
    return counts


def _budgets(books: Books) -> list[int]:
    """Budgets that were split in every way."""
    return sorted({row["total_key_dim"] for row in select(books.rows(QUICK, "head_sweeps"), **_PLAIN)})


def _size(books: Books) -> str:
    row = select(books.rows(QUICK, "head_sweeps"), **_PLAIN)[0]
    return f"m = {row['num_items']}, d = {row['d_model']}"


def _more(own: tuple[int, int], one: tuple[int, int]) -> bool | None:
    """Whether more graphs are recovered than with one head, by the interval of the difference of shares."""
    _, low, high = difference(proportion(*own), proportion(*one))
    return above(0, low, high)


def _split(books: Books) -> Sequence[Part]:
    parts = []
    for budget in _budgets(books):
        found = _recovered(books, budget)
        if 1 not in found:
            continue
        more = {heads: _more(own, found[1]) for heads, own in found.items() if heads > 1}
        better = [heads for heads, is_better in more.items() if is_better]
        parts.append(
            Part(
                f"more items than one head holds ({_size(books)}, D_K = {budget}, h = {ranges(better)})"
                if better
                else f"D_K = {budget}",
                some(more.values()),
                f"D_K = {budget}: one head {share(*found[1])} graphs, h = {ranges(better)} at least "
                f"{share(*min((found[h] for h in better), default=found[1]))}",
            )
        )
        if budget in found:
            edges = select(books.rows(QUICK, "head_sweeps"), total_key_dim=budget, **_PLAIN)[0]["num_edges"]
            most = one_dimensional_f1_cap(budget, edges)
            parts.append(
                Part(
                    f"heads of one dimension (h = {budget})",
                    more[budget] if most >= RECOVERED or found[budget][0] else False,
                    f"h = {budget} {share(*found[budget])} (theorem: F1 at most {most:.2f})",
                )
            )
    return [*parts, *_few(books)]


def _few(books: Books) -> Sequence[Part]:
    """Items so few that one head holds every graph."""
    rows = books.rows(QUICK, "ceiling_points")
    if not rows:
        return []
    items = min(row["num_items"] for row in rows)
    own = select(rows, num_items=items)
    good = sum(row["verdict"] == "separable" for row in own)
    where = f"one head of full rank holds all (m = {items}, d = {own[0]['d_model']})"
    return [Part(where, good < len(own), f"m = {items}: one head separates {share(good, len(own))}")]


def _interior(books: Books) -> Sequence[Part]:
    parts = []
    for row in select(books.rows(QUICK, "head_sweeps"), trainer="best", **_PLAIN):
        fewest, most, budget = row["measured_min_heads"], row["measured_max_heads"], row["total_key_dim"]
        if fewest is None:
            parts.append(Part(f"D_K = {budget}", False, f"D_K = {budget}: no head count"))
            continue
        parts.append(
            Part(
                f"permutation at D_K = {budget}",
                1 < fewest <= most < budget,
                f"D_K = {budget}: {fewest} to {most} of 1 to {budget} heads recover "
                f"(predicted {row['predicted_min_heads']} to {row['predicted_max_heads']})",
            )
        )
    return parts


def _traded(books: Books) -> Sequence[Part]:
    parts = list(_interior(books))
    for row in select(books.rows("retrieval/quick", "jumps"), curve="fixed-width"):
        found = row["best_jump_at"]
        parts.append(
            Part(
                f"retrieval of {row['num_targets']} tokens at a fixed n h",
                above(1, row["ratio_low"], row["ratio_high"]) if found == row["expected_heads"] else False,
                f"retrieval of D = {row['num_targets']} at fixed n h: the error falls at h = {found}, by a factor "
                f"{interval(row['seed_ratio'], row['ratio_low'], row['ratio_high'], ',.0f')}",
            )
        )
    return parts


def _thresholds(books: Books, name: str = QUICK, **wanted: object) -> list[Record]:
    rows = select(books.rows(name, "transitions"), trainer="best", status="reached", **_PLAIN, **wanted)
    return [row for row in rows if row["measured_total_key_dim"] is not None]


def _sharp(books: Books) -> Sequence[Part]:
    parts = []
    for budget in _budgets(books):
        found = _recovered(books, budget)
        shares = [good / all_ for good, all_ in found.values()]
        if len(shares) < 2:
            continue
        heads = list(found)
        rise = max(range(1, len(shares)), key=lambda i: shares[i] - shares[i - 1])
        step = difference(proportion(*found[heads[rise]]), proportion(*found[heads[rise - 1]]))
        text = f"D_K = {budget}: {share(*found[heads[rise - 1]])} at h = {heads[rise - 1]}, "
        text += f"{share(*found[heads[rise]])} at h = {heads[rise]}, a rise of {interval(*step, '.2f')}"
        parts.append(
            Part(f"lower edge (D_K = {budget})", at_least(RISE, step.low, step.high), text),
        )
        after = {h: found[h] for h in heads[rise:]}
        worst = min(after, key=lambda h: after[h][0])
        good, all_ = after[worst]
        parts.append(
            Part(
                f"all head counts above it (D_K = {budget})",
                good == all_,
                f"h = {worst}: {share(good, all_)}",
            )
        )
    return [*parts, *_near(books)]


_NEAR = {True: "close to the bound", None: "interval on both sides of close", False: "far from the bound"}


def _near(books: Books) -> Sequence[Part]:
    groups: dict[bool | None, list[tuple[int, float, str]]] = {near: [] for near in _NEAR}
    for row in _thresholds(books):
        bound = max(row["cap_bound"], row["warren_bound"], row["counting_bound"])
        value = row["measured_total_key_dim"]
        shown = (
            f"h = {row['num_heads']}: {interval(value, row['ci_low'], row['ci_high'])} (theorems {bound:g})"
        )
        near = at_most(NEAR_THEOREM * bound, row["ci_low"], row["ci_high"])
        groups[near].append((row["num_heads"], value / bound, shown))
    parts = []
    for near, own in groups.items():
        if own:
            heads = ranges(h for h, _, _ in own)
            what = f"{_NEAR[near]}, {heads} heads"
            ratios = span((ratio for _, ratio, _ in own), ".1f")
            parts.append(
                Part(what, near, f"{'; '.join(text for _, _, text in own)}: {ratios} times the bound")
            )
    return parts


def _convention(books: Books) -> Sequence[Part]:
    parts = []
    rows = select(books.rows(QUICK, "transitions"), trainer="best", **_PLAIN)
    exact = {row["num_heads"]: row["smallest_exact"] for row in rows if row["smallest_exact"] is not None}
    other = {h: budget for h, budget in exact.items() if budget != rows[0]["d_model"]}
    if exact:
        text = ", ".join(f"{h} heads of {budget // h}" for h, budget in other.items())
        where = f"channel (d = {rows[0]['d_model']})"
        parts.append(Part(where, bool(other), f"exact channels with h d_k other than d: {text or 'none'}"))
    for row in books.rows("retrieval/quick", "curves"):
        if (row["curve"], row["num_targets"], row["length"]) != ("main", 4, 128):
            continue
        if row["num_heads"] == row["num_targets"] and row["width"] != row["num_heads"] * row["per_head_dim"]:
            width = row["num_heads"] * row["per_head_dim"]
            text = f"retrieval: h n = {width} at width {row['width']} leaves {small_error(row)}"
            parts.append(Part("retrieval", row["best_nmse"] < 0.01, text))
    return parts


def small_error(row: Mapping[str, object]) -> str:
    """Least error of a model, as a power of ten."""
    return f"{row['best_nmse']:.1e}".replace("e-0", "e-")


def _law(books: Books) -> Sequence[Part]:
    least: dict[tuple[int, int], Record] = {}
    for row in _thresholds(books, PAPER):
        place = row["num_items"], row["d_model"]
        best = least.get(place)
        if best is None or row["measured_total_key_dim"] < best["measured_total_key_dim"]:
            least[place] = row
    if len(least) < 2:
        return []
    constants = {place: _constant(row) for place, row in least.items()}
    spreads = [ratio(one, other) for one, other in combinations(constants.values(), 2)]
    within = every(
        every((at_most(LAW_SPREAD, *spread[1:]), at_least(1 / LAW_SPREAD, *spread[1:]))) for spread in spreads
    )
    widest = max(max(s.high, 1 / s.low) for s in spreads)
    text = ", ".join(f"({m}, {d}): {interval(*value, '.2f')}" for (m, d), value in constants.items())
    ends = sorted(m for m, _ in constants)
    where = f"m is {ends[0]} to {ends[-1]}, at the best head count"
    measured = f"D_K d / (m' ln m') at (m, d) = {text}; they differ by a factor of at most {widest:.2f}"
    return [Part(where, within, measured), *_exponents(books)]


def _exponents(books: Books) -> Sequence[Part]:
    """Exponents over a wider range, less those of the law: 0 is excluded, or the whole interval is near it, or open."""
    parts = []
    for row in select(books.rows(REGIMES, "exponents"), law="folk"):
        for name, of in (("a", "m"), ("b", "d")):
            found = Interval(*(row[f"{name}_minus{end}"] for end in ("", "_low", "_high")))
            near = -EXPONENT <= found.low <= 0 <= found.high <= EXPONENT
            same = True if near else None if found.low <= 0 <= found.high else False
            text = f"exponent of {of} less the law's {signed(found, '.3f')}"
            parts.append(Part(f"exponent of {of} over a decade", same, text))
    return parts


def _constant(row: Record) -> Interval:
    """``D_K d / (m ln m)`` of a threshold."""
    scale = row["d_model"] / (row["num_items"] * math.log(row["num_items"]))
    ends = row["measured_total_key_dim"], row["ci_low"], row["ci_high"]
    return Interval(*(scale * end for end in ends))


ENTRIES = (
    Entry(
        "split",
        "At a fixed D_K = h d_k, splitting raises the number of relations that can be held, even where every query has "
        "one target.",
        "more heads recover more graphs than one head, by the 95% interval of the difference; nowhere is one head "
        "enough",
        (QUICK,),
        _split,
        "figures/capacity/quick-head-sweep",
        17,
        (f"{ADLER} (abstract)",),
    ),
    Entry(
        "threshold",
        "There is a sharp threshold in the number of heads above which all relations are recovered, close to the "
        "theoretical lower bound.",
        f"recovery rises by {RISE:g} from one head count to the next and stays; budgets within {NEAR_THEOREM - 1:.0%} "
        "of the largest lower bound; with their 95% intervals",
        (QUICK,),
        _sharp,
        "figures/capacity/quick-threshold",
        19,
        (f"{ADLER} (abstract: a sharp threshold)",),
    ),
    Entry(
        "best-range",
        "There is a best range of head counts.",
        "at a fixed budget neither one head nor the most heads recover, those between do",
        (QUICK,),
        _interior,
        "figures/capacity/quick-head-sweep",
        10,
    ),
    Entry(
        "traded",
        "Resolution is traded for views; which of them is better depends on the task.",
        "at a fixed budget a permutation wants neither the fewest nor the most heads; retrieval of D tokens wants D",
        (QUICK, "retrieval/quick"),
        _traded,
        "figures/retrieval/quick-settings",
        8,
    ),
    Entry(
        "convention",
        "d_model / h is a convention, not a necessity.",
        "models whose heads have another total size than d work: exact recovery; an error below 0.01",
        (QUICK, "retrieval/quick"),
        _convention,
        "figures/capacity/quick-threshold",
        12,
        ("Bhojanapalli et al. 2020 (FixedMultiHead)",),
    ),
    Entry(
        "law",
        "The budget that is needed grows like D_K = Theta(m' log m' / d).",
        f"the constant varies by at most a factor {LAW_SPREAD} over the sizes that were run, with its 95% intervals; "
        f"exponents of m and d over a decade are the law's (intervals with 0, within {EXPONENT})",
        (PAPER, REGIMES),
        _law,
        "figures/capacity/paper-threshold",
        papers=(f"{ADLER} (version 1, abstract)",),
    ),
)
