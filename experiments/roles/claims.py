"""What was expected before the runs (see the package's docstring), judged on the records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from experiments import points
from experiments.claims import Claim, Verdict, judged
from experiments.reading import Record
from experiments.roles.naming import syntactic

MINILM, SMOLLM = "minilm-l6", "smollm2-135m"
COMMON = 50
"""Words on the second half from which on a relation is common."""
MINORITY = 0.1
"""Part of the common relations for which the control may be above the offset by chance."""


Rows = Mapping[str, Sequence[Record]]
Judge = Callable[[Rows], Verdict | None]


def claim_rows(rows: Rows) -> list[points.Record]:
    """One row a claim: ``verdict`` is ``held``, ``failed``, or ``not_run`` where records are missing."""
    return judged((Claim(name, *claim) for name, claim in CLAIMS.items()), rows)


def of_model(rows: Sequence[Record], model: str) -> list[Record]:
    """Rows of one model."""
    return [row for row in rows if row["model"] == model]


def layer_means(rows: Sequence[Record], score: str) -> list[float]:
    """Mean of a score over the heads of each layer; empty where it was not measured."""
    if not rows or any(row[score] is None for row in rows):
        return []
    layers = range(1 + max(row["layer"] for row in rows))
    return [float(np.mean([row[score] for row in rows if row["layer"] == layer])) for layer in layers]


def common(rows: Sequence[Record]) -> list[Record]:
    """Rows of single relations that are common in the treebank."""
    return [r for r in rows if r["relation"] != "all" and r["count"] >= COMMON and r["accuracy"] is not None]


def place(row: Record) -> str:
    """A head as people write it, from 0: ``L3H7``."""
    return f"L{row['layer']}H{row['head']}"


def _syntax(rows: Rows) -> Verdict | None:
    both = [common(of_model(rows["dependency"], model)) for model in (MINILM, SMOLLM)]
    if not all(both):
        return None
    shares = [sum(map(syntactic, own)) / len(own) for own in both]
    found = ", ".join(f"{sum(map(syntactic, own))} of {len(own)}" for own in both)
    surely = " and ".join(str(sum(syntactic(row, "ci_low") for row in own)) for own in both)
    found += f" relations (MiniLM, SmolLM2); {surely} by the lower end of the 95% interval too"
    return (shares[0] >= 0.5 and shares[1] >= 0.25, found)


def _control(rows: Rows) -> Verdict | None:
    both = [common(of_model(rows["controls"], model)) for model in (MINILM, SMOLLM)]
    if not all(both):
        return None
    number = [sum(map(syntactic, own)) for own in both]
    fine = all(n <= MINORITY * len(own) for n, own in zip(number, both, strict=True))
    return (fine, f"{number[0]} of {len(both[0])}, {number[1]} of {len(both[1])} relations")


def _layers(rows: Rows) -> Verdict | None:
    both = [of_model(rows["distances"], model) for model in (MINILM, SMOLLM)]
    if not all(both):
        return None
    pairs = [(row["same_layer"], row["other_layers"]) for (row,) in both]
    found = "; ".join(f"{same:.3f} against {other:.3f} nats" for same, other in pairs)
    return (all(same < other for same, other in pairs), found)


def _groups(rows: Rows) -> Verdict | None:
    own = of_model(rows["distances"], SMOLLM)
    if not own:
        return None
    shared, same = own[0]["same_group"], own[0]["same_layer"]
    return (shared < same, f"{shared:.3f} against {same:.3f} nats")


def _sinks(rows: Rows) -> Verdict | None:
    own = [row for row in of_model(rows["heads"], SMOLLM) if row["layer"] >= 2]
    if not own or own[0]["sink"] is None:
        return None
    share = float(np.mean([row["sink"] > 0.5 for row in own]))
    return (share >= 0.5, f"{share:.0%} of the heads from layer 2 on")


def _induction(rows: Rows) -> Verdict | None:
    own = of_model(rows["heads"], SMOLLM)
    if not own or own[0]["induction"] is None:
        return None
    inducing = [row for row in own if row["induction"] > 0.5]
    previous = [row for row in own if row["previous_random"] > 0.5]
    first = min((row["layer"] for row in previous), default=None)
    later = [row for row in inducing if first is not None and row["layer"] > first]
    best = max(own, key=lambda row: row["induction"])
    found = f"{len(inducing)} heads, {len(later)} behind the first previous-token head (layer {first}); "
    return (
        len(inducing) >= 3 and len(later) == len(inducing),
        f"{found}best {place(best)} {best['induction']:.2f}",
    )


def _middle(rows: Rows) -> Verdict | None:
    means = layer_means(of_model(rows["heads"], MINILM), "entropy")
    if not means:
        return None
    lowest = int(np.argmin(means))
    return (0 < lowest < len(means) - 1, f"layer {lowest}: {means[lowest]:.2f} nats")


def _separator(rows: Rows) -> Verdict | None:
    means = layer_means(of_model(rows["heads"], MINILM), "separator")
    if not means:
        return None
    most = int(np.argmax(means))
    return (means[most] > 0.5, f"at most {means[most]:.2f}, layer {most}")


def _neighbours(rows: Rows) -> Verdict | None:
    minilm, smollm = (of_model(rows["heads"], model) for model in (MINILM, SMOLLM))
    if not minilm or not smollm or any(row["previous"] is None for row in (minilm[0], smollm[0])):
        return None
    best: list[tuple[str, Any]] = [
        (name, max(own, key=lambda row, name=name: row[name]))
        for own, name in ((minilm, "previous"), (minilm, "next"), (smollm, "previous"))
    ]
    found = ", ".join(f"{name} {place(row)} {row[name]:.2f}" for name, row in best)
    return (all(row[name] > 0.5 for name, row in best), f"{found} (two of MiniLM, one of SmolLM2)")


CLAIMS: dict[str, tuple[str, Judge]] = {
    "syntax": (
        "a head beats the best offset by 10 points on words it was not chosen on, for half of the common relations in "
        "MiniLM and a quarter in SmolLM2",
        _syntax,
    ),
    "control": ("with random weights at most one common relation in ten, in either", _control),
    "layers": ("heads of a layer are nearer to one another than to those of other layers, in both", _layers),
    "groups": ("heads that share keys and values are nearer than other heads of their layer", _groups),
    "sinks": ("half of SmolLM2's heads from layer 2 on give the first token more than half", _sinks),
    "induction": (
        "three heads or more of SmolLM2 score above 0.5, all behind a previous-token head (above 0.5)",
        _induction,
    ),
    "middle": ("MiniLM's entropy is lowest in a layer that is neither first nor last", _middle),
    "separator": ("in some layer of MiniLM more than half of the attention goes to [SEP]", _separator),
    "neighbours": (
        "MiniLM has a previous-token and a next-token head, SmolLM2 a previous-token head (shares above 0.5)",
        _neighbours,
    ),
}
"""Expected before the runs, by name, and how it is judged."""
