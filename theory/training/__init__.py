"""Trainers of key-query channels behind one interface: `train(name, embeddings, adjacency, ...)`.

What a trainer finds is a lower bound on what the channel can do, never a limit of it: four are kept side by side.

- ``joint``: gradient descent on all heads at once, on a maximum that hardens (`theory.training.joint`);
- ``plain``: the same as it is usually done, on the hard maximum from the first step (`PLAIN`);
- ``greedy``: head by head, each head choosing the edges it can hold (`theory.training.greedy`);
- ``polish``: all heads at once, started from the greedy channel (`theory.training.polish`).

Beside them, with the same arguments: `train_annealed`, all heads at once under a soft maximum that hardens, several
starts, then heads refitted one at a time (`theory.training.annealed`): it finds the smallest channels known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

from theory.training.annealed import AnnealedOptions, train_annealed
from theory.training.greedy import train_greedy
from theory.training.joint import train_joint
from theory.training.joint_options import PLAIN, JointOptions
from theory.training.polish import PolishOptions, train_polish
from theory.training.types import Channel, GreedyOptions

Trainer = Literal["joint", "plain", "greedy", "polish"]
TRAINERS: tuple[Trainer, ...] = ("joint", "plain", "greedy", "polish")

__all__ = [
    "PLAIN",
    "TRAINERS",
    "AnnealedOptions",
    "Channel",
    "GreedyOptions",
    "JointOptions",
    "PolishOptions",
    "Trainer",
    "train",
    "train_annealed",
    "train_greedy",
    "train_joint",
    "train_polish",
]


def train(
    trainer: Trainer,
    embeddings: Float[np.ndarray, "b m d"],
    adjacency: Bool[np.ndarray, "b m m"],
    *,
    num_heads: int,
    head_dim: int,
    seeds: Sequence[int],
    max_head_dim: int | None = None,
    joint_options: JointOptions | None = None,
    greedy_options: GreedyOptions | None = None,
    polish_options: PolishOptions | None = None,
) -> list[Channel]:
    """Train one channel for each problem of a batch.

    Args:
        trainer: a name in `TRAINERS`.
        embeddings: items of each problem ``(b, m, d)``, unit norm.
        adjacency: edges of each problem ``(b, m, m)``, [source, target]; the same number in each.
        num_heads: heads ``h``.
        head_dim: key dimension of a head, ``d_k``.
        seeds: one per problem; they decide initial weights and random starts.
        max_head_dim: width the program is compiled for, so that one program serves a sweep; ``head_dim`` if None.
        joint_options: settings of ``joint``, or of ``plain``: `PLAIN`'s where None.
        greedy_options: settings of ``greedy`` and of the start of ``polish``.
        polish_options: settings of ``polish`` after its start.

    Returns:
        Channels in the order of the problems. A run that diverged has a ``reason`` and no meaning.

    Raises:
        ValueError: for another trainer's name, or as `theory.training.types.check_batch`.
    """
    if trainer == "joint":
        run = partial(train_joint, options=joint_options)
    elif trainer == "plain":
        run = partial(train_joint, options=joint_options or PLAIN)
    elif trainer == "greedy":
        run = partial(train_greedy, options=greedy_options)
    elif trainer == "polish":
        run = partial(train_polish, options=polish_options, greedy_options=greedy_options)
    else:
        raise ValueError(f"trainer: expected one of {TRAINERS}, got {trainer!r}")
    return run(
        embeddings,
        adjacency,
        num_heads=num_heads,
        head_dim=head_dim,
        seeds=seeds,
        max_head_dim=max_head_dim,
    )
