"""Claims on what heads cost: operations, time, cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from experiments.intervals import Interval, above, at_least, at_most, below, difference, every, ratio
from experiments.ledger.books import Books, Record, interval, ranges, span
from experiments.ledger.entry import Entry, Part
from experiments.reading import select

HEADS, DECODE, CACHE, CONVERSION = "bench/heads", "bench/decode", "cache/quick", "conversion/quick"
EQUAL = 1.1
"""Factor up to which a cost counts as that of one head."""
FREE = 0.02
"""Share of the edges up to which less held counts as none lost."""
LONG = 4096
"""Tokens of a context from which on it counts as long."""
LATENT = 0.5
"""Share of MHA's cache that counts as far less."""
UNUSABLE = 2.0
"""Nats a token above the original."""
CONTENDERS = {"ours": "ours", "ours_dense": "ours, dense", "jax_nn": "jax.nn", "torch_sdpa": "PyTorch"}
GQA, MQA, MLA = "GQA (Ainslie et al. 2023)", "MQA (Shazeer 2019)", "MLA (DeepSeek-V2)"


def _equal_cost(books: Books) -> Sequence[Part]:
    points = books[HEADS]["points"] if HEADS in books else []
    if not points:
        return []
    products = {row["product_operations"] for row in points}
    heads = ranges(row["num_heads"] for row in points)
    ratio = max(products) / min(products)
    parts = [
        Part(
            "operations of the products",
            ratio <= EQUAL,
            f"operations of the products, h = {heads}: times {ratio:.2f}",
        )
    ]
    for contender, name in CONTENDERS.items():
        own = sorted(select(points, contender=contender), key=lambda row: row["num_heads"])
        if len(own) < 2:
            continue
        times = {row["num_heads"]: row["time_over_fewest_heads"] for row in own}
        most = own[-1]["num_heads"]
        text = f"time at h = {most}, {name}: times {_quartiles(times[most])}"
        equal = at_most(EQUAL, times[most]["low"], times[most]["high"])
        parts.append(Part(f"time, {name}", equal, text))
    return parts


def _quartiles(value: Mapping[str, float]) -> str:
    return interval(value["median"], value["low"], value["high"])


def _balance(books: Books) -> Sequence[Part]:
    return [*_bytes(books), *_equal_cache(books), *_equal_parameters(books)]


def _prediction(books: Books, name: str) -> Mapping[str, Any] | None:
    return books[DECODE]["predictions"].get(name) if DECODE in books else None


def _bytes(books: Books) -> Sequence[Part]:
    found = _prediction(books, "bytes")
    if found is None:
        return []
    most = max(abs(value) for value in found["numbers"].values())
    sizes = {row["design"]: row["bytes_per_token"] for row in books[DECODE]["points"]}
    text = ", ".join(f"{design.upper()} {size:,}" for design, size in sizes.items())
    return [Part("bytes", most == 0, f"bytes a token caches, off the formulas by {most:g}: {text}")]


_SHARING = {"mha": 0, "gqa": 1, "mqa": 2}


def _budgets(books: Books, budget: str) -> dict[tuple[int, int], list[Record]]:
    """Designs at equal budgets, from own keys to one key head, by heads and size."""
    groups: dict[tuple[int, int], list[Record]] = {}
    for row in select(books.rows(CACHE, "budgets"), budget=budget):
        if row["design"] in _SHARING and row["held_median"] is not None:
            groups.setdefault((row["num_heads"], row["size"]), []).append(row)
    return {
        place: sorted(own, key=lambda row: -row["num_kv_heads"])
        for place, own in groups.items()
        if len(own) > 1
    }


def _designs(own: Sequence[Record]) -> str:
    return ", ".join(
        f"{row['num_kv_heads']} key head{'s' if row['num_kv_heads'] > 1 else ''} "
        f"{interval(row['held_median'], row['held_low'], row['held_high'], '.2f')}"
        for row in own
    )


