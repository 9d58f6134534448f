"""Claims on heads of pretrained models: what they do, which can go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from experiments.intervals import above, at_least
from experiments.ledger.books import Books, Record, interval, span
from experiments.ledger.entry import Entry, Part
from experiments.ledger.training import kept, last_curves, percent
from experiments.pruning.config import ORDERS
from experiments.reading import select
from experiments.roles.claims import common
from experiments.roles.naming import MARGIN, RULES, roles, score, syntactic

ROLES, PRUNING, ABLATIONS = "roles/quick", "pruning/quick", "pruning/minilm"
NAMES = {"minilm-l6": "MiniLM", "smollm2-135m": "SmolLM2"}
TOLERATED = 0.05
"""Share of what removing all heads costs, up to which a removal counts as cheap."""
CLARK, MICHEL, VOITA = "Clark et al. 2019", "Michel et al. 2019", "Voita et al. 2019"
KINDS = {
    "delimiters": ("delimiter",),
    "fixed offsets": ("previous", "next", "positional"),
    "broad attention": ("broad",),
    "syntactic relations": ("syntactic",),
}


def _name(model: str) -> str:
    return NAMES.get(model, model)


def _models(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted({row["model"] for row in rows})


def _readable(books: Books) -> Sequence[Part]:
    named = books.rows(ROLES, "roles")
    controls = [
        (row["model"], set(roles(row, books.rows(ROLES, "controls"))))
        for row in books.rows(ROLES, "control_heads")
    ]
    parts = []
    for kind, wanted in KINDS.items():
        texts, found = [], False
        for model in _models(named):
            own = select(named, model=model)
            count = sum(bool(set(wanted) & set(row["roles"])) for row in own)
            chance = [bool(set(wanted) & names) for name, names in controls if name == model]
            found |= count > sum(chance)
            beside = f" (random weights {sum(chance)})" if chance else ""
            texts.append(f"{_name(model)} {count} of {len(own)}{beside}")
        if texts:
            parts.append(Part(kind, found, f"{kind}: {', '.join(texts)}"))
    return parts


def _neighbours(books: Books) -> Sequence[Part]:
    parts = []
    heads = books.rows(ROLES, "heads")
    for model in _models(heads):
        for name in ("previous", "next"):
            own = [row for row in select(heads, model=model) if row[name] is not None]
            if name == "next" and not any(row["next"] for row in own):
                continue  # a causal model attends nothing that comes next
            best = max(own, key=lambda row: row[name], default=None)
            if best is not None:
                many = sum(row[name] > RULES[name].threshold for row in own)
                text = (
                    f"{_name(model)}: heads above one half: {many}, best L{best['layer']}H{best['head']} "
                    f"{best[name]:.2f}"
                )
                parts.append(
                    Part(f"the {name} token, {_name(model)}", many > 0, f"{text} to the {name} token")
                )
    return parts


def _separator(books: Books) -> Sequence[Part]:
    rows = [
        row
        for row in books.rows(ROLES, "heads")
        if row["model"] == "minilm-l6" and row["separator"] is not None
    ]
    if not rows:
        return []
    means = {
        layer: fmean(row["separator"] for row in select(rows, layer=layer))
        for layer in {r["layer"] for r in rows}
    }
    most = max(means, key=lambda layer: means[layer])
    return [
        Part(
            "the model is MiniLM", means[most] > 0.5, f"MiniLM: at most {means[most]:.2f} in a layer ({most})"
        )
    ]


def _clusters(books: Books) -> Sequence[Part]:
    return [
        Part(
            _name(row["model"]),
            row["same_layer"] < row["other_layers"],
            f"{_name(row['model'])}: {row['same_layer']:.3f} nats within a layer, {row['other_layers']:.3f} across",
        )
        for row in books.rows(ROLES, "distances")
    ]


def _syntax(books: Books) -> Sequence[Part]:
    parts = []
    rows = common(books.rows(ROLES, "dependency"))
    for model in _models(rows):
        own = select(rows, model=model)
        good, surely, perhaps = (
            sum(syntactic(row, value) for row in own) for value in ("accuracy", "ci_low", "ci_high")
        )
        shown = [
            f"{row['relation']} {interval(100 * row['accuracy'], 100 * row['ci_low'], 100 * row['ci_high'], '.0f')}% "
            f"(offset {100 * row['offset_accuracy']:.0f}%)"
            for row in own
            if row["relation"] in ("obj", "det")
        ]
        text = f"{_name(model)}: {good} [{surely}–{perhaps}] of {len(own)} relations; {', '.join(shown)}"
        parts.append(Part(_name(model), at_least(len(own) / 2, surely, perhaps), text))
    return parts


def _cost(books: Books, model: str, fraction: float) -> float | None:
    rows = select(books.rows(PRUNING, "curves"), model=model, order="importance")
    return next((row["cost"] for row in rows if abs(row["fraction_pruned"] - fraction) < 1e-9), None)


def _most_go(books: Books) -> Sequence[Part]:
    parts = []
    for model in _models(books.rows(PRUNING, "curves")):
        cost = _cost(books, model, 0.5)
        if cost is not None:
            text = f"{_name(model)} without half of its heads (by importance): {cost:.0%} of what removing all costs"
            parts.append(Part(_name(model), cost <= TOLERATED, text))
    for curve in last_curves(books, "importance"):
        rest = kept(books, curve, 0.5)
        text = f"retrieval, 4 things, 8 heads: {percent(rest)} kept without half"
        enough = at_least(1 - TOLERATED, rest.low, rest.high)
        parts.append(Part("retrieval with twice as many heads as the task asks for", enough, text))
    return [*parts, *_claim(books, "one left", "one head left in a layer")]


def _claim(books: Books, name: str, where: str) -> list[Part]:
    """A part from a verdict that the longer run of `pruning` (of MiniLM alone) has in its records, if it is there."""
    rows = [row for row in select(books.rows(ABLATIONS, "claims"), claim=name) if row["verdict"] != "not_run"]
    return [Part(where, row["verdict"] == "held", row["found"]) for row in rows]


def _few_carry(books: Books) -> Sequence[Part]:
    parts = []
    for model in _models(books.rows(PRUNING, "curves")):
        few, rest = _cost(books, model, 0.8), _cost(books, model, 0.3)
        if few is not None and rest is not None:
            name = _name(model)
            text = f"{name}: the best fifth keeps {1 - few:.0%}"
            parts.append(Part(f"a fifth of the heads carries half ({name})", few < 0.5, text))
            text = f"its last 30% cost {rest:.0%}"
            parts.append(Part(f"the last 30% are redundant ({name})", rest <= TOLERATED, text))
    return parts


def _tolerated(books: Books) -> Sequence[Part]:
    return [
        Part(
            _name(row["model"]),
            (row["tolerated"] or 0) >= 0.2,
            f"{_name(row['model'])}: {row['tolerated'] or 0:.0%} of its heads at no more than {TOLERATED:.0%} "
            f"of the cost",
        )
        for row in select(books.rows(PRUNING, "onsets"), order="importance")
    ]


def _importance(books: Books) -> Sequence[Part]:
    parts = []
    quick = books.rows(PRUNING, "onsets")
    for model in _models(quick):
        rows = select(books.rows(ABLATIONS, "onsets"), model=model) or select(quick, model=model)
        costs = {name: [row["mean_cost"] for row in select(rows, order=name)] for name in ORDERS}
        own, chance, alone = costs["importance"], costs["random"], costs["ablation"]
        if own and chance:
            text = f"mean cost {own[0]:.3f}, {len(chance)} random orders {span(chance, '.3f')}"
            parts.append(
                Part(
                    f"better than every random order ({_name(model)})",
                    own[0] < min(chance),
                    f"{_name(model)}: {text}",
                )
            )
        if own and alone:
            text = f"{_name(model)} by what each head costs alone {alone[0]:.3f}"
            parts.append(Part(f"better than single ablation ({_name(model)})", own[0] < alone[0], text))
    return parts


def _faster(books: Books) -> Sequence[Part]:
    parts = []
    for row in select(books.rows(PRUNING, "speedups"), fraction_pruned=0.5):
        where = f"{_name(row['model'])}, {row['removal']}, batch {row['batch_size']}"
        shown = interval(row["speedup"], row["speedup_low"], row["speedup_high"], ".2f")
        faster = above(1, row["speedup_low"], row["speedup_high"])
        parts.append(Part(where, faster, f"{where}: {shown} times as fast"))
    return parts


def _gates(books: Books) -> Sequence[Part]:
    parts = []
    for row in books.rows(PRUNING, "gate_sets"):
        whole = _all_removed(books, row["model"])
        if whole is None or not 0 < 2 * row["heads_left"] <= row["num_heads"]:
            continue
        cost = row["loss"] / whole
        text = (
            f"{_name(row['model'])}, {row['heads_left']} of {row['num_heads']} left: {cost:.0%} of what "
            f"removing all costs"
        )
        parts.append(Part(f"{row['heads_left']} of {row['num_heads']} left", cost <= TOLERATED, text))
    return parts


def _all_removed(books: Books, model: str) -> float | None:
    rows = select(books.rows(PRUNING, "curves"), model=model, fraction_pruned=1.0)
    return rows[0]["loss"] if rows else None


def _positional(books: Books) -> Sequence[Part]:
    heads: list[Record] = books.rows(ROLES, "heads")
    parts = []
    for model in _models(heads):
        own = select(heads, model=model)
        rule = RULES["positional"]
        found = [row for row in own if (score(row, rule) or 0) > rule.threshold]
        best = max((row["confidence"] for row in found), default=None)
        beside = "" if best is None else f", confidence of the surest {best:.2f}"
        parts.append(
            Part(
                f"the model is {_name(model)}",
                bool(found),
                f"{_name(model)}: {len(found)} of {len(own)}{beside}",
            )
        )
    return parts


ENTRIES = (
    Entry(
        "roles",
        "Heads take readable roles: delimiters, fixed offsets, broad attention, syntactic relations.",
        "more heads than with random weights have the role, by thresholds of Clark et al. 2019 and Voita et "
        "al. 2019, in "
        "one of two models at least",
        (ROLES,),
        _readable,
        "figures/roles/quick-map",
        13,
        (CLARK,),
    ),
    Entry(
        "most-go",
        "Most heads can be removed at test time, some layers down to one.",
        f"without half of the heads, the least important first, at most {TOLERATED:.0%} of what removing all costs",
        (PRUNING, "tries/quick"),
        _most_go,
        "figures/pruning/quick-curves",
        14,
    ),
    Entry(
        "few-carry",
        "A few heads carry the work; the rest are redundant.",
        f"the most important fifth keeps more than half; the least important 30% cost at most {TOLERATED:.0%}",
        (PRUNING,),
        _few_carry,
        "figures/pruning/quick-curves",
        15,
    ),
    Entry(
        "neighbours",
        "Some heads give more than half of their attention to the previous or to the next token.",
        "a share above one half",
        (ROLES,),
        _neighbours,
        "figures/roles/quick-scores-minilm-l6",
        papers=(CLARK,),
    ),
    Entry(
        "separator",
        "In the middle layers more than half of the attention goes to [SEP] (BERT-base).",
        "a layer's mean share above one half, in another BERT",
        (ROLES,),
        _separator,
        "figures/roles/quick-scores-minilm-l6",
        papers=(CLARK,),
    ),
    Entry(
        "clusters",
        "Heads of one layer lie close together.",
        "Jensen-Shannon divergence smaller within layers than across",
        (ROLES,),
        _clusters,
        "figures/roles/quick-map",
        papers=(CLARK,),
    ),
    Entry(
        "syntax",
        "Single heads find the other end of syntactic relations far better than any fixed offset.",
        f"{100 * MARGIN:.0f} points above the best offset on words they were not chosen on, for half of the common "
        "relations; counted at both ends of the accuracies' 95% intervals",
        (ROLES,),
        _syntax,
        "figures/roles/quick-dependency",
        papers=(CLARK, VOITA),
    ),
    Entry(
        "tolerated",
        "20% to 40% of the heads can be pruned by importance without a noticeable loss.",
        f"20% or more at no more than {TOLERATED:.0%} of what removing all heads costs",
        (PRUNING,),
        _tolerated,
        "figures/pruning/quick-curves",
        papers=(MICHEL,),
    ),
    Entry(
        "importance",
        "Importance I_h tells which heads can go.",
        "the mean cost of removal by I_h is below that of every random order, and of the order of single ablations",
        (PRUNING, ABLATIONS),
        _importance,
        "figures/pruning/quick-importance",
        papers=(MICHEL,),
    ),
    Entry(
        "alone",
        "Removing a single head seldom matters.",
        "fewer than a tenth of the heads cost more than 1% of all, alone",
        (ABLATIONS,),
        lambda books: _claim(books, "ablation", "a head removed alone"),
        "figures/pruning/minilm-ablation",
        papers=(MICHEL,),
    ),
    Entry(
        "one-left",
        "Many layers can be reduced to a single head.",
        f"one head is enough, at {TOLERATED:.0%} of what removing all costs, in more than half of the layers",
        (ABLATIONS,),
        lambda books: _claim(books, "one left", "all but one head of a layer removed"),
        "figures/pruning/minilm-ablation",
        papers=(MICHEL,),
    ),
    Entry(
        "faster",
        "Removing half of the heads makes a model faster.",
        "quartiles of the speed-up above 1",
        (PRUNING,),
        _faster,
        "figures/pruning/quick-speed",
        papers=(MICHEL,),
    ),
    Entry(
        "gates",
        "Trained gates remove most heads at a small loss (10 of 48 left).",
        f"at most {TOLERATED:.0%} of what removing all heads costs, where half of the heads or fewer are "
        f"left; only gates are "
        "trained, the model stays as it is",
        (PRUNING,),
        _gates,
        "figures/pruning/quick-gates",
        papers=(VOITA,),
    ),
    Entry(
        "positional",
        "Some heads are positional: at least 90% of the time their largest weight is at one fixed offset.",
        "one such head or more",
        (ROLES,),
        _positional,
        "figures/roles/quick-map",
        papers=(VOITA,),
    ),
)
