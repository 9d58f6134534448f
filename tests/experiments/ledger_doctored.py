"""Records that say the opposite: for every rule of the ledger, changes that make its claim hold and that make it fail,
and, where a rule compares, changes that leave it open (`OPEN`).

A change is of the rows of one kind, ``record:kind``; it gives the fields that are new, several of them to make several
rows of one, or None to drop the row. What
other work is still to commit is made up here (`MADE_UP`), so that its rules are tested before and after.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from experiments.ledger import Books

Change = Callable[[Mapping[str, Any]], dict[str, Any] | list[dict[str, Any]] | None]
Changes = dict[str, Change]


def doctored(books: Books, changes: Changes) -> Books:
    for place, change in changes.items():
        name, kind = place.split(":")
        data = books[name]
        nested = kind in data.get("records", {})
        rows = data["records"][kind] if nested else data[kind]
        if isinstance(rows, dict):  # predictions of a benchmark, by name
            new: Any = {key: row | (change({"name": key} | row) or {}) for key, row in rows.items()}
        else:
            found = [(row, change(row)) for row in rows]
            new = [
                dict(row) | one
                for row, own in found
                if own is not None
                for one in (own if isinstance(own, list) else [own])
            ]
        books = books.replaced(
            name, dict(data) | ({"records": data["records"] | {kind: new}} if nested else {kind: new})
        )
    return books


def always(**fields: Any) -> Change:
    return lambda row: fields


def where(
    test: Callable[[Mapping[str, Any]], bool], yes: dict[str, Any], no: dict[str, Any] | None = None
) -> Change:
    return lambda row: yes if test(row) else (no or {})


def only(test: Callable[[Mapping[str, Any]], bool], **fields: Any) -> Change:
    return lambda row: fields if test(row) else None


def _by_heads(one: float, many: float) -> Change:
    return where(lambda r: r["num_heads"] == 1, {"best_f1": one}, {"best_f1": many})


def _bleu_kept(late: float, early: float, spread: float = 0.0) -> Change:
    def change(row: Mapping[str, Any]) -> dict[str, Any]:
        if row["bleu_kept"] is None:
            return {}
        value = late if row["steps"] > 1500 else early
        return {"bleu_by_seed": [[value + own] * len(row["bleu_kept"]) for own in (-spread, 0.0, spread)]}

    return change


def _scores(late: float, early: float, spread: float = 0.0) -> Change:
    """Scores of seeds, 1 with all heads, without some of them at the end and before."""

    def change(row: Mapping[str, Any]) -> dict[str, Any]:
        value = (late if row["steps"] > 999 else early) + spread * (row["seed"] % 2 - 0.5)
        return {"scores": [1.0] + [value] * (len(row["scores"]) - 1)}

    return change


def _quartiles(value: float, spread: float = 0.0) -> dict[str, float]:
    return {"median": value, "low": value - spread, "high": value + spread}


SEEDS = {0: -0.1, 1: 0.0, 2: 0.1}
"""What three seeds add to a perplexity."""


def _trained(arm: str, settings: Mapping[tuple[int, int, int], float]) -> dict[str, list[dict[str, Any]]]:
    """Settings of an arm, by (heads, d_k, width), and their trainings."""
    base = {"arm": arm, "value_head_dim": 16, "learning_rate": 0.006, "num_steps": 1800, "num_params": 1}
    base |= {"runs": 3, "perplexity_low": None, "perplexity_high": None}
    found: dict[str, list[dict[str, Any]]] = {"settings": [], "points": []}
    for (heads, size, width), value in settings.items():
        row = base | {"num_heads": heads, "head_dim": size, "d_model": width, "perplexity": value}
        row |= {} if arm == "B" else {"value_head_dim": size}
        found["settings"].append(row)
        found["points"] += [row | {"seed": seed, "perplexity": value + more} for seed, more in SEEDS.items()]
    return found


def _perplexity(
    of: Callable[[Mapping[str, Any]], float | None], seeds: Mapping[int, float] = SEEDS
) -> Changes:
    """Other perplexities of settings and trainings, with what each seed adds."""

    def change(row: Mapping[str, Any]) -> dict[str, Any]:
        value = of(row)
        return {} if value is None else {"perplexity": value + seeds.get(row.get("seed", 1), 0.0)}

    return {f"translation/paper:{kind}": change for kind in ("settings", "points")}


def _curve(values: dict[int, float]) -> Changes:
    """By head count at the full width; d_k = d_v leaves out all of B but the setting that it shares with A."""

    def own(row: Mapping[str, Any]) -> float | None:
        return (
            values[row["num_heads"]]
            if (row["head_dim"], 128) == (row["value_head_dim"], row["d_model"])
            else None
        )

    return _perplexity(own)


def _noisy(row: Mapping[str, Any]) -> float:
    """The same mean over three seeds for every setting, and large differences of either sign by seed."""
    if "seed" not in row:
        return 9.9 if row["num_heads"] == 4 else 10.0
    phase = row["num_heads"] + 0.37 * row["head_dim"] + row["d_model"]
    return 10.0 + 5.0 * math.cos(phase + 2 * math.pi * row["seed"] / 3)


def _relations() -> list[dict[str, Any]]:
    base = {"num_relations": 2, "total_key_dim": 60, "predicted_error_floor": 0.5, "attention": "trained"}
    settings = [("linear", "gaussian", "trained"), ("mlp", "signs", "mixed")]
    names = ("readout", "values", "attention")
    return [
        base | dict(zip(names, setting, strict=True)) | {"num_heads": heads, "least_error": error}
        for setting in settings
        for heads, error in ((1, 0.5), (2, 0.0))
    ]


def _bands() -> list[dict[str, Any]]:
    base = {"graph": "words", "exact_recovery": True, "random_overlap": 0.5, "shuffled_high": 0.1}
    return [
        base | {"trainer": t, "seed": seed, "query_overlap": 0.5, "key_overlap": 0.5, "information": 0.05}
        for t in ("joint", "greedy")
        for seed in range(8)
    ]


def _records(**kinds: list[dict[str, Any]]) -> dict[str, Any]:
    return {"records": kinds}


_THRESHOLD = {
    "num_items": 256,
    "d_model": 256,
    "num_heads": 1,
    "status": "reached",
    "measured_total_key_dim": 99.0,
}
_F1 = {"total_key_dim": 24, "least_f1": 0.5, "largest_f1": 0.6, "median_f1": 0.55}
_ACCURACY = {"arm": "block", "num_items": 96, "d_model": 16, "total_key_dim": 24}
_ACCURACY |= {"mean_accuracy": 0.5, "least_accuracy": 0.4, "largest_accuracy": 0.6}

_ARMS = (
    _trained("A", {(h, 128 // h, 128): 10.0 for h in (1, 2, 4, 8, 16, 32)}),
    _trained("B", {(8, size, 128): 10.0 for size in (4, 8, 16, 32)}),
    _trained("F", {(h, 32, 128): 10.0 for h in (1, 2, 8)}),  # four heads of 32: A has trained them
    _trained("M", {(16, 16, 64): 10.0, (32, 16, 32): 10.0}),
    _trained("S", {(8, 11, 88): 10.0, (8, 7, 56): 10.0}),
)

MADE_UP: dict[str, dict[str, Any]] = {
    "relations/quick": _records(curves=_relations()),
    "bands/quick": _records(points=_bands()),
    "constructions/quick": _records(
        noise_curves=[
            {"block_size": 16, "variance": 1.0, "predicted_variance": 1.05, "standard_error": 0.01}
        ],
        thresholds=[_THRESHOLD],
    ),
    "softmax/quick": _records(
        curves=[_F1 | {"arm": a, "num_heads": h} for a in ("weights", "values") for h in (1, 4)]
    ),
    "block/quick": _records(curves=[_ACCURACY | {"num_heads": h} for h in (1, 4)]),
    "translation/quick": _records(),
    "translation/paper": _records(
        **{kind: [row for arm in _ARMS for row in arm[kind]] for kind in ("settings", "points")}
    ),
}

_RISE = {1: 16.0, 2: 13.0, 4: 12.0, 8: 10.0, 16: 11.0, 32: 12.0}
_FALL = {1: 10.0, 2: 11.0, 4: 12.0, 8: 13.0, 16: 12.0, 32: 9.0}
_POINTS, _SWEEPS, _TRANSITIONS = (
    "capacity/quick:" + kind for kind in ("points", "head_sweeps", "transitions")
)
_CURVES, _JUMPS = "retrieval/quick:curves", "retrieval/quick:jumps"
_APART = {"query_overlap": 0.1, "key_overlap": 0.1}
_CHECK = "checks/heads:heads"


def _budget(row: Mapping[str, Any], value: float, spread: float = 0.0) -> dict[str, Any]:
    ends = {"measured_total_key_dim": value, "ci_low": value - spread, "ci_high": value + spread}
    return ends if row["status"] == "reached" else {}


def _near_bound(row: Mapping[str, Any]) -> dict[str, Any]:
    return _budget(row, max(row["cap_bound"], row["warren_bound"] or 0, row["counting_bound"] or 0))


def _far(row: Mapping[str, Any]) -> dict[str, Any]:
    return _budget(row, 9 * row["cap_bound"])


def _many_seeds(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Eight times as many seeds; one head recovers nothing, several all."""
    best = 0.1 if row["num_heads"] == 1 else 1.0
    return [{"best_f1": best, "seed": row["seed"] + 1000 * i} for i in range(8)]


