"""What the softmax experiment can be asked to do, and its presets."""

from __future__ import annotations

from dataclasses import dataclass

from experiments import checks

ARMS = ("greedy", "joint", "weights", "values")


@dataclass(frozen=True)
class SoftmaxConfig:
    """Fields of the softmax experiment; every one can be overridden on the command line.

    Attributes:
        num_items: ``m``; the graph is a permutation.
        d_model: ``d``.
        context_size: items of a context, ``l``.
        total_key_dims: budgets ``D_K``.
        head_counts: ``h``; those that do not divide a budget are left out of it.
        arms: which channels, among greedy, joint, weights, values.
        lemma_items: ``m`` of the constructed channels whose outputs are compared with their bounds.
        lemma_heads: their head counts.
        lemma_context: their ``l``.
        num_contexts: contexts of a training step.
        num_steps: steps of end-to-end training.
        learning_rate: of it.
        num_test: contexts on which every channel is judged.
        seeds: graphs, embeddings, initial weights.
    """

    num_items: int = 96
    d_model: int = 16
    context_size: int = 48
    total_key_dims: tuple[int, ...] = (24, 48)
    head_counts: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 24)
    arms: tuple[str, ...] = ARMS
    lemma_items: int = 24
    lemma_heads: tuple[int, ...] = (1, 4)
    lemma_context: int = 12
    num_contexts: int = 4
    num_steps: int = 2000
    learning_rate: float = 0.05
    num_test: int = 64
    seeds: int = 3


PRESETS = {
    "smoke": SoftmaxConfig(
        num_items=24,
        d_model=8,
        context_size=12,
        total_key_dims=(8,),
        arms=("greedy", "values"),
        head_counts=(1, 4),
        lemma_heads=(2,),
        num_steps=100,
        num_test=8,
        seeds=2,
    ),
    "quick": SoftmaxConfig(),
    "paper": SoftmaxConfig(
        total_key_dims=(16, 24, 32, 48),
        head_counts=(1, 2, 3, 4, 6, 8, 12, 16, 24, 48),
        lemma_heads=(1, 2, 4, 8),
        num_steps=8000,
        seeds=8,
    ),
}


def check(config: SoftmaxConfig) -> SoftmaxConfig:
    """The configuration, checked.

    Raises:
        ValueError: naming a field, what was expected and what came.
    """
    checks.positive(config)
    checks.different(config)
    checks.known(config, arms=ARMS)
    checks.within(config, context_size=(2, config.num_items), lemma_context=(2, config.lemma_items))
    return config
