"""Plan a layer from the command line: ``python -m experiments plan --num-relations N --num-items N --d-model N``.

`theory.planner` does the work; here its numbers become tables, with real layers (`experiments.cache.models`) beside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import tyro
from rich.console import Console

from experiments.cache.models import MODELS, Model
from experiments.tables import Cells, show_lines
from theory.bounds import max_edges
from theory.cache_capacity import latent_width, shared_key_width
from theory.planner import HEAD_COUNTS, HeadCount, Plan, plan

CAVEAT = (
    "A capacity argument for the key-query channel alone (random relations over Gaussian items, a pair found where its "
    "best score over heads exceeds a threshold), not a promise of a model's quality."
)


@dataclass(frozen=True)
class PlanConfig:
    """What a layer is to hold.

    Attributes:
        num_relations: pairs of items that attention is to find.
        num_items: items in all, such as words of a vocabulary.
        d_model: width of the layer's input.
        cache_dims: most numbers a token may leave in the layer's cache, keys and values together.
        num_heads: head counts to consider.
        head_dim_multiple: the head size is a multiple of it.
    """

    num_relations: int
    num_items: int
    d_model: int
    cache_dims: int | None = None
    num_heads: tuple[int, ...] = HEAD_COUNTS
    head_dim_multiple: int = 8


def run(words: Sequence[str], console: Console) -> int:
    """Plan by the words of a command line, and print it; returns the exit status."""
    config = tyro.cli(PlanConfig, args=list(words), prog="python -m experiments plan")
    made = plan(
        config.num_relations,
        config.num_items,
        config.d_model,
        cache_dims=config.cache_dims,
        num_heads=config.num_heads,
        head_dim_multiple=config.head_dim_multiple,
    )
    console.print(heads_cells(made).rich())
    show_lines(console, ["", *said(made), ""])
    console.print(models_cells(made).rich())
    show_lines(console, ["", CAVEAT])
    return 0 if made.choice is not None else 1


def heads_cells(made: Plan) -> Cells:
    """Every head count with what it needs."""
    return Cells(
        f"Total key dimension D_K for {made.num_relations:,} relations over {made.num_items:,} items, "
        f"d_model = {made.d_model:,}",
        ("heads", "theorems", "fixed partition", "plain descent", "d_k", "D_K"),
        tuple(_row(row) for row in made.rows),
        "Theorems: lower bounds. Fixed partition: prediction for edges dealt out beforehand. Plain descent: empirical "
        "law. d_k: the least allowed size that meets law and theorems, every head with keys of its own; where heads "
        "share keys it is larger. ∞: fails at every size.",
    )


def _row(row: HeadCount) -> tuple[str, ...]:
    sizes = ("–", "–") if row.head_dim is None else (f"{row.head_dim:,}", f"{row.total_key_dim:,}")
    return (f"{row.num_heads}", *(number(x) for x in (row.theorem, row.partition, row.law)), *sizes)


def number(value: float) -> str:
    """A budget as it is printed: one digit behind the point below 100."""
    if math.isinf(value):
        return "∞"
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def said(made: Plan) -> list[str]:
    """The recommendation in words."""
    first, last = made.window
    lines = [
        f"At the usual budget D_K = d_model = {made.d_model:,}: "
        + ("no head count considered is enough." if first is None else f"{first} to {last} heads."),
    ]
    choice = made.choice
    if choice is None:
        lines.append("Recommended: nothing considered.")
    else:
        budget = choice.num_heads * choice.head_dim
        lines.append(
            f"Recommended: {choice.num_heads} heads of {choice.head_dim} (D_K = {budget:,}), "
            f"{choice.num_kv_heads} key/value heads; {choice.cache_dims:,} numbers a token in the cache."
        )
        if choice.latent_dim is not None and choice.latent_dim < choice.cache_dims:
            lines.append(
                f"With a latent for keys and values (MLA): {choice.latent_dim:,} numbers, and a rotary key beside them."
            )
    return lines + [f"What limits: {limit}." for limit in made.limits]


def models_cells(made: Plan) -> Cells:
    """Real layers: relations over as many items that they are predicted to hold."""
    return Cells(
        f"Layers of real models: relations over {made.num_items:,} items by a fixed partition (prediction)",
        (
            "model",
            "d",
            "heads",
            "key heads",
            "d_k",
            "cache a token",
            "relations",
            f"over {made.num_relations:,}",
        ),
        tuple(_model(made, model) for model in MODELS),
        "Each at its own width. With latents: their dimensions, without the rotary key.",
    )


def _model(made: Plan, model: Model) -> tuple[str, ...]:
    held = float(max_edges(made.num_items, model.num_heads, _width(model)))
    groups = model.num_kv_heads or model.num_heads
    cache = 2 * groups * model.head_dim if model.latent_dim is None else model.latent_dim + model.rope_dim
    shared = "latent" if model.latent_dim is not None else f"{groups}"
    return (
        model.name,
        f"{model.d_model:,}",
        f"{model.num_heads}",
        shared,
        f"{model.head_dim}",
        f"{cache:,}",
        f"{held:.3g}" if held >= 1e6 else f"{held:,.0f}",
        f"{held / made.num_relations:.3g}",
    )


@lru_cache(maxsize=16)
def _width(model: Model) -> float:
    size = model.d_model, model.num_heads
    if model.latent_dim is not None:
        return float(latent_width(*size, model.head_dim, model.latent_dim))
    return float(shared_key_width(*size, model.num_kv_heads or model.num_heads, model.head_dim))
