"""Joint training changed one thing at a time, with its heads watched: what keeps it from a small budget?

All runs start from the weights of `theory.training.joint` and minimise over all pairs, for a fixed number of steps.
What varies is named by a `Variant`:

- ``adam``: cross-entropy on the maximum over heads, Adam at a constant rate, as in `theory.training.joint`;
- ``decay``: its rate falls to zero (a half cosine);
- ``hinge``: squared hinge instead of cross-entropy; ``lbfgs``: the same by L-BFGS with a zoom line search;
- ``anneal``: a soft maximum ``T log sum exp(. / T)`` whose temperature falls to a hundredth until 60% of the steps;
- ``anneal-hinge``: the same with squared hinge;
- ``shuffle``: Gumbel noise on heads' scores of edges, drawn anew at every step, falls to zero until 60% of the steps;
- ``balance``: a penalty on uneven shares of the edges, ``h sum_i share_i^2`` (softmax over heads);
- ``partition``: every edge is dealt to one head beforehand, at random and evenly, and asked of that head alone;
- ``greedy``: starts from the channel that head-by-head training found, at a tenth of the rate.

Nothing here is a theorem: it describes trainers. (ours)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from theory.channel import head_scores, project
from theory.problems import seeded_rng
from theory.training.greedy import train_greedy
from theory.training.joint import initial_params
from theory.training.joint_loss import Params, balanced_weight
from theory.training.types import check_batch

Variant = Literal[
    "adam", "decay", "hinge", "lbfgs", "anneal", "anneal-hinge", "shuffle", "balance", "partition", "greedy"
]
VARIANTS: tuple[Variant, ...] = (
    "adam",
    "decay",
    "hinge",
    "lbfgs",
    "anneal",
    "anneal-hinge",
    "shuffle",
    "balance",
    "partition",
    "greedy",
)
_SETTLED = 0.6
_TEMPERATURE = 5.0
_NOISE = 3.0
_BALANCE = 0.1


@dataclass(frozen=True)
class VariantOptions:
    """Settings shared by all variants.

    Attributes:
        num_steps: of Adam; L-BFGS takes a tenth, each of several evaluations.
        learning_rate: Adam's.
        num_looks: times, evenly spaced, at which a run is looked at.
        init_scale: standard deviation of initial weights.
    """

    num_steps: int = 3000
    learning_rate: float = 0.1
    num_looks: int = 60
    init_scale: float = 0.3


@dataclass(frozen=True, eq=False)
class Watched:
    """One run.

    Attributes:
        best_f1: the largest F1 of any threshold, at the best look.
        exact: whether some look found all pairs right for some threshold.
        f1: the largest F1 of any threshold, at every look.
        agreement: share of edges whose winning head at a look is that of the last look.
        settled: share of edges whose winning head does not change any more from a look on.
        shares: edges that each head wins at the last look, descending.
        finite: whether the loss stayed finite.
    """

    best_f1: float
    exact: bool
    f1: Float[np.ndarray, " looks"]
    agreement: Float[np.ndarray, " looks"]
    settled: Float[np.ndarray, " looks"]
    shares: Int[np.ndarray, " h"]
    finite: bool


def _logits(params: Params, x: Float[Array, "m d"]) -> Float[Array, "h m m"]:
    scores = head_scores(project(x, params["query"]), project(x, params["key"]))
    return jnp.exp(params["log_scale"]) * scores


def _loss(
    params: Params,
    x: Float[Array, "m d"],
    edges: Bool[Array, "m m"],
    dealt: Int[Array, "m m"],
    weight: Float[Array, ""],
    progress: Float[Array, ""],
    key: Array,
    variant: Variant,
) -> Float[Array, ""]:
    logits = _logits(params, x)
    left = jnp.maximum(0.0, 1.0 - progress / _SETTLED)
    if variant == "shuffle":
        noise = _NOISE * left * jax.random.gumbel(key, logits.shape)
        best = jnp.max(logits + jnp.where(edges[None], noise, 0.0), axis=0)
    elif variant in ("anneal", "anneal-hinge"):
        temperature = _TEMPERATURE * jnp.maximum(left, 0.01)
        best = temperature * jax.nn.logsumexp(logits / temperature, axis=0)
    else:
        best = jnp.max(logits, axis=0)
    if variant == "partition":
        best = jnp.where(edges, jnp.take_along_axis(logits, dealt[None], axis=0)[0], best)
    signed = jnp.where(edges, 1.0, -1.0) * (best - params["offset"])
    weights = jnp.where(edges, weight, 1.0)
    hinge = variant in ("hinge", "lbfgs", "anneal-hinge")
    losses = jnp.square(jnp.maximum(1.0 - signed, 0.0)) if hinge else jax.nn.softplus(-signed)
    loss = jnp.sum(weights * losses) / jnp.sum(weights)
    if variant == "balance":
        shares = jnp.sum(jnp.where(edges[None], jax.nn.softmax(logits, axis=0), 0.0), axis=(1, 2))
        loss = loss + _BALANCE * len(logits) * jnp.sum(jnp.square(shares / jnp.sum(edges)))
    return loss


def _look(
    params: Params, x: Float[Array, "m d"], edges: Bool[Array, "m m"], number: int
) -> tuple[Array, Array, Array]:
    """Best F1 of any threshold (of equal scores, edges count first), exactness, and every edge's winning head."""
    logits = _logits(params, x)
    best = jnp.max(logits, axis=0)
    order = jnp.argsort(-best.ravel())
    hits = jnp.cumsum(edges.ravel()[order])
    f1 = jnp.max(2 * hits / (jnp.arange(1, hits.size + 1) + number))
    lowest = jnp.min(best, where=edges, initial=jnp.inf)
    highest = jnp.max(best, where=~edges, initial=-jnp.inf)
    rows, columns = jnp.nonzero(edges, size=number)
    return f1, lowest > highest, jnp.argmax(logits, axis=0)[rows, columns]


