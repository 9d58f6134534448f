"""What the block experiment can be asked to do, and its presets."""

from __future__ import annotations

from dataclasses import dataclass

from experiments import checks

CONTROLS = ("frozen", "wide", "removed")
"""Scores frozen at zero; the same with a wide MLP; attention removed."""


@dataclass(frozen=True)
class BlockConfig:
    """Fields of the block experiment; every one can be overridden on the command line.

    Attributes:
        embedding: ``minilm-pca``, ``minilm-pca-whitened`` or ``gaussian``, at ``d_model`` dimensions.
        num_items: ``m`` there; the graph is a permutation.
        d_model: ``d`` there.
        context_size: items of a context, ``l``.
        total_key_dims: budgets ``D_K``.
        head_counts: ``h``; those that do not divide a budget are left out of it.
        controls: among frozen, wide, removed.
        control_heads: their head count, at the largest budget.
        full_items: ``m`` with MiniLM's own 384 dimensions; 0 for none.
        full_key_dim: ``D_K`` there.
        full_heads: ``h`` there.
        full_seeds: seeds there.
        full_steps: optimiser steps there.
        num_contexts: contexts of a step.
        num_steps: optimiser steps.
        learning_rate: Adam's, at its highest.
        full_learning_rate: the same with 384 dimensions.
        num_test: contexts on which every block is judged.
        seeds: graphs, items, initial weights.
    """

    embedding: str = "minilm-pca"
    num_items: int = 96
    d_model: int = 16
    context_size: int = 48
    total_key_dims: tuple[int, ...] = (24, 48)
    head_counts: tuple[int, ...] = (1, 2, 4, 8, 24)
    controls: tuple[str, ...] = CONTROLS
    control_heads: int = 8
    full_items: int = 768
    full_key_dim: int = 16
    full_heads: tuple[int, ...] = (1, 2, 4)
    full_seeds: int = 1
    full_steps: int = 1000
    num_contexts: int = 8
    num_steps: int = 3000
    learning_rate: float = 1e-2
    full_learning_rate: float = 1e-3
    num_test: int = 64
    seeds: int = 2


PRESETS = {
    "smoke": BlockConfig(
        embedding="gaussian",
        num_items=24,
        d_model=8,
        context_size=12,
        total_key_dims=(8,),
        head_counts=(1, 2),
        controls=("frozen",),
        control_heads=2,
        full_items=0,
        num_steps=100,
        num_test=8,
    ),
    "quick": BlockConfig(),
    "paper": BlockConfig(
        total_key_dims=(16, 24, 32, 48),
        head_counts=(1, 2, 3, 4, 6, 8, 12, 16, 24),
        full_heads=(1, 2, 4, 8),
        full_seeds=4,
        full_steps=4000,
        num_steps=12000,
        seeds=8,
    ),
}


def check(config: BlockConfig) -> BlockConfig:
    """The configuration, checked.

    Raises:
        ValueError: naming a field, what was expected and what came.
    """
    checks.positive(config, or_zero=("full_items",))
    checks.different(config)
    checks.known(config, controls=CONTROLS)
    checks.within(config, context_size=(2, config.num_items))
    if config.full_items and config.context_size % 2:
        raise ValueError(f"context_size: expected an even number for full_items, got {config.context_size}")
    if config.full_items and config.full_items < 4 * config.context_size:
        least = 4 * config.context_size
        raise ValueError(f"full_items: expected 0, or at least 4 contexts = {least}, got {config.full_items}")
    if config.total_key_dims and config.controls and max(config.total_key_dims) % config.control_heads:
        raise ValueError(
            f"control_heads: expected a divisor of {max(config.total_key_dims)}, got {config.control_heads}"
        )
    wrong = [h for h in config.full_heads if config.full_key_dim % h]
    if config.full_items and wrong:
        raise ValueError(f"full_heads: expected divisors of {config.full_key_dim}, got {wrong}")
    return config
