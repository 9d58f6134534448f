"""Benchmarks as Markdown tables, for `experiments.readme`."""

from collections.abc import Mapping
from typing import Any

from experiments.bench_heads import operations
from experiments.blockwise_operations import blockwise_operations
from experiments.tables import Cells


def bench_table(data: Mapping[str, Any]) -> str:
    """Benchmarks as a Markdown table: every ``speed_over_…`` of a record, median and quartiles, by size.

    Args:
        data: the benchmark's json, with lists of records under ``sections``.
    """
    rows = [
        (section, row)
        for section, rows in data.get("sections", {}).items()
        for row in rows
        if any(key.startswith("speed_over_") for key in row)
    ]
    speeds = list(dict.fromkeys(key for _, row in rows for key in row if key.startswith("speed_over_")))
    if not speeds:
        return "No records.\n"
    sizes = {"num_items": "m", "total_key_dim": "D_K", "d_model": "d", "num_heads": "h", "seeds": "seeds"}
    columns = ["benchmark", "size", *(key.replace("_", " ") for key in speeds)]
    memory = any("temporary_ratio" in row for _, row in rows)
    lines = []
    for section, row in rows:
        size = ", ".join(f"{label} = {row[key]}" for key, label in sizes.items() if row.get(key) is not None)
        line = [section.replace("_", " "), size, *(_speed(row.get(key)) for key in speeds)]
        if memory:
            line.append(_decimals(row.get("temporary_ratio")))
        lines.append(tuple(line))
    if memory:
        columns.append("temporary memory, ours / JAX")
    note = "Median over interleaved rounds in one process, quartiles in brackets."
    return Cells("How many times faster", tuple(columns), tuple(lines), note).markdown()


def _speed(quartiles: Mapping[str, float] | float | None, decimals: int = 1) -> str:
    if quartiles is None:
        return "–"
    if isinstance(quartiles, int | float):
        return f"{quartiles:.{decimals}f}"
    median, low, high = (f"{quartiles[key]:.{decimals}f}" for key in ("median", "low", "high"))
    return f"{median} [{low}–{high}]"


def attention_table(data: Mapping[str, Any]) -> str:
    """The attention benchmark as a Markdown table: how many times faster than others, by pass and length.

    Args:
        data: the json of `experiments.bench_attention`.
    """
    points = [p for p in data["points"] if not p["causal"]]
    found = {(p["pass"], p["length"], p["contender"]): p for p in points}
    rivals = {
        "jax_nn": "jax.nn",
        "flax_nnx": "flax.nnx",
        "flax_linen": "flax.linen",
        "equinox": "equinox",
        "torch_sdpa": "PyTorch SDPA",
    }
    rivals = {name: label for name, label in rivals.items() if any(key[2] == name for key in found)}
    lines = []
    for direction, length in sorted({(p["pass"], p["length"]) for p in points}):
        ours, theirs = found[direction, length, "ours"], found.get((direction, length, "jax_nn"))
        line = [direction, str(length)]
        for name in rivals:
            line.append(_speed(found.get((direction, length, name), {}).get("time_over_ours"), decimals=2))
        memory = None if theirs is None else ours["temporary_bytes"] / max(1, theirs["temporary_bytes"])
        line += [_decimals(memory), _speed(ours["ours_speedup_by_causality"], decimals=2)]
        lines.append(tuple(line))
    columns = ("pass", "T", *rivals.values(), "temporary memory, ours / jax.nn", "causal over not, ours")
    config, place = data["config"], data["environment"]
    note = (
        f"Not causal but in the last column; {config['dtype']}, {config['num_heads']} heads of {config['head_dim']}, "
        f"batch {config['tokens']} / T but at least 1, on {place['cpu_count']} CPUs. Median over interleaved rounds in "
        "one process, quartiles in brackets. –: its weights take too much memory for this benchmark."
    )
    return Cells("How many times faster than", columns, tuple(lines), note).markdown()


