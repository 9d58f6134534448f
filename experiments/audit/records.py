"""What is made of the audit's records: one row for every model, and verdicts on what was expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from experiments.claims import Claim, Verdict, claim_values, judged
from experiments.engine import Rows
from experiments.points import Record
from theory.bounds import partition_max_edges

Made = Mapping[str, Sequence[Record]]


def summary(rows: Rows) -> Rows:
    """``models`` and ``claims``."""
    names = list(dict.fromkeys(row["model"] for row in rows["layers"]))
    models = [
        _model(
            name,
            [row for row in rows["layers"] if row["model"] == name],
            [row for row in rows["graphs"] if row["model"] == name],
        )
        for name in names
    ]
    return {"models": models, "claims": claim_rows(rows)}


def claim_rows(rows: Made) -> list[Record]:
    """One row a claim: ``verdict`` is ``held``, ``failed`` or ``not_run``."""
    return judged(CLAIMS, rows)


def _model(name: str, layers: Sequence[Record], graphs: Sequence[Record]) -> Record:
    first = layers[0]
    sizes = ("num_heads", "num_kv_heads", "head_dim", "d_model", "vocab_size", "total_key_dim", "table_rank")
    row: Record = {"model": name, "layers": len(layers)} | {size: first[size] for size in sizes}
    for key in ("effective_rank", "stable_rank", "random_effective_rank", "random_stable_rank"):
        every = np.concatenate([layer[key] for layer in layers])
        row[f"mean_{key}"] = float(every.mean())
        row[f"least_{key}"], row[f"most_{key}"] = float(every.min()), float(every.max())
    row |= {key: first[key] for key in ("vocab_edges", "vocab_edges_at_rank")}
    names = ("edges", "held_edges", "held_edges_at_rank", "sink_share", "self_share")
    for key in names:
        row[f"median_{key}"] = float(np.median([g[key] for g in graphs])) if graphs else None
    for key in ("recurrence", "baseline"):
        known = [g[key] for g in graphs if g[key] is not None]
        row[f"median_{key}"] = float(np.median(known)) if known else None
    needed = [g["needed_total_key_dim"] for g in graphs]
    shares = [np.inf if value is None else value / first["total_key_dim"] for value in needed]
    for key, of in (("least", np.min), ("median", np.median), ("most", np.max)):
        value = float(of(shares)) if shares else np.inf
        row[f"{key}_needed_share"] = value if np.isfinite(value) else None
    row["items"] = graphs[0]["items"] if graphs else None
    row["layers_beyond"] = sum(_beyond(g) for g in graphs) if graphs else None
    return row


def _beyond(graph: Record) -> bool:
    """Whether attention's graph would need more than the layer has, as a random graph."""
    needed = graph["needed_total_key_dim"]
    return needed is None or needed > graph["total_key_dim"]


@cache  # layers of a model ask for the same
def _held(num_items: int, d_model: int, num_heads: int, head_dim: int) -> float:
    return partition_max_edges(num_items, d_model, num_heads, head_dim)


def doublings(graph: Record, num_heads: int | None = None) -> int | None:
    """How often the text has to be doubled until its graph would need more than the layer has.

    Edges and items are taken to grow on as they did between the last two parts of the text; what the layer is predicted
    to hold becomes less with more items. An extrapolation, from one text.

    Args:
        graph: a row of ``graphs``.
        num_heads: heads with keys of their own; None for all query heads.

    Returns:
        0 where it needs more already; None where growth is not known, or twenty doublings are not enough.
    """
    heads = graph["num_heads"] if num_heads is None else num_heads
    sizes = graph["d_model"], heads, graph["head_dim"]
    if graph["edges"] > _held(graph["items"], *sizes):
        return 0
    if len(graph["counts"]) < 2 or not graph["counts"][-2]["edges"]:
        return None
    before, last = graph["counts"][-2:]
    per_doubling = 1 / np.log2(last["contexts"] / before["contexts"])
    edges, items = ((last[name] / before[name]) ** per_doubling for name in ("edges", "items"))
    for times in range(1, 21):
        many = min(graph["vocab_size"], round(graph["items"] * items**times))
        if graph["edges"] * edges**times > _held(many, *sizes):
            return times
    return None


def _by_model(rows: Sequence[Record]) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = {}
    for row in rows:
        groups.setdefault(row["model"], []).append(row)
    return groups


def _ranks(rows: Made) -> Verdict | None:
    if not rows["layers"]:
        return None
    ratios = {
        name: [np.mean(r["effective_rank"]) / np.mean(r["random_effective_rank"]) for r in own]
        for name, own in _by_model(rows["layers"]).items()
    }
    found = "; ".join(
        f"{name}: {min(own):.2f} to {max(own):.2f} of random weights'" for name, own in ratios.items()
    )
    return max(max(own) for own in ratios.values()) < 1, found


