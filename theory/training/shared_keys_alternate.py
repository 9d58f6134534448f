"""The best trainer for heads that share keys: edges are dealt out to heads and fitted by turns.

Every edge belongs to the head that scores it highest above its own threshold. A *round* fits all weights together,
the shared ones too, by the squared hinge: each head's own edges above its threshold, every non-edge below it, other
heads' edges free. Between rounds edges change heads. First come short fits to all edges. Then edges that no head can
hold are put aside, the worst first, until the rest is held; and whenever it is, the best-scoring of those aside are
asked for again. The channel that held most edges is kept. Last, heads are rescaled to one threshold. Loss is the
fraction of edges missed.

For given keys each head's fit is convex in its queries; keys move with them here, which needs no turns of its own.
Putting edges aside is what makes it work: a least-squares compromise over edges that cannot all be held holds few of
them.

L-BFGS directions (optax), with a line search that needs no matrix product: along a line a score is a polynomial of
degree 2 (3 with latents), so Newton steps on the exact one-dimensional loss are passes over score matrices (as in
`theory.training.greedy`). Scheme and constants are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from theory.training.joint_loss import Params
from theory.training.shared_keys import KeyDesign, SharedChannel, cut, head_keys, initial_weights
from theory.training.types import check_batch


@dataclass(frozen=True)
class AlternateOptions:
    """Settings of alternating training.

    Attributes:
        restarts: random starts of every problem; the one that holds most edges is kept.
        opening_rounds: short fits to all edges at the start.
        opening_iterations: L-BFGS iterations of each of them.
        max_rounds: cap on the rounds after them.
        iterations: L-BFGS iterations of each.
        patience: rounds without one more edge held after which a run stops.
        hopeful: rounds for which what is newly asked for may be wrong before edges are put aside.
        drop: of the edges asked for that are wrong, one in this many is put aside in a round.
        regrow: of the edges that are aside, one in this many is asked for again at a time.
        gap: least score difference, in units of the hinge's margin, that counts as held.
    """

    restarts: int = 1
    opening_rounds: int = 20
    opening_iterations: int = 10
    max_rounds: int = 80
    iterations: int = 50
    patience: int = 20
    hopeful: int = 3
    drop: int = 4
    regrow: int = 8
    gap: float = 1e-3


class _Fit(NamedTuple):
    """An iterate: scores above the head's threshold, half the squared hinge, its gradient."""

    scores: Float[Array, "h m m"]
    loss: Float[Array, ""]
    gradient: Params


class _State(NamedTuple):
    params: Params
    best: Params
    number: Int[Array, ""]  # edges that the best one holds
    scores: Float[Array, "h e"]
    active: Bool[Array, " e"]  # edges asked for
    age: Int[Array, ""]  # rounds since the last were asked for
    stale: Int[Array, ""]
    steps: Int[Array, ""]
    finite: Bool[Array, ""]
    done: Bool[Array, ""]


def _turned(x: Float[Array, "h m n"]) -> Float[Array, "h n m"]:
    return jnp.swapaxes(x, 1, 2)


def _items(x: Float[Array, "m d"], weights: Float[Array, "h d k"]) -> Float[Array, "h m k"]:
    return jnp.einsum("md,hdk->hmk", x, weights)


def _sums(*terms: Float[Array, "h m n"]) -> tuple[Array, ...]:
    """Sum several arrays in one pass over their elements."""
    zeros = tuple(jnp.zeros((), term.dtype) for term in terms)
    return tuple(
        jax.lax.reduce(terms, zeros, lambda a, b: tuple(x + y for x, y in zip(a, b, strict=True)), (0, 1, 2))
    )


