"""The translation experiment's results as tables: for the terminal and, the same, in Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from experiments import claims
from experiments.reading import Record, records, select
from experiments.tables import Cells, markdown_of
from experiments.translation import differences
from experiments.translation.counts import COUNTS
from experiments.translation.data import COPY
from experiments.translation.differences import differences_cells

MEANINGS = {
    "A": "heads, fixed width",
    "B": "d_k alone",
    "F": "heads, fixed size",
    "M": "smaller width, fixed size",
    "S": "standard split, as many parameters as M",
}


def held_out(data: Mapping[str, Any]) -> str:
    """What a run's models were judged on."""
    pairs = data["config"]["pairs"]
    if pairs == COPY:
        return "made-up lines that were held out"
    if not pairs:
        return "held-out books"
    names = [Path(path).name for path in pairs.split(",")]
    return f"the last tenth of {names[0]}" if len(names) == 1 else f"the pairs of {names[-1]}"


RANGES = {"perplexity": (1.0, math.inf), "bleu": (0.0, 100.0)}
"""What values there are. Student's interval of few seeds may reach beyond them."""


def within(row: Record, name: str) -> tuple[Any, Any]:
    """The ends of an interval as they are shown: cut at the ends of `RANGES`. None where there is none."""
    ends, (least, most) = (row[f"{name}_low"], row[f"{name}_high"]), RANGES[name]
    low, high = (None if end is None else min(max(end, least), most) for end in ends)
    return low, high


def cut_note(rows: Iterable[Record], *names: str) -> str:
    """What to say behind the word intervals: that some are cut, if one is."""
    ranges = [
        f"{'BLEU' if name == 'bleu' else name} has {_ends(*RANGES[name])}"
        for name in names
        if any(within(row, name) != (row[f"{name}_low"], row[f"{name}_high"]) for row in rows)
    ]
    return f" (cut to values that there are: {'; '.join(ranges)})" if ranges else ""


def _ends(least: float, most: float) -> str:
    return f"none below {least:g}" + ("" if math.isinf(most) else f" or above {most:g}")


def measured(row: Record, name: str, digits: int) -> str:
    """The mean over seeds, with Student's 95% interval where there is one; a dash where all runs diverged."""
    mean, (low, high) = row[name], within(row, name)
    if mean is None:
        return "–"
    return f"{mean:.{digits}f}" + ("" if low is None else f" [{low:.{digits}f}–{high:.{digits}f}]")


def text_line(row: Record) -> str:
    """How much of the text a run uses, in one line."""
    return (
        f"{row['train_pairs'] - row['train_too_long']:,} of {row['train_pairs']:,} pairs to train on "
        f"({row['train_too_long']:,} are too long); {row['test_cut']:,} of {row['test_pairs']:,} test pairs are cut, "
        f"{row['test_in_training']:,} stand in the training part too"
    )


def text_cells(data: Mapping[str, Any]) -> Cells | None:
    """Pairs of every part, and what is left out, cut or held out in vain. None without counts."""
    found = records(data, "text")
    if not found:
        return None
    [row] = found
    lines = []
    for name, part in (("train", "to train on"), ("dev", "to choose by"), ("test", "to report on")):
        left_out = f"{row['train_too_long']:,}" if name == "train" else "–"
        cut, known = (
            ("–", "–") if name == "train" else (f"{row[f'{name}_{x}']:,}" for x in ("cut", "in_training"))
        )
        repeated = "–" if name == "test" else f"{row[f'{name}_repeated']:,}"
        lines.append((part, f"{row[f'{name}_pairs']:,}", left_out, cut, known, repeated))
    columns = (
        "pairs",
        "all",
        "too long,\nleft out",
        "too long,\ncut",
        "trained on\ntoo",
        "left out, as\nheld out later",
    )
    note = (
        f"Too long: more than {row['length'] - 1} subwords ({row['num_subwords']:,} in all) on a side. "
        f"{row['test_targets_cut']:,} translations to report on are cut for perplexity, and end there; BLEU is of "
        "whole ones."
    )
    return Cells("Text", columns, tuple(lines), note)


