"""Fill in numbers from the committed records: ``python -m experiments.readme [--check]``.

The texts are README.md, README.zh-CN.md, two pages of docs and docs/findings/*.md.

Everything between ``<!-- begin: NAME -->`` and ``<!-- end: NAME -->`` is replaced by the block of that name,
what stands between ``<!-- value: NAME -->`` and ``<!-- /value -->`` by one number. Names begin with where they come
from, a key of `SOURCES`: the block ``capacity-table``, the value ``capacity.best.h4``.

``--list`` prints the values' names. Where a file does not exist, what it would fill stays as it is.
``--check`` writes nothing and exits with 1 where a text differs from what the records say.
"""

import argparse
import difflib
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from experiments import bench_heads, bench_tables, style
from experiments.audit import records as audit_records
from experiments.audit import table as audit
from experiments.bands import table as bands
from experiments.block import table as block
from experiments.cache import table as cache
from experiments.capacity import prose as capacity
from experiments.certificates import table as certificates
from experiments.constructions import table as constructions
from experiments.conversion import table as conversion
from experiments.fullscale import table as fullscale
from experiments.gap import table as gap
from experiments.joint import table as joint
from experiments.pruning import table as pruning
from experiments.rank import table as rank
from experiments.redundancy import table as redundancy
from experiments.regimes import table as regimes
from experiments.relations import table as relations
from experiments.retrieval import table as retrieval
from experiments.roles import table as roles
from experiments.softmax import table as softmax
from experiments.translation import table as translation
from experiments.tries import table as tries

ROOT = Path(__file__).parents[1]
Data = Mapping[str, Any]


class Source(NamedTuple):
    """A committed json file and what prose may say of it.

    Attributes:
        path: from the root.
        blocks: Markdown by name; the block ``""`` bears the source's own name.
        values: numbers by name.
    """

    path: str
    blocks: Mapping[str, Callable[[Data], str]]
    values: Callable[[Data], dict[str, str]] = lambda _: {}


SOURCES = {
    "capacity": Source("figures/capacity/quick.json", capacity.BLOCKS, capacity.values),
    "capacity-paper": Source("figures/capacity/paper.json", capacity.BLOCKS, capacity.values),
    "capacity-doubled-cap": Source("figures/capacity/doubled-cap.json", {}, capacity.values),
    "retrieval": Source("figures/retrieval/quick.json", retrieval.BLOCKS, retrieval.values),
    "retrieval-targets": Source("figures/retrieval/targets.json", {}, retrieval.values),
    "roles": Source("figures/roles/quick.json", roles.BLOCKS, roles.values),
    "pruning": Source("figures/pruning/quick.json", pruning.BLOCKS, pruning.values),
    "pruning-minilm": Source("figures/pruning/minilm.json", pruning.BLOCKS, pruning.values),
    "pruning-smollm": Source("figures/pruning/smollm.json", pruning.BLOCKS, pruning.values),
    "tries": Source("figures/tries/quick.json", tries.BLOCKS, tries.values),
    "audit": Source("figures/audit/quick.json", audit.BLOCKS, audit_records.values),
    "cache": Source("figures/cache/quick.json", cache.BLOCKS, cache.values),
    "conversion": Source("figures/conversion/quick.json", conversion.BLOCKS, conversion.values),
    "rank": Source("figures/rank/quick.json", rank.BLOCKS, rank.values),
    "relations": Source("figures/relations/quick.json", relations.BLOCKS, relations.values),
    "constructions": Source("figures/constructions/quick.json", constructions.BLOCKS, constructions.values),
    "bands": Source("figures/bands/quick.json", bands.BLOCKS, bands.values),
    "translation": Source("figures/translation/quick.json", translation.BLOCKS, translation.values),
    "translation-paper": Source("figures/translation/paper.json", translation.BLOCKS, translation.values),
    "redundancy": Source("figures/redundancy/quick.json", redundancy.BLOCKS, redundancy.values),
    "softmax": Source("figures/softmax/quick.json", softmax.BLOCKS, softmax.values),
    "block": Source("figures/block/quick.json", block.BLOCKS, block.values),
    "certificates": Source("figures/certificates/quick.json", certificates.BLOCKS, certificates.values),
    "joint": Source("figures/joint/quick.json", joint.BLOCKS, joint.values),
    "gap": Source("figures/gap/quick.json", gap.BLOCKS, gap.values),
    "gap-deep": Source("figures/gap/deep.json", gap.BLOCKS, gap.values),
    "joint-long": Source("figures/joint/long.json", joint.BLOCKS, joint.values),
    "regimes": Source("figures/regimes/quick.json", regimes.BLOCKS, regimes.values),
    "fullscale": Source("figures/fullscale/quick.json", fullscale.BLOCKS, fullscale.values),
    "fullscale-paper": Source("figures/fullscale/paper.json", fullscale.BLOCKS, fullscale.values),
    "certificates-drift": Source("figures/certificates/drift.json", {}, certificates.values),
    "bench": Source("figures/bench/bench.json", {"": bench_tables.bench_table}),
    "attention": Source(
        "figures/bench/attention.json",
        {"": bench_tables.attention_table},
        bench_tables.attention_values,
    ),
    "decode": Source(
        "figures/bench/decode.json", {"": bench_tables.decode_table}, bench_tables.decode_values
    ),
    "heads": Source("figures/bench/heads.json", {"": bench_heads.heads_table}, bench_tables.heads_values),
}

