"""What `experiments.bench_attention` measured, drawn and printed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from experiments import style
from experiments.timing import Record

_LOOKS = {
    "ours": style.Look("ours", style.BLUE, "o"),
    "jax_nn": style.Look("jax.nn", style.VERMILLION, "s", filled=False),
    "flax_nnx": style.Look("flax.nnx", style.ORANGE, "^", filled=False),
    "flax_linen": style.Look("flax.linen", style.PURPLE, "v", filled=False),
    "equinox": style.Look("equinox", style.GREEN, "D", filled=False),
    "torch_sdpa": style.Look("PyTorch SDPA", style.BLACK, "X"),
    "jax_nn_cudnn": style.Look("jax.nn, cuDNN", style.GREEN, "P"),
}


def figure(result: Mapping[str, Any]) -> tuple[Figure, str]:
    """Time over ours and temporary memory against length, and the caption."""
    points = result["points"]
    columns = [
        ("forward", False),
        ("forward", True),
        ("forward and backward", False),
        ("forward and backward", True),
    ]
    with style.context():
        grid, axes = style.grid(2, 4, style.DOUBLE_WIDTH, 3.9, sharey="row", sharex=True)
        shown = [name for name in _LOOKS if any(p["contender"] == name for p in points)]
        for column, (direction, causal) in enumerate(columns):
            time, memory = axes[:, column]
            for name in shown:
                here = sorted(
                    (
                        p
                        for p in points
                        if (p["contender"], p["pass"], p["causal"]) == (name, direction, causal)
                    ),
                    key=lambda p: p["length"],
                )
                _lines(time, memory, here, _LOOKS[name])
            time.set_title(f"{direction.replace(' and ', ' +')}{', causal' if causal else ''}")
            for panel in (time, memory):
                panel.set_xscale("log", base=2)
                panel.set_yscale("log")
            style.plain_log_ticks(time.yaxis, [0.5, 1, 2, 4, 8])
            lengths = sorted({p["length"] for p in points})
            style.plain_log_ticks(memory.xaxis, lengths[::2] if len(lengths) > 4 else lengths)
            time.axhline(1, **style.REFERENCE)
            memory.set_xlabel("length $T$")
        axes[0, 0].set_ylabel("time / time of ours")
        axes[1, 0].set_ylabel("temporary memory (MB)")
        style.legend_below(grid, [style.handle(_LOOKS[name]) for name in shown], 4)
    return grid, _caption(result)


def _lines(time: Any, memory: Any, points: list[Record], look: style.Look) -> None:
    lengths = [p["length"] for p in points]
    ratio = [p["time_over_ours"] for p in points]
    medians = [r["median"] for r in ratio]
    style.interval_bars(
        time, lengths, medians, [r["low"] for r in ratio], [r["high"] for r in ratio], look, linestyle="-"
    )
    megabytes = [p["temporary_bytes"] for p in points]
    if None not in megabytes:
        shown = [max(1, x) / 1e6 for x in megabytes]
        nothing = [None] * len(shown)
        style.interval_bars(memory, lengths, shown, nothing, nothing, look, linestyle="-")


def _caption(result: Mapping[str, Any]) -> str:
    config, place = result["config"], result["environment"]
    return (
        f"Attention on {place['device_kind']} ({place['cpu_count']} CPUs), {config['dtype']}, "
        f"{config['num_heads']} heads of {config['head_dim']}, batch {config['tokens']} / T but at least 1. Above: "
        "time over the time of ours in the same rounds, median and quartiles; above 1, ours is faster. "
        "Below: temporary memory of the compiled program. PyTorch does not tell its own. "
        "Drawn by: python -m experiments.bench_attention"
    )


def show(result: Mapping[str, Any], console: Console) -> None:
    """Print a table of the ratios."""
    names = [n for n in [*_LOOKS, "ours_dense", "ours_blockwise"] if n != "ours"]
    names = [n for n in names if any(p["contender"] == n for p in result["points"])]
    table = Table(title="time over ours: medians (quartiles)")
    for head in ("T", "pass", "causal", "ours ms", "x floor", "temp / jax.nn", *names):
        table.add_column(head, justify="right")
    rows = {}
    for p in result["points"]:
        rows.setdefault((p["length"], p["pass"], p["causal"]), {})[p["contender"]] = p
    for (length, direction, causal), found in rows.items():
        ours = found["ours"]
        theirs = found.get("jax_nn")
        memory = (
            "-" if theirs is None else f"{ours['temporary_bytes'] / max(1, theirs['temporary_bytes']):.3f}"
        )
        cells = [
            f"{1e3 * ours['seconds']['median']:.2f}",
            f"{ours['seconds']['median'] / ours['floor_seconds']:.1f}",
            memory,
        ]
        for name in names:
            ratio = found[name]["time_over_ours"] if name in found else None
            cells.append(
                "-" if ratio is None else f"{ratio['median']:.2f} ({ratio['low']:.2f}-{ratio['high']:.2f})"
            )
        table.add_row(str(length), direction, "yes" if causal else "", *cells)
    console.print(table)
    for r in result["masks"]:
        ratio = r["time_over_no_mask"]
        console.print(f"dense, {r['pass']}, mask {r['mask']}: {ratio['median']:.2f} of the time without")
