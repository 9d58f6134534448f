"""From the maximum over heads to softmax: what weights and outputs a channel's margin guarantees.

A head scores the items of a context; beside them stands a *null key* at the score ``tau`` with value 0. Scores are
multiplied by ``beta`` and normalised by softmax, values are averaged, heads are summed. Let ``gamma`` be the margin,
``l`` the number of items in the context, ``x = exp(-beta gamma)``, values of norm at most ``V``, and let every query
have at most one edge. Then (theorems, ours; all are attained in the limit, the tests show it):

1. A head with the query's edge at ``tau + gamma`` or more and all other items at ``tau - gamma`` or less (an *owner*
   of the edge) puts at least ``1 / (1 + x + (l - 1) x^2)`` on it, and at most ``(l - 1) x^2 / (1 + x + (l - 1) x^2)``
   on the rest.
2. A head with all items at ``tau - gamma`` or less (an *idle* head) puts at most ``l x / (1 + l x)`` on items.
3. *One owner*: if exactly one head owns the edge and every other head is idle, the output differs from the
   neighbour's value by at most ``V [(x + 2 (l - 1) x^2) / (1 + x + (l - 1) x^2) + (h - 1) l x / (1 + l x)]``, which
   is at most ``V h l x`` for ``l >= 2``: ``beta >= ln(h l V / error) / gamma`` suffices.
4. *k owners*: if ``k >= 1`` heads own the edge and the others keep all other items at ``tau - gamma`` or less,
   whatever they score the edge, the output is ``kappa v + e`` with ``k / (1 + x + (l - 1) x^2) <= kappa <= h`` (``<=
   k + (h - k) x / (1 + x)`` if the others are idle) and ``|e| <= V [k (l - 1) x^2 / (1 + x + (l - 1) x^2) + (h - k)
   (l - 1) x / (1 + (l - 1) x)]``: the *direction* of the neighbour's value comes out, not its length.
5. *No edge in the context*: the output is at most ``V h l x / (1 + l x)``.

A channel of the maximum over heads that is exact has a margin, and every non-edge is below it in every head: so 4 and
5 hold for it, and the softmax of its heads answers every context. The converse of nothing is claimed.

Proof of 1: the weight of the edge is ``1 / (1 + exp(-beta (s - tau)) + sum_j exp(beta (s_j - s)))`` with ``s - tau >=
gamma`` and ``s - s_j >= 2 gamma``; the weight of the rest, ``S / (1 + exp(beta (s - tau)) + S)`` with ``S = sum_j
exp(beta (s_j - tau)) <= (l - 1) x``, grows with ``S`` and falls with ``s``. 2 likewise without an edge. 3: ``1 - w +
rest`` for the owner, with ``w + rest + null = 1``.
4: an owner's rest by 1; another head's rest is ``S / (1 + e + S)`` with ``e > 0`` from the edge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int


@dataclass(frozen=True)
class Guarantee:
    """What comes out for a query whose neighbour is in the context: ``kappa v + e``.

    Attributes:
        kappa_low: least ``kappa``.
        kappa_high: largest ``kappa``.
        error: largest norm of ``e``.
    """

    kappa_low: float
    kappa_high: float
    error: float


@dataclass(frozen=True, eq=False)
class Margin:
    """How far a channel's scores stay from its threshold.

    Attributes:
        threshold: ``tau``, halfway between the smallest best score of an edge and the largest score of a non-edge.
        margin: ``gamma``, positive if and only if the channel is exact.
        owners: heads that score an edge at ``tau + gamma`` or more, for every edge in the order of `numpy.argwhere`.
        one_owner_margin: the largest ``gamma`` for which, at this threshold, every edge has exactly one owner and all
            other heads are idle on it; not positive where there is none.
    """

    threshold: float
    margin: float
    owners: Int[np.ndarray, " e"]
    one_owner_margin: float


def channel_margin(scores: Float[np.ndarray, "h m m"], adjacency: Bool[np.ndarray, "m m"]) -> Margin:
    """The margin of a channel from all of its heads' scores.

    Args:
        scores: of every head, ``[head, source, target]``.
        adjacency: edges, at least one; at most one out of every item.

    Raises:
        ValueError: shapes that do not fit, no edge, or an item with several edges.
    """
    if scores.shape[1:] != adjacency.shape:
        raise ValueError(f"scores: expected heads of shape {adjacency.shape}, got {scores.shape}")
    if not adjacency.any() or (adjacency.sum(axis=1) > 1).any():
        raise ValueError("adjacency: expected some edge and at most one out of every item, got another graph")
    on_edges = np.sort(scores[:, adjacency], axis=0)[::-1]
    highest = float(scores[:, ~adjacency].max())
    lowest = float(on_edges[0].min())
    threshold = 0.5 * (lowest + highest)
    margin = 0.5 * (lowest - highest)
    # A score that sets the margin is an owner's whatever the rounding of the sum.
    owners = np.sum(on_edges >= min(threshold + margin, lowest), axis=0)
    second = float(on_edges[1].max()) if len(scores) > 1 else -np.inf
    return Margin(threshold, margin, owners, min(margin, threshold - second))


def owner_weight(decay: float, context_size: int) -> float:
    """Least weight of an owner on its edge: ``1 / (1 + x + (l - 1) x^2)`` (theorem 1).

    Args:
        decay: ``x = exp(-beta gamma)``, in (0, 1].
        context_size: ``l``, at least 1.

    Raises:
        ValueError: an argument out of range.
    """
    x, others = _checked(decay, context_size)
    return 1.0 / (1.0 + x + others * x * x)


def owner_stray_weight(decay: float, context_size: int) -> float:
    """Largest weight of an owner on all items but its edge: ``(l - 1) x^2 / (1 + x + (l - 1) x^2)`` (theorem 1)."""
    x, others = _checked(decay, context_size)
    return others * x * x / (1.0 + x + others * x * x)


def idle_weight(decay: float, context_size: int) -> float:
    """Largest weight of an idle head on all items: ``l x / (1 + l x)`` (theorem 2)."""
    x, others = _checked(decay, context_size)
    return (others + 1) * x / (1.0 + (others + 1) * x)


def one_owner_error(decay: float, context_size: int, num_heads: int, value_norm: float = 1.0) -> float:
    """Largest distance of the output from the neighbour's value, with one owner and idle other heads (theorem 3)."""
    owner = 1.0 - owner_weight(decay, context_size) + owner_stray_weight(decay, context_size)
    return value_norm * (owner + (_heads(num_heads) - 1) * idle_weight(decay, context_size))