def settings_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each setting of each arm. None without any."""
    lines = []
    for row in records(data, "settings"):
        lines.append(
            (
                row["arm"],
                str(row["num_heads"]),
                str(row["head_dim"]),
                str(row["value_head_dim"]),
                str(row["d_model"]),
                measured(row, "perplexity", 2),
                measured(row, "bleu", 1),
                f"{row['num_params'] / 1e6:.2f}",
                "–" if row["flops_per_step"] is None else f"{row['flops_per_step'] / 1e9:.1f}",
            )
        )
    if not lines:
        return None
    columns = (
        "arm",
        "h",
        "d_k",
        "d_v",
        "width",
        "perplexity",
        "BLEU",
        "million\nparameters",
        "GFLOP\na step",
    )
    present = [arm for arm in MEANINGS if any(line[0] == arm for line in lines)]
    judged_on = held_out(data)
    note = (
        f"{judged_on[0].upper()}{judged_on[1:]}; means over seeds, in brackets Student's 95% "
        f"intervals{cut_note(records(data, 'settings'), 'perplexity', 'bleu')}. "
        + "; ".join(f"{arm}: {MEANINGS[arm]}" for arm in present)
        + "."
    )
    return Cells("Head count and head size", columns, tuple(lines), note)


def baselines_cells(data: Mapping[str, Any]) -> Cells | None:
    """The standard setting and what no training gives. None without baselines."""
    base = records(data, "baselines")
    if not base:
        return None
    row = base[0]
    lines = []
    for own in select(records(data, "settings"), arm="A", num_heads=row["num_heads"]):
        lines.append(("trained", measured(own, "perplexity", 2), measured(own, "bleu", 1)))
    lines.append(("untrained", f"{row['untrained_perplexity']:.0f}", f"{row['untrained_bleu']:.1f}"))
    lines.append(("source, copied", "–", f"{row['copy_bleu']:.1f}"))
    return Cells("A working system?", ("standard setting", "perplexity", "BLEU"), tuple(lines))


def claims_cells(data: Mapping[str, Any]) -> Cells | None:
    """What was expected and what came out. None where nothing was run that could tell."""
    note = (
        "Expected: written down before the runs (`experiments/translation/__init__.py`). Verdicts here are on means "
        "over seeds (quick: one seed), by the rule as it was written down, whether or not the seeds resolve it; "
        "CLAIMS.md asks for intervals as well and says what is undecided, so the two may differ."
    )
    return claims.claims_cells(data, note)


BLOCKS = {
    "text": markdown_of(text_cells),
    "settings": markdown_of(settings_cells),
    "baselines": markdown_of(baselines_cells),
    "differences": markdown_of(differences_cells),
    "claims": markdown_of(claims_cells),
}
"""Tables by name, for `experiments.readme`."""


def values(data: Mapping[str, Any]) -> dict[str, str]:
    """Every number of a run that prose may name, without the name of the source.

    ``bleu.A.h8.k16``, ``perplexity.A.h8.k16`` with intervals, ``-mean`` without; ``ratio.A.h1.k128``: perplexity over
    the arm's least; ``best.A``: its head count (B: head size); ``spread.A``: largest over least perplexity;
    ``flops.A.h32``: of a step, over those of one head; ``untrained.bleu``, ``copy.bleu``;
    ``text.test_cut`` and the other counts of the text; ``text.trained_on``: pairs;
    ``params.A.h8.k16`` in millions; ``steps``, ``num-runs``; ``claims.held``, ``claims.judged``; what
    `experiments.translation.differences` has.
    """
    rows = [row for row in records(data, "settings") if row["perplexity"] is not None]
    out = {"num-runs": str(len(records(data, "points")))}
    for row in rows:
        place = f"{row['arm']}.h{row['num_heads']}.k{row['head_dim']}"
        for name, digits in (("perplexity", 2), ("bleu", 1)):
            out[f"{name}.{place}"] = measured(row, name, digits)
            out[f"{name}.{place}-mean"] = f"{row[name]:.{digits}f}"
        out[f"params.{place}"] = f"{row['num_params'] / 1e6:.2f}"
        out["steps"] = f"{row['num_steps']:,}"
    for arm in dict.fromkeys(row["arm"] for row in rows):
        own = select(rows, arm=arm)
        least = min(own, key=lambda row: row["perplexity"])
        most = max(own, key=lambda row: row["perplexity"])
        out[f"best.{arm}"] = str(least["head_dim" if arm == "B" else "num_heads"])
        out[f"spread.{arm}"] = f"{100 * (most['perplexity'] / least['perplexity'] - 1):.1f}%"
        for row in own:
            place = f"{arm}.h{row['num_heads']}.k{row['head_dim']}"
            out[f"ratio.{place}"] = f"{100 * (row['perplexity'] / least['perplexity'] - 1):.1f}%"
    counted = [row for row in select(rows, arm="A") if row["flops_per_step"] is not None]
    for one in select(counted, num_heads=1):
        for row in counted:
            out[f"flops.A.h{row['num_heads']}"] = f"{row['flops_per_step'] / one['flops_per_step']:.2f}"
    for row in records(data, "text"):
        out |= {f"text.{name}": f"{row[name]:,}" for name in COUNTS}
        out["text.trained_on"] = f"{row['train_pairs'] - row['train_too_long']:,}"
    for row in records(data, "baselines"):
        out |= {f"{name}.bleu": f"{row[f'{name}_bleu']:.1f}" for name in ("untrained", "copy")}
    return out | differences.values(data) | claims.claim_values(data)
