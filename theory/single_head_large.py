"""One head of full rank on a large permutation: the convex problem by passes over all pairs, and what its end proves.

The head is a free matrix ``M``; the loss is the squared hinge of all pairs, edges weighted. It is convex in ``M`` and
the threshold, so a descent that stalls at a positive loss has found the best there is, up to its gradient. That is
evidence, not a proof: a loss above zero says that *this* matrix does not separate. What is proven, for the graph at
hand, is `large_margin_bound`: no matrix of unit Frobenius norm has a larger margin (weak duality, as in
`theory.certificates`). It goes to zero with the gradient. Exact multipliers, which alone exclude every margin, need a
linear system of side ``d^2 + 1`` and are not computed at this size.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy import optimize

from theory.squared_hinge import EPS


class Whitened(NamedTuple):
    """Items in coordinates in which their second moment is ``1 / d``: every head is as before, descent is faster.

    Attributes:
        items: ``(m, d)``.
        back: ``items = embeddings @ back``; a head's weights there are ``back @ weights``.
    """

    items: Float[np.ndarray, "m d"]
    back: Float[np.ndarray, "d d"]


def whitened(embeddings: Float[np.ndarray, "m d"]) -> Whitened:
    """Change to coordinates with second moment ``1 / d``.

    Raises:
        ValueError: if the items do not span the space.
    """
    count, d_model = embeddings.shape
    values, vectors = np.linalg.eigh(embeddings.T @ embeddings / count)
    if not values[0] > values[-1] * d_model * EPS:
        raise ValueError(f"embeddings: expected items that span {d_model} dimensions, got fewer")
    back = (vectors / np.sqrt(values * d_model)) @ vectors.T
    return Whitened(embeddings @ back, back)


@partial(jax.jit, static_argnames=("tile",))
def _pass(
    matrix: Float[Array, "d d"],
    threshold: Float[Array, ""],
    rows: Float[Array, "p d"],
    columns: Float[Array, "m d"],
    weight: Float[Array, ""],
    *,
    tile: int,
) -> tuple[Array, Array, Array]:
    """Half the weighted squared hinge over all pairs, and its gradient. Rows from ``m`` on are filling."""
    count = len(columns)
    place = jnp.arange(count)

    def visit(carry, begin):
        loss, gradient, pull_sum = carry
        x = jax.lax.dynamic_slice_in_dim(rows, begin, tile)
        here = begin + jnp.arange(tile)
        edges = here[:, None] == place[None]
        sign = jnp.where(edges, 1.0, -1.0)
        scores = (x @ matrix) @ columns.T - threshold
        slack = jnp.where((here < count)[:, None], jnp.maximum(1.0 - sign * scores, 0.0), 0.0)
        pull = jnp.where(edges, weight, 1.0) * sign * slack
        loss = loss + 0.5 * jnp.sum(jnp.abs(pull) * slack)
        return (loss, gradient - x.T @ (pull @ columns), pull_sum + jnp.sum(pull)), None

    zero = jnp.zeros((), rows.dtype)
    start = (zero, jnp.zeros_like(matrix), zero)
    return jax.lax.scan(visit, start, jnp.arange(0, len(rows), tile))[0]


class FreeFit(NamedTuple):
    """The end of a descent over all pairs.

    Attributes:
        matrix: ``M (d, d)`` in whitened coordinates.
        threshold: ``tau``.
        losses: at every pass, over the sum of all weights.
        gradient: norm over the loss's own scale at the last pass: ``|grad| |M| / loss``, no unit.
    """

    matrix: Float[np.ndarray, "d d"]
    threshold: float
    losses: Float[np.ndarray, " p"]
    gradient: float


def minimise_over_all_pairs(
    items: Float[np.ndarray, "m d"],
    target: Int[np.ndarray, " m"],
    matrix: Float[np.ndarray, "d d"],
    threshold: float,
    *,
    weight: float,
    passes: int,
    tile: int = 256,
) -> FreeFit:
    """L-BFGS (SciPy) on the convex loss, for so many passes; each costs ``6 m^2 d`` operations, ``O(tile m)`` memory.

    Args:
        items: in whitened coordinates.
        target: of every source.
        matrix: to start from.
        threshold: to start from.
        weight: of an edge.
        passes: evaluations of loss and gradient.
        tile: rows at a time.
    """
    count, d_model = items.shape
    padded = np.zeros((-(-count // tile) * tile, d_model), np.float32)
    padded[:count] = items
    rows, columns = jnp.asarray(padded), jnp.asarray(items[target], jnp.float32)
    total = weight * count + count * (count - 1.0)
    losses: list[float] = []

    def evaluate(x: np.ndarray) -> tuple[float, np.ndarray]:
        m = jnp.asarray(x[:-1].reshape(d_model, d_model), jnp.float32)
        loss, gradient, pull = jax.device_get(
            _pass(m, jnp.float32(x[-1]), rows, columns, jnp.float32(weight), tile=tile)
        )
        losses.append(2.0 * float(loss) / total)
        return losses[-1], 2.0 * np.append(np.asarray(gradient, np.float64).ravel(), pull) / total

    start = np.append(np.asarray(matrix, np.float64).ravel(), threshold)
    found = optimize.minimize(
        evaluate,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxfun": passes, "maxiter": passes, "maxcor": 10, "ftol": 0.0, "gtol": 0.0},
    )
    value, gradient = evaluate(found.x)
    scale = float(np.linalg.norm(gradient)) * float(np.linalg.norm(found.x)) / max(value, 1e-30)
    return FreeFit(found.x[:-1].reshape(d_model, d_model), float(found.x[-1]), np.array(losses), scale)


def large_margin_bound(
    embeddings: Float[np.ndarray, "m d"],
    target: Int[np.ndarray, " m"],
    matrix: Float[np.ndarray, "d d"],
    threshold: float,
    *,
    weight: float,
    tile: int = 256,
) -> float | None:
    """An upper bound on the margin of every matrix of unit Frobenius norm, for any threshold (theorem; ours).

    The multipliers of `theory.certificates.multiplier_bound` are the weighted residuals of ``matrix``; sums in float64,
    their rounding added.

    Args:
        embeddings: ``X (m, d)``.
        target: of every source.
        matrix: in the coordinates of the embeddings, at the scale of margin 1.
        threshold: that goes with it.
        weight: of an edge.
        tile: rows at a time.

    Returns:
        The bound, at the scale of scores; None where no residual is left (the matrix separates with margin 1).
    """
    items = np.asarray(embeddings, np.float64)
    count, d_model = items.shape
    sums, magnitude = np.zeros((d_model, d_model)), np.zeros((d_model, d_model))
    signed, total = 0.0, 0.0
    for begin in range(0, count, tile):
        x = items[begin : begin + tile]
        place, own = np.arange(len(x)), target[begin : begin + tile]
        scores = (x @ matrix) @ items.T - threshold
        on_edges = weight * np.maximum(1.0 - scores[place, own], 0.0)
        slack = np.maximum(1.0 + scores, 0.0)
        slack[place, own] = -on_edges
        sums -= x.T @ (slack @ items)
        np.abs(slack, out=slack)
        magnitude += np.abs(x).T @ (slack @ np.abs(items))
        total += float(slack.sum())
        signed += float(2.0 * on_edges.sum() - slack.sum())
    if total == 0.0:
        return None
    scale = float(np.max(np.sum(items**2, axis=1)))
    rounding = EPS * (2 * count + 2) * (float(np.linalg.norm(magnitude)) + scale * total)
    return (float(np.linalg.norm(sums)) + scale * abs(signed) + rounding) / total
