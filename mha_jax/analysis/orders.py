"""In which order heads are removed.

An order is the flat numbers ``layer * N + head`` of all heads, the first to go first. It is decided on the host, in
NumPy: models are masked by what `kept_heads` makes of it.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from jaxtyping import Bool, Float, Int

from mha_jax.analysis._maps import AnyArray
from mha_jax.masks import is_integer


def pruning_order(scores: Float[AnyArray, "L N"], *, least_per_layer: int = 0) -> Int[np.ndarray, " heads"]:
    """Heads by ascending score: what matters least goes first. Of equal scores the earlier head goes first.

    With importance, confidence or the loss added by a head's removal as the score, this is one-shot greedy pruning
    over all layers (Michel et al. 2019: scores are computed once, layers may be emptied).

    Args:
        scores: one for every head.
        least_per_layer: the best heads of every layer that go last of all, in a second round.

    Returns:
        All heads, each once.

    Raises:
        ValueError: if the scores are not (L, N) or not finite, or the number is not one from 0 to N.
    """
    values = _scores(scores)
    num_heads = values.shape[1]
    if not is_integer(least_per_layer) or not 0 <= least_per_layer <= num_heads:
        raise ValueError(
            f"least_per_layer: expected an integer from 0 to {num_heads}, got {least_per_layer!r}"
        )
    rank = np.empty(values.shape, int)  # 0 is the best of its layer
    best_first = np.argsort(-values, axis=1, kind="stable")
    np.put_along_axis(rank, best_first, np.broadcast_to(np.arange(num_heads), values.shape), axis=1)
    return np.lexsort((np.arange(values.size), values.ravel(), (rank < least_per_layer).ravel()))


def recomputed_order(
    score: Callable[[Bool[np.ndarray, "L N"]], Float[AnyArray, "L N"]],
    num_layers: int,
    num_heads: int,
    counts: Sequence[int],
) -> Int[np.ndarray, " heads"]:
    """Greedy pruning with scores computed anew at each of ``counts``: what is left decides what goes next.

    Source: the option "exact" of Michel et al. 2019.

    Args:
        score: scores of all heads where only those that are True are left; called once for each count but the last.
        num_layers: L.
        num_heads: N.
        counts: ascending numbers of heads removed, from 0 to ``L * N``, such as those of `num_pruned`.

    Returns:
        All heads, each once: the first ``counts[i]`` are those removed at step i.

    Raises:
        ValueError: if the counts are not such, or scores are not (L, N) and finite.
    """
    total = num_layers * num_heads
    steps = [int(count) for count in counts]
    if not steps or steps[0] != 0 or steps[-1] != total or steps != sorted(set(steps)):
        raise ValueError(f"counts: expected ascending numbers from 0 to {total}, got {list(counts)}")
    order: list[int] = []
    for count in steps[1:]:
        kept = kept_heads(np.array(order, int), len(order), num_layers, num_heads)
        values = _scores(score(kept))
        if values.shape != (num_layers, num_heads):
            raise ValueError(f"score: expected values of shape {(num_layers, num_heads)}, got {values.shape}")
        left = [head for head in pruning_order(values) if kept.flat[head]]
        order += left[: count - len(order)]
    return np.array(order)


def random_order(num_layers: int, num_heads: int, rng: np.random.Generator) -> Int[np.ndarray, " heads"]:
    """All heads, uniformly shuffled: what a useful order has to beat."""
    return rng.permutation(num_layers * num_heads)


def num_pruned(fraction: float | int | Fraction, total: int) -> int:
    """How many of ``total`` heads a fraction is: rounded up, as in Michel et al. 2019.

    Raises:
        ValueError: if the fraction is not in [0, 1], or the total no integer of 0 or more.
    """
    if not is_integer(total) or total < 0:
        raise ValueError(f"total: expected an integer, 0 or more, got {total!r}")
    if isinstance(fraction, bool | np.bool_) or not 0 <= fraction <= 1:
        raise ValueError(f"fraction: expected a number in [0, 1], got {fraction!r}")
    return math.ceil(Fraction(fraction).limit_denominator(10**6) * total)


def kept_heads(
    order: Int[np.ndarray, " some"], count: int, num_layers: int, num_heads: int
) -> Bool[np.ndarray, "L N"]:
    """Which heads are left when the first ``count`` of an order are removed.

    Raises:
        ValueError: if the order has fewer, or names a head twice or one that is not there.
    """
    total = num_layers * num_heads
    if not is_integer(count) or not 0 <= count <= len(order):
        raise ValueError(f"count: expected an integer from 0 to {len(order)}, got {count!r}")
    removed = np.asarray(order[:count])
    if removed.size and (removed.ndim != 1 or not np.issubdtype(removed.dtype, np.integer)):
        raise ValueError(f"order: expected integers (heads,), got {removed.dtype} of shape {removed.shape}")
    removed = removed.astype(int)
    if removed.size and (removed.min() < 0 or removed.max() >= total):
        raise ValueError(f"order: expected numbers below {total}, got {removed.min()} to {removed.max()}")
    heads, times = np.unique(removed, return_counts=True)
    if (times > 1).any():
        raise ValueError(f"order: expected every head once, got {heads[times > 1].tolist()} more than once")
    kept = np.ones(total, bool)
    kept[removed] = False
    return kept.reshape(num_layers, num_heads)


def single_heads(num_layers: int, num_heads: int) -> Bool[np.ndarray, "heads L N"]:
    """Masks for the ablation of every single head: mask i lacks head i alone."""
    total = num_layers * num_heads
    return ~np.eye(total, dtype=bool).reshape(total, num_layers, num_heads)


def all_but_one(num_layers: int, num_heads: int) -> Bool[np.ndarray, "heads L N"]:
    """Masks for all-but-one: mask i leaves head i alone in its layer, and all heads in the others."""
    masks = np.ones((num_layers, num_heads, num_layers, num_heads), bool)
    for layer in range(num_layers):
        masks[layer, :, layer] = np.eye(num_heads, dtype=bool)
    return masks.reshape(-1, num_layers, num_heads)


def _scores(scores: AnyArray) -> Float[np.ndarray, "L N"]:
    values = np.asarray(scores, float)
    if values.ndim != 2 or not np.isfinite(values).all():
        raise ValueError(f"scores: expected finite numbers (L, N), got {values.shape}")
    return values
