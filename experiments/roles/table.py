"""The roles experiment's results as tables: for the terminal and, the same, in Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from experiments import claims
from experiments.pretrained import model_name
from experiments.reading import Record, records
from experiments.roles.claims import common, layer_means, of_model, place
from experiments.roles.naming import NONE, ORDER, RULES, syntactic, typical
from experiments.tables import Cells, markdown_of

LABELS = {"minilm-l6": "MiniLM-L6", "smollm2-135m": "SmolLM2-135M"}


def label(model: str) -> str:
    """A model's name for people."""
    return LABELS.get(model, model_name(model))


def models(data: Mapping[str, Any]) -> list[str]:
    """Models that the records are of, in the order of the configuration."""
    there = {row["model"] for name in ("heads", "dependency") for row in records(data, name)}
    return [model for model in data["config"]["models"] if model in there]


def role_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row a role: how many heads have it, and the most typical one, for every model."""
    named = records(data, "roles")
    if not named:
        return None
    found, lines = models(data), []
    counts = {m: Counter(role for row in of_model(named, m) for role in row["roles"]) for m in found}
    scored, relations = records(data, "heads"), records(data, "dependency")
    examples = {
        (model, role): f"L{layer}H{head}"
        for model in found
        for role, (layer, head) in typical(of_model(scored, model), of_model(relations, model)).items()
    }
    for role in ORDER:
        rule = RULES.get(role)
        what = f"{rule.score} > {rule.threshold}" if rule else "dependency, offset + 0.1"
        cells = [
            f"{counts[m][role]} ({examples[m, role]})" if (m, role) in examples else str(counts[m][role])
            for m in found
        ]
        lines.append((role, what, *cells))
    without = [str(sum(row["role"] == NONE for row in of_model(named, m))) for m in found]
    totals = [str(len(of_model(named, m))) for m in found]
    lines += [("no role", "", *without), ("all heads", "", *totals)]
    note = "A head may have several roles; in brackets the most typical one, layer and head from 0."
    return Cells("Roles of heads", ("role", "score", *map(label, found)), tuple(lines), note)


def dependency_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row a relation, by how often it occurs: best head and best offset of every model."""
    rows = records(data, "dependency")
    if not rows:
        return None
    found = [model for model in models(data) if of_model(rows, model)]
    by_place = {(row["model"], row["relation"]): row for row in rows}
    controls = {(row["model"], row["relation"]): row for row in records(data, "controls")}
    lines = []
    for relation in dict.fromkeys(row["relation"] for row in rows):
        own = [by_place[model, relation] for model in found]
        cells: list[str] = []
        for row in own:
            cells += [_accuracy(row), percent(controls.get((row["model"], relation), {}).get("accuracy"))]
        offset = own[0]
        base = (
            "–"
            if offset["accuracy"] is None
            else f"{percent(offset['offset_accuracy'])} ({offset['best_offset']:+d})"
        )
        lines.append((relation, str(own[0]["count"]), *cells, base))
    columns = ["relation", "words"]
    for model in found:
        columns += [label(model), "random"]
    note = (
        "Share of words (%) whose head the best head finds, on the second half of the sentences; head, direction and "
        "offset are chosen on the first half. Layer and head from 0; →: the dependent attends its head, ←: it is "
        "attended by it. In square brackets 95% intervals; *: 10 points over the offset. Random: the same "
        "choice in the model with random weights."
    )
    return Cells("Dependencies", (*columns, "best offset"), tuple(lines), note)


def _accuracy(row: Record) -> str:
    if row["accuracy"] is None:
        return "–"
    sign = "→" if row["direction"].startswith("dependent") else "←"
    mark = "*" if syntactic(row) else ""
    interval = f"[{percent(row['ci_low'])}–{percent(row['ci_high'])}]"
    return f"{percent(row['accuracy'])}{mark} {interval} {place(row)}{sign}"


def percent(value: float | None) -> str:
    """A share in percent, whole; a dash where there is none."""
    return "–" if value is None else f"{100 * value:.0f}"


