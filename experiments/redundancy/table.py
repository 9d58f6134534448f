"""The redundancy experiment's results as tables: for the terminal and, the same, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments import claims
from experiments.intervals import Interval, signed
from experiments.reading import Record, records
from experiments.redundancy.claims import kept_at, time_differences
from experiments.tables import Cells, markdown_of

_NOTE = "Expected: written down before the runs (`experiments/redundancy/__init__.py`)."
_SHOWN = (0.2, 0.4, 0.6, 0.8)
ORDER_WORDS = {
    "importance": "I_h",
    "random": "random",
    "encoder": "I_h, encoder alone",
    "decoder": "I_h, decoder alone",
    "source": "I_h, source alone",
}


def share(curve: Record, name: str, fraction: float) -> str:
    """A share kept, with the least and the most of the models."""
    mean, low, high = (kept_at(curve, name, fraction, end) for end in ("", "_low", "_high"))
    if mean is None:
        return "–"
    return f"{mean:.0%}" + ("" if curve[f"{name}_seeds"] < 2 else f" [{low:.0%}–{high:.0%}]")


def curves_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each order and checkpoint. None without curves."""
    rows = records(data, "curves")
    if not rows:
        return None
    words = list(ORDER_WORDS)
    lines = []
    for row in sorted(rows, key=lambda row: (words.index(row["order"]), row["steps"])):
        bleu = "–" if row["bleu"] is None else f"{row['bleu']:.1f}"
        gain = "–" if row["gain"] is None else f"{row['gain']:.2f}"
        name = "gain" if row["bleu_kept"] is None else "bleu"
        lines.append(
            (
                ORDER_WORDS[row["order"]],
                f"{row['fraction_trained']:.0%}",
                bleu,
                gain,
                "BLEU" if name == "bleu" else "gain",
                *(share(row, name, fraction) for fraction in _SHOWN),
            )
        )
    columns = ("order", "trained", "BLEU", "gain", "share of", *(f"without\n{f:.0%}" for f in _SHOWN))
    note = (
        "Share of the BLEU of the whole model at that time that is kept without a part of the heads; of the gain (nats "
        "per subword below the frequencies of subwords) where BLEU was not measured or is below 1. Means over models, "
        "in brackets the least and the most. Of one kind of attention: without a part of its heads, the others staying."
    )
    return Cells("Kept without some heads", columns, tuple(lines), note)


def claims_cells(data: Mapping[str, Any]) -> Cells | None:
    """What was expected and what came out. None without judged claims."""
    return claims.claims_cells(data, _NOTE)


def differences_cells(data: Mapping[str, Any]) -> Cells | None:
    """What the models resolve of expectations that compare the first checkpoint with the last. None without both."""
    found = time_differences(records(data, "curves"))
    if not found:
        return None
    lines = tuple((what, signed(value, form), _sign(value)) for what, value, form in found)
    note = (
        "Of every model the last checkpoint minus the first, mean and Student's 95% interval. The verdicts are on "
        "means, by the rule as it was written down; what is undecided here is neither shown nor contradicted."
    )
    return Cells(
        "Resolved by the models?", ("last minus first", "difference", "at the end it is"), lines, note
    )


def _sign(found: Interval) -> str:
    return "undecided" if found.low <= 0 <= found.high else "larger" if found.low > 0 else "smaller"


BLOCKS = {
    "differences": markdown_of(differences_cells),
    "curves": markdown_of(curves_cells),
    "claims": markdown_of(claims_cells),
}
"""Tables by name, for `experiments.readme`."""


def values(data: Mapping[str, Any]) -> dict[str, str]:
    """Every number of a run that prose may name, without the name of the source.

    ``bleu.tT``, ``gain.tT``: of whole models after T percent of training; ``kept.NAME.ORDER.tT.pP``: percent of NAME
    (``bleu``, ``gain``) kept without P percent of the heads, with ``-low`` and ``-high`` of the models;
    ``left.KIND.pP``: heads of a kind that are left at the end in the order of I_h; ``num-heads``, ``seeds``;
    ``claims.held``, ``claims.judged``.
    """
    out: dict[str, str] = {}
    rows = records(data, "curves")
    for row in rows:
        time = f"t{100 * row['fraction_trained']:.0f}"
        out |= {"num-heads": str(row["num_heads"]), "seeds": str(row["seeds"])}
        for name, digits in (("bleu", 1), ("gain", 2)):
            if row[name] is not None:
                out[f"{name}.{time}"] = f"{row[name]:.{digits}f}"
            for fraction in row["fraction_pruned"]:
                for end in ("", "_low", "_high"):
                    value = kept_at(row, name, fraction, end)
                    if value is not None:
                        key = f"kept.{name}.{row['order']}.{time}.p{100 * fraction:.0f}"
                        out[key + end.replace("_", "-")] = f"{value:.0%}"
        if row["order"] == "importance" and row["fraction_trained"] == 1:
            for fraction, left in zip(row["fraction_pruned"], row["left_by_kind"], strict=True):
                for kind, number in zip(("encoder", "decoder", "source"), left, strict=True):
                    out[f"left.{kind}.p{100 * fraction:.0f}"] = f"{number:.1f}"
    return out | claims.claim_values(data)
