"""The `cache` experiment's results as tables: for the terminal and, the same, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments import claims
from experiments.cache.claims import label
from experiments.capacity.table import number
from experiments.reading import Record, records, select
from experiments.tables import Cells, markdown_of


def measured(row: Record | None) -> str:
    """``16.3 [15.1–17.0]``, or in words why there is no number."""
    if row is None or row["status"] == "not_run":
        return "not run"
    if row["measured_cache_dims"] is None:
        return "not reached"
    low, high = (number(row[name], "?") for name in ("ci_low", "ci_high"))
    return f"{row['measured_cache_dims']:.1f} [{low}–{high}]"


def threshold_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each design of each size, None where no threshold was measured."""
    rows = records(data, "transitions")
    lines = []
    for best in select(rows, trainer="best"):
        if best["status"] == "not_run":
            continue
        size = {name: best[name] for name in ("num_items", "d_model", "num_heads", "design", "num_kv_heads")}
        joint = select(rows, trainer="joint", **size)
        lines.append(
            (
                str(best["num_items"]),
                str(best["num_heads"]),
                label(best),
                number(best["predicted_cache_dims"], "∞"),
                measured(best),
                number(best["smallest_exact"], "none", 0),
                number(best["num_params"], decimals=0),
                number(best["cache_dims_with_values"]),
                number(best["parameter_count_cache_dims"], "∞"),
                measured(joint[0]) if joint else "–",
            )
        )
    if not lines:
        return None
    columns = ("m", "h", "design", "width", "best\ntrainer", "smallest\nexact", "parameters", "with\nvalues")
    columns = (*columns, "parameter\ncount", "joint\ntraining")
    widths = sorted({row["d_model"] for row in rows})
    note = (
        "Cached key dimensions at which half of the seeds recover a random permutation of m items (F1 of at "
        "least 0.99 at the best threshold), 95% interval. Width: prediction for a fixed partition. Smallest "
        "exact: a layer found that has every pair right. Parameters (degrees of freedom) and cache of keys "
        "and values (as many of either; a latent counts once) at the best trainer's threshold. Parameter "
        "count: empirical law of joint training for MHA, extrapolated to shared keys."
    )
    title = f"Cache needed, by design (d = {', '.join(map(str, widths))})"
    return Cells(title, columns, tuple(lines), note)


def budget_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each design at each budget. None where none was run."""
    rows = sorted(
        records(data, "budgets"), key=lambda r: (r["budget"], r["size"], r["num_heads"], -r["num_kv_heads"])
    )
    lines = tuple(
        (
            {"cache": "C = ", "parameters": "parameters <= "}[row["budget"]] + str(row["size"]),
            str(row["num_heads"]),
            label(row),
            str(row["cache_dims"]),
            f"{row['num_params']:.0f}",
            "–" if row["held_median"] is None else f"{100 * row['held_median']:.0f}%",
            f"{row['recovered']}/{row['num_seeds']}",
        )
        for row in rows
    )
    if not lines:
        return None
    columns = ("budget", "h", "design", "C", "parameters", "edges\nheld", "recovered")
    note = "Best trainer of each seed. Edges above all non-edges, median over seeds; seeds with an F1 of at least 0.99."
    items = rows[0]["num_items"]
    return Cells(f"Designs at equal budgets, {items} items", columns, lines, note)


def conversion_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each number of key heads and method. None where nothing was converted."""
    rows = records(data, "conversions")
    if not rows:
        return None
    steps = sorted({row["steps"] for row in rows})
    lines = []
    for g in dict.fromkeys(row["num_kv_heads"] for row in rows):
        for method in dict.fromkeys(row["method"] for row in rows):
            own = {row["steps"]: row for row in select(rows, num_kv_heads=g, method=method)}
            cells = [
                "–" if own[s]["f1_median"] is None else f"{own[s]['f1_median']:.2f} ({own[s]['recovered']})"
                for s in steps
            ]
            lines.append((str(g), method, *cells))
    first = rows[0]
    note = (
        f"F1 at the best threshold, median over {first['num_seeds']} seeds (in brackets: seeds with at least 0.99), at "
        "once and after steps of joint training. Sources: layers of heads with own keys that had recovered their graph."
    )
    title = f"From {first['num_heads']} key heads to fewer ({first['num_items']} items, d_k = {first['head_dim']})"
    columns = ("key heads", "start", *(f"{s} steps" if s else "at once" for s in steps))
    return Cells(title, columns, tuple(lines), note)


