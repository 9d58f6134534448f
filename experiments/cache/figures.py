"""Figures of the `cache` experiment, drawn from what a complete run wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.ticker import FixedLocator, NullLocator

from experiments import style
from experiments.cache.claims import label
from experiments.drawing import Drawn
from experiments.reading import Record, records, select
from experiments.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, Look
from theory.cache_capacity import latent_max_items, shared_key_max_items

LOOKS = {
    "mha": Look("MHA (own keys)", BLUE, "o"),
    "gqa-4": Look("GQA, 4 key heads", SKY, "^"),
    "gqa-2": Look("GQA, 2 key heads", GREEN, "s"),
    "mqa": Look("MQA (one key head)", VERMILLION, "D"),
    "mla": Look("MLA (latent)", PURPLE, "v"),
}
_LOOKS = {"best": style.TRAINERS["best"], "joint": style.TRAINERS["plain"]}
"""By the trainers' names here: the joint one of shared keys is plain descent."""
_DASHES = {
    "mha": (5, 2),
    "gqa-4": (5, 1.2, 1, 1.2),
    "gqa-2": (2.5, 1.5),
    "mqa": (1.2, 1.2),
    "mla": (8, 1.5, 1, 1.5),
}


def look_of(row: Mapping[str, Any]) -> Look:
    """How a design is drawn."""
    return LOOKS.get(label(row).lower(), Look(label(row), ORANGE, "P"))


def _line(row: Mapping[str, Any]) -> dict[str, Any]:
    dash = _DASHES.get(label(row).lower(), (4, 2))
    return style.PREDICTION | {"color": look_of(row).color, "linestyle": (0, dash)}


def _first_size(rows: list[Record]) -> tuple[int, int]:
    """Width and fewest heads of the main size."""
    return rows[0]["d_model"], rows[0]["num_heads"]


def frontier(data: Mapping[str, Any]) -> Drawn:
    """Relations per cached dimension against cached dimensions, keys alone and with values."""
    rows = records(data, "transitions")
    if not rows:
        return None
    d_model, heads = _first_size(rows)
    best = [
        row
        for row in select(rows, trainer="best", d_model=d_model, num_heads=heads)
        if row["measured_cache_dims"] is not None
    ]
    if not best:
        return None
    figure, grid = style.grid(1, 2, style.DOUBLE_WIDTH, 2.9, sharey=True)
    shown: dict[str, Look] = {}
    for axes, field, counted in zip(
        grid[0], ("cache_dims", "cache_dims_with_values"), ("keys", "keys and values"), strict=True
    ):
        largest = max(row[field] for row in best) * 1.25
        for design, g in dict.fromkeys((row["design"], row["num_kv_heads"]) for row in best):
            own = sorted(select(best, design=design, num_kv_heads=g), key=lambda row: row["num_items"])
            factor = own[0][field] / own[0]["cache_dims"]
            for rank in dict.fromkeys(row["head_dim"] if design == "mla" else 0 for row in own):
                cache = np.linspace(1.0, min(largest / factor, g * d_model), 100)
                if design == "mla":
                    cache = np.linspace(1.0, min(largest, d_model), 60)
                    held = latent_max_items(d_model, heads, int(rank), cache)
                else:
                    held = shared_key_max_items(d_model, heads, g, cache)
                axes.plot(cache * factor, np.asarray(held) / (cache * factor), **_line(own[0]))
            x = [row[field] for row in own]
            y = [row["num_items"] / row[field] for row in own]
            # An interval of the cache is one of the relations per cached dimension, along a hyperbola.
            low = [row["num_items"] / (row["ci_high"] * factor) if row["ci_high"] else None for row in own]
            high = [row["num_items"] / (row["ci_low"] * factor) if row["ci_low"] else None for row in own]
            beside = 1.03 if design == "mla" else 1.0  # where MQA and MLA need the same
            style.interval_bars(axes, [beside * value for value in x], y, low, high, look_of(own[0]))
            shown[label(own[0])] = look_of(own[0])
        axes.set_xscale("log")
        style.plain_log_ticks(axes.xaxis, style.powers_of_two(2, largest))
        axes.set_xlim(2, largest)
        axes.set_xlabel(f"cached dimensions per token ({counted})")
        axes.set_ylim(bottom=0)
    grid[0, 0].set_ylabel("relations per cached dimension")
    handles = [style.handle(look, linestyle=_line_of(name)) for name, look in shown.items()]
    style.legend_below(figure, handles, 3)
    sizes = sorted({row["num_items"] for row in best})
    ranks = sorted({int(row["head_dim"]) for row in best if row["design"] == "mla"})
    caption = (
        f"Relations (edges of a permutation of m = {', '.join(map(str, sizes))} items, d = {d_model}, "
        f"{heads} query heads) over the cached dimensions at which half of the seeds recover them, against "
        "these: keys alone (left), and keys with as many values (right; a latent counts once). *Measured*: "
        "best trainer, 95% interval (along the hyperbola of equal m). *Lines*: prediction by width for a "
        f"fixed partition; those of MLA have heads of rank {', '.join(map(str, ranks)) or '–'}, one line "
        "each (below its rank a latent is the one key head of MQA). What a trainer finds is a lower bound "
        "on what the design holds."
    )
    return figure, caption


