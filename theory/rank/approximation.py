"""How near a head of size d_k comes to a pattern: by optimisation, by truncation, with and without bounded norms.

Nearness is the Kullback-Leibler divergence of the pattern's rows from the head's, in nats, averaged over rows: what a
loss of cross-entropy would see. Inputs are taken to have rank n, so that queries and keys are free matrices.

What the optimiser finds is an *upper bound* on the least divergence (empirical; the problem is not convex). Bounds by
proof stand beside it: 0 is reached exactly from `theory.rank.required_head_dim` on, and for permutations with bounded
norms there is a closed form below which no head of any size comes (`bounded_permutation_kl`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from theory.problems import seeded_rng
from theory.rank._checks import distributions, nonnegative, whole
from theory.rank.exact import centred, factors, softmax


def mean_kl(pattern: ArrayLike, other: ArrayLike) -> float:
    """Mean over rows of ``KL(pattern || other)`` in nats; ``0 ln 0 = 0``, infinite where ``other`` lacks what P has.

    Args:
        pattern: P, ``(n, s)``; rows sum to 1, zeros are allowed.
        other: likewise.

    Raises:
        ValueError: something else, or different shapes.
    """
    p, q = (
        distributions(name, value, positive=False).values
        for name, value in (("pattern", pattern), ("other", other))
    )
    if p.shape != q.shape:
        raise ValueError(f"other: expected the shape of the pattern, {p.shape}, got {q.shape}")
    held = p > 0
    wanted, found = p[held], q[held]
    if (found <= 0).any():
        return float("inf")
    return max(0.0, float((wanted * np.log(wanted / found)).sum() / len(p)))  # rounding may give -1e-17


def truncation(pattern: ArrayLike, head_dim: int) -> Float[np.ndarray, "n s"]:
    """Softmax of the centred log of an ``(n, s)`` pattern, cut to its ``head_dim`` largest singular values.

    The best logits of that rank in the Frobenius norm, not in divergence. Not unique where singular values coincide.

    Raises:
        ValueError: unless P is positive with rows that sum to 1, and ``head_dim`` 0 or more.
    """
    known = distributions("pattern", pattern)
    query, key = factors(centred(np.log(known.values)), head_dim)
    return softmax(query @ key.T).astype(known.dtype)


def bounded_permutation_kl(num_keys: int, bound: float) -> float:
    """The least divergence from a permutation of heads of *any* size with ``|q_i| |k_j| <= bound`` (theorem, ours).

    ``ln(1 + (n - 1) exp(-B n / (n - 1)))``, attained at ``d_k = n - 1`` by the corners of a simplex, each query at
    its target. Proof: order keys by target. Products of two sets of vectors with norms up to sqrt(B) are the matrices
    S of gamma_2 norm at most B, a convex set that no simultaneous reordering of rows and columns leaves; the divergence
    is convex in S and does not change under one either. So the mean of S over all reorderings is no worse, and it is
    ``a I + b 1 1^T``. gamma_2 of any matrix is at least its trace norm over n, here ``((n - 1) |a| + |a + n b|) / n``,
    which allows no a above ``B n / (n - 1)``; the divergence falls in a and does not depend on b.

    Raises:
        ValueError: fewer than 2 keys, or a bound that is negative or not finite.
    """
    whole("num_keys", num_keys, 2)
    nonnegative("bound", bound)
    return float(np.log1p((num_keys - 1) * np.exp(-bound * num_keys / (num_keys - 1))))


FLAT = 1e-8
"""Norm of the gradient at which a start is finished."""


@dataclass(frozen=True, eq=False)
class Approximation:
    """The best head that several starts led to.

    Attributes:
        queries: ``(n, d_k)``.
        keys: ``(n, d_k)``; logits are ``queries @ keys.T``, without a further scale.
        kl: its divergence, in nats a row.
        starts: divergence that each start led to, the start from the truncation first; None where one failed.
        num_steps: steps that each start took; as many as were allowed where it was not finished.
    """

    queries: np.ndarray
    keys: np.ndarray
    kl: float
    starts: tuple[float | None, ...]
    num_steps: tuple[int, ...]

    @property
    def max_logit(self) -> float:
        """The largest magnitude of a logit."""
        return float(np.abs(self.queries @ self.keys.T).max())


def best_approximations(
    patterns: Sequence[ArrayLike],
    head_dims: Sequence[int],
    *,
    bounds: Sequence[float | None],
    seeds: Sequence[int],
    width: int,
    num_starts: int = 4,
    num_steps: int = 400,
) -> list[Approximation]:
    """Look for the best heads of several problems at once, in float64: one program for all of one length and width.

    L-BFGS (optax, backtracking line search) on queries and keys from ``num_starts`` starts each: one from the
    truncation of the pattern (of ``log(P + 1e-6)`` where P has zeros), the others random. A bounded head has
    ``|q_i|, |k_j| < sqrt(bound)`` by ``w -> w tanh(x) / x``, ``x = |w| / sqrt(bound)``: any such vector, without an
    edge to get stuck at. A start is finished when its gradient is below 1e-8, or after ``num_steps`` steps. Without a
    bound, divergences that have no minimum (permutations) get there too: logits grow until the slope is that small.

    Args:
        patterns: ``(n, n)``, one a problem, all of one n; rows sum to 1, zeros are allowed.
        head_dims: d_k of each.
        bounds: on ``|q_i| |k_j|`` of each, positive and finite; None for none.
        seeds: of each problem's random starts, not negative.
        width: what the program is compiled for, the largest d_k that will be asked of it.
        num_starts: of each problem.
        num_steps: of the optimiser, at most.

    Returns:
        One approximation a problem.

    Raises:
        ValueError: for bad arguments.
    """
    if not len(patterns) == len(head_dims) == len(bounds) == len(seeds):
        lengths = [len(x) for x in (patterns, head_dims, bounds, seeds)]
        raise ValueError(f"patterns, head_dims, bounds, seeds: expected one of each a problem, got {lengths}")
    for name, value in (("width", width), ("num_starts", num_starts), ("num_steps", num_steps)):
        whole(name, value, 1)
    for head_dim, bound, seed in zip(head_dims, bounds, seeds, strict=True):
        whole("head_dims", head_dim, 1)
        if head_dim > width:
            raise ValueError(f"head_dims: expected 1 to width = {width}, got {head_dim}")
        if bound is not None and nonnegative("bounds", bound) == 0:
            raise ValueError(f"bounds: expected positive numbers or None, got {bound}")
        whole("seeds", seed, 0)
    if not len(patterns):
        return []
    patterns = [distributions("patterns", pattern, positive=False).values for pattern in patterns]
    shapes = sorted({pattern.shape for pattern in patterns})
    if shapes != [(len(patterns[0]), len(patterns[0]))]:
        raise ValueError(f"patterns: expected square ones of one length, got shapes {shapes}")
    starts = [
        _starts(pattern, head_dim, bound, seed, width, num_starts)
        for pattern, head_dim, bound, seed in zip(patterns, head_dims, bounds, seeds, strict=True)
    ]
    query, key = (np.concatenate([start[part] for start in starts]) for part in (0, 1))
    repeated = np.repeat(np.asarray(patterns), num_starts, axis=0)
    radius = np.repeat([np.sqrt(np.inf if b is None else b) for b in bounds], num_starts)
    kept = np.repeat(np.arange(width) < np.asarray(head_dims)[:, None], num_starts, axis=0)
    with jax.enable_x64(True):
        found = _descend(query, key, repeated, radius, kept.astype(np.float64), num_steps=num_steps)
        queries, keys, kl, counts = (np.asarray(x) for x in found)
    results = []
    for index, head_dim in enumerate(head_dims):
        own = slice(index * num_starts, (index + 1) * num_starts)
        reached = np.where(np.isfinite(kl[own]), kl[own], np.inf)
        best = int(reached.argmin())
        results.append(
            Approximation(
                queries[own][best, :, :head_dim],
                keys[own][best, :, :head_dim],
                float(max(0.0, reached[best])),  # -1e-17 is a rounded 0
                tuple(float(max(0.0, x)) if np.isfinite(x) else None for x in reached),
                tuple(int(x) for x in counts[own]),
            )
        )
    return results


def _starts(
    pattern: np.ndarray, head_dim: int, bound: float | None, seed: int, width: int, num_starts: int
) -> tuple[np.ndarray, np.ndarray]:
    """Queries and keys to start from, ``(starts, n, width)``, before they are bounded."""
    n = len(pattern)
    rng = seeded_rng(seed, f"starts of a head of size {head_dim}")
    query, key = rng.standard_normal((2, num_starts, n, width))
    key /= np.sqrt(head_dim)
    lifted = pattern if (pattern > 0).all() else (pattern + 1e-6) / (1 + 1e-6 * n)
    first = factors(centred(np.log(lifted)), head_dim)
    for start, own in zip((query, key), first, strict=True):
        start[0] = 0
        start[0, :, :head_dim] = own
    if bound is not None:
        query[0], key[0] = (_unbounded(x[0], np.sqrt(bound)) for x in (query, key))
    return query, key


def _unbounded(vectors: np.ndarray, radius: float) -> np.ndarray:
    """What `_bounded` maps to these vectors, or to 0.99 of the radius where they are longer."""
    lengths = np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-300)
    share = np.minimum(lengths / radius, 0.99)
    return vectors * (radius / lengths) * np.arctanh(share)


def _bounded(vectors: Float[Array, "n k"], radius: Float[Array, ""]) -> Float[Array, "n k"]:
    """Vectors shorter than ``radius``; themselves where that is infinite. Smooth at 0 (a square root would not be)."""
    square = jnp.sum(vectors**2, axis=-1, keepdims=True) / radius**2
    small = square < 1e-6
    length = jnp.sqrt(jnp.where(small, 1.0, square))
    return vectors * jnp.where(small, 1 - square / 3, jnp.tanh(length) / length)


def _one(query: Any, key: Any, pattern: Any, radius: Any, kept: Any, num_steps: int) -> Any:
    held = pattern > 0
    entropy = -jnp.sum(jnp.where(held, pattern * jnp.log(jnp.where(held, pattern, 1.0)), 0.0))

    def heads(params: Any) -> Any:
        return jax.tree.map(lambda x: _bounded(x * kept[None, :], radius), params)

    def divergence(params: Any) -> Any:
        query, key = heads(params)
        return (-entropy - jnp.sum(pattern * jax.nn.log_softmax(query @ key.T))) / len(pattern)

    optimiser = optax.lbfgs(
        linesearch=optax.scale_by_backtracking_linesearch(
            max_backtracking_steps=12, decrease_factor=0.5, store_grad=True
        )
    )
    value_and_grad = optax.value_and_grad_from_state(divergence)

    def go_on(carry: Any) -> Any:
        _, _, count, slope = carry
        return (count < num_steps) & (slope >= FLAT)

    def step(carry: Any) -> Any:
        params, state, count, _ = carry
        value, grad = value_and_grad(params, state=state)
        updates, state = optimiser.update(grad, state, params, value=value, grad=grad, value_fn=divergence)
        slope = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(grad)))
        return optax.apply_updates(params, updates), state, count + 1, slope

    params = (query, key)
    carry = (params, optimiser.init(params), 0, jnp.inf)
    params, _, count, _ = jax.lax.while_loop(go_on, step, carry)
    return *heads(params), divergence(params), count


@partial(jax.jit, static_argnames="num_steps")
def _descend(query: Any, key: Any, pattern: Any, radius: Any, kept: Any, *, num_steps: int) -> Any:
    return jax.vmap(partial(_one, num_steps=num_steps))(query, key, pattern, radius, kept)
