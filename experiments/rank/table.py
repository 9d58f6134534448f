"""The rank experiment's results as tables: for the terminal and, the same, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments import claims
from experiments.rank.best import best_known
from experiments.rank.maps import MODEL
from experiments.reading import Record, records, select
from experiments.tables import Cells, markdown_of

NAMES = {
    "random": "random rows",
    "low-rank": "logits of rank 4",
    "permutation": "permutation",
    "soft-permutation": "soft permutation",
    "gaussian-band": "Gaussian band",
    "window-band": "window band",
    MODEL: "MiniLM maps",
}


SHOWN = 1e-8
"""Nats below which tables say 0: a permutation is followed until the slope is as small."""


def nats(value: float | None, digits: int = 2) -> str:
    """Two digits, or ``digits`` below 0.01; ``0`` below `SHOWN`; a dash where there is no number."""
    if value is None:
        return "–"
    if value < SHOWN:
        return "0"
    if value >= 0.01:
        return f"{value:#.2g}".rstrip(".")
    mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
    return f"{mantissa}e{int(power)}"


def kl_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each pattern, length and bound; a column for each head size. None without curves."""
    rows = records(data, "curves")
    if not rows:
        return None
    sizes = [k for k in sorted({row["head_dim"] for row in rows}) if k in (1, 2, 4, 8, 16)]
    lines = []
    for own in _groups(rows):
        first = own[0]
        cells = []
        for size in sizes:
            at = select(own, head_dim=size)
            cells.append(nats(at[0]["median_kl"], 1) if at else "")
        last = max(own, key=lambda row: row["head_dim"])
        lines.append(
            (
                NAMES[first["pattern"]],
                str(first["n"]),
                "–" if first["bound"] is None else f"{first['bound']:g}",
                _sizes(first),
                nats(first["median_uniform_kl"]),
                *cells,
                nats(last["median_kl"], 1) if last["head_dim"] == first["n"] - 1 else "",
            )
        )
    columns = ("pattern", "n", "B", "exact\nsize", "0", *(str(k) for k in sizes), "n - 1")
    note = (
        "Divergence of the best head known from the pattern, in nats a row (median over seeds or maps; 0: below 1e-8). "
        "Known: the best head of this size and bound or smaller ones, and so allowed here, that any search found or "
        "that is constructed (permutations: the circle from 2 on, as near as wanted without a bound, and the simplex "
        "at n - 1). "
        "B: bound on |q| |k|. Exact size: rank of the centred log; a permutation has none. d_k = 0: uniform attention."
    )
    return Cells("Divergence by head size d_k", columns, tuple(lines), note)


def limits_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each precision: how many keys the circle tells apart. None where it was not run."""
    rows = records(data, "limits")
    if not rows:
        return None
    columns = ("precision", "guaranteed to", "right to", "wrong from", "weight 1/2 to")
    lines = tuple(
        (
            row["dtype"],
            *(
                "–" if row[name] is None else f"{row[name]:,}"
                for name in ("guaranteed_length", "longest_right", "first_wrong", "longest_half")
            ),
        )
        for row in rows
    )
    note = (
        "Keys on the circle (d_k = 2), coordinates kept in this precision, arithmetic in float32. Guaranteed: theorem. "
        "Right: every query's target has the largest weight, at the lengths that were tried."
    )
    return Cells("Where precision ends the circle", columns, lines, note)


def claims_cells(data: Mapping[str, Any]) -> Cells | None:
    """What was expected and what came out. None where nothing was run that could tell."""
    note = "Expected: written down before the runs (`experiments/rank/__init__.py`)."
    return claims.claims_cells(data, note)


def values(data: Mapping[str, Any]) -> dict[str, str]:
    """Every number of a run that prose may name, without the name of the source.

    ``kl.random.n32.d8``: median divergence (``kl.permutation.n32.b10.d2`` with a bound; ``-truncated``,
    ``-share``: of uniform attention's; ``-max-logit``; ``-met``: searches below 1e-8); ``exact.random.n32``: exact
    size; ``guaranteed.bfloat16``, ``right.``, ``wrong.``, ``half.``: keys of the circle; ``scale.n1024`` and
    ``least-scale.n1024``: the logits it needs; ``softmax-rank.d4``, ``claims.held``, ``claims.judged``, ``num-runs``.
    """
    points = best_known(records(data, "points"))
    out = {"num-runs": str(len(points))}
    for row in records(data, "curves"):
        place = f"{row['pattern']}.n{row['n']}"
        out[f"exact.{place}"] = _sizes(row)
        place += "" if row["bound"] is None else f".b{row['bound']:g}"
        name = f"kl.{place}.d{row['head_dim']}"
        out[name] = nats(row["median_kl"])
        out[f"{name}-truncated"] = nats(row["median_truncated_kl"])
        out[f"{name}-share"] = f"{100 * row['median_kl'] / row['median_uniform_kl']:.2g}%"
        out[f"{name}-max-logit"] = (
            "–" if row["median_max_logit"] is None else f"{row['median_max_logit']:,.0f}"
        )
        wanted = {key: row[key] for key in ("pattern", "n", "bound", "head_dim")}
        met = [point["search_kl"] < SHOWN for point in select(points, **wanted)]
        out[f"{name}-met"] = f"{sum(met)} of {len(met)}"
    for row in records(data, "limits"):
        for name, field in (
            ("guaranteed", "guaranteed_length"),
            ("right", "longest_right"),
            ("wrong", "first_wrong"),
            ("half", "longest_half"),
        ):
            out[f"{name}.{row['dtype']}"] = "–" if row[field] is None else f"{row[field]:,}"
    for row in records(data, "circle"):
        out[f"scale.n{row['n']}"] = f"{row['scale']:,.0f}"
        out[f"least-scale.n{row['n']}"] = f"{row['least_scale']:,.0f}"
    spectra = select(records(data, "spectra"), source="gaussian")
    for size in sorted({row["head_dim"] for row in spectra}):
        ranks = sorted({row["weights_rank"] for row in select(spectra, head_dim=size)})
        out[f"softmax-rank.d{size}"] = str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]}"
    return out | claims.claim_values(data)


BLOCKS = {
    "kl": markdown_of(kl_cells),
    "limits": markdown_of(limits_cells),
    "claims": markdown_of(claims_cells),
}
"""Tables by name, for `experiments.readme`."""


def _sizes(row: Record) -> str:
    least, largest = row["least_minimal_head_dim"], row["largest_minimal_head_dim"]
    if least is None:
        return "–"
    return str(least) if least == largest else f"{least} to {largest}"


def _groups(rows: list[Record]) -> list[list[Record]]:
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for row in rows:
        groups.setdefault((row["pattern"], row["n"], row["bound"]), []).append(row)
    order = {name: index for index, name in enumerate(NAMES)}
    return [
        groups[key] for key in sorted(groups, key=lambda k: (order[k[0]], k[1], k[2] is not None, k[2] or 0))
    ]
