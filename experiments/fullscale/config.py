"""What the full-scale experiment can be asked to do, and its presets."""

from __future__ import annotations

from dataclasses import dataclass

from experiments import checks
from theory.embeddings import MINILM_EMBEDDINGS
from theory.training.contexts_greedy import ROUNDS

JOINT, PLAIN, GREEDY, FREE = "joint", "plain", "greedy", "one-head"
TRAINERS = (JOINT, PLAIN, GREEDY)
RECOVERED = 0.99
"""F1 from which a graph counts as recovered."""


@dataclass(frozen=True)
class FullscaleConfig:
    """Fields of the full-scale experiment; every one can be overridden on the command line.

    Attributes:
        num_items: ``m``; the graph is a permutation.
        d_model: ``d``.
        embeddings: ``gaussian`` and names in `theory.embeddings.MINILM_EMBEDDINGS`.
        head_counts: ``h``.
        budgets: ``D_K``, in the order in which they are run; for each ``h`` those that it divides.
        trainers: among joint (a maximum that hardens), plain (hard maximum, cross-entropy) and greedy (head by head).
        free_items: numbers of items at which one free head, ``d_k = d``, is trained, in the order in which they are
            run.
        num_sources: ``s``, sources (with their targets) in a context.
        num_steps: of Adam.
        greedy_steps: of each head where heads are trained one by one.
        stretches: parts of a run after which it is looked at and written down.
        passes: over all pairs, of one free head at its end.
        lanes: runs that go on side by side, in the order of the configuration; 0 for as many as there are.
        seeds: graphs, items, initial weights, contexts.
    """

    num_items: int = 1800
    d_model: int = 96
    embeddings: tuple[str, ...] = ("gaussian", "minilm-pca")
    head_counts: tuple[int, ...] = (4, 12)
    budgets: tuple[int, ...] = (84, 108, 132)
    trainers: tuple[str, ...] = (JOINT, GREEDY)
    free_items: tuple[int, ...] = (800, 1200, 1800)
    num_sources: int = 256
    num_steps: int = 2000
    greedy_steps: int = 1000
    stretches: int = 10
    passes: int = 200
    lanes: int = 0
    seeds: int = 1


PRESETS = {
    "smoke": FullscaleConfig(
        num_items=90,
        d_model=16,
        embeddings=("gaussian",),
        head_counts=(2,),
        budgets=(16,),
        trainers=TRAINERS,
        free_items=(90,),
        num_sources=32,
        num_steps=40,
        greedy_steps=40,
        stretches=2,
        passes=3,
    ),
    "quick": FullscaleConfig(),
    "paper": FullscaleConfig(
        num_items=21719,
        d_model=384,
        embeddings=("minilm", "gaussian"),
        budgets=(576, 480, 384, 336, 300),
        trainers=(JOINT, GREEDY, PLAIN),
        free_items=(21719, 12000, 6000, 9000, 15000),
        num_sources=1024,
        num_steps=2000,
        passes=20,
        lanes=1,
    ),
}


def check(config: FullscaleConfig) -> FullscaleConfig:
    """The configuration, checked.

    Raises:
        ValueError: naming a field, what was expected and what came.
    """
    checks.positive(config, or_zero=("lanes", "passes"))
    checks.different(config)
    checks.known(config, trainers=TRAINERS, embeddings=("gaussian", *MINILM_EMBEDDINGS))
    checks.within(config, num_sources=(4, min(config.num_items, *config.free_items)))
    if config.num_steps % config.stretches:
        raise ValueError(
            f"num_steps: expected a multiple of stretches = {config.stretches}, got {config.num_steps}"
        )
    checks.least(config, greedy_steps=ROUNDS)
    for h in config.head_counts:
        if config.trainers and not any(budget % h == 0 for budget in config.budgets):
            raise ValueError(f"budgets: expected a multiple of {h} heads, got {config.budgets}")
    return config