def _hinge(params: Params, x, y: Float[Array, "h m m"], one: Float[Array, "h m m"]) -> _Fit:
    """``y`` is 1 for a head's own edges, -1 for non-edges, 0 for free pairs; ``one`` is 1, and -1 for those."""
    maps = {name: params[name] for name in params if name not in ("query", "threshold")}
    key_weights, pull_back = jax.vjp(lambda maps: head_keys(maps, len(params["query"])), maps)
    queries, keys = _items(x, params["query"]), _items(x, key_weights)
    scores = queries @ _turned(keys) - params["threshold"][:, None, None]
    pull = -y * jnp.maximum(one - y * scores, 0.0)
    [(squares,), totals] = _sums(pull * pull), jnp.sum(pull, axis=(1, 2))
    gradient = {"query": jnp.einsum("md,hmk->hdk", x, pull @ keys), "threshold": -totals}
    [of_maps] = pull_back(jnp.einsum("md,hmk->hdk", x, _turned(pull) @ queries))
    return _Fit(scores, 0.5 * squares, gradient | of_maps)


def _step_size(params: Params, direction: Params, fit: _Fit, x, y, one, first) -> Float[Array, ""]:
    """Two Newton steps on the loss along ``direction``, from 1 (from a short step at the first iteration)."""
    heads = len(params["query"])
    queries, d_queries = _items(x, params["query"]), _items(x, direction["query"])
    keys = _items(x, head_keys(params, heads))
    if "key" in params:
        d_keys = _items(x, head_keys(direction, heads))
        quadratic, cubic = y * (d_queries @ _turned(d_keys)), None
    else:
        mixed = [
            {"down": params["down"], "up": direction["up"]},
            {"down": direction["down"], "up": params["up"]},
        ]
        d_keys = _items(x, head_keys(mixed[0], heads) + head_keys(mixed[1], heads))
        dd_keys = _items(x, head_keys(direction, heads))
        quadratic = y * (d_queries @ _turned(d_keys) + queries @ _turned(dd_keys))
        cubic = y * (d_queries @ _turned(dd_keys))
    both = jnp.concatenate([d_keys, keys], 2)
    linear = jnp.concatenate([queries, d_queries], 2) @ _turned(both) - direction["threshold"][:, None, None]
    linear, slack = y * linear, one - y * fit.scores

    def evaluate(t):
        bent = quadratic if cubic is None else quadratic + t * cubic
        residual = jnp.maximum(slack - t * (linear + t * bent), 0.0)
        slope = linear + t * (2.0 * bent if cubic is None else 2.0 * bent + t * cubic)
        curve = 2.0 * bent if cubic is None else 2.0 * bent + 4.0 * t * cubic
        curvature = jnp.where(residual > 0.0, slope * slope - residual * curve, 0.0)
        return _sums(residual * residual, residual * slope, curvature)

    t = jnp.where(first, 1e-2 / (optax.tree.norm(direction) + 1e-12), 1.0)
    best, lowest = jnp.zeros_like(t), 2.0 * fit.loss
    for _ in range(2):
        value, descent, curvature = evaluate(t)
        better = value < lowest
        best, lowest = jnp.where(better, t, best), jnp.where(better, value, lowest)
        newton = jnp.clip(t + descent / jnp.maximum(jnp.abs(curvature), 1e-12), 0.1 * t, 10.0 * t)
        t = jnp.where(better, newton, 0.25 * t)
    value, _, _ = evaluate(t)
    return jnp.where(value < lowest, t, jnp.where(best > 0.0, best, 0.1 * t))


def _minimise(params: Params, x, y, one, iterations) -> tuple[Params, _Fit, Array]:
    """L-BFGS on the squared hinge until it vanishes, is flat, or ``iterations`` have been taken."""
    lbfgs = optax.scale_by_lbfgs(memory_size=10)

    def unfinished(carry):
        _, _, i, fit = carry
        return (
            (i < iterations) & (fit.loss > 0.0) & (optax.tree.norm(fit.gradient) > 1e-3 * jnp.sqrt(fit.loss))
        )

    def advance(carry):
        params, state, i, fit = carry
        ascent, state = lbfgs.update(fit.gradient, state, params)
        direction = jax.tree.map(jnp.negative, ascent)
        t = _step_size(params, direction, fit, x, y, one, i == 0)
        params = jax.tree.map(lambda a, b: a + t * b, params, direction)
        return params, state, i + 1, _hinge(params, x, y, one)

    # optax makes one of its buffers in the default precision: in float32 this program is the same with 64-bit JAX.
    state = jax.tree.map(
        lambda leaf: leaf.astype(x.dtype) if leaf.dtype == jnp.float64 else leaf, lbfgs.init(params)
    )
    start = (params, state, jnp.zeros((), jnp.int32), _hinge(params, x, y, one))
    params, _, taken, fit = jax.lax.while_loop(unfinished, advance, start)
    return params, fit, taken