def _line_of(name: str) -> Any:
    return (0, _DASHES.get(name.lower(), (4, 2)))


def thresholds(data: Mapping[str, Any]) -> Drawn:
    """Cache needed and parameters at the threshold, by design, for every head count of the main size."""
    rows = records(data, "transitions")
    if not rows:
        return None
    items, d_model = rows[0]["num_items"], rows[0]["d_model"]
    main = select(rows, num_items=items, d_model=d_model)
    counts = list(dict.fromkeys(row["num_heads"] for row in main))
    figure, grid = style.grid(2, len(counts), style.DOUBLE_WIDTH, 4.2)
    trainers = [t for t in _LOOKS if any(row["trainer"] == t for row in main)]
    for column, heads in enumerate(counts):
        own = select(main, num_heads=heads)
        names = list(dict.fromkeys(label(row) for row in own))
        for axes, field, predicted in (
            (grid[0, column], "cache_dims", "predicted_cache_dims"),
            (grid[1, column], "num_params", "predicted_num_params"),
        ):
            for index, trainer in enumerate(trainers):
                look = _LOOKS[trainer]
                shift = 0.12 * (index - (len(trainers) - 1) / 2)
                for place, name in enumerate(names):
                    for row in select(own, trainer=trainer):
                        if label(row) != name or row["cache_dims"] is None:
                            continue
                        scale = row[field] / row["cache_dims"]
                        ends = [None if e is None else e * scale for e in (row["ci_low"], row["ci_high"])]
                        style.interval_bars(axes, [place + shift], [row[field]], [ends[0]], [ends[1]], look)
            for place, name in enumerate(names):
                row = next(row for row in own if label(row) == name)
                if row[predicted] is not None:
                    axes.plot([place - 0.32, place + 0.32], [row[predicted]] * 2, **style.PARTITION)
                law = row["parameter_count_cache_dims"]
                if field == "cache_dims" and law is not None and "joint" in trainers:
                    axes.plot([place - 0.32, place + 0.32], [law] * 2, **style.PARAMETER_COUNT)
            axes.set_xlim(-0.6, len(names) - 0.4)
            axes.xaxis.set_major_locator(FixedLocator(range(len(names))))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_xticklabels(names)
            axes.set_ylim(bottom=0)
        grid[0, column].set_title(f"{heads} query heads")
    grid[0, 0].set_ylabel("cached key dimensions needed")
    grid[1, 0].set_ylabel("parameters at that threshold")
    handles = [style.handle(_LOOKS[t], linestyle="none") for t in trainers]
    handles.append(style.line_handle("prediction: width, fixed partition", style.PARTITION))
    if "joint" in trainers:
        handles.append(style.line_handle("parameter count (law of plain descent)", style.PARAMETER_COUNT))
    style.legend_below(figure, handles, 2)
    caption = (
        f"Cached key dimensions at which half of the seeds recover a random permutation of {items} items (d "
        f"= {d_model}; top), and the degrees of freedom of the heads' matrices there (bottom), by design. "
        "*Measured* with 95% intervals (those of the parameters: of the cache, scaled). *Dashed*: "
        "prediction by width for a fixed partition. *Dotted*: the parameter count, an empirical law of "
        "joint training for MHA, extrapolated to shared keys."
    )
    return figure, caption


def budgets(data: Mapping[str, Any]) -> Drawn:
    """Edges held by each design at equal cache and at equal parameters."""
    rows = [row for row in records(data, "budgets") if row["held_median"] is not None]
    if not rows:
        return None
    panels = list(dict.fromkeys((row["budget"], row["size"]) for row in rows))
    panels.sort()
    figure, grid = style.grid(1, len(panels), style.DOUBLE_WIDTH, 2.6, sharey=True)
    shown: dict[str, Look] = {}
    for axes, (kind, size) in zip(grid[0], panels, strict=True):
        own = select(rows, budget=kind, size=size)
        counts = sorted({row["num_heads"] for row in own})
        for place, heads in enumerate(counts):
            here = sorted(
                select(own, num_heads=heads), key=lambda r: (-r["num_kv_heads"], r["design"] == "mla")
            )
            for index, row in enumerate(here):
                look = look_of(row)
                shown[label(row)] = look
                x = place + 0.15 * (index - (len(here) - 1) / 2)
                low, high = [row["held_low"]], [row["held_high"]]
                style.interval_bars(axes, [x], [row["held_median"]], low, high, look)
        axes.axhline(1.0, **style.REFERENCE)
        axes.set_xlim(-0.6, len(counts) - 0.4)
        axes.xaxis.set_major_locator(FixedLocator(range(len(counts))))
        axes.set_xticklabels([str(heads) for heads in counts])
        axes.set_xlabel("query heads")
        axes.set_title(f"cache C = {size}" if kind == "cache" else f"parameters up to {size}")
        axes.set_ylim(*style.SHARE_LIMITS)
    grid[0, 0].set_ylabel("share of edges held")
    order = sorted(shown, key=lambda name: list(LOOKS).index(name.lower()) if name.lower() in LOOKS else 9)
    style.legend_below(figure, [style.handle(shown[name], linestyle="none") for name in order], 3)
    first = rows[0]
    caption = (
        f"Edges above all non-edges ({first['num_items']} items, d = {first['d_model']}) in layers of equal "
        "cache of keys (left) and of at most so many parameters (right; the widest keys that they pay for). "
        f"Of every seed the best trainer; median and range over {first['num_seeds']} seeds."
    )
    return figure, caption


