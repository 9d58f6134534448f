"""The conversion experiment's results as tables: for the terminal and, the same, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments import claims
from experiments.conversion.units import ORIGINAL
from experiments.reading import records
from experiments.tables import Cells, markdown_of

WORDS = {
    ORIGINAL: "not merged",
    "first": "first head",
    "mean": "mean",
    "svd": "SVD, weights",
    "svd_inputs": "SVD, on text",
}


def conversions_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each merge: the cache, what is kept of keys and values, loss, excess before and after healing."""
    rows = records(data, "conversions")
    lines = [
        (
            WORDS[row["method"]],
            "" if row["method"] == ORIGINAL else row["part"],
            f"{row['cache_bytes_per_token']:,}",
            _number(row["key_energy"]),
            _number(row["value_energy"]),
            _number(row["loss"]),
            _interval(row, "excess"),
            _interval(row, "healed_excess"),
        )
        for row in rows
    ]
    if not lines:
        return None
    columns = ("heads", "merged", "cache,\nB/token", "keys\nkept", "values\nkept", "loss", "above", "healed")
    point = records(data, "points")[0]
    note = (
        f"{point['model']}, key/value heads of every layer merged to {rows[0]['num_kv_heads']}; next-token loss on "
        f"{point['test_tokens']:,} tokens of held-out text, nats. Above: minus that of the original on the same "
        "sequences, 95% interval; healed: the same after a short run of training on, also of the original. Kept: share "
        "of the second moment of keys and values on text."
    )
    return Cells("Fewer key/value heads in a trained model", columns, tuple(lines), note)


def claims_cells(data: Mapping[str, Any]) -> Cells | None:
    """What was expected and what came out. None where nothing was run that could tell."""
    return claims.claims_cells(
        data, "Expected: written down before the runs (`experiments/conversion/records.py`)."
    )


BLOCKS = {"table": markdown_of(conversions_cells), "claims": markdown_of(claims_cells)}
"""Tables by name, for `experiments.readme`."""


def values(data: Mapping[str, Any]) -> dict[str, str]:
    """Every number of a run that prose may name, without the name of the source.

    ``loss.METHOD.PART``, ``excess.``, ``healed-loss.``, ``healed-excess.``, ``key-energy.``, ``value-energy.`` likewise
    (``excess.svd_inputs.both``; the unmerged model is ``original.both``); ``key-energy-unrotated``; ``steps``;
    ``claims.held``, ``claims.judged``.
    """
    out = {}
    for row in records(data, "conversions"):
        for key in ("loss", "excess", "healed_loss", "healed_excess", "key_energy", "value_energy"):
            if row[key] is not None:
                out[f"{key.replace('_', '-')}.{row['method']}.{row['part']}"] = f"{row[key]:.2f}"
        if row["key_energy_unrotated"] is not None:
            out["key-energy-unrotated"] = f"{row['key_energy_unrotated']:.2f}"
        if row["healed_loss"] is not None:
            out["steps"] = str(row["steps"])
    return out | claims.claim_values(data)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _interval(row: Mapping[str, Any], name: str) -> str:
    if row[name] is None:
        return "–"
    return f"{row[name]:.2f} [{row[f'{name}_low']:.2f}–{row[f'{name}_high']:.2f}]"
