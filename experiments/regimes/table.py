"""The regimes experiment's results as tables: for the terminal and, the same, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments import claims
from experiments.reading import Record, listed, records, seed_range, select
from experiments.tables import Cells, markdown_of

_JOINT = (("adam", "Adam"), ("anneal-hinge", "annealed"))
_LAWS = {
    "measured": "measured",
    "width_whole": "width, rounded up to whole heads",
    "width": "width",
    "parameters_whole": "parameter count, whole heads",
    "parameters": "parameter count",
    "folk": "m ln m / d",
}


def _number(value: float | None, form: str = ".1f", none: str = "–") -> str:
    return none if value is None else f"{value:{form}}"


def _range(row: Record) -> str:
    return f"{row['budget']:.1f} [{row['low']:.0f}–{row['high']:.0f}]"


def map_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each size of the map. None without any."""
    rows = records(data, "cells")
    if not rows:
        return None
    lines = []
    for row in rows:
        one = "∞" if not row["one_possible"] else _number(row["one_budget"], "d")
        several = "–"
        if row["many_budget"] is not None:
            several = f"{row['many_budget']} = {row['many_heads']} × {row['many_head_dim']}"
        joint = [_joint_text(data, row, variant) for variant, _ in _JOINT]
        lines.append(
            (
                str(row["d_model"]),
                str(row["num_items"]),
                f"{row['factor']:g}",
                f"{row['separable']} of {row['num_seeds']}",
                one,
                several,
                "∞" if row["one_budget"] is None else f"{row['gain']:.2f}",
                f"{_number(row['predicted_one'], none='∞')} → {_number(row['predicted_many'])}",
                *joint,
            )
        )
    columns = ("d", "m", "m / ceiling", "one head can", "D_1", "several heads", "gain", "predicted")
    columns += tuple(f"{name}: 1; several" for _, name in _JOINT)
    note = (
        "One head can: seeds in which an exact solve finds that a single head holds the permutation. D_1: least d_k "
        "at which "
        "half of the seeds recover it with one head; several heads: least budget, as heads × d_k, found below D_1 "
        "(– where no "
        "size below it does). Gain: D_1 over the best of any number of heads. Predicted: one head → the best even "
        "partition. Joint training: least budget of one "
        "head; of the "
        "best of several."
    )
    return Cells("Where one head suffices", columns, tuple(lines), note)


def _joint_text(data: Mapping[str, Any], cell: Record, variant: str) -> str:
    own = select(
        records(data, "joint"), num_items=cell["num_items"], d_model=cell["d_model"], variant=variant
    )
    if not own:
        return ""
    one = [row["least_budget"] for row in own if row["num_heads"] == 1]
    several = [row["least_budget"] for row in own if row["num_heads"] > 1 and row["least_budget"] is not None]
    return f"{_number(one[0] if one else None, 'd')}; {_number(min(several, default=None), 'd')}"


def families_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each family and number of edges. None without any."""
    rows = records(data, "families")
    if not rows:
        return None
    lines = tuple(
        (
            row["graph"] if row["degree"] > 1 or row["graph"] != "regular" else "permutation",
            str(row["num_edges"]),
            _range(row),
            f"{row['head_dim'] * row['predicted_heads']:.1f}",
            f"{row['mean_heads'] / row['predicted_heads']:.2f}",
        )
        for row in sorted(rows, key=lambda row: (row["num_edges"], row["graph"]))
    )
    first = rows[0]
    note = (
        f"Graphs on {first['num_items']} items in {first['d_model']} dimensions: budget of heads of "
        f"{first['head_dim']} "
        f"dimensions, mean, least and largest of {seed_range(row['num_seeds'] for row in rows)}, and the width's "
        f"prediction."
    )
    return Cells("Families of graphs", ("graph", "m'", "D_K", "predicted", "ratio"), lines, note)


def scaling_cells(data: Mapping[str, Any]) -> Cells | None:
    """Exponents, one row a law. None without any."""
    rows = records(data, "exponents")
    if not rows:
        return None
    lines = []
    for name, said in _LAWS.items():
        for row in select(rows, law=name):
            cells = [f"{row[x]:.2f} [{row[f'{x}_low']:.2f}, {row[f'{x}_high']:.2f}]" for x in ("a", "b")]
            less = ["", ""]
            if name != "measured":
                less = [
                    f"{row[x]:+.2f} [{row[f'{x}_low']:+.2f}, {row[f'{x}_high']:+.2f}]"
                    for x in ("a_minus", "b_minus")
                ]
            lines.append((said, *cells, *less))
    sizes = records(data, "scaling")
    heads = sorted({k for row in sizes for k in row["head_dims"]})
    note = (
        f"Fit of D_K = C m^a d^-b over {len(sizes)} sizes (m from {min(r['num_items'] for r in sizes)} to "
        f"{max(r['num_items'] for r in sizes)}, d from {min(r['d_model'] for r in sizes)} to "
        f"{max(r['d_model'] for r in sizes)}), heads of {listed(map(str, heads))} dimensions, the best of them; 95% "
        f"bootstrap intervals "
        f"over "
        "sizes and seeds; differences are paired."
    )
    columns = ("law", "a", "b", "a: measured less this", "b: measured less this")
    return Cells("Exponents of the budget", columns, tuple(lines), note)


def thin_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each head size. None without any."""
    rows = records(data, "thin")
    if not rows:
        return None
    lines = []
    for row in rows:
        own = select(records(data, "own"), head_dim=row["head_dim"])
        given = "–"
        if own and own[0]["budget"] is not None:
            given = f"{own[0]['budget']:.1f} [{own[0]['low']:.0f}–{_number(own[0]['high'], '.0f', '')}]"
        lines.append(
            (
                str(row["head_dim"]),
                given,
                f"{row['predicted_held']:.1f}",
                f"{row['first_held']:.1f}",
                f"{row['mean_held']:.1f}",
                str(row["most_held"]),
                _range(row),
                f"{row['predicted_budget']:.1f}",
            )
        )
    columns = (
        "d_k",
        "given its edges",
        "width",
        "first head",
        "mean head",
        "most",
        "D_K needed",
        "width D_K",
    )
    first = rows[0]
    note = (
        f"A permutation on {first['num_items']} items in {first['d_model']} dimensions. Edges of its own that one "
        f"head holds "
        "(half-way point over seeds, 95% interval) beside the width's prediction; edges that heads hold which "
        "choose theirs; "
        f"budget that the permutation needs, mean, least and largest of {seed_range(row['num_seeds'] for row in rows)}."
    )
    return Cells("Thin heads", columns, tuple(lines), note)


