"""Verdicts on what was expected, from the records alone; the expectations are in the package's docstring."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from experiments.claims import Claim, Verdict, judged
from experiments.points import Record
from experiments.reading import select

Rows = Mapping[str, Sequence[Record]]


def claim_rows(rows: Rows) -> list[Record]:
    """One row a claim: ``verdict`` is ``held``, ``failed`` or ``not_run``."""
    return judged(CLAIMS, rows)


def label(row: Mapping[str, Any]) -> str:
    """A design in few letters: ``GQA-2``."""
    return f"GQA-{row['num_kv_heads']}" if row["design"] == "gqa" else row["design"].upper()


def _main(rows: Rows, trainer: str) -> list[list[Record]]:
    """Thresholds that were reached, by size and head count, MHA first; none where MHA has none."""
    groups: dict[tuple[int, int, int], list[Record]] = {}
    for row in select(rows["transitions"], trainer=trainer):
        if row["measured_cache_dims"] is not None:
            groups.setdefault((row["num_items"], row["d_model"], row["num_heads"]), []).append(row)
    return [own for own in groups.values() if own[0]["design"] == "mha" and len(own) > 1]


def _reaches(row: Mapping[str, Any], low: float, high: float | None) -> bool:
    """Whether a threshold's interval meets ``[low, high]`` (None: without end)."""
    return (high is None or row["ci_low"] <= high) and (row["ci_high"] is None or row["ci_high"] >= low)


def _place(row: Mapping[str, Any]) -> str:
    return f"m = {row['num_items']}, h = {row['num_heads']}"


def _ratios(rows: Rows) -> Verdict | None:
    fine, texts = [], []
    for trainer in ("best", "joint"):
        for own in _main(rows, trainer):
            if own[0]["num_heads"] != min(row["num_heads"] for row in rows["transitions"]):
                continue
            first = own[0]
            for row in own[1:]:
                if not (row["predicted_cache_dims"] and first["predicted_cache_dims"]):
                    continue
                measured = row["measured_cache_dims"] / first["measured_cache_dims"]
                expected = row["predicted_cache_dims"] / first["predicted_cache_dims"]
                high = None if first["ci_high"] is None else 1.2 * expected * first["ci_high"]
                fine.append(_reaches(row, 0.8 * expected * first["ci_low"], high))
                texts.append(
                    f"{trainer}, m = {row['num_items']}: {label(row)} {measured:.2f} (width {expected:.2f})"
                )
    return (all(fine), "; ".join(texts)) if fine else None


def _below(rows: Rows) -> Verdict | None:
    fine, texts = [], []
    for row in select(rows["transitions"], trainer="best"):
        if row["measured_cache_dims"] and row["predicted_cache_dims"]:
            ratio = row["measured_cache_dims"] / row["predicted_cache_dims"]
            fine.append(_reaches(row, 0.0, max(row["predicted_cache_dims"], row["cap_bound"])))
            texts.append(f"{_place(row)}: {label(row)} {ratio:.2f}")
    return (all(fine), "measured / width: " + "; ".join(texts)) if fine else None


def _law(rows: Rows) -> Verdict | None:
    fine, texts = [], []
    for own in _main(rows, "joint"):
        own = [row for row in own if row["parameter_count_cache_dims"]]
        ratios = [row["measured_cache_dims"] / row["parameter_count_cache_dims"] for row in own]
        for row in own[1:]:
            scale = row["parameter_count_cache_dims"] / own[0]["parameter_count_cache_dims"]
            high = None if own[0]["ci_high"] is None else 1.15 * scale * own[0]["ci_high"]
            fine.append(_reaches(row, 0.85 * scale * own[0]["ci_low"], high))
        shown = ", ".join(f"{label(row)} {ratio:.2f}" for row, ratio in zip(own, ratios, strict=True))
        texts.append(f"{_place(own[0])}: {shown}")
    return (all(fine), "measured / law: " + "; ".join(texts)) if fine else None


_SHARING = {"mha": 0, "gqa": 1, "mqa": 2}


def _equal_cache(rows: Rows) -> Verdict | None:
    fine, texts = [], []
    groups: dict[tuple[int, int], list[Record]] = {}
    for row in select(rows["budgets"], budget="cache"):
        if row["design"] in _SHARING and row["held_median"] is not None:
            groups.setdefault((row["num_heads"], row["size"]), []).append(row)
    for (heads, size), own in groups.items():
        own = sorted(own, key=lambda row: -row["num_kv_heads"])
        if len(own) > 1:
            held = [row["held_median"] for row in own]
            fine.append(all(after >= before - 0.02 for before, after in pairwise(held)))
            shown = ", ".join(f"{label(row)} {row['held_median']:.2f}" for row in own)
            texts.append(f"h = {heads}, C = {size}: {shown}")
    return (all(fine), "edges held, median: " + "; ".join(texts)) if fine else None


