"""How many heads, of which size, sharing how many keys: a plan for the key-query channel of one layer.

A layer is to hold a graph of ``m'`` relations over ``m`` items in ``R^d``. For every head count the plan puts side by
side what must be (*theorems*), what heads with edges dealt out beforehand need (*prediction* by width) and what joint
gradient descent needs (*empirical law*, by parameters), and recommends what training reaches:

1. ``d_k`` is the least multiple of ``head_dim_multiple`` at which the law and all theorems hold;
2. among head counts, those within ``SLACK`` of the least budget ``D_K = h d_k`` are as good; the fewest heads are
   taken, since time per step grows with ``h`` at equal operations;
3. where the cache is limited, key heads are shared as little as fits (``g`` a divisor of ``h``, ``2 g d_k`` numbers a
   token): per cached dimension sharing costs no capacity (`theory.cache_capacity`), but it costs parameters.

Heads share keys by the extrapolation of the law to degrees of freedom of shared maps, a *prediction*. Items are
Gaussian, edges random. Real relations may need less. All of it is a capacity argument for the key-query channel, in
which a pair is found where its greatest score over heads exceeds a threshold: no promise of a model's quality.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from theory._numbers import integer
from theory.bounds import (
    counting_bound,
    one_dimensional_cap,
    parameter_count_total_key_dim,
    partition_total_key_dim,
    warren_bound,
)
from theory.cache_capacity import (
    cached_dims,
    latent_parameter_cache_dims,
    shared_key_parameter_cache_dims,
)
from theory.graphs import log2_num_random_graphs

SLACK = 1.05
BITS_PER_PARAMETER = 16.0
"""Bits of the counting bound: bfloat16 weights."""
HEAD_COUNTS = tuple(sorted({*(2**i for i in range(8)), *(3 * 2**i for i in range(6))}))


@dataclass(frozen=True)
class HeadCount:
    """What one head count needs.

    Attributes:
        num_heads: h.
        theorem: D_K below which some graph of the kind is lost: the greater of Warren's count, bits, and ``2 h`` where
            heads of one dimension cannot hold a matching of that size; inf where no head size suffices.
        partition: D_K of a fixed even partition, a prediction; inf where it fails at d_k = d.
        law: D_K of plain joint descent, an empirical law; likewise.
        head_dim: least d_k allowed that meets the law and the theorems, None where there is none up to d.
    """

    num_heads: int
    theorem: float
    partition: float
    law: float
    head_dim: int | None

    @property
    def total_key_dim(self) -> int | None:
        """``h d_k``."""
        return None if self.head_dim is None else self.num_heads * self.head_dim


@dataclass(frozen=True)
class Choice:
    """A layer.

    Attributes:
        num_heads: h.
        head_dim: d_k, of queries, keys and values.
        num_kv_heads: g.
        cache_dims: numbers a token leaves in the cache of the layer, keys and values: ``2 g d_k``.
        latent_dim: d_c with which a latent (counted once, its rotary key left out) would do instead; None where no
            latent up to d does.
    """

    num_heads: int
    head_dim: int
    num_kv_heads: int
    cache_dims: int
    latent_dim: int | None


@dataclass(frozen=True)
class Plan:
    """A plan; see the module's docstring.

    Attributes:
        num_relations: m'.
        num_items: m.
        d_model: d.
        cache_limit: numbers a token may leave in the layer's cache, None for no limit.
        rows: one for every head count considered.
        window: fewest and most of these head counts that the law holds at ``D_K = d``, the usual budget; None, None.
        choice: what is recommended, None where nothing considered holds the graph.
        limits: what keeps the recommendation from being smaller, or from being at all, in words.
    """

    num_relations: int
    num_items: int
    d_model: int
    cache_limit: int | None
    rows: tuple[HeadCount, ...]
    window: tuple[int | None, int | None]
    choice: Choice | None
    limits: tuple[str, ...]


def plan(
    num_relations: int,
    num_items: int,
    d_model: int,
    *,
    cache_dims: int | None = None,
    num_heads: Sequence[int] = HEAD_COUNTS,
    head_dim_multiple: int = 1,
) -> Plan:
    """Plan a layer.

    Args:
        num_relations: m', edges of the graph, at most m (m - 1).
        num_items: m, at least 2.
        d_model: d, width of the layer's input.
        cache_dims: most numbers a token may leave in the layer's cache, keys and values together.
        num_heads: head counts to consider.
        head_dim_multiple: d_k is a multiple of it; 8 or 16 suit most hardware.

    Returns:
        The plan; ``choice`` is None where nothing considered is predicted to do.

    Raises:
        ValueError: a size out of range.
    """
    if not num_heads:
        raise ValueError("num_heads: expected at least one head count, got none")
    heads = sorted({_size("num_heads", h) for h in num_heads})
    multiple = _size("head_dim_multiple", head_dim_multiple)
    sizes = _size("num_items", num_items, 2), _size("num_relations", num_relations), _size("d_model", d_model)
    if sizes[1] > sizes[0] * (sizes[0] - 1):
        raise ValueError(
            f"num_relations: expected at most num_items * (num_items - 1) = {sizes[0] * (sizes[0] - 1)}, "
            f"got {sizes[1]}"
        )
    limit = None if cache_dims is None else _size("cache_dims", cache_dims)
    rows = tuple(_row(*sizes, h, multiple) for h in heads)
    choice = _choose(rows, sizes, limit, multiple)
    inside = [row.num_heads for row in rows if max(row.law, row.theorem) <= d_model]
    window = (inside[0], inside[-1]) if inside else (None, None)
    return Plan(
        sizes[1],
        sizes[0],
        sizes[2],
        limit,
        rows,
        window,
        choice,
        _limits(rows, choice, limit, multiple, sizes),
    )


def _size(name: str, value: int, minimum: int = 1) -> int:
    array = integer(name, value, minimum)
    if array.ndim:
        raise ValueError(f"{name}: expected one number, got an array of shape {array.shape}")
    return int(array)


def _row(m: int, edges: int, d: int, h: int, multiple: int) -> HeadCount:
    bits = log2_num_random_graphs(m, edges)
    theorem = max(warren_bound(bits, m, d, h), counting_bound(bits, d, BITS_PER_PARAMETER))
    if one_dimensional_cap(h) < _matching(m, edges):
        theorem = max(theorem, 2.0 * h)
    law = parameter_count_total_key_dim(m, edges, d, h)
    needed = max(law, theorem)
    head_dim = None
    if math.isfinite(needed):
        head_dim = _up(needed / h, multiple)
        head_dim = head_dim if head_dim <= d else None
    return HeadCount(h, theorem, partition_total_key_dim(m, edges, d, h), law, head_dim)


def _matching(m: int, edges: int) -> int:
    """Edges of a matching whose other pairs are non-edges, in the graph on ``m`` items that has most of them.

    Up to ``m`` edges it is all of them; beyond, half of the items are matched among each other and the rest of the
    edges lie elsewhere, where there is room.
    """
    if edges <= m:
        return edges
    half = m // 2
    return half if edges - half <= m * (m - 1) - half * (half - 1) else 0


def _up(value: float, multiple: int) -> int:
    """The least multiple that is not below a value, but for rounding."""
    return multiple * max(1, math.ceil(value / multiple - 1e-9))


def _choose(
    rows: Sequence[HeadCount], sizes: tuple[int, int, int], limit: int | None, multiple: int
) -> Choice | None:
    if limit is None:
        budgets = {row.num_heads: row.total_key_dim for row in rows if row.total_key_dim is not None}
        layers = {h: (budget // h, h) for h, budget in budgets.items()}
    else:
        layers = {
            row.num_heads: fitting
            for row in rows
            if (fitting := _within_cache(row, sizes, limit, multiple)) is not None
        }
        budgets = {h: h * head_dim for h, (head_dim, _) in layers.items()}
    if not layers:
        return None
    least = min(budgets.values())
    h = min(h for h, budget in budgets.items() if budget <= SLACK * least)
    head_dim, groups = layers[h]
    m, edges, d = sizes
    latent = float(latent_parameter_cache_dims(m, edges, d, h, head_dim))
    latent_dim = math.ceil(latent - 1e-9) if math.isfinite(latent) else None
    return Choice(h, head_dim, groups, int(cached_dims(groups, head_dim, head_dim)), latent_dim)


def _within_cache(
    row: HeadCount, sizes: tuple[int, int, int], limit: int, multiple: int
) -> tuple[int, int] | None:
    """(d_k, g) with as little sharing as the cache allows."""
    m, edges, d = sizes
    if not math.isfinite(row.theorem):
        return None
    h = row.num_heads
    groups = np.array([g for g in range(h, 0, -1) if h % g == 0])
    shared = np.asarray(shared_key_parameter_cache_dims(m, edges, d, h, groups)) / groups
    for g, head_dim in zip(groups.tolist(), shared.tolist(), strict=True):
        needed = max(head_dim, row.theorem / h)
        if not math.isfinite(needed):
            continue
        k = _up(needed, multiple)
        if k <= d and int(cached_dims(g, k, k)) <= limit:
            return k, g
    return None


def _limits(
    rows: Sequence[HeadCount],
    choice: Choice | None,
    limit: int | None,
    multiple: int,
    sizes: tuple[int, int, int],
) -> tuple[str, ...]:
    d = sizes[2]
    failing = [row.num_heads for row in rows if math.isinf(row.law)]
    said = []
    if failing:
        few = "one head" if max(failing) == 1 else f"up to {max(failing)} heads"
        said.append(
            f"rank: with {few}, a head's share of the relations asks for more than the d² = {d * d:,} "
            "parameters that it can have, at any d_k"
        )
    if choice is None:
        if limit is not None and any(row.head_dim is not None for row in rows):
            said.append(f"cache: no sharing of keys of those considered fits {limit:,} numbers a token")
        elif len(failing) < len(rows):
            said.append(f"head size: no multiple of {multiple:,} up to d_model = {d:,} is enough")
        else:
            said.append("none of the head counts considered is predicted to hold the graph")
        return tuple(said)
    row = next(row for row in rows if row.num_heads == choice.num_heads)
    if choice.num_kv_heads < choice.num_heads:
        shared = f"{choice.num_heads} heads share {choice.num_kv_heads} of keys and values"
        said.append(f"cache: {limit:,} numbers a token, so that {shared}")
    if row.theorem >= row.law:
        said.append(f"theorem: D_K below {row.theorem:,.0f} cannot hold every such graph")
    else:
        said.append(
            f"training: plain joint descent has been seen to need D_K of about {row.law:,.0f} (its law)"
        )
    return tuple(said)