def claims_cells(data: Mapping[str, Any]) -> Cells | None:
    """What was expected and what came out. None where nothing was run that could tell."""
    note = "Expected: written down before the runs (`experiments/regimes/__init__.py`)."
    return claims.claims_cells(data, note)


def values(data: Mapping[str, Any]) -> dict[str, str]:
    """Every number of a run that prose may name, without the name of the source.

    ``one.d16.m51``, ``best.d16.m51``, ``gain.d16.m51``, ``predicted-gain.d16.m51``; ``joint.adam.m51.h1``
    (``-range``: fitted, with its interval);
    ``families.hubs.r4``, ``-over-random``, ``-over-width``; ``exponent.measured.a`` (``-low``, ``-high``; of
    predictions ``-minus``, measured less this); ``scaling.m240.d80``;
    ``folk.least``, ``folk.largest``; ``thin.k2``, ``own.k2``; ``claims.held``, ``claims.judged``.
    """
    out = {}
    for row in records(data, "cells"):
        name = f"d{row['d_model']}.m{row['num_items']}"
        out[f"one.{name}"] = (
            "none" if not row["one_possible"] else _number(row["one_budget"], "d", "not reached")
        )
        out[f"best.{name}"] = _number(row["best_budget"], "d", "not reached")
        out[f"gain.{name}"] = _number(row["gain"], ".2f", "infinite")
        out[f"predicted-gain.{name}"] = _number(row["predicted_gain"], ".2f", "infinite")
        out[f"predicted.{name}"] = _number(row["predicted_many"])
    for row in records(data, "joint"):
        name = f"joint.{row['variant']}.m{row['num_items']}.h{row['num_heads']}"
        out[name] = _number(row["least_budget"], "d", "not reached")
        if row["budget"] is not None:
            out[f"{name}-range"] = f"{row['budget']:.1f} [{row['low']:.0f}–{_number(row['high'], '.0f', '')}]"
    for row in records(data, "families"):
        name = f"families.{row['graph']}.r{row['degree']}"
        other = select(records(data, "families"), graph="random", degree=row["degree"])
        out[name] = f"{row['budget']:.1f}"
        out[f"{name}-over-width"] = f"{row['mean_heads'] / row['predicted_heads']:.2f}"
        if other:
            out[f"{name}-over-random"] = f"{row['mean_heads'] / other[0]['mean_heads']:.2f}"
    for row in records(data, "exponents"):
        for x in ("a", "b"):
            for end in ("", "_low", "_high"):
                out[f"exponent.{row['law']}.{x}{end.replace('_', '-')}"] = f"{row[x + end]:.2f}"
            if row["law"] != "measured":
                low, high = row[f"{x}_minus_low"], row[f"{x}_minus_high"]
                out[f"exponent.{row['law']}.{x}-minus"] = (
                    f"{row[f'{x}_minus']:+.2f} [{low:+.2f}, {high:+.2f}]"
                )
    constants = [row["over_folk"] for row in records(data, "scaling")]
    if constants:
        out |= {"folk.least": f"{min(constants):.2f}", "folk.largest": f"{max(constants):.2f}"}
        level = [row["budget"] / row["width_whole"] for row in records(data, "scaling")]
        count = [row["budget"] / row["parameters_whole"] for row in records(data, "scaling")]
        out |= {"count.least": f"{min(count):.2f}", "count.largest": f"{max(count):.2f}"}
        out |= {
            f"scaling.m{r['num_items']}.d{r['d_model']}": f"{r['budget']:.1f}"
            for r in records(data, "scaling")
        }
        out |= {"level.least": f"{min(level):.2f}", "level.largest": f"{max(level):.2f}"}
    for row in records(data, "thin"):
        out[f"thin.k{row['head_dim']}"] = f"{row['budget']:.1f}"
        out[f"thin.k{row['head_dim']}-most"] = str(row["most_held"])
    for row in records(data, "own"):
        out[f"own.k{row['head_dim']}"] = _number(row["budget"])
        out[f"own.k{row['head_dim']}-width"] = f"{row['predicted_held']:.1f}"
    return out | claims.claim_values(data)


BLOCKS = {
    "map": markdown_of(map_cells),
    "families": markdown_of(families_cells),
    "exponents": markdown_of(scaling_cells),
    "thin": markdown_of(thin_cells),
    "claims": markdown_of(claims_cells),
}
"""Tables by name, for `experiments.readme`."""