def _chosen(
    mask: Bool[Array, " e"], values: Float[Array, " e"], number: Int[Array, ""], *, best: bool
) -> Bool[Array, " e"]:
    """The ``number`` largest (or smallest) values within a mask; all of equal ones."""
    order = -values if best else values
    ranked = jnp.sort(jnp.where(mask, order, jnp.inf))
    cut = ranked[jnp.clip(number - 1, 0, ranked.size - 1)]
    return mask & (order <= cut) & (number > 0)


def _round(run: _State, turn: Array, x, edges: Int[Array, "e 2"], options: AlternateOptions) -> _State:
    source, sink = edges[:, 0], edges[:, 1]
    heads = run.scores.shape[0]
    non_edges = -jnp.ones((len(x), len(x)), jnp.float32).at[source, sink].set(0.0)
    opening = turn < options.opening_rounds
    own = (jnp.argmax(run.scores, axis=0)[None] == jnp.arange(heads)[:, None]) & run.active[None]
    y = (
        jnp.broadcast_to(non_edges, (heads, *non_edges.shape))
        .at[:, source, sink]
        .set(own.astype(jnp.float32))
    )
    one = jnp.where(y == 0.0, jnp.float32(-1.0), jnp.float32(1.0))
    iterations = jnp.where(run.done, 0, jnp.where(opening, options.opening_iterations, options.iterations))
    params, fit, taken = _minimise(run.params, x, y, one, iterations)
    scores = fit.scores[:, source, sink]
    highest = jnp.max(jnp.where(non_edges < 0.0, fit.scores, -jnp.inf), axis=(1, 2))
    held = jnp.max(scores - highest[:, None], axis=0) > options.gap
    number = jnp.sum(held, dtype=jnp.int32)
    finite = jnp.isfinite(fit.loss)
    more = (number > run.number) & finite
    best = jax.tree.map(lambda a, b: jnp.where(more, a, b), params, run.best)

    score = jnp.max(scores, axis=0)
    active = run.active | held
    wrong, aside = active & ~held, ~active
    all_held = ~jnp.any(wrong)
    age = jnp.where(all_held, 0, run.age + 1)
    added = _chosen(aside, score, jnp.maximum(jnp.sum(aside) // options.regrow, 1), best=True)
    dropped = _chosen(wrong, score, jnp.maximum(jnp.sum(wrong) // options.drop, 1), best=False)
    changed = jnp.where(all_held, active | added, active & ~(dropped & (age >= options.hopeful)))
    new = _State(
        params=params,
        best=best,
        number=jnp.maximum(number, run.number),
        scores=scores,
        active=jnp.where(opening, run.active, changed),
        age=jnp.where(opening, 0, age),
        stale=jnp.where(more | opening, 0, run.stale + 1),
        steps=run.steps + taken,
        finite=finite,
        done=(number == len(edges)) | ~finite | (run.stale + 1 >= options.patience) & ~more & ~opening,
    )
    return jax.tree.map(lambda old, new: jnp.where(run.done, old, new), run, new)


@partial(jax.jit, static_argnames=("options",))
def _alternate(
    params: Params, x: Float[Array, "r m d"], edges: Int[Array, "r e 2"], *, options: AlternateOptions
) -> _State:
    def start(params, x, edges) -> _State:
        keys = head_keys(params, len(params["query"]))
        scores = _items(x, params["query"]) @ _turned(_items(x, keys)) - params["threshold"][:, None, None]
        zero, no = jnp.zeros((), jnp.int32), jnp.array(False)
        all_edges = jnp.ones(len(edges), bool)
        own = scores[:, edges[:, 0], edges[:, 1]]
        return _State(params, params, zero, own, all_edges, zero, zero, zero, ~no, no)

    def unfinished(carry):
        turn, runs = carry
        return (turn < options.opening_rounds + options.max_rounds) & ~jnp.all(runs.done)

    def advance(carry):
        turn, runs = carry
        one = partial(_round, turn=turn, options=options)
        return turn + 1, jax.vmap(lambda run, x, edges: one(run, x=x, edges=edges))(runs, x, edges)

    runs = jax.vmap(start)(params, x, edges)
    return jax.lax.while_loop(unfinished, advance, (jnp.zeros((), jnp.int32), runs))[1]


def train_shared_alternate(
    embeddings: Float[np.ndarray, "b m d"],
    adjacency: Bool[np.ndarray, "b m m"],
    *,
    design: KeyDesign,
    seeds: Sequence[int],
    max_width: int | None = None,
    options: AlternateOptions | None = None,
) -> list[SharedChannel]:
    """Deal edges out and fit, by turns; one channel per problem. All heads share the threshold 1.

    Args:
        embeddings: items of each problem ``(b, m, d)``, unit norm.
        adjacency: edges of each problem ``(b, m, m)``, [source, target].
        design: heads and how they share keys.
        seeds: one per problem; they decide the random starts.
        max_width: `KeyDesign.width` the program is compiled for, the design's own if None. It changes no run but by
            rounding.
        options: settings of the trainer.

    Raises:
        ValueError: as `theory.training.types.check_batch`.
    """
    options = options or AlternateOptions()
    width = design.width if max_width is None else max_width
    edges = check_batch(embeddings, adjacency, design.num_heads, design.width, width, seeds)
    d_model = embeddings.shape[-1]
    starts = [
        initial_weights(
            seeds, design, d_model, width, (d_model / design.head_dim) ** 0.25, f"alternating training, {r}"
        )
        for r in range(options.restarts)
    ]
    params = {name: jnp.asarray(np.concatenate([one[name] for one in starts])) for name in starts[0]}
    params["threshold"] = jnp.ones((len(params["query"]), design.num_heads), jnp.float32)
    x, tiled = (np.concatenate([array] * options.restarts) for array in (embeddings, edges))
    runs = jax.device_get(
        _alternate(params, jnp.asarray(x, jnp.float32), jnp.asarray(tiled), options=options)
    )
    channels = []
    for b in range(len(seeds)):
        tries = range(b, len(x), len(seeds))
        best = max(tries, key=lambda i: (bool(runs.finite[i]), int(runs.number[i])))
        kept = {name: leaf[best] for name, leaf in runs.best.items()}
        steps = int(sum(runs.steps[i] for i in tries))
        missed = 1.0 - int(runs.number[best]) / edges.shape[1]
        channels.append(_channel(kept, embeddings[b], adjacency[b], design, missed, steps))
    return channels


def _channel(
    kept: dict[str, np.ndarray],
    embeddings: Float[np.ndarray, "m d"],
    adjacency: Bool[np.ndarray, "m m"],
    design: KeyDesign,
    missed: float,
    steps: int,
) -> SharedChannel:
    """Rescale heads to the common threshold 1, halfway between the edges they hold and all non-edges."""
    factors = cut(kept, design)
    plain = SharedChannel(factors, 1.0, missed, steps, None)
    if not all(np.isfinite(factor).all() for factor in factors.values()):
        return SharedChannel(factors, 1.0, missed, steps, None, "weights not finite")
    scaled = np.zeros_like(factors["query"])
    for i, (query, key) in enumerate(zip(*plain.weights(), strict=True)):
        scores = (embeddings @ query) @ (embeddings @ key).T
        highest = scores[~adjacency].max()
        above = scores[adjacency & (scores > highest)]
        threshold = 0.5 * (above.min(initial=np.inf) + highest)
        if above.size and threshold > 0.0:  # only a positive threshold can be rescaled to the common one
            scaled[i] = factors["query"][i] / threshold
    return SharedChannel(factors | {"query": scaled}, 1.0, missed, steps, None)