_BLOCK = re.compile(r"<!-- begin: (?P<name>[^\s>]+) -->\n.*?<!-- end: (?P=name) -->", re.DOTALL)
_VALUE = re.compile(r"<!-- value: (?P<name>[^\s>]+) -->[^<\n]*<!-- /value -->")
_MARKER = re.compile(r"<!-- (?:begin:|end:|value:|/value)[^>]*>")
_BLOCKS = {
    "-".join(filter(None, (source, name))): (source, make)
    for source, (_, blocks, _) in SOURCES.items()
    for name, make in blocks.items()
}


def load(root: Path = ROOT) -> dict[str, Any]:
    """The committed json files that exist, by source."""
    paths = {name: root / source.path for name, source in SOURCES.items()}
    return {name: json.loads(path.read_text("utf-8")) for name, path in paths.items() if path.exists()}


def values(name: str, data: Data) -> dict[str, str]:
    """All numbers of a source that prose may name.

    Args:
        name: of the source.
        data: contents of its json file.

    Returns:
        What the source gives, and ``core-minutes``, what its batches took, where the file says so.
    """
    computing = data.get("computing")
    took = {"core-minutes": f"{computing['seconds'] / 60:.0f}"} if computing else {}
    return took | SOURCES[name].values(data)


def fill(text: str, sources: Mapping[str, Any]) -> str:
    """``text`` with every block and value replaced; those of a source that is not given stay as they are.

    Args:
        text: Markdown.
        sources: contents of the json files, by the names in `SOURCES`.

    Returns:
        The new text. Filling it again changes nothing.

    Raises:
        ValueError: a marker with an unknown name, or without its partner.
    """
    numbers = {
        f"{name}.{key}": value for name, data in sources.items() for key, value in values(name, data).items()
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
    """Fill the texts of the folder ``root``; see the module's docstring.

    Returns:
        Exit status: 1 where ``--check`` finds a difference, or a text has a bad marker.
    """
    parser = argparse.ArgumentParser(
        prog="python -m experiments.readme", description=(__doc__ or "").split(":")[0]
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 where a text differs"
    )
    parser.add_argument("--list", action="store_true", help="print the values' names with their numbers")
    arguments = parser.parse_args(argv)
    sources = load(root)
    if arguments.list:
        for source, data in sources.items():
            for name, text in values(source, data).items():
                print(f"{source}.{name}\t{text}")
        return 0
    for name, source in SOURCES.items():
        if name not in sources:
            print(f"{source.path} is not there: what it would fill stays as it is")
    return max(_fill_file(path, root, sources, arguments.check) for path in texts(root))


def texts(root: Path = ROOT) -> list[Path]:
    """The files to be filled in."""
    docs = root / "docs"
    others = (root / "README.zh-CN.md", docs / "theory.md", docs / "experiments.md")
    findings = sorted((docs / "findings").glob("*.md"))
    return [root / "README.md", *(path for path in others if path.exists()), *findings]


def _fill_file(path: Path, root: Path, sources: Mapping[str, Data], check: bool) -> int:
    name, text = path.relative_to(root), path.read_text("utf-8")
    try:
        filled = fill(text, sources)
    except ValueError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    if filled == text:
        print(f"{name} says what the records say")
        return 0
    lines = text.splitlines(True), filled.splitlines(True)
    print("".join(difflib.unified_diff(*lines, str(name), "records", n=0)), end="")
    if check:
        print(f"{name} differs from the records: make readme", file=sys.stderr)
        return 1
    style.write(path, filled.encode("utf-8"))
    print(f"{name} filled in")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