def _vocabulary(rows: Made) -> Verdict | None:
    if not rows["layers"]:
        return None
    parts = {r["model"]: (r["vocab_edges"], r["vocab_size"]) for r in rows["layers"]}
    found = "; ".join(
        f"{name}: {edges:,.0f} edges for {items:,} items" for name, (edges, items) in parts.items()
    )
    return all(edges < items for edges, items in parts.values()), found


def _growth(graphs: Sequence[Record]) -> str:
    """When the first layer, and when most of them, would need more than they have."""
    times = sorted(np.inf if (found := doublings(g)) is None else found for g in graphs)
    first, most = times[0], times[len(times) // 2]
    if not 0 < first < np.inf:
        return ""
    said = f" (as edges grow, the first layer at {2 ** int(first)} times the text"
    return said + (f", most at {2 ** int(most)} times)" if most < np.inf else ")")


def _needs(rows: Made) -> Verdict | None:
    if not rows["graphs"]:
        return None
    counts = {name: (sum(map(_beyond, own)), len(own)) for name, own in _by_model(rows["graphs"]).items()}
    growth = {name: _growth(own) for name, own in _by_model(rows["graphs"]).items()}
    found = "; ".join(
        f"{name}: {some} of {all_} layers{growth[name]}" for name, (some, all_) in counts.items()
    )
    return all(some > all_ / 2 for some, all_ in counts.values()), found


def _fixed(rows: Made) -> Verdict | None:
    known = [row for row in rows["graphs"] if row["recurrence"] is not None]
    if not known:
        return None
    verdicts, texts = [], []
    for name, own in _by_model(known).items():
        good = [3 * row["baseline"] < row["recurrence"] < 0.5 for row in own]
        verdicts.append(sum(good) > len(good) / 2)
        again = [row["recurrence"] for row in own]
        times = [row["recurrence"] / row["baseline"] for row in own]
        texts.append(
            f"{name}: {100 * min(again):.0f}% to {100 * max(again):.0f}%, {min(times):.1f} to {max(times):.1f} times "
            f"a random token, as expected in {sum(good)} of {len(good)} layers"
        )
    return all(verdicts), "; ".join(texts)


CLAIMS = (
    Claim("rank", "effective rank below that of random weights, on average in every layer", _ranks),
    Claim("vocabulary", "no layer could hold a random permutation of its vocabulary", _vocabulary),
    Claim(
        "text", "attention's graph of the whole text needs more than the layer has, in most layers", _needs
    ),
    Claim(
        "not fixed",
        "an edge met again is attended most over 3 times as often as a random token, but in under half of the cases",
        _fixed,
    ),
)


def values(data: Mapping[str, Any]) -> dict[str, str]:
    """Every number of a run that prose may name: ``MODEL.FIELD`` of the rows ``models``, and claims."""
    out: dict[str, str] = {}
    for row in data.get("records", {}).get("models") or []:
        for key, value in row.items():
            if value is None or isinstance(value, str):
                continue
            share = key.endswith(("_share", "recurrence", "baseline"))
            text = (
                f"{100 * value:.0f}%" if share else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
            )
            out[f"{row['model']}.{key}"] = text
    for name, own in _by_model(data.get("records", {}).get("graphs") or []).items():
        out |= {f"{name}.{key}": value for key, value in _of_graphs(own).items()}
    return out | claim_values(data)


def _of_graphs(graphs: Sequence[Record]) -> dict[str, str]:
    """What of a model's graphs prose may name.

    ``doubling-least`` and ``-most``: by what edges grow when the text is doubled; ``times``: at how many times the text
    the first layer would need more than it has, and ``times-with_key_heads`` if it had only as many heads as keys;
    ``held_with_key_heads``: edges that so many hold; ``recurrence-least``, ``-most``: how often an edge is met again.
    """
    out: dict[str, str] = {}
    last = [g["counts"][-2:] for g in graphs if len(g["counts"]) > 1]
    if growth := [
        b["edges"] / a["edges"] for a, b in last if b["contexts"] == 2 * a["contexts"] and a["edges"]
    ]:
        out |= {"doubling-least": f"{min(growth):.2f}", "doubling-most": f"{max(growth):.2f}"}
    for key, heads in (("times", None), ("times-with_key_heads", graphs[0]["num_kv_heads"])):
        if found := [times for g in graphs if (times := doublings(g, heads)) is not None]:
            out[key] = str(2 ** min(found))
    own = graphs[0]
    held = _held(own["items"], own["d_model"], own["num_kv_heads"], own["head_dim"])
    out["held_with_key_heads"] = f"{held:,.0f}"
    out["most_edges"] = f"{max(g['edges'] for g in graphs):,}"
    if again := [g["recurrence"] for g in graphs if g["recurrence"] is not None]:
        out |= {"recurrence-least": f"{100 * min(again):.0f}%", "recurrence-most": f"{100 * max(again):.0f}%"}
    return out
