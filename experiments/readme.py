"""Fill the numbers of README.md in from the committed records: ``python -m experiments.readme [--check]``.

Everything between ``<!-- begin: NAME -->`` and ``<!-- end: NAME -->`` is replaced by the block of that name,
what stands between ``<!-- value: NAME -->`` and ``<!-- /value -->`` by one number. Names begin
with where they come from:

- ``capacity-table``, ``-ceiling``, ``-real`` and values ``capacity.…``: figures/capacity/quick.json;
- the same with ``capacity-paper`` in place of ``capacity``: figures/capacity/paper.json;
- ``retrieval-heads``, ``-jumps``, ``-copy``, ``-claims`` and values ``retrieval.…``: figures/retrieval/quick.json;
- values ``capacity-doubled-cap.…``: figures/capacity/doubled-cap.json;
- ``bench``: figures/bench/bench.json;
- ``attention``: figures/bench/attention.json.

``--list`` prints the values' names. Where a file does not exist, what it would fill stays as it is.
``--check`` writes nothing and exits with 1 where README.md differs from what the records say.
"""

import argparse
import difflib
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from experiments import style
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
from experiments.retrieval import table as retrieval_table

ROOT = Path(__file__).parents[1]
SOURCES = {
    "capacity": "figures/capacity/quick.json",
    "capacity-paper": "figures/capacity/paper.json",
    "retrieval": "figures/retrieval/quick.json",
    "capacity-doubled-cap": "figures/capacity/doubled-cap.json",
    "bench": "figures/bench/bench.json",
    "attention": "figures/bench/attention.json",
}

_BLOCK = re.compile(r"<!-- begin: (?P<name>[^\s>]+) -->\n.*?<!-- end: (?P=name) -->", re.DOTALL)
_VALUE = re.compile(r"<!-- value: (?P<name>[^\s>]+) -->[^<\n]*<!-- /value -->")
_MARKER = re.compile(r"<!-- (?:begin:|end:|value:|/value)[^>]*>")


def _cells(make: Callable[[Mapping[str, Any]], table.Cells | None]) -> Callable[[Mapping[str, Any]], str]:
    def block(data: Mapping[str, Any]) -> str:
        cells = make(data)
        return cells.markdown() if cells is not None else "No records.\n"

    return block


def bench_table(data: Mapping[str, Any]) -> str:
    """Benchmarks as a Markdown table: every ``speed_over_…`` of a record, median and quartiles, by size.

    Args:
        data: the benchmark's json, with lists of records under ``sections``.
    """
    rows = [
        (section, row)
        for section, rows in data.get("sections", {}).items()
        for row in rows
        if any(key.startswith("speed_over_") for key in row)
    ]
    speeds = list(dict.fromkeys(key for _, row in rows for key in row if key.startswith("speed_over_")))
    if not speeds:
        return "No records.\n"
    sizes = {"num_items": "m", "total_key_dim": "D_K", "d_model": "d", "num_heads": "h", "seeds": "seeds"}
    columns = ["benchmark", "size", *(key.replace("_", " ") for key in speeds)]
    memory = any("temporary_ratio" in row for _, row in rows)
    lines = []
    for section, row in rows:
        size = ", ".join(f"{label} = {row[key]}" for key, label in sizes.items() if row.get(key) is not None)
        line = [section.replace("_", " "), size, *(_speed(row.get(key)) for key in speeds)]
        if memory:
            line.append(table.number(row.get("temporary_ratio"), decimals=3))
        lines.append(tuple(line))
    if memory:
        columns.append("temporary memory, ours / JAX")
    note = "Median over interleaved rounds in one process, quartiles in brackets."
    return table.Cells("How many times faster", tuple(columns), tuple(lines), note).markdown()


def _speed(quartiles: Mapping[str, float] | float | None, decimals: int = 1) -> str:
    if quartiles is None:
        return "–"
    if isinstance(quartiles, int | float):
        return f"{quartiles:.{decimals}f}"
    median, low, high = (f"{quartiles[key]:.{decimals}f}" for key in ("median", "low", "high"))
    return f"{median} [{low}–{high}]"