def model_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row a real model."""
    rows = records(data, "models")
    lines = tuple(
        (
            row["name"],
            f"{row['d_model']:,}",
            str(row["num_heads"]),
            str(row["num_kv_heads"] or "–"),
            str(row["head_dim"]),
            str(row["latent_dim"] or "–"),
            f"{row['cache_dims']:,}",
            f"{row['cache_dims_with_values']:,}",
            f"{row['predicted_num_items']:,.0f}",
            f"{row['predicted_num_items'] / row['cache_dims']:,.0f}",
            f"{row['predicted_num_items'] / row['predicted_num_items_mha']:.2f}",
        )
        for row in rows
    )
    if not lines:
        return None
    columns = ("model", "d", "h", "g", "d_k", "d_c", "cached:\nkeys", "with\nvalues")
    columns = (*columns, "relations", "per cached\nkey dim", "of own\nkeys")
    note = (
        "Of one layer. Relations: the largest permutation predicted by width for a fixed partition of "
        "Gaussian items, what its key-query channel has room for, not what a trained model stores. Of own "
        "keys: over what the same heads would hold with keys of their own. Numbers: "
        + "; ".join(f"{row['name']}: {row['source']}" for row in rows)
        + "."
    )
    return Cells("Where real models sit", columns, lines, note)


def claims_cells(data: Mapping[str, Any]) -> Cells | None:
    """What was expected and what came out. None where nothing was run that could tell."""
    note = "Expected: written down before the runs (`experiments/cache/__init__.py`)."
    return claims.claims_cells(data, note)


BLOCKS = {
    "thresholds": markdown_of(threshold_cells),
    "budgets": markdown_of(budget_cells),
    "conversion": markdown_of(conversion_cells),
    "models": markdown_of(model_cells),
    "claims": markdown_of(claims_cells),
}
"""Tables by name, for `experiments.readme`."""


def values(data: Mapping[str, Any]) -> dict[str, str]:
    """Every number of a run that prose may name, without the name of the source.

    ``best.m96.h4.gqa-2`` (and ``joint.``, ``alternate.``, ``greedy.``, ``predicted.``, ``law.``, ``with-values.``,
    ``parameters.``; ``ratio.`` over MHA's best, ``predicted-ratio.`` the same predicted); ``held.c8.h4.mqa`` and
    ``recovered.c8.h4.mqa`` at a cache, ``held.p480.h4.mqa`` at a number of parameters; ``conversion.g2.low-rank.0`` and
    ``conversion-recovered.``; ``model.SmolLM2-135M``; ``claims.held``, ``claims.judged``; ``num-runs``.
    """
    out = {"num-runs": str(len(records(data, "points")))}
    rows = records(data, "transitions")
    for row in rows:
        place = f"m{row['num_items']}.h{row['num_heads']}.{label(row).lower()}"
        out[f"{row['trainer']}.{place}"] = number(row["measured_cache_dims"])
        if row["trainer"] != "best":
            continue
        out[f"predicted.{place}"] = number(row["predicted_cache_dims"], "∞")
        out[f"law.{place}"] = number(row["parameter_count_cache_dims"], "∞")
        out[f"with-values.{place}"] = number(row["cache_dims_with_values"])
        out[f"parameters.{place}"] = number(row["num_params"], decimals=0)
        size = {name: row[name] for name in ("num_items", "d_model", "num_heads")}
        for own in select(rows, trainer="best", design="mha", **size):
            for name, field in (
                ("ratio", "measured_cache_dims"),
                ("predicted-ratio", "predicted_cache_dims"),
            ):
                if row[field] and own[field]:
                    out[f"{name}.{place}"] = f"{row[field] / own[field]:.2f}"
    for row in records(data, "budgets"):
        place = f"{row['budget'][0]}{row['size']}.h{row['num_heads']}.{label(row).lower()}"
        if row["held_median"] is not None:
            out[f"held.{place}"] = f"{100 * row['held_median']:.0f}%"
        out[f"recovered.{place}"] = f"{row['recovered']} of {row['num_seeds']}"
    for row in records(data, "conversions"):
        place = f"g{row['num_kv_heads']}.{row['method']}.{row['steps']}"
        if row["f1_median"] is not None:
            out[f"conversion.{place}"] = f"{row['f1_median']:.2f}"
        out[f"conversion-recovered.{place}"] = f"{row['recovered']} of {row['num_seeds']}"
    for row in records(data, "models"):
        out[f"model.{row['name']}"] = f"{row['predicted_num_items']:,.0f}"
    return out | claims.claim_values(data)
