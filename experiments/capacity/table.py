"""The `capacity` experiment's results as tables: for the terminal and, the same, in Markdown."""

from collections.abc import Mapping
from typing import Any

from experiments.capacity.figures_ceiling import real_arms
from experiments.capacity.figures_records import (
    MATCHINGS,
    PARAMETER_COUNT,
    PARTITION,
    Case,
    case_of,
    is_excluded,
    open_prediction,
    select,
    sweep_cases,
)
from experiments.reading import Record, records
from experiments.tables import Cells


def number(value: float | None, missing: str = "–", decimals: int = 1) -> str:
    """A fixed number of decimals, or what a missing number means."""
    return missing if value is None else f"{value:.{decimals}f}"


def measured(record: Record | None) -> str:
    """``16.3 [15.1–17.0]``, or in words why a transition has no number; None where there is no transition."""
    if record is None or record["status"] == "not_run":
        return "not run"
    value = record["measured_total_key_dim"]
    if record["status"] == "not_reached" or value is None:
        return "not reached"
    return _with_interval(value, record["ci_low"], record["ci_high"])


def _with_interval(value: float, low: float | None, high: float | None) -> str:
    interval = "" if low is None and high is None else f" [{number(low, '?')}–{number(high, '?')}]"
    return f"{value:.1f}{interval}"


def only(rows: list[Record]) -> Record | None:
    """The first record, if any."""
    return rows[0] if rows else None


def predicted(record: Record, name: str) -> str:
    """A prediction or law of a transition: in brackets where the theorems exclude it, ``∞`` where it is infinite."""
    text = number(record.get(name), "∞")
    return f"({text})" if is_excluded(record, name) else text


def ratio(value: float | None, prediction: float | None) -> str:
    """Measured over predicted, two decimals."""
    return "–" if value is None or not prediction else f"{value / prediction:.2f}"


def threshold_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each size and number of heads, None where no threshold was measured."""
    transitions = records(data, "transitions")
    cases = sweep_cases(transitions)
    rows = []
    for case in cases:
        run = [r for r in select(transitions, case) if r["status"] != "not_run"]
        for heads in sorted({r["num_heads"] for r in run}):
            row = _threshold_row(case, heads, select(transitions, case, num_heads=heads))
            rows.append(row if len(cases) == 1 else (f"{case.num_items}, {case.d_model}", *row))
    if not rows:
        return None
    columns = (
        "h",
        "theorems",
        "fixed\npart.",
        "best\ntrainer",
        "smallest\nexact",
        "joint\ntraining",
        "plain joint\ndescent",
        "param.\ncount",
    )
    title = "Total key dimension D_K needed"
    if len(cases) == 1:
        title += f": {cases[0].description}"
    else:
        columns = ("m, d", *columns)
    note = (
        "Theorems (lower bounds): counting/Warren/d_k = 1. Fixed partition: prediction. Best trainer, joint "
        "training (on a maximum that hardens), plain joint descent: measured, half of the seeds recovered "
        "(best-threshold F1 ≥ 0.99), with 95% interval. Smallest exact: a channel found that has every pair right. "
        "Parameter count: empirical law of plain joint descent. ∞: this prediction or law fails at every budget, "
        "which is no theorem; in brackets: the theorems, which it does not know, exclude it. Not reached: at no "
        "budget up to d_k = d, within the trainers' caps on steps."
    )
    return Cells(title, columns, tuple(rows), note)


def _threshold_row(case: Case, heads: int, here: list[Record]) -> tuple[str, ...]:
    first = here[0]
    counting, warren = first.get("counting_bound"), first.get("warren_bound")
    exact = [r["smallest_exact"] for r in here if r.get("smallest_exact") is not None]
    cap = number(first.get("cap_bound"), decimals=0) if case.graph in MATCHINGS else "–"
    return (
        str(heads),
        "/".join((number(counting), number(warren, "–" if counting is None else "∞", 0), cap)),
        predicted(first, PARTITION),
        _two_lines(only(select(here, trainer="best"))),
        number(min(exact) if exact else None, "none", 0),
        _two_lines(only(select(here, trainer="joint"))),
        _two_lines(only(select(here, trainer="plain"))),
        predicted(first, PARAMETER_COUNT),
    )


def _two_lines(record: Record | None) -> str:
    """As `measured`, for a table of many columns."""
    return measured(record).replace(" [", "\n[")


def ceiling_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each embedding dimension, None where no ceiling was measured."""
    rows = []
    several = len({(r["embedding"], r["graph"]) for r in records(data, "ceilings")}) > 1
    for record in sorted(records(data, "ceilings"), key=lambda r: (r["d_model"], r["embedding"], r["graph"])):
        value, low, high = (record.get(name) for name in ("measured_num_items", "ci_low", "ci_high"))
        found = "not found" if value is None else _with_interval(value, low, high)
        predicted = record["predicted_num_items"]
        arm = (record["embedding"], record["graph"]) if several else ()
        rows.append((str(record["d_model"]), *arm, found, number(predicted), ratio(value, predicted)))
    if not rows:
        return None
    columns = ("d", *(("embedding", "graph") if several else ()))
    columns = (*columns, "items (measured)", "m_c (prediction)", "ratio")
    note = "Measured: half of the graphs are separable, decided exactly by convex solves, 95% interval."
    return Cells("The ceiling of one head of any key dimension", columns, tuple(rows), note)


def real_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each embedding and graph at one number of heads, None where there is only one of them."""
    rows = []
    arms = real_arms(data)
    for arm in arms:
        case = case_of(arm[0])
        best, joint = only(select(arm, trainer="best")), only(select(arm, trainer="joint"))
        partition = open_prediction(arm[0], PARTITION)
        row = [f"{case.graph} on\n{case.embedding}", str(case.num_items)]
        for record in (best, joint):
            value = record["measured_total_key_dim"] if record else None
            compared = (
                "–" if value is None or not partition else f"{ratio(value, partition)} ({number(partition)})"
            )
            row += [measured(record), compared]
        rows.append(tuple(row))
    if not rows:
        return None
    columns = ("graph on\nembeddings", "m", "best\ntrainer", "over fixed\npartition", "joint\ntraining")
    columns = (*columns, "over fixed\npartition")
    note = (
        "Measured budget with 95% interval, and its ratio to what is predicted (fixed partition) for a random "
        "graph of the same size, given in brackets."
    )
    title = f"D_K needed by {arms[0][0]['num_heads']} heads on real embeddings and relations"
    return Cells(title, columns, tuple(rows), note)