def claims_cells(data: Mapping[str, Any]) -> Cells | None:
    """What was expected and what came out. None where nothing was run that could tell."""
    note = "Expected: written down before the runs (`experiments/roles/__init__.py`)."
    return claims.claims_cells(data, note)


BLOCKS = {
    "heads": markdown_of(role_cells),
    "dependency": markdown_of(dependency_cells),
    "claims": markdown_of(claims_cells),
}
"""Tables by name, for `experiments.readme`."""


def values(data: Mapping[str, Any]) -> dict[str, str]:
    """Every number of a run that prose may name, without the name of the source.

    ``MODEL.count.ROLE``: heads with a role; ``MODEL.best.SCORE`` and ``-at``: the largest score and its head;
    ``MODEL.mean.SCORE``; ``MODEL.sinks``: heads from layer 2 on with a sink above 0.5 (%);
    ``MODEL.entropy.lN``, ``.sink.lN``, ...: a layer's mean; ``MODEL.RELATION`` and ``-low``, ``-high``, ``-offset``,
    ``-control``, ``-at``; ``MODEL.relations``, ``.common`` ones, and ``.syntactic-relations``, ``.syntactic-common``;
    ``MODEL.near.same_layer``, ...; ``claims.held``,
    ``claims.judged``. MODEL is ``minilm`` or ``smollm``.
    """
    out: dict[str, str] = {}
    for model in models(data):
        short = {"minilm-l6": "minilm", "smollm2-135m": "smollm"}.get(model, model)
        out |= {f"{short}.{name}": value for name, value in _values(data, model).items()}
    return out | claims.claim_values(data)


def _values(data: Mapping[str, Any], model: str) -> dict[str, str]:
    out: dict[str, str] = {}
    heads, named = (of_model(records(data, name), model) for name in ("heads", "roles"))
    counts = Counter(role for row in named for role in row["roles"])
    out |= {f"count.{role}": str(counts[role]) for role in ORDER}
    out["count.none"], out["count.all"] = str(sum(row["role"] == NONE for row in named)), str(len(named))
    scores = ("previous", "next", "self", "first", "delimiter", "separator", "entropy", "confidence", "sink")
    for score in (*scores, "induction", "previous_random", "offset_share"):
        own = [row for row in heads if row[score] is not None]
        if own:
            best = max(own, key=lambda row, score=score: row[score])
            out[f"best.{score}"], out[f"best.{score}-at"] = f"{best[score]:.2f}", place(best)
            out[f"mean.{score}"] = f"{sum(row[score] for row in own) / len(own):.2f}"
        out |= {f"{score}.l{i}": f"{mean:.2f}" for i, mean in enumerate(layer_means(heads, score))}
    relations = of_model(records(data, "dependency"), model)
    for row in relations:
        if row["accuracy"] is not None:
            for end, name in (
                ("", "accuracy"),
                ("-low", "ci_low"),
                ("-high", "ci_high"),
                ("-offset", "offset_accuracy"),
            ):
                out[f"{row['relation']}{end}"] = percent(row[name])
            out[f"{row['relation']}-at"] = place(row)
    for row in of_model(records(data, "controls"), model):
        out[f"{row['relation']}-control"] = percent(row["accuracy"])
    out["syntactic-relations"] = str(sum(map(syntactic, relations)))
    often = common(relations)
    out["common"], out["syntactic-common"] = str(len(often)), str(sum(map(syntactic, often)))
    later = [row["sink"] for row in heads if row["layer"] >= 2 and row["sink"] is not None]
    if later:
        out["sinks"] = percent(sum(share > 0.5 for share in later) / len(later))
    out["relations"] = str(sum(row["relation"] != "all" and row["accuracy"] is not None for row in relations))
    for row in of_model(records(data, "distances"), model):
        for name in ("same_group", "same_layer", "other_layers"):
            if row[name] is not None:
                out[f"near.{name}"] = f"{row[name]:.3f}"
    return out