def _ranges(one: float, many: float, spread: float, name: str) -> Change:
    """A score's range over seeds with one head and with several."""

    def change(row: Mapping[str, Any]) -> dict[str, Any]:
        value = one if row["num_heads"] == 1 else many
        return {f"least_{name}": value - spread, f"largest_{name}": value + spread}

    return change


def _times(value: float, spread: float = 0.0) -> Changes:
    """Ratios of a decoder's times and their quartiles."""

    def change(row: Mapping[str, Any]) -> dict[str, Any]:
        names = [name for name in ("speed_over_mha", "speed_over_naive") if name in row]
        return {name: _quartiles(value, spread) for name in names}

    return {"bench/decode:points": change}


def _designs_hold(of: Callable[[Mapping[str, Any]], float], spread: float = 0.0) -> Changes:
    def change(row: Mapping[str, Any]) -> dict[str, Any]:
        value = of(row)
        return {"held_median": value, "held_low": value - spread, "held_high": value + spread}

    return {"cache/quick:budgets": change}


def _cached(dims: float, spread: float = 0.0) -> Changes:
    """Cached dimensions at which MLA recovers half of the graphs, and their interval."""
    fields = {"cache_dims_with_values": dims, "measured_cache_dims": dims}
    fields |= {"ci_low": dims - spread, "ci_high": dims + spread}
    return {"cache/quick:transitions": where(lambda r: r["design"] == "mla", fields)}


