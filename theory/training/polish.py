"""Polish: joint training that starts from the greedy channel instead of from noise.

Greedy training fixes each head before the next; where it leaves a few edges over, all heads together may still have
room for them. The greedy channel's heads share the threshold 1, so joint training continues from it with a logit scale
that makes its narrow margin visible to the loss. A channel that greedy training already made exact is returned as it
is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from theory.training.greedy import GreedyOptions, train_greedy
from theory.training.joint import JointOptions, optimise_jointly
from theory.training.types import Channel

START_LOG_SCALE = float(np.log(10.0))


def train_polish(
    embeddings: Float[np.ndarray, "b m d"],
    adjacency: Bool[np.ndarray, "b m m"],
    *,
    num_heads: int,
    head_dim: int,
    seeds: Sequence[int],
    max_head_dim: int | None = None,
    options: JointOptions | None = None,
    greedy_options: GreedyOptions | None = None,
) -> list[Channel]:
    """Train head by head, then all heads together; one channel per problem.

    Arguments as in `theory.training.joint.train_joint`, and the settings of the greedy start. Steps count both parts.
    Weights that are zero in the greedy channel in both factors (heads it did not need) stay zero.

    Raises:
        ValueError: as `theory.training.types.check_batch`.
    """
    options = options or JointOptions()
    started = train_greedy(
        embeddings,
        adjacency,
        num_heads=num_heads,
        head_dim=head_dim,
        seeds=seeds,
        max_head_dim=max_head_dim,
        options=greedy_options,
    )
    batch = len(started)
    params = {
        "query": jnp.asarray(np.stack([channel.query_weights for channel in started])),
        "key": jnp.asarray(np.stack([channel.key_weights for channel in started])),
        "log_scale": jnp.full((batch,), START_LOG_SCALE, jnp.float32),
        "offset": jnp.full((batch,), np.exp(START_LOG_SCALE), jnp.float32),
    }
    polished = optimise_jointly(params, embeddings, adjacency, head_dim, options)
    return [
        replace(first, learning_rate=options.learning_rate)
        if first.loss == 0.0
        else replace(then, steps=first.steps + then.steps)
        for first, then in zip(started, polished, strict=True)
    ]
