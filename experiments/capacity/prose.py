"""What prose may say of a `capacity` run: blocks and numbers by name, for `experiments.readme`."""

from collections.abc import Mapping
from typing import Any

from experiments.capacity import table
from experiments.capacity.figures_records import (
    PARAMETER_COUNT,
    PARTITION,
    case_of,
    open_prediction,
    select,
    sweep_cases,
)
from experiments.capacity.units import unpack_channel
from experiments.reading import Record, records
from experiments.tables import markdown_of

BLOCKS = {
    "table": markdown_of(table.threshold_cells),
    "ceiling": markdown_of(table.ceiling_cells),
    "real": markdown_of(table.real_cells),
}
"""Tables by name."""


def values(data: Mapping[str, Any]) -> dict[str, str]:
    """Every number of a `capacity` run that prose may name, without the name of the source.

    ``best.h4``, ``greedy.h4``, ``joint.h4``, ``plain.h4``, ``exact.h4``, ``partition.h4``, ``parameter-count.h4``:
    budgets at four heads; ``best-ratio.h4`` and ``joint-ratio.h4`` (over the fixed partition), ``plain-ratio.h4`` (over
    the parameter count), ``joint-over-best.h4``, ``plain-over-best.h4``; ``exact-heads.h4``: heads that the smallest
    exact channel uses.
    With several sizes all of these follow the size, as in ``192x24.best.h4``.
    ``ceiling.d16``, ``ceiling-predicted.d16``, ``ceiling-ratio.d16``; ``real.words.minilm-pca.best`` (and
    ``best-ratio``, ``joint``, ...); ``sweep.24.greedy.fewest`` and ``most`` heads (after the size too);
    ``num-runs``.
    """
    out = {"num-runs": str(len(records(data, "points")))}
    transitions = records(data, "transitions")
    cases = sweep_cases(transitions)
    for case in cases:
        size = "" if len(cases) == 1 else f"{case.num_items}x{case.d_model}."
        for heads in sorted({r["num_heads"] for r in select(transitions, case)}):
            for name, text in _budgets(select(transitions, case, num_heads=heads)).items():
                out.setdefault(f"{size}{name}.h{heads}", text)
        for channel in select(records(data, "channels"), case):
            out.setdefault(f"{size}exact-heads.h{channel['num_heads']}", str(_heads_in_use(channel)))
        for record in select(records(data, "head_sweeps"), case):
            for name, key in (("fewest", "measured_min_heads"), ("most", "measured_max_heads")):
                text = "none" if record[key] is None else str(record[key])
                out.setdefault(f"{size}sweep.{record['total_key_dim']}.{record['trainer']}.{name}", text)
    for record in records(data, "ceilings"):
        d, value, predicted = record["d_model"], record["measured_num_items"], record["predicted_num_items"]
        out.setdefault(f"ceiling.d{d}", table.number(value, "not found"))
        out.setdefault(f"ceiling-predicted.d{d}", table.number(predicted))
        out.setdefault(f"ceiling-ratio.d{d}", table.ratio(value, predicted))
    for arm in table.real_arms(data):
        case = case_of(arm[0])
        for name, text in _budgets(arm).items():
            out.setdefault(f"real.{case.graph}.{case.embedding}.{name}", text)
    return out


def _heads_in_use(channel: Record) -> int:
    """Heads that are not zero: the others score 0, below any threshold of an edge."""
    query, key = unpack_channel(dict(channel))
    return sum(bool(q.any() and k.any()) for q, k in zip(query, key, strict=True))


def _budgets(here: list[Record]) -> dict[str, str]:
    shown = {name: table.only(select(here, trainer=name)) for name in ("best", "greedy", "joint", "plain")}
    partition, law = open_prediction(here[0], PARTITION), open_prediction(here[0], PARAMETER_COUNT)
    found = {name: record["measured_total_key_dim"] if record else None for name, record in shown.items()}
    exact = [r["smallest_exact"] for r in here if r.get("smallest_exact") is not None]
    words = {
        name: table.measured(record) if found[name] is None else f"{found[name]:.1f}"
        for name, record in shown.items()
    }
    return words | {
        "exact": table.number(min(exact) if exact else None, "none", 0),
        "partition": table.predicted(here[0], PARTITION),
        "parameter-count": table.predicted(here[0], PARAMETER_COUNT),
        "best-ratio": table.ratio(found["best"], partition),
        "joint-ratio": table.ratio(found["joint"], partition),
        "plain-ratio": table.ratio(found["plain"], law),
        "joint-over-best": table.ratio(found["joint"], found["best"]),
        "plain-over-best": table.ratio(found["plain"], found["best"]),
    }