def conversion(data: Mapping[str, Any]) -> Drawn:
    """F1 at once and after training on, for each way to convert."""
    rows = [row for row in records(data, "conversions") if row["f1_median"] is not None]
    if not rows:
        return None
    groups = list(dict.fromkeys(row["num_kv_heads"] for row in rows))
    looks = {
        "mean-pool": Look("mean-pooled keys", ORANGE, "s"),
        "low-rank": Look("low-rank fit", BLUE, "o"),
        "scratch": Look("from scratch", GREY, "^", filled=False),
    }
    figure, grid = style.grid(1, len(groups), style.DOUBLE_WIDTH, 2.5, sharey=True)
    for axes, g in zip(grid[0], groups, strict=True):
        own = select(rows, num_kv_heads=g)
        steps = sorted({row["steps"] for row in own})
        for index, (method, look) in enumerate(looks.items()):
            line = sorted(select(own, method=method), key=lambda row: row["steps"])
            x = [steps.index(row["steps"]) + 0.08 * (index - 1) for row in line]
            middle, low, high = ([row[name] for row in line] for name in ("f1_median", "f1_low", "f1_high"))
            style.interval_bars(axes, x, middle, low, high, look, linestyle="-")
        axes.axhline(0.99, **style.REFERENCE)
        axes.xaxis.set_major_locator(FixedLocator(range(len(steps))))
        axes.set_xticklabels([f"{s:,}" if s else "at once" for s in steps])
        axes.set_xlabel("steps of training on")
        axes.set_ylim(*style.SHARE_LIMITS)
        axes.set_title(f"{own[0]['num_heads']} key heads to {g}")
    grid[0, 0].set_ylabel("F1 at the best threshold")
    style.legend_below(figure, [style.handle(look) for look in looks.values()], 3)
    first = rows[0]
    caption = (
        f"Layers of {first['num_heads']} heads with keys of their own (d_k = {first['head_dim']}, "
        f"{first['num_items']} items, d = {first['d_model']}) that had recovered their graph, made into "
        "layers with fewer key heads of the same dimension, at once and after steps of joint training. "
        f"Median and range over {first['num_seeds']} seeds; grey line: 0.99."
    )
    return figure, caption


def models(data: Mapping[str, Any]) -> Drawn:
    """Relations that a layer of a real model is predicted to have room for, beside its heads with own keys."""
    rows = records(data, "models")
    if not rows:
        return None
    figure, grid = style.grid(1, 1, style.COLUMN_WIDTH, 2.9)
    axes = grid[0, 0]
    for row in rows:
        own = row["num_heads"] * row["head_dim"]
        look = look_of(row)
        axes.plot(
            [own, row["cache_dims"]],
            [row["predicted_num_items_mha"], row["predicted_num_items"]],
            color=look.color,
            linewidth=0.8,
        )
        axes.plot(
            [own], [row["predicted_num_items_mha"]], marker="o", markerfacecolor="white", color=look.color
        )
        axes.plot([row["cache_dims"]], [row["predicted_num_items"]], marker=look.marker, color=look.color)
        axes.annotate(
            row["name"],
            (row["cache_dims"], row["predicted_num_items"]),
            xytext=(-20, 6) if row["num_heads"] * row["head_dim"] == row["cache_dims"] else (5, -10),
            textcoords="offset points",
            fontsize=6.5,
            color=BLACK,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("cached key dimensions per token and layer")
    axes.set_ylabel("relations predicted")
    axes.set_xlim(100, 60_000)
    axes.set_ylim(2e4, 5e7)
    sources = "; ".join(f"{row['name']}: {row['source']}" for row in rows)
    caption = (
        "One layer of real models: the largest permutation that its key-query channel is *predicted* "
        "(width, fixed partition, Gaussian items) to have room for, against what a token caches of keys "
        "(filled), and the same for its query heads with keys of their own (open). Nothing here is "
        f"measured. Numbers of the models: {sources}."
    )
    return figure, caption


FIGURES = {
    "frontier": frontier,
    "thresholds": thresholds,
    "budgets": budgets,
    "conversion": conversion,
    "models": models,
}
"""What draws each figure, by name."""