def attention_table(data: Mapping[str, Any]) -> str:
    """The attention benchmark as a Markdown table: how many times faster than others, by pass and length.

    Args:
        data: the json of `experiments.bench_attention`.
    """
    points = [p for p in data["points"] if not p["causal"]]
    found = {(p["pass"], p["length"], p["contender"]): p for p in points}
    rivals = {
        "jax_nn": "jax.nn",
        "flax_nnx": "flax.nnx",
        "flax_linen": "flax.linen",
        "equinox": "equinox",
        "torch_sdpa": "PyTorch SDPA",
    }
    rivals = {name: label for name, label in rivals.items() if any(key[2] == name for key in found)}
    lines = []
    for direction, length in sorted({(p["pass"], p["length"]) for p in points}):
        ours, theirs = found[direction, length, "ours"], found.get((direction, length, "jax_nn"))
        line = [direction, str(length)]
        for name in rivals:
            line.append(_speed(found.get((direction, length, name), {}).get("time_over_ours"), decimals=2))
        memory = None if theirs is None else ours["temporary_bytes"] / max(1, theirs["temporary_bytes"])
        line += [table.number(memory, decimals=3), _speed(ours["ours_speedup_by_causality"], decimals=2)]
        lines.append(tuple(line))
    columns = ("pass", "T", *rivals.values(), "temporary memory, ours / jax.nn", "causal over not, ours")
    config, place = data["config"], data["environment"]
    note = (
        f"Not causal but in the last column; {config['dtype']}, {config['num_heads']} heads of {config['head_dim']}, "
        f"batch {config['tokens']} / T but at least 1, on {place['cpu_count']} CPUs. Median over interleaved rounds in "
        "one process, quartiles in brackets. –: its weights take too much memory for this benchmark."
    )
    return table.Cells("How many times faster than", columns, tuple(lines), note).markdown()


_BLOCKS: dict[str, tuple[str, Callable[[Mapping[str, Any]], str]]] = {
    f"{source}-{name}": (source, _cells(make))
    for source in ("capacity", "capacity-paper")
    for name, make in (
        ("table", table.threshold_cells),
        ("ceiling", table.ceiling_cells),
        ("real", table.real_cells),
    )
} | {
    "retrieval-heads": ("retrieval", _cells(retrieval_table.heads_cells)),
    "retrieval-jumps": ("retrieval", _cells(retrieval_table.jumps_cells)),
    "retrieval-copy": ("retrieval", _cells(retrieval_table.copy_cells)),
    "retrieval-claims": ("retrieval", _cells(retrieval_table.claims_cells)),
    "bench": ("bench", bench_table),
    "attention": ("attention", attention_table),
}