def _decimals(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def decode_table(data: Mapping[str, Any]) -> str:
    """The benchmark of decoding as a Markdown table: speed over multi-head attention, by batch and context.

    Args:
        data: the json of `experiments.bench_decode`.
    """
    points = [p for p in data["points"] if p["seconds"] is not None]
    names = list(dict.fromkeys(p["contender"] for p in points))
    found = {(p["batch"], p["context"], p["contender"]): p for p in points}
    bytes_of = {p["contender"]: p["bytes_per_token"] for p in points}
    lines = []
    for batch, context in dict.fromkeys((p["batch"], p["context"]) for p in points):
        speeds = (found.get((batch, context, name), {}).get("speed_over_mha") for name in names)
        lines.append((str(batch), f"{context:,}", *(_speed(speed, decimals=2) for speed in speeds)))
    columns = ("batch", "context", *(f"{name.replace('_', ' ')} ({bytes_of[name]:,} B)" for name in names))
    config, place = data["config"], data["environment"]
    note = (
        f"One layer, d_model {config['d_model']}, {config['num_heads']} heads, {config['dtype']}, on "
        f"{place['cpu_count']} CPUs; in brackets bytes a token caches, and quartiles. Median over interleaved "
        "rounds in one process."
    )
    return Cells("Tokens per second over those of MHA", columns, tuple(lines), note).markdown()


def decode_values(data: Mapping[str, Any]) -> dict[str, str]:
    """``b1.16384.mqa``: speed over MHA at a batch and context; ``bytes.mqa``: of the cache per token."""
    out = {}
    for p in data["points"]:
        if p["seconds"] is not None:
            out[f"b{p['batch']}.{p['context']}.{p['contender']}"] = f"{p['speed_over_mha']['median']:.1f}"
        out[f"bytes.{p['contender']}"] = f"{p['bytes_per_token']:,}"
    return out


def attention_values(data: Mapping[str, Any]) -> dict[str, str]:
    """``forward.2048.jax_nn``: times faster than it; ``memory.forward.2048``: ours over that of `jax.nn`.

    ``causal.forward.2048``: times faster with causality than without. ``both`` is forward and backward.
    """
    out = {}
    found = {(p["pass"], p["length"], p["contender"]): p for p in data["points"] if not p["causal"]}
    for (direction, length, contender), p in found.items():
        where = f"{'both' if 'backward' in direction else 'forward'}.{length}"
        out[f"{where}.{contender}"] = f"{p['time_over_ours']['median']:.1f}"
        if contender == "ours":
            out[f"causal.{where}"] = f"{p['ours_speedup_by_causality']['median']:.2f}"
            theirs = found.get((direction, length, "jax_nn"))
            if theirs is not None:
                out[f"memory.{where}"] = f"{p['temporary_bytes'] / max(1, theirs['temporary_bytes']):.2f}"
    return out


def heads_values(data: Mapping[str, Any]) -> dict[str, str]:
    """``time.h64.ours``, ``operations.h64.ours``: time, and how many more operations, than with the fewest heads.

    ``again``: logits that attention in blocks computes a second time, as a share of the products.
    """
    first = data["points"][0]
    sizes = (first[name] for name in ("batch", "length", "d_model"))
    again = blockwise_operations(0, *sizes, num_heads=0) / first["product_operations"]
    out = {"again": f"{100 * again:.1f}%"}
    fewest = {
        p["contender"]: p
        for p in reversed(data["points"])
        if p["num_heads"] == data["config"]["num_heads"][0]
    }
    for p in data["points"]:
        place = f"h{p['num_heads']}.{p['contender']}"
        out[f"time.{place}"] = f"{p['time_over_fewest_heads']['median']:.1f}"
        own, least = operations(p), operations(fewest[p["contender"]])
        if own is not None and least is not None:
            out[f"operations.{place}"] = f"{100 * (own / least - 1):.1f}%"
    return out
