"""Head by head on a large graph: each head is trained in contexts to edges that it chooses itself.

As in `theory.training.greedy`, a head has to put its own edges above a threshold and all non-edges below it; edges of
other heads are free. It starts from all edges that are left. Between stretches of steps its worst-scored edges go, in
equal ratios, until as many are left as it is predicted to hold, or as its share of what is left if that is more; then
it is trained to those until the learning rate is zero. Contexts hardly ever show it the few worst non-edges, so "above
all non-edges" would be decided by pairs that it has not seen: its threshold is where edges that are left, less
non-edges, are most above it. There are no restarts, and edges do not change hands afterwards. (ours)
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from theory.recognition_tiled import recover_tiled
from theory.training.contexts import ContextOptions, Task, advance, start
from theory.training.joint_options import SETTLED

ROUNDS = 20


class LargeHead(NamedTuple):
    """A head with threshold 1.

    Attributes:
        query: ``(d, k)``; zero where no positive threshold has more edges than non-edges above it.
        key: ``(d, k)``.
        held: edges above the threshold, by their source ``(m,)``.
        loss: at the last stretch, mean.
    """

    query: Float[np.ndarray, "d k"]
    key: Float[np.ndarray, "d k"]
    held: Bool[np.ndarray, " m"]
    loss: float


def split_of(wanted: int, num_items: int, num_sources: int) -> tuple[int, int]:
    """Sources to draw of the wanted and of the others: half of each where there are enough, in powers of two."""
    if wanted == num_items:
        return num_sources, 0
    half = num_sources // 2
    a = half if wanted >= half else 1 << (wanted.bit_length() - 1)
    others = num_items - wanted
    b = num_sources - a
    return a, b if others >= b else 1 << (others.bit_length() - 1)


def fit_large_head(
    items: Float[np.ndarray, "m d"],
    target: Int[np.ndarray, " m"],
    left: Bool[np.ndarray, " m"],
    *,
    head_dim: int,
    goal: int,
    seed: int,
    options: ContextOptions,
) -> LargeHead:
    """Fit one head to at least ``goal`` of the edges that are left, if it can.

    Args:
        items: in whitened coordinates.
        target: of every source.
        left: sources whose edges no head holds.
        head_dim: ``d_k``.
        goal: edges to come down to.
        seed: of initial weights and draws.
        options: settings; the steps are those of this head.
    """
    x = jnp.asarray(items, jnp.float32)
    count, d_model = items.shape
    state = start(seed, d_model, 1, head_dim, options)
    wanted = np.flatnonzero(left)
    falls = max(1, int(SETTLED * ROUNDS))
    ratio = (min(goal, len(wanted)) / len(wanted)) ** (1 / falls)
    first, loss = len(wanted), np.nan
    for index in range(ROUNDS):
        rest = np.setdiff1d(np.arange(count), wanted)
        order = jnp.asarray(np.concatenate([wanted, rest]), jnp.int32)
        task = Task(x, jnp.asarray(target, jnp.int32), order, jnp.int32(len(wanted)))
        split = split_of(len(wanted), count, options.num_sources)
        length = options.num_steps // ROUNDS
        state, losses = advance(state, task, jnp.int32(seed), options=options, split=split, length=length)
        loss = float(jnp.mean(losses))
        if index < falls:
            query, key = (np.asarray(state.params[name][0], np.float64) for name in ("query", "key"))
            scores = np.einsum("mk,mk->m", items[wanted] @ query, items[target[wanted]] @ key)
            size = max(min(goal, first), round(first * ratio ** (index + 1)))
            wanted = wanted[np.sort(np.argsort(-scores)[:size])]
    query, key = (np.asarray(state.params[name], np.float64) for name in ("query", "key"))
    found = recover_tiled(items, query, key, target, dtype=np.float32)
    own = np.sort(found.edges[left])[::-1]
    wrong = len(found.non_edges) - np.searchsorted(found.non_edges[::-1], own)
    best = int(np.argmax(np.arange(1, len(own) + 1) - wrong))
    held = left & (found.edges >= own[best])
    below = np.max(found.non_edges[found.non_edges < own[best]], initial=0.0)
    threshold = float(own[best] + below) / 2
    if best + 1 <= wrong[best] or own[best] <= 0:
        return LargeHead(0 * query[0], key[0], np.zeros_like(left), loss)
    return LargeHead(query[0] / threshold, key[0], held, loss)
