"""Records that say the opposite: for every rule of the ledger, changes that make its claim hold and that make it fail.

A change is of the rows of one kind, ``record:kind``; it gives the fields that are new, or None to drop the row. What
other work is still to commit is made up here (`MADE_UP`), so that its rules are tested before and after.
"""

from collections.abc import Callable, Mapping
from typing import Any

from experiments.ledger import Books

Change = Callable[[Mapping[str, Any]], dict[str, Any] | None]
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
            new = [dict(row) | found for row in rows if (found := change(row)) is not None]
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


def _bleu_kept(late: float, early: float) -> Change:
    def change(row: Mapping[str, Any]) -> dict[str, Any]:
        if row["bleu_kept"] is None:
            return {}
        kept = [late if row["steps"] > 1500 else early] * len(row["bleu_kept"])
        return {"bleu_kept": kept, "bleu_kept_low": kept}

    return change


def _quartiles(value: float) -> dict[str, float]:
    return {"median": value, "low": value, "high": value}


def _settings(arm: str, key: str, values: dict[int, float], **fields: Any) -> list[dict[str, Any]]:
    base = {"arm": arm, "num_heads": 8, "head_dim": 16, "value_head_dim": 16, "d_model": 128, "runs": 1}
    ends = {"perplexity_low": None, "perplexity_high": None, "num_params": 1}
    return [base | ends | fields | {key: size, "perplexity": value} for size, value in values.items()]


def _curve(values: dict[int, float]) -> Change:
    return lambda row: {"perplexity": values[row["num_heads"]]} if row["arm"] in "AF" else {}


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
        base | {"trainer": t, "query_overlap": 0.5, "key_overlap": 0.5, "information": 0.05}
        for t in ("joint", "greedy")
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