def _excess(value: float, spread: float, method: str | None = None) -> Changes:
    fields = {"excess": value, "excess_low": value - spread, "excess_high": value + spread}
    return {"conversion/quick:conversions": where(lambda r: method in (None, r["method"]), fields)}


def _longer(kind: str, change: Change) -> Changes:
    """The same change in both longer runs of pruning."""
    return {f"pruning/{name}:{kind}": change for name in ("minilm", "smollm")}


def _pruning(kind: str, change: Change) -> Changes:
    """The same change in all runs of pruning."""
    return {f"pruning/quick:{kind}": change, **_longer(kind, change)}


def _exponents(low: float, high: float) -> Changes:
    """Intervals of both exponents less those of a law."""
    ends = {f"{name}_minus_{end}": value for name in "ab" for end, value in (("low", low), ("high", high))}
    return {"regimes/quick:exponents": where(lambda r: r["law"] == "folk", ends)}


def _gate(row: Mapping[str, Any]) -> bool:
    return 2 * row["heads_left"] <= row["num_heads"]


FLIPS: dict[str, tuple[Changes, Changes]] = {
    # what makes the claim hold, what makes it fail
    "split": (
        {_POINTS: _by_heads(0.1, 1.0), "capacity/quick:ceiling_points": always(verdict="inseparable")},
        {_POINTS: _by_heads(1.0, 0.1), "capacity/quick:ceiling_points": always(verdict="separable")},
    ),
    "threshold": (
        {_POINTS: _many_seeds, _TRANSITIONS: _near_bound},
        {
            _POINTS: where(lambda r: r["seed"] % 2 == 0, {"best_f1": 1.0}, {"best_f1": 0.0}),
            _TRANSITIONS: _far,
        },
    ),
    "best-range": (
        {_SWEEPS: always(measured_min_heads=2, measured_max_heads=4)},
        {_SWEEPS: always(measured_min_heads=1, measured_max_heads=4)},
    ),
    "traded": (
        {_SWEEPS: always(measured_min_heads=2, measured_max_heads=4), _JUMPS: always(best_jump_at=4)},
        {_SWEEPS: always(measured_min_heads=None), _JUMPS: always(best_jump_at=1)},
    ),
    "convention": (
        {_TRANSITIONS: always(smallest_exact=15), _CURVES: always(best_nmse=0.001)},
        {_TRANSITIONS: always(smallest_exact=16), _CURVES: always(best_nmse=0.5)},
    ),
    "law": (
        {
            "capacity/paper:transitions": where(
                lambda r: r["num_items"] in (96, 192), {}, {"status": "not_run"}
            ),
            **_exponents(-0.01, 0.01),
        },
        {
            "capacity/paper:transitions": where(
                lambda r: r["num_items"] == 96,
                {"measured_total_key_dim": 99.0, "ci_low": 98.0, "ci_high": 100.0},
            ),
            **_exponents(-0.2, -0.1),
        },
    ),
    "two-judgements": (
        {"relations/quick:curves": always(least_error=0.5)},
        {"relations/quick:curves": always(least_error=0.0)},
    ),
    "definition": (
        {_CHECK: always(largest_sum_error=0.0, own_change=0.5, other_change=0.0)},
        {_CHECK: always(largest_sum_error=0.1, other_change=1e-9)},
    ),
    "subspaces": (
        {_CHECK: always(own_change=0.5, other_change=0.0), "bands/quick:points": always(**_APART)},
        {_CHECK: always(other_change=1e-9), "bands/quick:points": always(query_overlap=0.1, key_overlap=0.5)},
    ),
    "superposition": (
        {
            "bands/quick:points": always(**_APART, information=0.9),
            "constructions/quick:noise_curves": lambda r: {
                "variance": r["predicted_variance"],
                "standard_error": 0.01 * r["predicted_variance"],
            },
        },
        {"constructions/quick:noise_curves": always(variance=2.0)},
    ),
    "compressed": (
        {_TRANSITIONS: where(lambda r: r["num_heads"] == 1, {"status": "not_reached"})},
        {
            _TRANSITIONS: where(lambda r: r["num_heads"] == 1, {"status": "reached"}),
            "constructions/quick:thresholds": always(status="not_reached"),
        },
    ),
    "softmax": (
        {"softmax/quick:curves": _ranges(0.5, 0.9, 0.1, "f1")},
        {"softmax/quick:curves": _ranges(0.5, 0.2, 0.1, "f1")},
    ),
    "block": (
        {"block/quick:curves": _ranges(0.5, 0.9, 0.1, "accuracy")},
        {"block/quick:curves": _ranges(0.5, 0.2, 0.1, "accuracy")},
    ),
    "averaging": ({_CURVES: always(best_nmse=0.9)}, {_CURVES: always(best_nmse=0.01)}),
    "memorises": (
        {
            _CURVES: where(
                lambda r: r["curve"] == "copy",
                {"best_nmse": 0.05},
                {"best_nmse": 1.0, "best_nmse_uniform": 1.0},
            )
        },
        {_CURVES: always(best_nmse=0.5, best_nmse_uniform=5.0)},
    ),
    "keeps": (
        {
            _CURVES: where(
                lambda r: r["curve"] == "heads",
                {"best_nmse": 0.1, "best_nmse_uniform": 5.0},
                {"best_nmse": 0.1, "best_nmse_uniform": 0.1},
            )
        },
        {
            _CURVES: where(
                lambda r: r["curve"] == "wide",
                {"best_nmse": 0.1, "best_nmse_uniform": 5.0},
                {"best_nmse": 0.1, "best_nmse_uniform": 0.1},
            )
        },
    ),
    "jump": (
        {
            name: lambda r: {"best_jump_at": r["expected_heads"], "ratio_low": 40.0, "ratio_high": 60.0}
            for name in (_JUMPS, "retrieval/targets:jumps")
        },
        {name: always(ratio_low=4.0, ratio_high=6.0) for name in (_JUMPS, "retrieval/targets:jumps")},
    ),
    "layers": ({_JUMPS: lambda r: {"best_jump_at": r["expected_heads"]}}, {_JUMPS: always(best_jump_at=7)}),
    "softmax-rank": (
        {"rank/quick:spectra": always(weights_rank=1)},
        {"rank/quick:spectra": always(weights_rank=64)},
    ),
    "more-rank": ({"rank/quick:curves": always(median_kl=1.0)}, {"rank/quick:curves": always(median_kl=0.0)}),
    "representation": (
        {"rank/quick:points": lambda r: {"kl": 0.0 if r["head_dim"] >= r["n"] - 1 else 0.1}},
        {"rank/quick:points": lambda r: {"kl": 0.1 if r["seed"] == 0 else 0.0}},
    ),
    "table-3": (_curve(_RISE), _curve(_FALL)),
    "one-or-many": (_curve(_RISE), {}),
    "split-falls": (_curve(_RISE), _curve(_FALL)),
    "fixed-size": (_curve(_RISE), _curve(_FALL)),
    "key-size": (
        _perplexity(lambda r: 20.0 / r["head_dim"] + 9),
        _perplexity(lambda r: 20.0 * r["head_dim"]),
    ),
    "smaller-width": (
        _perplexity(lambda r: 9.0 if r["arm"] == "M" else 10.0),
        _perplexity(lambda r: 11.0 if r["arm"] == "M" else 10.0),
    ),
    "roles": (
        {
            "roles/quick:roles": always(roles=["delimiter", "next", "broad", "syntactic"]),
            "roles/quick:control_heads": lambda r: None,
        },
        {"roles/quick:roles": always(roles=[])},
    ),
    "most-go": (
        {
            **_pruning("curves", always(cost=0.0)),
            "tries/quick:dynamics": _scores(1.0, 1.0),
            **_longer("claims", always(verdict="held")),
        },
        {
            **_pruning("curves", always(cost=0.5)),
            "tries/quick:dynamics": _scores(0.5, 0.5),
            **_longer("claims", always(verdict="failed")),
        },
    ),
    "few-carry": (_pruning("curves", always(cost=0.01)), _pruning("curves", always(cost=0.9))),
    "neighbours": (
        {"roles/quick:heads": always(previous=0.9, next=0.9)},
        {"roles/quick:heads": always(previous=0.1, next=0.1)},
    ),
    "separator": ({"roles/quick:heads": always(separator=0.6)}, {"roles/quick:heads": always(separator=0.1)}),
    "clusters": (
        {"roles/quick:distances": always(same_layer=0.1, other_layers=0.2)},
        {"roles/quick:distances": always(same_layer=0.2, other_layers=0.1)},
    ),
    "syntax": (
        {"roles/quick:dependency": always(accuracy=0.9, ci_low=0.8, ci_high=0.95, offset_accuracy=0.1)},
        {"roles/quick:dependency": always(accuracy=0.9, ci_low=0.8, ci_high=0.94, offset_accuracy=0.85)},
    ),
    "tolerated": (
        _pruning("onsets", always(tolerated=0.2)),
        _pruning("onsets", always(tolerated=0.1)),
    ),
    "importance": (
        _pruning("onsets", where(lambda r: r["order"] == "importance", {"mean_cost": 0.0})),
        _pruning("onsets", where(lambda r: r["order"] == "importance", {"mean_cost": 1.0})),
    ),
    "alone": (
        _longer("claims", always(verdict="held")),
        _longer("claims", always(verdict="failed")),
    ),
    "one-left": (
        _longer("claims", always(verdict="held")),
        _longer("claims", always(verdict="failed")),
    ),
    "faster": (
        {"pruning/quick:speedups": always(speedup_low=1.1, speedup_high=1.3)},
        {"pruning/quick:speedups": always(speedup_low=0.8, speedup_high=0.9)},
    ),
    "gates": (
        {"pruning/quick:gate_sets": where(_gate, {"loss": 0.0})},
        {"pruning/quick:gate_sets": where(_gate, {"loss": 1.0})},
    ),
    "positional": (
        {"roles/quick:heads": always(offset_share=0.95)},
        {"roles/quick:heads": always(offset_share=0.5)},
    ),
    "tries": (
        {"tries/quick:paired": always(recovered=60, holm=0.001)},
        {"tries/quick:paired": always(recovered=10, holm=0.001)},
    ),
    "emerges": (
        {
            "tries/quick:dynamics": _scores(1.0, 0.1),
            "redundancy/quick:curves": _bleu_kept(1.0, 0.1),
        },
        {
            "tries/quick:dynamics": _scores(0.1, 1.0),
            "redundancy/quick:curves": _bleu_kept(0.1, 1.0),
        },
    ),
    "equal-cost": (
        {"bench/heads:points": always(time_over_fewest_heads=_quartiles(1.0))},
        {
            "bench/heads:points": lambda r: {
                "product_operations": r["num_heads"],
                "time_over_fewest_heads": _quartiles(2.0),
            }
        },
    ),
    "balance": (
        _designs_hold(lambda r: _held(r)),
        {
            "bench/decode:predictions": always(numbers={"mha": 1.0}),
            **_designs_hold(lambda r: 1 - _held(r)),
        },
    ),
    "sharing-costs": (_designs_hold(lambda r: _held(r)), _designs_hold(lambda r: 1 - _held(r))),
    "cache-speed": (_times(1.5), _times(0.5)),
    "absorbed": (_times(1.5), _times(0.5)),
    "latent": (_cached(1.0), _cached(99.0)),
    "pooling": (_excess(99.0, 1.0, "first"), _excess(0.0, 1.0, "first")),
    "unusable": (_excess(3.0, 0.1), _excess(1.0, 0.1)),
}

