"""Verdicts on what was expected, from the records alone; the expectations are in the package's docstring."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from scipy import stats

from experiments.claims import Claim, Verdict, judged
from experiments.points import Record
from experiments.reading import select
from experiments.translation.config import TranslationConfig

FULL_TRAINING = 1500
"""Steps from which on a run is one that a working system is expected of."""


def claim_rows(
    config: TranslationConfig, table: Sequence[Record], baselines: Sequence[Record]
) -> list[Record]:
    """One row a claim: ``verdict`` is ``held``, ``failed`` or ``not_run``; none of text that is to be copied."""
    if config.pairs or any(row["perplexity"] is None for row in table):
        table, baselines = [], []
    return judged(CLAIMS, config, table, baselines)


Table = Sequence[Record]


def _arm(table: Table, arm: str, size: int) -> dict[int, Record]:
    """Rows of a whole arm by number of heads (B: by head size), empty where it is not finished."""
    key = "head_dim" if arm == "B" else "num_heads"
    rows = {row[key]: row for row in select(table, arm=arm)}
    return dict(sorted(rows.items())) if len(rows) == size else {}


def _works(config: TranslationConfig, table: Table, baselines: Table) -> Verdict | None:
    rows = select(table, arm="A", num_heads=config.standard_heads)
    if not rows or not baselines or rows[0]["num_steps"] < FULL_TRAINING:
        return None
    [row], base = rows, baselines[0]
    others = base["untrained_bleu"], base["copy_bleu"]
    found = f"BLEU {row['bleu']:.1f}; untrained {others[0]:.1f}, copied source {others[1]:.1f}"
    return row["bleu"] >= 8 and max(others) < 3, found


def _one_head(config: TranslationConfig, table: Table, _: Table) -> Verdict | None:
    rows = _arm(table, "A", len(config.heads))
    if 1 not in rows or len(rows) < 3:
        return None
    best = min(row["perplexity"] for row in rows.values())
    ratio = rows[1]["perplexity"] / best
    worst = max(rows, key=lambda h: rows[h]["perplexity"])
    return ratio >= 1.03, f"perplexity x {ratio:.3f}; worst of all: h = {worst}"


def _best(config: TranslationConfig, table: Table, _: Table) -> Verdict | None:
    rows = _arm(table, "A", len(config.heads))
    if len(rows) < 5:
        return None
    best = min(rows, key=lambda h: rows[h]["perplexity"])
    text = ", ".join(f"{h}: {row['perplexity']:.2f}" for h, row in rows.items())
    return best in (4, 8, 16), f"best h = {best} (perplexity {text})"


def _many(config: TranslationConfig, table: Table, _: Table) -> Verdict | None:
    rows = _arm(table, "A", len(config.heads))
    if 32 not in rows or len(rows) < 3:
        return None
    ratio = rows[32]["perplexity"] / min(row["perplexity"] for row in rows.values())
    return ratio >= 1.01, f"perplexity x {ratio:.3f}"


def _key_dim(config: TranslationConfig, table: Table, _: Table) -> Verdict | None:
    rows = _arm(table, "B", len(config.key_dims))
    if not {4, 16, 32} <= set(rows):
        return None
    small, large = (rows[dim]["perplexity"] / rows[16]["perplexity"] for dim in (4, 32))
    return small >= 1.01 and 0.99 <= large <= 1.01, f"against d_k = 16: 4 x {small:.3f}, 32 x {large:.3f}"


def _fixed(config: TranslationConfig, table: Table, _: Table) -> Verdict | None:
    rows = _arm(table, "F", len(config.fixed_heads))
    if len(rows) < 2:
        return None
    values = [row["perplexity"] for row in rows.values()]
    text = ", ".join(f"{h}: {value:.2f}" for h, value in zip(rows, values, strict=True))
    return all(a > b for a, b in pairwise(values)), f"perplexity {text}"


def _equal_parameters(config: TranslationConfig, table: Table, _: Table) -> Verdict | None:
    fixed, split = (sorted(select(table, arm=arm), key=lambda r: -r["num_params"]) for arm in "MS")
    if len(fixed) != len(config.divisors) or len(split) != len(fixed):
        return None
    ratios = [a["perplexity"] / b["perplexity"] for a, b in zip(fixed, split, strict=True)]
    text = "; ".join(
        f"d_model {a['d_model']} with {a['num_heads']} x {a['head_dim']} against {b['d_model']} with "
        f"{b['num_heads']} x {b['head_dim']}: x {ratio:.3f}"
        for a, b, ratio in zip(fixed, split, ratios, strict=True)
    )
    return max(ratios) < 1, f"perplexity, {text}"


def _cost(config: TranslationConfig, table: Table, _: Table) -> Verdict | None:
    rows = _arm(table, "A", len(config.heads))
    if len(rows) < 2 or 1 not in rows or any(row["flops_per_step"] is None for row in rows.values()):
        return None
    flops = [row["flops_per_step"] / rows[1]["flops_per_step"] for row in rows.values()]
    params = {row["num_params"] for row in rows.values()}
    held = max(flops) / min(flops) <= 1.05 and len(params) == 1
    return held, f"flops x {min(flops):.3f} to {max(flops):.3f}"


def _agree(config: TranslationConfig, table: Table, _: Table) -> Verdict | None:
    rows = {
        tuple(row[n] for n in ("num_heads", "head_dim", "value_head_dim", "d_model")): row for row in table
    }
    if len(rows) < 6 or min(row["num_steps"] for row in rows.values()) < FULL_TRAINING:
        return None
    perplexity, bleu = ([row[name] for row in rows.values()] for name in ("perplexity", "bleu"))
    found: Any = stats.spearmanr(perplexity, bleu)
    rho = float(found.statistic)
    return rho <= -0.7, f"rank correlation {rho:.2f} over {len(rows)} settings"


CLAIMS = (
    Claim("works", "BLEU of the standard setting at least 8, untrained and copied source below 3", _works),
    Claim("one head", "A: perplexity at h = 1 at least 3% above the best (published: 8%)", _one_head),
    Claim("best count", "A: the best is h = 4, 8 or 16", _best),
    Claim("too many", "A: perplexity at h = 32 at least 1% above the best (published: 2%)", _many),
    Claim("head size", "B: d_k = 4 costs at least 1% of perplexity, 32 is within 1% of 16", _key_dim),
    Claim("fixed size", "F: every doubling of the heads at a fixed size lowers perplexity", _fixed),
    Claim("equal parameters", "M: below the standard split with as many parameters, S", _equal_parameters),
    Claim("cost", "A: equal parameters, flops within 5%", _cost),
    Claim("agreement", "BLEU falls where perplexity rises: rank correlation at most -0.7", _agree),
)