MADE_UP: dict[str, dict[str, Any]] = {
    "relations/quick": _records(curves=_relations()),
    "bands/quick": _records(points=_bands()),
    "constructions/quick": _records(
        noise_curves=[{"block_size": 16, "variance": 1.0, "predicted_variance": 1.1}], thresholds=[_THRESHOLD]
    ),
    "softmax/quick": _records(
        curves=[_F1 | {"arm": a, "num_heads": h} for a in ("weights", "values") for h in (1, 4)]
    ),
    "block/quick": _records(curves=[_ACCURACY | {"num_heads": h} for h in (1, 4)]),
    "translation/quick": _records(
        settings=_settings("A", "num_heads", dict.fromkeys((1, 2, 4, 8, 16, 32), 10.0))
    ),
    "translation/paper": _records(
        settings=[
            *_settings("A", "num_heads", dict.fromkeys((1, 2, 4, 8, 16, 32), 10.0)),
            *_settings("B", "head_dim", dict.fromkeys((4, 8, 16, 32), 10.0)),
            *_settings("F", "num_heads", dict.fromkeys((1, 2, 4, 8), 10.0)),
            *_settings("M", "d_model", dict.fromkeys((64, 32), 10.0)),
            *_settings("S", "d_model", dict.fromkeys((88, 56), 10.0)),
        ]
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
_TRANSLATION = "translation/paper:settings"


def _near_bound(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"measured_total_key_dim": row["cap_bound"] if row["status"] == "reached" else None}


def _far(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"measured_total_key_dim": 9 * row["cap_bound"] if row["status"] == "reached" else None}


def _gate(row: Mapping[str, Any]) -> bool:
    return 2 * row["heads_left"] <= row["num_heads"]


FLIPS: dict[str, tuple[Changes, Changes]] = {
    # what makes the claim hold, what makes it fail
    "split": (
        {_POINTS: _by_heads(0.1, 1.0), "capacity/quick:ceiling_points": always(verdict="inseparable")},
        {_POINTS: _by_heads(1.0, 0.1), "capacity/quick:ceiling_points": always(verdict="separable")},
    ),
    "threshold": (
        {_POINTS: _by_heads(0.1, 1.0), _TRANSITIONS: _near_bound},
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
            )
        },
        {
            "capacity/paper:transitions": where(
                lambda r: r["num_items"] == 96, {"measured_total_key_dim": 99.0}
            )
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
        {"bands/quick:points": always(**_APART, information=0.9)},
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
        {"softmax/quick:curves": where(lambda r: r["num_heads"] > 1, {"least_f1": 0.9})},
        {"softmax/quick:curves": always()},
    ),
    "block": (
        {"block/quick:curves": where(lambda r: r["num_heads"] > 1, {"least_accuracy": 0.9})},
        {"block/quick:curves": always()},
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
            name: lambda r: {"best_jump_at": r["expected_heads"], "best_ratio": 50.0}
            for name in (_JUMPS, "retrieval/targets:jumps")
        },
        {name: always(best_ratio=5.0) for name in (_JUMPS, "retrieval/targets:jumps")},
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
    "table-3": ({_TRANSLATION: _curve(_RISE)}, {_TRANSLATION: _curve(_FALL)}),
    "one-or-many": ({_TRANSLATION: _curve(_RISE)}, {_TRANSLATION: always(perplexity=10.0)}),
    "split-falls": ({_TRANSLATION: _curve(_RISE)}, {_TRANSLATION: _curve(_FALL)}),
    "fixed-size": ({_TRANSLATION: _curve(_RISE)}, {_TRANSLATION: _curve(_FALL)}),
    "key-size": (
        {_TRANSLATION: lambda r: {"perplexity": 20.0 / r["head_dim"]}},
        {_TRANSLATION: lambda r: {"perplexity": 20.0 * r["head_dim"]}},
    ),
    "smaller-width": (
        {_TRANSLATION: where(lambda r: r["arm"] == "M", {"perplexity": 9.0})},
        {_TRANSLATION: where(lambda r: r["arm"] == "M", {"perplexity": 11.0})},
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
            "pruning/quick:curves": always(cost=0.0),
            "tries/quick:curves": lambda r: {"kept": [1.0] * len(r["kept"])},
            "pruning/minilm:claims": always(verdict="held"),
        },
        {
            "pruning/quick:curves": always(cost=0.5),
            "tries/quick:curves": lambda r: {"kept": [0.5] * len(r["kept"])},
            "pruning/minilm:claims": always(verdict="failed"),
        },
    ),
    "few-carry": ({"pruning/quick:curves": always(cost=0.01)}, {"pruning/quick:curves": always(cost=0.9)}),
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
        {"roles/quick:dependency": always(accuracy=0.9, offset_accuracy=0.1)},
        {"roles/quick:dependency": always(accuracy=0.9, offset_accuracy=0.85)},
    ),
    "tolerated": (
        {"pruning/quick:onsets": always(tolerated=0.2)},
        {"pruning/quick:onsets": always(tolerated=0.1)},
    ),
    "importance": (
        {
            f"pruning/{name}:onsets": where(lambda r: r["order"] == "importance", {"mean_cost": 0.0})
            for name in ("quick", "minilm")
        },
        {
            f"pruning/{name}:onsets": where(lambda r: r["order"] == "importance", {"mean_cost": 1.0})
            for name in ("quick", "minilm")
        },
    ),
    "alone": (
        {"pruning/minilm:claims": always(verdict="held")},
        {"pruning/minilm:claims": always(verdict="failed")},
    ),
    "one-left": (
        {"pruning/minilm:claims": always(verdict="held")},
        {"pruning/minilm:claims": always(verdict="failed")},
    ),
    "faster": (
        {"pruning/quick:speedups": always(speedup_low=1.1)},
        {"pruning/quick:speedups": always(speedup_low=0.9)},
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
        {"tries/quick:paired": always(recovered=60, p_value=0.001)},
        {"tries/quick:paired": always(recovered=10, p_value=0.001)},
    ),
    "emerges": (
        {
            "tries/quick:curves": lambda r: {"kept": [1.0 if r["steps"] > 999 else 0.1] * len(r["kept"])},
            "redundancy/quick:curves": _bleu_kept(1.0, 0.1),
        },
        {
            "tries/quick:curves": lambda r: {"kept": [0.1 if r["steps"] > 999 else 1.0] * len(r["kept"])},
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
        {"cache/quick:budgets": lambda r: {"held_median": _held(r)}},
        {
            "bench/decode:predictions": always(numbers={"mha": 1.0}),
            "cache/quick:budgets": lambda r: {"held_median": 1 - _held(r)},
        },
    ),
    "sharing-costs": (
        {"cache/quick:budgets": lambda r: {"held_median": _held(r)}},
        {"cache/quick:budgets": lambda r: {"held_median": 1 - _held(r)}},
    ),
    "cache-speed": (
        {"bench/decode:predictions": always(numbers={"batch 1": 1.5})},
        {"bench/decode:predictions": always(numbers={"batch 1": 0.5})},
    ),
    "absorbed": (
        {"bench/decode:predictions": always(numbers={"batch 1": 1.5})},
        {"bench/decode:predictions": always(numbers={"batch 1": 0.5})},
    ),
    "latent": (
        {"cache/quick:transitions": where(lambda r: r["design"] == "mla", {"cache_dims_with_values": 1.0})},
        {"cache/quick:transitions": where(lambda r: r["design"] == "mla", {"cache_dims_with_values": 99.0})},
    ),
    "pooling": (
        {"conversion/quick:conversions": where(lambda r: r["method"] == "first", {"excess_low": 99.0})},
        {"conversion/quick:conversions": where(lambda r: r["method"] == "first", {"excess_low": 0.0})},
    ),
    "unusable": (
        {"conversion/quick:conversions": always(excess=3.0)},
        {"conversion/quick:conversions": always(excess=1.0)},
    ),
}


def _held(row: Mapping[str, Any]) -> float:
    """Falls with sharing at equal parameters, rises at equal cache."""
    share = row["num_kv_heads"] / row["num_heads"] if row["num_kv_heads"] else 0.0
    return share if row["budget"] == "parameters" else 1 - share
