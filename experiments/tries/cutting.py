"""Training H heads, choosing h of them, and healing: the arrays behind a batch of the tries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from mha_jax.analysis import kept_heads, pruning_order, random_order, recomputed_order
from theory.problems import seeded_rng
from theory.pruning import ablation_losses, edges_won, kept_f1, scores_by_head
from theory.training import PLAIN, Channel, JointOptions
from theory.training.joint import initial_params, optimise_jointly
from theory.training.types import check_batch

Choice = Literal["wins", "ablation", "recomputed", "random"]
CHOICES: tuple[Choice, ...] = ("wins", "ablation", "recomputed", "random")
Params = Mapping[str, np.ndarray]
RESTART = 1_000_000
"""Restart r of seed s has the initial weights of seed ``s + RESTART r``."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Problems of one shape, and how channels are trained on them.

    Attributes:
        embeddings: ``(b, m, d)``.
        adjacency: ``(b, m, m)``.
        seeds: of the initial weights.
        head_dim: d_k.
        max_head_dim: what programs are compiled for.
        learning_rate: of joint training.
    """

    embeddings: Float[np.ndarray, "b m d"]
    adjacency: Bool[np.ndarray, "b m m"]
    seeds: Sequence[int]
    head_dim: int
    max_head_dim: int
    learning_rate: float

    def options(self, max_steps: int) -> JointOptions:
        """Settings of joint training with a cap on its steps."""
        return replace(PLAIN, learning_rate=self.learning_rate, max_steps=max_steps)


@dataclass(frozen=True, eq=False)
class Trained:
    """Channels of many heads, and what healing starts from.

    Attributes:
        initial: parameters at the start, arrays with the batch in front.
        params: parameters in the end.
        channels: the channels, as `theory.training.train_joint` gives them.
    """

    initial: Params
    params: Params
    channels: list[Channel]


@dataclass(frozen=True, eq=False)
class Cut:
    """Which heads of a channel are kept.

    Attributes:
        kept: their numbers, ascending.
        won: edges that each of them had won among all heads, above the channel's threshold.
        share: these, over what all heads had won; 0 where nothing had been.
        f1: F1 (best threshold) of the kept heads as they are.
    """

    kept: Int[np.ndarray, " h"]
    won: Int[np.ndarray, " h"]
    share: float
    f1: float


def train_many(batch: Batch, num_heads: int, max_steps: int) -> Trained:
    """Joint training of ``num_heads`` heads: the runs of `theory.training.train_joint`, with their parameters."""
    check_batch(batch.embeddings, batch.adjacency, num_heads, batch.head_dim, batch.max_head_dim, batch.seeds)
    options = batch.options(max_steps)
    params = initial_params(
        batch.seeds,
        num_heads=num_heads,
        d_model=batch.embeddings.shape[-1],
        head_dim=batch.head_dim,
        max_head_dim=batch.max_head_dim,
        scale=options.init_scale,
    )
    initial = {name: np.asarray(leaf) for name, leaf in params.items()}
    ended = optimise_jointly(params, batch.embeddings, batch.adjacency, batch.head_dim, options)
    return Trained(initial, *ended)


def choose(
    choice: Choice,
    channel: Channel,
    num_heads: int,
    embeddings: Float[np.ndarray, "m d"],
    adjacency: Bool[np.ndarray, "m m"],
    seed: int,
) -> Cut:
    """Choose the heads that stay.

    Args:
        choice: ``wins``: most edges won; ``ablation``: whose removal alone costs most F1; ``recomputed``: the head
            that costs least goes, again and again; ``random``.
        channel: trained, finite.
        num_heads: h, how many stay.
        embeddings: of its problem.
        adjacency: of its problem.
        seed: of ``random``.
    """
    scores = scores_by_head(embeddings, channel.query_weights, channel.key_weights)
    many = len(scores)
    won = edges_won(scores, adjacency, channel.threshold)
    losses = partial(ablation_losses, scores, adjacency)
    if choice == "wins":
        order = pruning_order(won[None].astype(float))
    elif choice == "ablation":
        order = pruning_order(losses(np.ones(many, bool))[None])
    elif choice == "recomputed":
        order = recomputed_order(lambda kept: losses(kept[0])[None], 1, many, range(many + 1))
    elif choice == "random":
        order = random_order(1, many, seeded_rng(seed, "tries, kept heads"))
    else:
        raise ValueError(f"choice: expected one of {CHOICES}, got {choice!r}")
    stay = kept_heads(order, many - num_heads, 1, many)[0]
    own = won[stay]
    share = float(own.sum() / won.sum()) if won.sum() else 0.0
    return Cut(np.flatnonzero(stay), own, share, kept_f1(scores, adjacency, stay))


def cut_channel(channel: Channel, cut: Cut) -> Channel:
    """The kept heads as they are, at the old threshold."""
    return Channel(
        query_weights=channel.query_weights[cut.kept],
        key_weights=channel.key_weights[cut.kept],
        threshold=channel.threshold,
        loss=channel.loss,
        steps=0,
        learning_rate=channel.learning_rate,
    )


def heal(
    batch: Batch, source: Params, places: Sequence[int], cuts: Sequence[Cut], max_steps: int
) -> list[Channel]:
    """Train the kept heads of some runs on, with new moments of Adam.

    Args:
        batch: the problems.
        source: parameters of all heads to start from: `Trained.params`, or `Trained.initial` to rewind.
        places: the run of each cut in the batch.
        cuts: which of its heads go on.
        max_steps: cap on steps.
    """
    index = np.asarray(places)
    params = {
        name: np.stack([leaf[b][cut.kept] for b, cut in zip(index, cuts, strict=True)])
        if name in ("query", "key")
        else leaf[index]
        for name, leaf in source.items()
    }
    options = batch.options(max_steps)
    problems = batch.embeddings[index], batch.adjacency[index]
    return optimise_jointly(params, *problems, batch.head_dim, options).channels
