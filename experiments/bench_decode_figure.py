"""Figure and caption of `experiments.bench_decode`."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from experiments import style

LABELS = {
    "mha": "MHA",
    "gqa": "GQA",
    "mqa": "MQA",
    "mla_absorbed": "MLA, absorbed",
    "mla_naive": "MLA, naive",
    "mha_dense": "MHA, dense",
    "gqa_dense": "GQA, dense",
    "mla_absorbed_dense": "MLA, absorbed, dense",
}

_LOOKS = {
    "mha": style.Look("MHA", style.BLUE, "o"),
    "gqa": style.Look("GQA", style.GREEN, "s"),
    "mqa": style.Look("MQA", style.ORANGE, "^"),
    "mla_absorbed": style.Look("MLA, absorbed", style.VERMILLION, "D"),
    "mla_naive": style.Look("MLA, naive", style.VERMILLION, "D", filled=False),
}
_FLOOR = {"linewidth": 0.9, "linestyle": (0, (5, 2))}


def figure(result: Mapping[str, Any]) -> tuple[Figure, str]:
    """Tokens a second against context, a panel for each batch, with the floors; and the caption."""
    points = result["points"]
    batches = sorted({p["batch"] for p in points})
    contexts = sorted({p["context"] for p in points})
    with style.context():
        grid, axes = style.grid(1, len(batches), style.DOUBLE_WIDTH, 3.0, sharex=True)
        for panel, batch in zip(axes[0], batches, strict=True):
            for name, look in _LOOKS.items():
                here = [p for p in points if (p["contender"], p["batch"]) == (name, batch)]
                here.sort(key=lambda p: p["context"])
                if not here:
                    continue
                x = [p["context"] for p in here]
                style.interval_bars(
                    panel,
                    x,
                    [p["tokens_per_second"] for p in here],
                    [batch / p["seconds"]["high"] for p in here],
                    [batch / p["seconds"]["low"] for p in here],
                    look,
                    linestyle="-",
                )
                if name != "mla_naive":  # it is the absorbed form's floor
                    floors = [p["floor_tokens_per_second"] for p in here]
                    panel.plot(x, floors, color=look.color, zorder=1, **_FLOOR)
            panel.set_xscale("log", base=2)
            panel.set_yscale("log")
            style.plain_log_ticks(panel.xaxis, contexts if len(contexts) <= 4 else _fourfold(contexts))
            panel.set_title(f"batch {batch}")
            panel.set_xlabel("context (tokens in the cache)")
        axes[0, 0].set_ylabel("tokens per second, one layer")
        sizes = {p["contender"]: p["bytes_per_token"] for p in points}
        shown = [
            style.handle(look, f"{look.label} ({sizes[name]:,} B/token)")
            for name, look in _LOOKS.items()
            if name in sizes
        ]
        floors = style.line_handle("floor: memory or arithmetic", {"color": style.GREY, **_FLOOR})
        style.legend_below(grid, [*shown, floors], 3)
    return grid, _caption(result)


def _fourfold(contexts: list[int]) -> list[float]:
    """Every second power of two from the shortest to the longest."""
    return style.powers_of_two(contexts[0], contexts[-1])[::2]


def _caption(result: Mapping[str, Any]) -> str:
    config, place = result["config"], result["environment"]
    rates = place["rates"]
    return (
        f"Decoding with a cache on {place['device_kind']} ({place['cpu_count']} CPUs), {config['dtype']}: one layer, "
        f"d_model {config['d_model']}, {config['num_heads']} heads of {config['d_model'] // config['num_heads']}; GQA "
        f"with {config['num_kv_heads']} key/value heads, MLA with d_c = {config['latent_dim']} and d_R = "
        f"{config['rope_dim']}. Points: median and quartiles over interleaved rounds. Dashed: the floor, cache and "
        f"weights read once at {rates['read_bytes_per_second'] / 1e9:.1f} GB/s, or their products at "
        f"{rates['operations_per_second'] / 1e9:.0f} Gop/s, whichever takes longer. "
        "Drawn by: python -m experiments.bench_decode"
    )