def _parameters(row: Record) -> tuple[float, float]:
    """The interval of a threshold in parameters: that of the cache, scaled."""
    high = math.inf if row["ci_high"] is None else row["ci_high"]
    scale = row["num_params"] / row["cache_dims"]
    return scale * row["ci_low"], scale * high


def _equal_parameters(rows: Rows) -> Verdict | None:
    fine, texts = [], []
    for own in _main(rows, "best"):
        by_sharing = sorted((r for r in own if r["design"] in _SHARING), key=lambda r: -r["num_kv_heads"])
        low, high = zip(*(_parameters(row) for row in by_sharing), strict=True)
        fine += [low[i] <= high[i + 1] for i in range(len(low) - 1)]
        fine.append(low[-1] <= 1.25 * high[0])
        shown = ", ".join(f"{label(row)} {row['num_params']:.0f}" for row in by_sharing)
        texts.append(f"{_place(own[0])}: {shown}")
    return (all(fine), "; ".join(texts)) if fine else None


def _latents(rows: Rows) -> Verdict | None:
    fine, texts = [], []
    for own in _main(rows, "best"):
        latent, mqa = select(own, design="mla"), select(own, design="mqa")
        gqa = select(own, design="gqa", num_kv_heads=2)
        if latent and mqa and gqa:
            values = [r[0]["measured_cache_dims"] for r in (mqa, latent, gqa)]
            fine.append(_reaches(latent[0], values[0], values[2]))
            texts.append(f"{_place(own[0])}: MQA {values[0]:.1f}, MLA {values[1]:.1f}, GQA-2 {values[2]:.1f}")
    return (all(fine), "; ".join(texts)) if fine else None


def _values(rows: Rows) -> Verdict | None:
    fine, texts = [], []
    for own in _main(rows, "best"):
        latent = select(own, design="mla")
        if latent:
            least = min(own, key=lambda row: row["cache_dims_with_values"])
            fine.append(least["design"] == "mla")
            shown = ", ".join(f"{label(row)} {row['cache_dims_with_values']:.1f}" for row in own)
            texts.append(f"{_place(own[0])}: {shown}")
    return (all(fine), "keys and values: " + "; ".join(texts)) if fine else None


def _conversion(rows: Rows) -> Verdict | None:
    fine, texts = [], []
    table = [row for row in rows["conversions"] if row["f1_median"] is not None]
    for g in dict.fromkeys(row["num_kv_heads"] for row in table):
        own = select(table, num_kv_heads=g)
        last = max(row["steps"] for row in own)
        at = {(row["method"], row["steps"]): row for row in own if row["steps"] in (0, last)}
        if last < 1000 or len(at) < 6:
            continue
        pooled, low = (at[method, 0]["f1_median"] for method in ("mean-pool", "low-rank"))
        ends = {method: at[method, last]["recovered"] for method in ("mean-pool", "low-rank", "scratch")}
        fine.append(low > pooled and min(ends["mean-pool"], ends["low-rank"]) >= ends["scratch"])
        texts.append(
            f"{g} key heads: F1 at once {pooled:.2f} (mean-pool), {low:.2f} (low-rank); recovered after {last} steps "
            f"{ends['mean-pool']}, {ends['low-rank']}, from scratch {ends['scratch']} of {own[0]['num_seeds']}"
        )
    return (all(fine), "; ".join(texts)) if fine else None


CLAIMS = (
    Claim(
        "ratios", "C* over that of MHA within 20% of the widths' ratio, best and joint, fewest heads", _ratios
    ),
    Claim(
        "below the width",
        "the best trainer needs at most the fixed partition's cache, in every design",
        _below,
    ),
    Claim(
        "law of joint training",
        "joint training over the parameter count within 15% of what it is for MHA, in every design",
        _law,
    ),
    Claim("equal cache", "from MHA to GQA to MQA the edges held do not fall (by more than 2%)", _equal_cache),
    Claim("equal parameters", "more sharing needs more parameters, by at most 25% in all", _equal_parameters),
    Claim("latents", "C* of MLA between those of MQA and GQA with two key heads", _latents),
    Claim("with values", "MLA caches least", _values),
    Claim(
        "conversion",
        "low-rank keeps more than mean-pooling; after 1,000 steps both recover as often as from scratch",
        _conversion,
    ),
)
