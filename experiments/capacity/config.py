"""What the capacity experiment can be asked to do, and its presets."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from experiments import checks
from theory.embeddings import load_embeddings
from theory.graphs import read_edges
from theory.problems import EMBEDDINGS, GRAPHS, check_problem, num_edges_of
from theory.training import Trainer


@dataclass(frozen=True)
class Arm:
    """A transition measured beside the main ones: other items or another graph, at one head count."""

    embedding: str
    graph: str
    num_items: int
    d_model: int
    num_heads: int

    @classmethod
    def parse(cls, text: str) -> Arm:
        """Read ``embedding:graph:num_items:d_model:num_heads``.

        Raises:
            ValueError: if there are not five parts, or the last three are not integers.
        """
        parts = text.split(":")
        try:
            embedding, graph = parts[:2]
            num_items, d_model, num_heads = (int(part) for part in parts[2:])
        except ValueError:
            raise ValueError(
                f"arms: expected embedding:graph:num_items:d_model:num_heads, got {text!r}"
            ) from None
        return cls(embedding, graph, num_items, d_model, num_heads)


@dataclass(frozen=True)
class CapacityConfig:
    """Fields of the capacity experiment; every one can be overridden on the command line.

    Attributes:
        num_items: items m of each size; a size is a pair from here and ``d_model``.
        d_model: embedding width d of each size, as many as ``num_items``.
        num_heads: head counts whose threshold D_K* is located, at every size.
        embedding: a name (gaussian, orthonormal, minilm, minilm-pca, minilm-pca-whitened) or a .npy or .safetensors
            file.
        graph: a name (permutation, regular, random, words, words-shuffled) or a CSV file of edges.
        degree: edges out of an item for ``regular`` and (on average) ``random``; 0 elsewhere, or for 1.
        seeds: runs at every point; a seed draws its own embeddings, graph and initial weights.
        trainers: trainers compared.
        total_key_dim: budgets D_K at which every head count that divides it is run, at every size.
        ceiling_d_model: widths at which the single head's ceiling is located by exact convex solves.
        ceiling_seeds: graphs at every point of a ceiling.
        arms: transitions on other items or graphs, each embedding:graph:num_items:d_model:num_heads.
        learning_rate: of joint training, also plain.
        max_steps: cap on the steps of joint training, also plain; ``joint`` hardens its maximum over them.
        restarts: random starts of each greedy head.
        bits_per_parameter: for the counting bound; the channels are float32.
    """

    num_items: tuple[int, ...] = (96,)
    d_model: tuple[int, ...] = (16,)
    num_heads: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 16)
    embedding: str = "gaussian"
    graph: str = "permutation"
    degree: int = 0
    seeds: int = 8
    trainers: tuple[Trainer, ...] = ("greedy", "joint", "plain")
    total_key_dim: tuple[int, ...] = (24, 36)
    ceiling_d_model: tuple[int, ...] = (16,)
    ceiling_seeds: int = 32
    arms: tuple[str, ...] = (
        "minilm-pca:permutation:96:16:4",
        "minilm-pca-whitened:permutation:96:16:4",
        "minilm-pca-whitened:words:144:16:4",
        "minilm-pca-whitened:words-shuffled:144:16:4",
    )
    learning_rate: float = 0.1
    max_steps: int = 6000
    restarts: int = 2
    bits_per_parameter: float = 32.0

    def sizes(self) -> list[tuple[int, int]]:
        """The sizes (num_items, d_model)."""
        return list(zip(self.num_items, self.d_model, strict=True))

    def num_edges(self, graph: str, num_items: int) -> int:
        """Edges of a graph of this configuration."""
        return num_edges_of(graph, num_items, self.degree or None if graph == self.graph else None)


PRESETS = {
    "smoke": CapacityConfig(
        num_items=(24,),
        d_model=(6,),
        num_heads=(1, 3),
        seeds=3,
        total_key_dim=(6,),
        ceiling_d_model=(6,),
        ceiling_seeds=4,
        arms=(),
        max_steps=400,
        restarts=1,
    ),
    "quick": CapacityConfig(),
    # Joint training of `quick` with twice its cap on steps: where the thresholds differ, the cap was too low.
    "doubled-cap": CapacityConfig(
        num_heads=(3, 4, 6, 8),
        trainers=("joint", "plain"),
        total_key_dim=(),
        ceiling_d_model=(),
        arms=(),
        max_steps=12_000,
    ),
    "paper": CapacityConfig(
        num_items=(96, 192, 256, 512, 512, 1024, 2048),
        d_model=(16, 24, 32, 64, 32, 64, 128),
        num_heads=(1, 2, 3, 4, 6, 8, 16),
        seeds=16,
        trainers=("greedy", "joint", "plain", "polish"),
        total_key_dim=(24, 36, 48),
        ceiling_d_model=(16, 24, 32),
        ceiling_seeds=64,
        arms=(
            *(
                f"{embedding}:permutation:{m}:{d}:4"
                for m, d in ((96, 16), (192, 24))
                for embedding in ("minilm-pca", "minilm-pca-whitened")
            ),
            *(
                f"{embedding}:{graph}:{m}:{d}:4"
                for m, d in ((144, 16), (288, 24))
                for embedding in ("minilm-pca", "minilm-pca-whitened")
                for graph in ("words", "words-shuffled")
            ),
        ),
    ),
}

_SIZE_FIELDS = {"num_items", "d_model", "embedding", "graph", "degree"}


def resolve(config: CapacityConfig, given: Collection[str]) -> CapacityConfig:
    """Complete a configuration of which the fields ``given`` were named by the user, and check it.

    Naming a size, an embedding or a graph asks for that sweep alone: without the preset's ceilings and arms, and
    without its head sweeps unless ``total_key_dim`` is named too. Naming ``total_key_dim`` alone asks for head sweeps
    alone. Files say how many items, and how wide, where the user does not.

    Raises:
        ValueError: naming a field, what was expected and what came.
        FileNotFoundError: if a file is missing.
    """
    extras = {"total_key_dim", "ceiling_d_model", "arms"}
    if _SIZE_FIELDS & set(given):
        config = replace(config, **dict.fromkeys(extras - set(given), ()))
    elif "total_key_dim" in given:
        config = replace(config, **dict.fromkeys((extras | {"num_heads"}) - set(given), ()))
    config = _sizes_of_files(config, given)
    _check(config)
    return config


def _sizes_of_files(config: CapacityConfig, given: Collection[str]) -> CapacityConfig:
    if config.embedding not in EMBEDDINGS and config.embedding.partition("::")[0].endswith(
        (".npy", ".safetensors")
    ):
        rows, width = load_embeddings(config.embedding).shape
        if "num_items" not in given:
            config = replace(config, num_items=(rows,))
        if "d_model" not in given:
            config = replace(config, d_model=(width,) * len(config.num_items))
    elif config.graph not in GRAPHS and "num_items" not in given and config.graph.endswith(".csv"):
        config = replace(config, num_items=(read_edges(config.graph).num_items,))
    return config


def _check(config: CapacityConfig) -> None:
    checks.paired(config, "d_model", "num_items")
    checks.positive(config, or_zero=("degree",))
    checks.different(config, but=_SIZE_FIELDS)
    checks.some(config, "trainers")
    if not (config.num_heads or config.total_key_dim or config.ceiling_d_model or config.arms):
        raise ValueError("num_heads: expected at least one thing to measure, got none")
    if len(set(config.sizes())) < len(config.sizes()):
        raise ValueError(f"num_items: expected different sizes, got {config.sizes()}")
    for num_items, d_model in config.sizes():
        check_problem(
            num_items=num_items,
            num_edges=config.num_edges(config.graph, num_items),
            d_model=d_model,
            embedding=config.embedding,
            graph=config.graph,
        )
    for text in config.arms:
        arm = Arm.parse(text)
        if arm.num_heads < 1:
            raise ValueError(f"arms: expected a positive head count, got {text!r}")