def _equal_cache(books: Books) -> Sequence[Part]:
    groups = _budgets(books, "cache")
    if not groups:
        return []
    held = every(
        at_least(-FREE, *difference(_held(b), _held(a))[1:])
        for own in groups.values()
        for a, b in pairwise(own)
    )
    (heads, size), own = min(groups.items(), key=lambda item: item[0])
    text = f"edges held at a cache of {size}, h = {heads}: {_designs(own)}"
    return [Part("sharing is free at an equal cache", held, text)]


def _equal_parameters(books: Books) -> Sequence[Part]:
    groups = _budgets(books, "parameters")
    if not groups:
        return []
    held = every(every(_costs(own)) for own in groups.values())
    (heads, size), own = max(groups.items(), key=lambda item: item[0])
    text = f"at no more than {size} parameters, h = {heads}: {_designs(own)}"
    return [Part("sharing costs at equal parameters", held, text)]


def _costs(own: Sequence[Record]) -> list[bool | None]:
    """Of designs from own keys to one key head: no shared keys hold more than own keys, one key head holds less."""
    over = [difference(_held(row), _held(own[0])) for row in own[1:]]
    return [*(at_most(0, found.low, found.high) for found in over), below(0, over[-1].low, over[-1].high)]


def _held(row: Record) -> Interval:
    """Share of the edges held: median of the seeds, and their range."""
    return Interval(row["held_median"], row["held_low"], row["held_high"])


def _speeds(books: Books) -> Sequence[Part]:
    parts = []
    for design in ("gqa", "mqa"):
        found = _prediction(books, design)
        if found is not None:
            text = ", ".join(f"{where} {value:.1f}" for where, value in found["numbers"].items())
            name = design.upper()
            parts.append(Part(name, every(_faster(books, design)), f"{name}: times {text}"))
    return parts


def _faster(books: Books, design: str) -> list[bool | None]:
    """Whether a design decodes faster than MHA at the longest context, for each batch, by quartiles."""
    points = books[DECODE]["points"]
    longest = max(row["context"] for row in points)
    rows = select(points, contender=design, context=longest)
    return [above(1, row["speed_over_mha"]["low"], row["speed_over_mha"]["high"]) for row in rows]


def _absorbed(books: Books) -> Sequence[Part]:
    found = _prediction(books, "absorbed")
    if found is None:
        return []
    values = list(found["numbers"].values())
    rows = [row for row in books[DECODE]["points"] if row["context"] >= LONG and "speed_over_naive" in row]
    quartiles = [row["speed_over_naive"] for row in rows]
    faster = every(above(1, own["low"], own["high"]) for own in quartiles)
    return [Part("long contexts", faster, f"times {span(values, '.1f')} from {LONG:,} tokens on")]


def _smallest(books: Books) -> Sequence[Part]:
    parts = []
    rows = [
        r for r in select(books.rows(CACHE, "transitions"), trainer="best") if r["cache_dims_with_values"]
    ]
    for place in dict.fromkeys((r["num_items"], r["num_heads"]) for r in rows):
        own = select(rows, num_items=place[0], num_heads=place[1])
        latent, full = select(own, design="mla"), select(own, design="mha")
        if not latent or not full:
            continue
        less = ratio(_threshold(latent[0]), _threshold(full[0]))
        text = ", ".join(f"{_label(row)} {row['cache_dims_with_values']:.1f}" for row in own)
        where = f"m = {place[0]}, h = {place[1]}"
        text += f", MLA over MHA {interval(*less, '.2f')}"
        parts.append(Part(where, at_most(LATENT, less.low, less.high), f"{where}: {text}"))
    return parts


def _threshold(row: Record) -> Interval:
    """Cached dimensions, with values, at which half of the graphs are recovered.

    Their interval is that of the cached key dimensions, in the same proportion.
    """
    scale = row["cache_dims_with_values"] / row["measured_cache_dims"]
    return Interval(*(scale * end for end in (row["measured_cache_dims"], row["ci_low"], row["ci_high"])))


def _label(row: Record) -> str:
    return f"GQA-{row['num_kv_heads']}" if row["design"] == "gqa" else row["design"].upper()


