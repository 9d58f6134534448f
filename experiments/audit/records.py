"""What is made of the audit's records: one row for every model, and verdicts on what was expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.claims import Claim, Verdict, judged
from experiments.engine import Rows
from experiments.points import Record

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


def _needs(rows: Made) -> Verdict | None:
    if not rows["graphs"]:
        return None
    counts = {name: (sum(map(_beyond, own)), len(own)) for name, own in _by_model(rows["graphs"]).items()}
    found = "; ".join(f"{name}: {some} of {all_} layers" for name, (some, all_) in counts.items())
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
    judged = [row for row in data.get("records", {}).get("claims") or [] if row.get("verdict") != "not_run"]
    out["claims.judged"] = str(len(judged))
    out["claims.held"] = str(sum(row["verdict"] == "held" for row in judged))
    return out
