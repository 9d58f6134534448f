"""The `gap` experiment's results as tables: for the terminal and, the same, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments import claims
from experiments.gap.records import BEST, BOUNDS
from experiments.reading import Record, records, select
from experiments.tables import Cells, markdown_of

_BOUND_NAMES = {
    "cap": "cap at one dimension (theorem)",
    "warren": "Warren (theorem)",
    "gordon": "Gordon (theorem for Gaussian features)",
    "max_of_heads": "maximum of heads (estimate)",
    "first_moment": "first moment (estimate)",
    "partition": "fixed partition (prediction)",
}


def _budget(row: Record) -> str:
    if row["measured_total_key_dim"] is None:
        return f"> {row['largest_budget']}"
    if row["capped"]:
        return f"≤ {row['measured_total_key_dim']:.1f}"
    ends = row["ci_low"], row["ci_high"]
    interval = "" if None in ends else f" [{ends[0]:.0f}–{ends[1]:.0f}]"
    return f"{row['measured_total_key_dim']:.1f}{interval}"


def sweeps(data: Mapping[str, Any]) -> tuple[list[Record], list[Record]]:
    """Rows of the sweep over heads, and of that over items (at one head count)."""
    rows = records(data, "thresholds")
    config = data["config"]
    by_heads = [
        row
        for row in rows
        if row["num_items"] == config["num_items"] and row["num_heads"] in config["head_counts"]
    ]
    by_items = select(rows, num_heads=config["middle"])
    return by_heads, by_items


def _cells(rows: list[Record], key: str, label: str, title: str, note: str) -> Cells | None:
    if not rows:
        return None
    places = sorted({row[key] for row in rows})
    lines: list[tuple[str, ...]] = []
    for name in BOUNDS:
        values = [select(rows, **{key: place})[0][name] for place in places]
        lines.append((_BOUND_NAMES[name], *("∞" if v is None else f"{v:.1f}" for v in values)))
    for trainer in dict.fromkeys(row["trainer"] for row in rows):
        own = [select(rows, **{key: place}, trainer=trainer) for place in places]
        lines.append((trainer, *(_budget(one[0]) if one else "" for one in own)))
    best = [select(rows, **{key: place}, trainer=BEST)[0]["smallest_exact"] for place in places]
    lines.append(("smallest exact channel", *("–" if b is None else str(b) for b in best)))
    return Cells(title, ("", *(f"{label} = {place}" for place in places)), tuple(lines), note)


_NOTE = (
    "Total key dimension $D_K$. Trainers: at which half of the seeds recover a permutation (best-threshold F1 of at "
    "least 0.99), 95% interval; best: by any trainer; exact: every pair right in some seed, in float64. Gordon: below "
    "it at most half of the instances with Gaussian features can be held."
)


def heads_cells(data: Mapping[str, Any]) -> Cells | None:
    """Against the number of heads."""
    rows, _ = sweeps(data)
    size = f"{data['config']['num_items']} items in {data['config']['d_model']} dimensions"
    return _cells(rows, "num_heads", "h", f"Budget against heads, {size}", _NOTE)


def items_cells(data: Mapping[str, Any]) -> Cells | None:
    """Against the number of items."""
    _, rows = sweeps(data)
    return _cells(rows, "num_items", "m", f"Budget against items, {data['config']['middle']} heads", _NOTE)


def _range(values: list[int]) -> str:
    return str(values[0]) if min(values) == max(values) else f"{min(values)}–{max(values)}"


def small_cells(data: Mapping[str, Any]) -> Cells | None:
    """Exact minima."""
    rows = records(data, "instances")
    if not rows:
        return None
    lines = []
    for m, d in sorted({(row["num_items"], row["d_model"]) for row in rows}):
        own = select(rows, num_items=m, d_model=d)
        trained = [row["trained_heads"].get(str(d)) for row in own]
        found = [value for value in trained if value is not None]
        lines.append(
            (
                f"m = {m}, d = {d}",
                *(str(own[0][f"{n}_heads"]) for n in ("gordon", "max_of_heads", "first_moment")),
                _range([row["full_rank_heads"] for row in own]),
                str(own[0]["partition_heads"]),
                (_range(found) if found else "–") + f" ({len(found)} of {len(own)})",
                f"{min(row['one_low'] for row in own)}–{max(row['one_high'] for row in own)}",
                f"{min(row['least_budget_low'] for row in own)}–{max(row['least_budget_high'] for row in own)}",
            )
        )
    columns = ("size", "Gordon", "maximum", "first moment", "exact", "dealt", "annealed", "d_k = 1", "D_K")
    note = (
        "Heads of full rank: by Gordon's bound and two estimates, the exact minimum (range over instances), by a fixed "
        "partition, and fewest at which annealed training was exact (of the head counts tried). Then the least number "
        "of heads with one dimension, and the least budget over all head sizes: from the lowest lower to the highest "
        "upper end over instances."
    )
    return Cells("Small sizes, tried completely", columns, tuple(lines), note)


def claims_cells(data: Mapping[str, Any]) -> Cells | None:
    """What was expected and what came out. None where nothing was run that could tell."""
    return claims.claims_cells(data, "Expected: written down before the run (`experiments/gap/__init__.py`).")


def values(data: Mapping[str, Any]) -> dict[str, str]:
    """Every number of a run that prose may name, without the name of the source.

    ``threshold.annealed.m96.h4`` (``-exact``: smallest exact budget, ``-interval``, ``-seconds``);
    ``exact.annealed.m96.h4.k12``: seeds exact there; ``bound.gordon.m96.h4``; ``small.m12.d4.exact`` and other means
    over instances; ``claims.held``, ``claims.judged``, ``num-runs``.
    """
    out = {"num-runs": str(len(records(data, "points")))}
    for row in records(data, "thresholds"):
        place = f"m{row['num_items']}.h{row['num_heads']}"
        name = f"threshold.{row['trainer']}.{place}"
        measured = row["measured_total_key_dim"]
        out[name] = "not reached" if measured is None else f"{measured:.1f}"
        out[f"{name}-exact"] = "none" if row["smallest_exact"] is None else str(row["smallest_exact"])
        out[f"{name}-seconds"] = f"{row['seconds_per_run']:.0f}"
        if row["ci_low"] is not None and row["ci_high"] is not None:
            out[f"{name}-interval"] = f"[{row['ci_low']:.0f}–{row['ci_high']:.0f}]"
        for budget, exact in zip(row["budgets"], row["exact"], strict=True):
            out[f"exact.{row['trainer']}.{place}.k{budget}"] = f"{exact} of {row['num_seeds']} seeds"
        for bound in BOUNDS:
            out[f"bound.{bound}.{place}"] = "∞" if row[bound] is None else f"{row[bound]:.1f}"
    rows = records(data, "instances")
    for m, d in dict.fromkeys((row["num_items"], row["d_model"]) for row in rows):
        own = select(rows, num_items=m, d_model=d)
        for name, key in (
            ("exact", "full_rank_heads"),
            ("max-of-heads", "max_of_heads_heads"),
            ("first-moment", "first_moment_heads"),
            ("partition", "partition_heads"),
            ("gordon", "gordon_heads"),
            ("one-low", "one_low"),
            ("one-high", "one_high"),
        ):
            out[f"small.m{m}.d{d}.{name}"] = f"{sum(row[key] for row in own) / len(own):.1f}"
    if rows:
        out["small.instances"] = str(len(rows))
        out["small.undecided"] = str(sum(row["undecided"] for row in rows))
        out["small.one-exact"] = str(sum(row["one_low"] == row["one_high"] for row in rows))
    return out | claims.claim_values(data)


BLOCKS = {
    "heads": markdown_of(heads_cells),
    "items": markdown_of(items_cells),
    "small": markdown_of(small_cells),
    "claims": markdown_of(claims_cells),
}
"""Tables by name, for `experiments.readme`."""