def _pooling(books: Books) -> Sequence[Part]:
    rows = {row["method"]: row for row in select(books.rows(CONVERSION, "conversions"), part="both")}
    if not {"mean", "first"} <= set(rows):
        return []
    mean, first = rows["mean"], rows["first"]
    text = ", ".join(
        f"{name} {interval(row['excess'], row['excess_low'], row['excess_high'], '.2f')}"
        for name, row in (("mean", mean), ("first", first))
    )
    more = difference(
        *(Interval(*(row[f"excess{end}"] for end in ("", "_low", "_high"))) for row in (first, mean))
    )
    text += f", difference {interval(*more, '.2f')}"
    return [Part("pooled keys and values", above(0, more.low, more.high), f"excess nats: {text}")]


def _unusable(books: Books) -> Sequence[Part]:
    parts = []
    for row in select(books.rows(CONVERSION, "conversions"), part="both", num_kv_heads=1):
        if row["method"] in ("mean", "svd_inputs"):
            how = "the mean" if row["method"] == "mean" else "a low-rank fit that knows the inputs"
            shown = interval(row["excess"], row["excess_low"], row["excess_high"], ".2f")
            unusable = at_least(UNUSABLE, row["excess_low"], row["excess_high"])
            parts.append(Part(f"merged by {how}", unusable, f"{how}: {shown} nats more"))
    return parts


ENTRIES = (
    Entry(
        "equal-cost",
        "d_k = d_model / h keeps the cost about that of one head.",
        f"at most {EQUAL:g} times that of one head, up to the most heads; of times the quartiles",
        (HEADS,),
        _equal_cost,
        "figures/bench/heads",
        4,
        ("Vaswani et al. 2017, Table 3 (A): compute kept constant",),
    ),
    Entry(
        "balance",
        "Heads cost KV cache; GQA, MQA and MLA look for a new balance.",
        f"caches take the bytes of the papers' formulas; edges held do not fall (by more than {FREE:g}) from MHA to "
        "MQA at an equal cache, but do at equal parameters; by differences of medians with the seeds' ranges",
        (CACHE, DECODE),
        _balance,
        "figures/cache/quick-budgets",
        22,
        (GQA, MQA, MLA),
    ),
    Entry(
        "cache-speed",
        "A smaller cache decodes faster.",
        "more tokens per second than MHA at the longest context, quartiles of the ratio above 1",
        (DECODE,),
        _speeds,
        "figures/bench/decode",
        papers=(GQA, MQA),
    ),
    Entry(
        "absorbed",
        "Up-projections of latents can be absorbed, so that decoding reads latents alone.",
        "faster than up-projecting every cached latent, quartiles of the ratio above 1",
        (DECODE,),
        _absorbed,
        "figures/bench/decode",
        papers=(MLA,),
    ),
    Entry(
        "latent",
        "MLA caches far less than MHA at no loss.",
        f"with values, half of the graphs are recovered at no more than {LATENT:g} of MHA's cached dimensions, by the "
        "95% interval of the ratio",
        (CACHE,),
        _smallest,
        "figures/cache/quick-thresholds",
        papers=(MLA,),
    ),
    Entry(
        "sharing-costs",
        "With heads of one size, fewer key-value heads cost quality (MHA above GQA above MQA).",
        "at equal parameters no design with shared keys holds more edges than own keys, and one key head fewer; by "
        "differences of medians with the seeds' ranges",
        (CACHE,),
        _equal_parameters,
        "figures/cache/quick-budgets",
        papers=(f"{MLA}, ablations",),
    ),
    Entry(
        "pooling",
        "Converted to fewer key-value heads, the mean of a group is better than its first head.",
        "a smaller excess loss in SmolLM2, by the interval of the difference",
        (CONVERSION,),
        _pooling,
        "figures/conversion/quick-loss",
        papers=(GQA,),
    ),
    Entry(
        "unusable",
        "Converted to a single key-value head, a model is unusable without further training.",
        f"{UNUSABLE:g} nats a token or more above the original",
        (CONVERSION,),
        _unusable,
        "figures/conversion/quick-loss",
        papers=(GQA,),
    ),
)