def values(data: Mapping[str, Any]) -> dict[str, str]:
    """Every number of a `capacity` run that prose may name, without the name of the source.

    ``best.h4``, ``joint.h4``, ``exact.h4``, ``partition.h4``, ``parameter-count.h4``: budgets at four heads;
    ``best-ratio.h4`` (over the fixed partition), ``joint-ratio.h4`` (over the parameter count),
    ``joint-over-best.h4``; ``exact-heads.h4``: heads that the smallest exact channel uses.
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
    best, joint = (table.only(select(here, trainer=name)) for name in ("best", "joint"))
    partition, law = open_prediction(here[0], PARTITION), open_prediction(here[0], PARAMETER_COUNT)
    found = [record["measured_total_key_dim"] if record else None for record in (best, joint)]
    exact = [r["smallest_exact"] for r in here if r.get("smallest_exact") is not None]
    words = [
        table.measured(record) if value is None else f"{value:.1f}"
        for record, value in zip((best, joint), found, strict=True)
    ]
    return {
        "best": words[0],
        "joint": words[1],
        "exact": table.number(min(exact) if exact else None, "none", 0),
        "partition": table.predicted(here[0], PARTITION),
        "parameter-count": table.predicted(here[0], PARAMETER_COUNT),
        "best-ratio": table.ratio(found[0], partition),
        "joint-ratio": table.ratio(found[1], law),
        "joint-over-best": table.ratio(found[1], found[0]),
    }


_VALUES: dict[str, Callable[[Mapping[str, Any]], dict[str, str]]] = {
    "capacity": values,
    "capacity-paper": values,
    "capacity-doubled-cap": values,
    "retrieval": retrieval_table.values,
}


def load(root: Path = ROOT) -> dict[str, Any]:
    """The committed json files that exist, by source."""
    paths = {name: root / path for name, path in SOURCES.items()}
    return {name: json.loads(path.read_text("utf-8")) for name, path in paths.items() if path.exists()}


def fill(text: str, sources: Mapping[str, Any]) -> str:
    """``text`` with every block and value replaced; those of a source that is not given stay as they are.

    Args:
        text: a README.
        sources: contents of the json files, by the names in `SOURCES`.

    Returns:
        The new text. Filling it again changes nothing.

    Raises:
        ValueError: a marker with an unknown name, or without its partner.
    """
    numbers = {
        f"{name}.{key}": value
        for name, data in sources.items()
        if name in _VALUES
        for key, value in _VALUES[name](data).items()
    }

    def block(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in _BLOCKS:
            raise ValueError(f"text: expected a block among {sorted(_BLOCKS)}, got {name!r}")
        source, make = _BLOCKS[name]
        if source not in sources:
            return match[0]
        return f"<!-- begin: {name} -->\n{make(sources[source])}<!-- end: {name} -->"

    def value(match: re.Match[str]) -> str:
        name = match["name"]
        source = name.split(".")[0]
        if source in SOURCES and source not in sources:
            return match[0]
        if name not in numbers:
            close = difflib.get_close_matches(name, numbers, n=3)
            hint = f" (close: {', '.join(close)})" if close else ""
            raise ValueError(f"text: expected a value that `--list` names, got {name!r}{hint}")
        return f"<!-- value: {name} -->{numbers[name]}<!-- /value -->"

    rest = _MARKER.search(_VALUE.sub("", _BLOCK.sub("", text)))
    if rest:
        raise ValueError(f"text: expected markers in pairs, got {rest[0]!r} without its partner")
    return _VALUE.sub(value, _BLOCK.sub(block, text))


def main(argv: list[str] | None = None, root: Path = ROOT) -> int:
    """Fill README.md of the folder ``root``; see the module's docstring.

    Returns:
        Exit status: 1 where ``--check`` finds a difference, or README.md has a bad marker.
    """
    parser = argparse.ArgumentParser(
        prog="python -m experiments.readme", description=(__doc__ or "").split(":")[0]
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 where README.md differs"
    )
    parser.add_argument("--list", action="store_true", help="print the values' names with their numbers")
    arguments = parser.parse_args(argv)
    sources = load(root)
    if arguments.list:
        for source in sources.keys() & _VALUES.keys():
            for name, text in _VALUES[source](sources[source]).items():
                print(f"{source}.{name}\t{text}")
        return 0
    path = root / "README.md"
    text = path.read_text("utf-8")
    try:
        filled = fill(text, sources)
    except ValueError as error:
        print(f"README.md: {error}", file=sys.stderr)
        return 1
    for name, file in SOURCES.items():
        if name not in sources:
            print(f"{file} is not there: what it would fill stays as it is")
    if filled == text:
        print("README.md says what the records say")
        return 0
    difference = "".join(
        difflib.unified_diff(text.splitlines(True), filled.splitlines(True), "README.md", "records", n=0)
    )
    print(difference, end="")
    if arguments.check:
        print("README.md differs from the records: make readme", file=sys.stderr)
        return 1
    style.write(path, filled.encode("utf-8"))
    print("README.md filled in")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
