"""Verdicts on what was expected, from the records alone; the expectations are in the package's docstring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from experiments.claims import Claim, Verdict, judged
from experiments.points import Record
from experiments.rank.best import best_known
from experiments.rank.maps import MODEL
from experiments.reading import select

EXACT = 1e-9
"""Nats below which a pattern counts as met."""


class Evidence(NamedTuple):
    """What claims are judged by: rows of batches by kind (points with the best heads known), curves and limits.

    A claim on what the optimiser reaches is judged by what searches found (``search_kl``), never by a construction.
    """

    rows: Mapping[str, Sequence[Record]]
    curves: Sequence[Record]
    limits: Sequence[Record]


def claim_rows(
    rows: Mapping[str, Sequence[Record]], curves: Sequence[Record], limits: Sequence[Record]
) -> list[Record]:
    """One row a claim: ``verdict`` is ``held``, ``failed`` or ``not_run``."""
    known = {**rows, "points": best_known(rows["points"])}
    return judged(CLAIMS, Evidence(known, curves, limits))


def _span(values: Sequence[float], form: str = ".1e") -> str:
    low, high = (format(x, form) for x in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _exact(evidence: Evidence) -> Verdict | None:
    runs = [r for r in evidence.rows["points"] if r["bound"] is None and r["minimal_head_dim"] is not None]
    met = [r["search_kl"] for r in runs if r["representable"]]
    missed = [r["search_kl"] for r in runs if not r["representable"]]
    if not met or not missed:
        return None
    found = (
        f"{len(met)} searches from the exact size on: at most {max(met):.0e}; "
        f"{len(missed)} below: at least {min(missed):.0e}"
    )
    return max(met) < EXACT < min(missed), found


def _random(evidence: Evidence) -> Verdict | None:
    rows = [r for r in select(evidence.curves, pattern="random", bound=None) if 2 * r["head_dim"] == r["n"]]
    if not rows:
        return None
    shares = [r["median_kl"] / r["median_uniform_kl"] for r in rows]
    return min(shares) >= 0.01, _each(rows, shares)


def _each(rows: Sequence[Record], shares: Sequence[float]) -> str:
    return ", ".join(f"{100 * s:.2g}% at n = {r['n']}" for r, s in zip(rows, shares, strict=True))


def _bands(evidence: Evidence) -> Verdict | None:
    gaussian = select(evidence.curves, pattern="gaussian-band", bound=None)
    window = select(evidence.curves, pattern="window-band", bound=None)
    near = select(window, head_dim=8)
    if not gaussian or not near:
        return None
    sizes = {r["n"]: r["largest_minimal_head_dim"] for r in gaussian}
    windows = {r["n"]: r["least_minimal_head_dim"] for r in window}
    shares = [r["median_kl"] / r["median_uniform_kl"] for r in near]
    met = [r["largest_search_kl"] < EXACT for r in gaussian if r["head_dim"] >= 2]
    found = (
        f"exact sizes: Gaussian {_at(sizes)}, window {_at(windows)}; Gaussian met from 2 on {sum(met)} of {len(met)} "
        f"times; window at d_k = 8: {_each(near, shares)}"
    )
    whole = set(sizes.values()) == {2} and all(size == n - 1 for n, size in windows.items())
    return whole and all(met) and max(shares) <= 0.01, found


def _at(sizes: Mapping[int, int]) -> str:
    return ", ".join(f"{size} at n = {n}" for n, size in sorted(sizes.items()))


def _unbounded(evidence: Evidence) -> Verdict | None:
    rows = select(evidence.curves, pattern="permutation", bound=None)
    one = [r["least_search_kl"] for r in rows if r["head_dim"] == 1]
    more = [r["largest_search_kl"] for r in rows if r["head_dim"] >= 2]
    if not one or not more:
        return None
    two = [r["search_kl"] < 1e-3 for r in evidence.rows["points"] if _hard_and_free(r) and r["head_dim"] == 2]
    beyond = [r["largest_search_kl"] for r in rows if r["head_dim"] >= 3]
    found = f"the search: at 1 at least {min(one):.2f}; at 2 below 1e-3 in {sum(two)} of {len(two)} runs"
    found += "" if all(two) else " (the circle is, in all: theorem)"
    found += f"; from 3 on at most {max(beyond):.0e}" if beyond else ""
    return max(more) < 1e-3 and min(one) > 1, found


def _hard_and_free(row: Record) -> bool:
    return row["pattern"] == "permutation" and row["bound"] is None


def _bounded(evidence: Evidence) -> Verdict | None:
    rows = [r for r in select(evidence.curves, pattern="permutation") if r["bound"] is not None]
    over_floor = [r["least_search_kl"] / r["floor_kl"] for r in rows]
    last = [r["median_search_kl"] / r["floor_kl"] for r in rows if r["head_dim"] == r["n"] - 1]
    circle = [r["median_search_kl"] / r["circle_kl"] for r in rows if r["head_dim"] == 2]
    if not last or not circle:
        return None
    # An optimum is met to the optimiser's precision: 1e-6 of it.
    held = (
        min(over_floor) >= 1 - 1e-6 and max(last) <= 1.01 and 1 - 1e-6 <= min(circle) <= max(circle) <= 1.01
    )
    found = f"the search over the closed form: least {min(over_floor):.6f}, at n - 1 {_span(last, '.6f')}"
    return held, f"{found}; over the circle at 2: {_span(circle, '.6f')}"


def _truncation(evidence: Evidence) -> Verdict | None:
    soft = select(evidence.curves, pattern="soft-permutation", bound=None, head_dim=4)
    free = [r for r in select(evidence.curves, pattern="random", bound=None) if 2 * r["head_dim"] == r["n"]]
    if not soft or not free:
        return None
    rows = [*soft, *free]
    shares = [r["median_search_kl"] / r["median_truncated_kl"] for r in rows]
    found = ", ".join(
        f"{r['pattern']}, n = {r['n']}, d_k = {r['head_dim']}: {s:.2g}"
        for r, s in zip(rows, shares, strict=True)
    )
    return max(shares) <= 0.5, f"best found over truncation: {found}"


def _real(evidence: Evidence) -> Verdict | None:
    rows = select(evidence.curves, pattern=MODEL, n=48, bound=None)
    near = select(rows, head_dim=8)
    if not near:
        return None
    sizes = [size for r in rows for size in (r["least_minimal_head_dim"], r["largest_minimal_head_dim"])]
    share = near[0]["median_kl"] / near[0]["median_uniform_kl"]
    found = f"exact size {_span(sizes, 'd')}; at d_k = 8 {near[0]['median_kl']:.2g} nats, {100 * share:.2g}%"
    return set(sizes) == {32} and share <= 0.05, found


def _real_bounded(evidence: Evidence) -> Verdict | None:
    free, bounded = (select(evidence.curves, pattern=MODEL, n=48, bound=bound) for bound in (None, 10.0))
    without = {r["head_dim"]: r["median_kl"] for r in free}
    ratios = {r["head_dim"]: r["median_kl"] / without[r["head_dim"]] for r in bounded if r["head_dim"] <= 16}
    last = select(bounded, head_dim=32)
    if not ratios or not last:
        return None
    found = ", ".join(f"{ratio:.3f} at {k}" for k, ratio in sorted(ratios.items()))
    left = last[0]["median_kl"]
    return max(ratios.values()) <= 1.1 and left < 1e-6, f"over no bound: {found}; at 32 {left:.0e} nats"


def _spectra(evidence: Evidence) -> Verdict | None:
    rows = select(evidence.rows["spectra"], source="gaussian")
    if not rows:
        return None
    ranks = {
        k: [r["weights_rank"] for r in select(rows, head_dim=k)]
        for k in sorted({r["head_dim"] for r in rows})
    }
    if min(ranks) >= 4 or max(ranks) < 4:
        return None  # a half of the claim would say nothing
    n = rows[0]["n"]
    fine = all(min(found) == n if k >= 4 else min(found) > 3 * k for k, found in ranks.items())
    text = "; ".join(f"d_k = {k}: {_span(found, 'd')}" for k, found in ranks.items())
    return fine and all(
        r["logits_rank"] == r["head_dim"] for r in rows
    ), f"rank of the softmax, n = {n}: {text}"


def _precision(evidence: Evidence) -> Verdict | None:
    reaching = [r for r in evidence.limits if r["longest"] >= 4 * r["guaranteed_length"]]
    rows = [r for r in reaching if _lengths(evidence, r["dtype"])[0] <= r["guaranteed_length"]]
    if not rows:
        return None
    held = True
    for row in rows:
        own = [r for r in evidence.rows["circle"] if r["dtype"] == row["dtype"]]
        guaranteed = [r["share_right"] for r in own if r["n"] <= row["guaranteed_length"]]
        far = [r["share_right"] for r in own if r["n"] >= 4 * row["guaranteed_length"]]
        held &= min(guaranteed) == 1 and max(far) < 1
    text = "; ".join(
        f"{r['dtype']}: guaranteed to {r['guaranteed_length']:,}, first wrong at {r['first_wrong'] or 0:,}"
        for r in rows
    )
    return held, text


def _lengths(evidence: Evidence, dtype: str) -> list[int]:
    return sorted(r["n"] for r in select(evidence.rows["circle"], dtype=dtype))


CLAIMS = (
    Claim("exactly", "the search meets a pattern from the rank of the centred log on, not below", _exact),
    Claim("random", "at d_k = n / 2 at least 1% of uniform's divergence is left", _random),
    Claim(
        "bands", "the search meets a Gaussian at 2; window at n - 1 only, but to 1% of uniform's at 8", _bands
    ),
    Claim(
        "permutations, unbounded",
        "the search comes below 1e-3 nats from d_k = 2 on, above 1 at d_k = 1",
        _unbounded,
    ),
    Claim(
        "permutations, bounded",
        "the search comes within 1% of the closed form at n - 1 and of the circle at 2, not below",
        _bounded,
    ),
    Claim("truncation", "the best head found has at most half of the truncation's divergence", _truncation),
    Claim("real maps", "exact size 32, and at d_k = 8 at most 5% of uniform's divergence", _real),
    Claim(
        "real maps, bounded",
        "B = 10: at most 1.1 times no bound's to d_k = 16, below 1e-6 at 32",
        _real_bounded,
    ),
    Claim("spectra", "softmax of rank n from d_k = 4 on, above 3 d_k below", _spectra),
    Claim("precision", "the circle is right up to the guaranteed length, wrong at 4 times it", _precision),
)