def shared_output(
    decay: float,
    context_size: int,
    num_heads: int,
    owners: int,
    value_norm: float = 1.0,
    *,
    idle: bool = False,
) -> Guarantee:
    """What comes out where ``owners`` heads own the edge (theorem 4).

    Args:
        decay: ``x = exp(-beta gamma)``, in (0, 1].
        context_size: ``l``, at least 1.
        num_heads: ``h``.
        owners: ``k``, from 1 to ``h``.
        value_norm: ``V``.
        idle: whether the other heads are known to score the edge at ``tau - gamma`` or less.

    Raises:
        ValueError: an argument out of range.
    """
    x, others = _checked(decay, context_size)
    if not 1 <= owners <= _heads(num_heads):
        raise ValueError(f"owners: expected an integer from 1 to num_heads = {num_heads}, got {owners}")
    rest = num_heads - owners
    stray = owners * owner_stray_weight(decay, context_size) + rest * others * x / (1.0 + others * x)
    high = owners + rest * (x / (1.0 + x) if idle else 1.0)
    return Guarantee(owners * owner_weight(decay, context_size), high, value_norm * stray)


def absent_output(decay: float, context_size: int, num_heads: int, value_norm: float = 1.0) -> float:
    """Largest norm of the output where the query's neighbour is not in the context (theorem 5)."""
    return value_norm * _heads(num_heads) * idle_weight(decay, context_size)


def sufficient_scale(
    margin: float, context_size: int, num_heads: int, error: float, value_norm: float = 1.0
) -> float:
    """A ``beta`` at which `one_owner_error` and `absent_output` are at most ``error``: ``ln(h l V / error) / gamma``.

    Args:
        margin: ``gamma``, positive.
        context_size: ``l``, at least 2.
        num_heads: ``h``.
        error: positive, at most ``h l V``.
        value_norm: ``V``.

    Raises:
        ValueError: an argument out of range.
    """
    if not (margin > 0 and math.isfinite(margin)):
        raise ValueError(f"margin: expected a positive number, got {margin}")
    if context_size < 2:
        raise ValueError(f"context_size: expected at least 2, got {context_size}")
    most = _heads(num_heads) * context_size * value_norm
    if not 0 < error <= most:
        raise ValueError(f"error: expected a positive number up to h l V = {most}, got {error}")
    return math.log(most / error) / margin


def _checked(decay: float, context_size: int) -> tuple[float, int]:
    if not 0 < decay <= 1:
        raise ValueError(f"decay: expected a number in (0, 1], got {decay}")
    if context_size < 1:
        raise ValueError(f"context_size: expected a positive integer, got {context_size}")
    return decay, context_size - 1


def _heads(num_heads: int) -> int:
    if num_heads < 1:
        raise ValueError(f"num_heads: expected a positive integer, got {num_heads}")
    return num_heads
