"""Claims on what a head size can represent: ranks of logits and weights."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.ledger.books import Books, span
from experiments.ledger.entry import Entry, Part
from experiments.rank.best import best_known
from experiments.reading import select

QUICK = "rank/quick"
THIN = 4
"""Size of a thin head."""
LEFT = 0.01
"""Share of uniform attention's divergence that counts as left over."""
MET = 1e-8
"""Nats below which a pattern counts as met."""
NAMES = {
    "random": "random rows",
    "low-rank": "logits of rank 4",
    "permutation": "hard permutation (approached)",
    "soft-permutation": "soft permutation",
    "gaussian-band": "Gaussian band",
    "window-band": "window",
    "minilm-l6": "MiniLM's maps",
}


def _softmax_rank(books: Books) -> Sequence[Part]:
    parts = []
    rows = select(books.rows(QUICK, "spectra"), source="gaussian")
    for size in sorted({r["head_dim"] for r in rows}):
        own = select(rows, head_dim=size)
        ranks = [r["weights_rank"] for r in own]
        logits = span((r["logits_rank"] for r in own), "d")
        text = f"d_k = {size}: softmax {span(ranks, 'd')}, logits {logits}"
        parts.append(Part(f"d_k = {size}", max(ranks) <= size, text))
    return parts


def _more_rank(books: Books) -> Sequence[Part]:
    parts = []
    rows = [r for r in books.rows(QUICK, "curves") if r["bound"] is None and r["head_dim"] == THIN]
    for pattern, what in NAMES.items():
        own = select(rows, pattern=pattern)
        if not own:
            continue
        row = max(own, key=lambda r: r["n"])
        left = row["median_kl"] / row["median_uniform_kl"]
        size = row["least_minimal_head_dim"]
        exact = "none" if size is None else str(size)
        text = f"{what} (n = {row['n']}): {_percent(left)} of uniform's divergence left, exact size {exact}"
        parts.append(Part(what, left > LEFT, text))
    return parts


def _percent(share: float) -> str:
    return "0%" if share < MET else f"{100 * share:.2g}%"


def _representation(books: Books) -> Sequence[Part]:
    known = best_known(books.rows(QUICK, "points"))
    points = [r for r in known if r["bound"] is None and r["minimal_head_dim"] is not None]
    wide = [r["search_kl"] for r in points if r["head_dim"] >= r["n"] - 1]
    thin = [r for r in points if r["head_dim"] < r["n"] - 1 and r["minimal_head_dim"] > r["head_dim"]]
    parts = []
    if wide:
        text = f"{len(wide)} runs with d_k >= n - 1: divergence at most {max(wide):.0e}"
        parts.append(Part("d_k >= n - 1: any pattern met", max(wide) < MET, text))
    if thin:
        least = min(r["search_kl"] for r in thin)
        text = f"{len(thin)} runs below the rank of the centred logarithm: at least {least:.0e}"
        parts.append(Part("smaller d_k: some pattern missed", least > MET, text))
    return parts


ENTRIES = (
    Entry(
        "softmax-rank",
        "The rank of the attention matrix softmax(Q K^T) is at most d_k.",
        "numerical rank of the weights at most d_k (that of the logits always is)",
        (QUICK,),
        _softmax_rank,
        "figures/rank/quick-spectra",
        6,
    ),
    Entry(
        "more-rank",
        "Some patterns need more rank than a thin head has.",
        f"the best head of size {THIN} leaves more than {LEFT:.0%} of uniform attention's divergence",
        (QUICK,),
        _more_rank,
        "figures/rank/quick-divergence",
        7,
    ),
    Entry(
        "representation",
        "A head of size d_k >= n represents every positive pattern over n tokens of full rank; with d_k < n "
        "some pattern "
        "is out of reach. (Sharp: n - 1, ours.)",
        f"divergence below {MET:g} nats from n - 1 on, above it wherever the centred logarithm's rank is "
        f"larger than d_k",
        (QUICK,),
        _representation,
        "figures/rank/quick-divergence",
        papers=("Bhojanapalli et al. 2020, theorem 1",),
    ),
)