@partial(jax.jit, static_argnames=("variant", "options", "number"))
def _run(
    params: Params,
    keys: Array,
    x: Float[Array, "b m d"],
    edges: Bool[Array, "b m m"],
    dealt: Int[Array, "b m m"],
    weight: Float[Array, ""],
    *,
    variant: Variant,
    options: VariantOptions,
    number: int,
) -> tuple[Array, Array, Array, Array]:
    lbfgs = variant == "lbfgs"
    steps = max(options.num_looks, options.num_steps // 10 if lbfgs else options.num_steps)
    rate: Any = options.learning_rate * (0.1 if variant == "greedy" else 1.0)
    if variant == "decay":
        rate = optax.cosine_decay_schedule(rate, steps)
    optimiser: Any = optax.lbfgs() if lbfgs else optax.adam(rate)

    def one(params, key, x, edges, dealt):
        def step(index, carry):
            params, state, _ = carry

            def loss_of(p):
                return _loss(
                    p, x, edges, dealt, weight, index / steps, jax.random.fold_in(key, index), variant
                )

            if lbfgs:
                loss, grads = optax.value_and_grad_from_state(loss_of)(params, state=state)
                more = {"value": loss, "grad": grads, "value_fn": loss_of}
                updates, state = optimiser.update(grads, state, params, **more)
            else:
                loss, grads = jax.value_and_grad(loss_of)(params)
                updates, state = optimiser.update(grads, state)
            return jax.tree.map(jnp.add, params, updates), state, loss

        def stretch(carry, look):
            start, end = (look * steps) // options.num_looks, ((look + 1) * steps) // options.num_looks
            carry = jax.lax.fori_loop(start, end, step, carry)
            return carry, _look(carry[0], x, edges, number)

        start = params, optimiser.init(params), jnp.zeros((), jnp.float32)
        (_, _, loss), seen = jax.lax.scan(stretch, start, jnp.arange(options.num_looks))
        return *seen, jnp.isfinite(loss)

    return jax.vmap(one)(params, keys, x, edges, dealt)


def train_variant(
    variant: Variant,
    embeddings: Float[np.ndarray, "b m d"],
    adjacency: Bool[np.ndarray, "b m m"],
    *,
    num_heads: int,
    head_dims: Sequence[int],
    seeds: Sequence[int],
    options: VariantOptions | None = None,
) -> list[Watched]:
    """Train every problem of a batch, each with its own head dimension, in one program.

    Args:
        variant: a name in `VARIANTS`.
        embeddings: items of each problem ``(b, m, d)``, unit norm.
        adjacency: edges of each problem ``(b, m, m)``.
        num_heads: heads ``h``.
        head_dims: of each problem.
        seeds: of each problem: initial weights, dealing, noise.
        options: settings.

    Raises:
        ValueError: another variant, a number of head dimensions other than the batch's, or as
            `theory.training.types.check_batch`.
    """
    options = options or VariantOptions()
    if variant not in VARIANTS:
        raise ValueError(f"variant: expected one of {VARIANTS}, got {variant!r}")
    if len(head_dims) != len(seeds):
        raise ValueError(f"head_dims: expected one for each of {len(seeds)} problems, got {len(head_dims)}")
    width = max(head_dims)
    edges = check_batch(embeddings, adjacency, num_heads, min(head_dims), width, seeds)
    params = _starts(variant, embeddings, adjacency, num_heads, head_dims, seeds, options)
    dealt = np.zeros(adjacency.shape, np.int32)
    for b, seed in enumerate(seeds):
        order = seeded_rng(seed, "dealt edges").permutation(len(edges[b]))
        dealt[b][tuple(edges[b][order].T)] = np.arange(len(order)) % num_heads
    draws = [int(seeded_rng(seed, "shuffled winners").integers(2**31)) for seed in seeds]
    f1, exact, winners, finite = jax.device_get(
        _run(
            params,
            jnp.stack([jax.random.key(draw) for draw in draws]),
            jnp.asarray(embeddings, jnp.float32),
            jnp.asarray(adjacency),
            jnp.asarray(dealt),
            jnp.float32(balanced_weight(adjacency)),
            variant=variant,
            options=options,
            number=edges.shape[1],
        )
    )
    return [_watched(f1[b], exact[b], winners[b], bool(finite[b]), num_heads) for b in range(len(seeds))]


def _starts(
    variant: Variant,
    embeddings: np.ndarray,
    adjacency: np.ndarray,
    num_heads: int,
    head_dims: Sequence[int],
    seeds: Sequence[int],
    options: VariantOptions,
) -> Params:
    """Initial parameters of every problem, filled up with zeros to the widest head."""
    width, d_model = max(head_dims), embeddings.shape[-1]
    shape = {"num_heads": num_heads, "d_model": d_model, "max_head_dim": width, "scale": options.init_scale}
    drawn = [initial_params([seed], head_dim=k, **shape) for seed, k in zip(seeds, head_dims, strict=True)]
    params: Params = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *drawn)
    if variant != "greedy":
        return params
    query, key = np.array(params["query"]), np.array(params["key"])
    scale, offset = np.zeros(len(seeds), np.float32), np.zeros(len(seeds), np.float32)
    for k in sorted(set(head_dims)):
        own = [b for b, other in enumerate(head_dims) if other == k]
        found = train_greedy(
            embeddings[own],
            adjacency[own],
            num_heads=num_heads,
            head_dim=k,
            seeds=[seeds[b] for b in own],
            max_head_dim=width,
        )
        for b, channel in zip(own, found, strict=True):
            query[b, ..., :k], key[b, ..., :k] = channel.query_weights, channel.key_weights
            # Greedy heads have the threshold 1 and margins of about 0.01: logits at which these show.
            scale[b] = offset[b] = np.log(300.0)
    return {
        "query": jnp.asarray(query),
        "key": jnp.asarray(key),
        "log_scale": jnp.asarray(scale),
        "offset": jnp.asarray(np.exp(offset)),
    }


def _watched(f1: np.ndarray, exact: np.ndarray, winners: np.ndarray, finite: bool, num_heads: int) -> Watched:
    same = winners == winners[-1]
    settled = np.logical_and.accumulate(same[::-1], axis=0)[::-1]
    shares = np.sort(np.bincount(winners[-1], minlength=num_heads))[::-1]
    return Watched(
        float(f1.max()), bool(exact.any()), f1, same.mean(axis=1), settled.mean(axis=1), shares, finite
    )