_PAIRS_OPEN = _perplexity(_noisy, {})
OPEN: dict[str, Changes] = {
    # what leaves the claim open: nothing that was measured shows it or contradicts it, in any part that compares
    "split": {_POINTS: where(lambda r: r["seed"] % 2 == 0, {"best_f1": 1.0}, {"best_f1": 0.0})},
    "threshold": {_TRANSITIONS: lambda r: _budget(r, r["cap_bound"] * 1.25, 9.0)},
    "traded": {_JUMPS: lambda r: {"best_jump_at": r["expected_heads"], "ratio_low": 0.9, "ratio_high": 9.0}},
    "law": {
        "capacity/paper:transitions": lambda r: _budget(r, r["cap_bound"], 0.9 * r["cap_bound"]),
        **_exponents(-0.2, 0.1),
    },
    "subspaces": {"bands/quick:points": lambda r: {f"{n}_overlap": r["seed"] % 2 for n in ("query", "key")}},
    "superposition": {
        "bands/quick:points": lambda r: dict.fromkeys(
            ("information", "query_overlap", "key_overlap"), r["seed"] % 2
        ),
        "constructions/quick:noise_curves": lambda r: {"standard_error": r["predicted_variance"]},
    },
    "compressed": {_TRANSITIONS: where(lambda r: r["num_heads"] == 1, {"status": "not_run"})},
    "softmax": {"softmax/quick:curves": _ranges(0.5, 0.6, 0.1, "f1")},
    "block": {"block/quick:curves": _ranges(0.5, 0.6, 0.1, "accuracy")},
    "jump": {
        name: lambda r: {"best_jump_at": r["expected_heads"], "ratio_low": 5.0, "ratio_high": 50.0}
        for name in (_JUMPS, "retrieval/targets:jumps")
    },
    "layers": {_JUMPS: lambda r: {"best_jump_at": r["expected_heads"], "ratio_low": 0.5, "ratio_high": 50.0}},
    "table-3": _PAIRS_OPEN,
    "one-or-many": _PAIRS_OPEN,
    "split-falls": _PAIRS_OPEN,
    "fixed-size": _PAIRS_OPEN,
    "key-size": _PAIRS_OPEN,
    "smaller-width": _PAIRS_OPEN,
    "most-go": {"tries/quick:dynamics": _scores(0.95, 0.95, 0.5)},
    "syntax": {"roles/quick:dependency": always(accuracy=0.9, ci_low=0.5, ci_high=0.99, offset_accuracy=0.7)},
    "faster": {"pruning/quick:speedups": always(speedup_low=0.9, speedup_high=1.1)},
    "tries": {"tries/quick:paired": always(recovered=60, holm=0.1)},
    "emerges": {
        "tries/quick:dynamics": _scores(0.85, 0.85, 0.5),
        "redundancy/quick:curves": _bleu_kept(0.85, 0.85, 0.5),
    },
    "equal-cost": {"bench/heads:points": always(time_over_fewest_heads=_quartiles(1.1, 0.2))},
    "balance": _designs_hold(lambda r: 0.5, 0.1),
    "sharing-costs": _designs_hold(lambda r: 0.5, 0.1),
    "cache-speed": _times(1.0, 0.5),
    "absorbed": _times(1.0, 0.5),
    "latent": _cached(14.0, 13.9),
    "pooling": _excess(6.0, 9.0, "first"),
    "unusable": _excess(2.0, 0.1),
}


def _held(row: Mapping[str, Any]) -> float:
    """Falls with sharing at equal parameters, rises at equal cache."""
    share = row["num_kv_heads"] / row["num_heads"] if row["num_kv_heads"] else 0.0
    return share if row["budget"] == "parameters" else 1 - share
