"""Heads that share their keys: what is trained, how it is written out as a channel, and joint training of it.

A layer with ``g`` key heads has query maps ``(h, d, k)`` and key maps ``(g, d, k)``, each of which serves ``h/g``
query heads. A layer with latents has query maps ``(h, d, k)``, one projection ``down (d, c)`` that all heads read,
and ``up (h, c, k)``: a head's keys are ``X down up_i``. Weights are shared, not copied: gradients of the heads that
use a map add up in it. (What is repeated for the fused maximum over heads are a group's projected items, ``(m, k)``.)

`train_shared` has two trainers. ``joint`` is that of `theory.training.joint` on the shared weights, all else equal.
``alternate`` (`theory.training.shared_keys_alternate`) looks for the best channel. What a trainer finds is a lower
bound on what the design can do, never a limit of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float64

from theory.channel import max_over_heads, project
from theory.problems import seeded_rng
from theory.recognition import Recovery, channel_scores, evaluate
from theory.training.joint import optimise, scalars_of, static_of
from theory.training.joint_loss import Params, Whole, edge_weight
from theory.training.joint_options import PLAIN, JointOptions, Setting
from theory.training.types import check_batch

JOINT_PURPOSE = "joint training, shared keys"
"""Of the random numbers that joint training starts from, for `initial_weights`."""


@dataclass(frozen=True)
class KeyDesign:
    """How the keys of ``h`` heads are made.

    Attributes:
        num_heads: query heads ``h``.
        num_kv_heads: key heads ``g``, a divisor of ``h``; of no meaning with latents.
        head_dim: key dimension of a head, ``d_k``.
        latent_dim: ``d_c`` where keys are read off a latent, else None.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    latent_dim: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            ValueError: for a number that is not positive, or key heads that do not divide the query heads.
        """
        for name in ("num_heads", "num_kv_heads", "head_dim", "latent_dim"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}: expected a positive integer, got {value}")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_kv_heads: expected a divisor of num_heads = {self.num_heads}, got {self.num_kv_heads}"
            )

    @property
    def cache_dims(self) -> int:
        """Key dimensions that a token caches."""
        return self.num_kv_heads * self.head_dim if self.latent_dim is None else self.latent_dim

    @property
    def width(self) -> int:
        """The dimension that decides the cache: ``d_c`` with latents, else ``d_k``."""
        return self.head_dim if self.latent_dim is None else self.latent_dim


@dataclass(frozen=True, eq=False)
class SharedChannel:
    """Weights of a trained layer and how its training ended.

    Attributes:
        factors: ``query (h, d, k)`` with ``key (g, d, k)``, or with ``up (h, c, k)`` and ``down (d, c)``; float32.
        threshold: a pair is an edge when its best head scores above this.
        loss: the trainer's loss at the end.
        steps: optimiser steps taken.
        learning_rate: None where the trainer has none.
        reason: None for a run that ended well, else why its weights mean nothing.
    """

    factors: dict[str, np.ndarray]
    threshold: float
    loss: float
    steps: int
    learning_rate: float | None
    reason: str | None = None

    def weights(self) -> tuple[Float64[np.ndarray, "h d k"], Float64[np.ndarray, "h d k"]]:
        """Query and key maps of every head, written out in float64."""
        factors = {name: factor.astype(np.float64) for name, factor in self.factors.items()}
        query = factors["query"]
        if "key" in factors:
            return query, np.repeat(factors["key"], len(query) // len(factors["key"]), axis=0)
        return query, factors["down"] @ factors["up"]

    def judge(
        self, embeddings: Float[np.ndarray, "m d"], adjacency: Bool[np.ndarray, "m m"]
    ) -> Recovery | None:
        """Judge the channel in float64 from its factors alone; None for a run that diverged."""
        if self.reason is not None:
            return None
        return evaluate(channel_scores(embeddings, *self.weights()), adjacency, float(self.threshold))


def head_keys(params: Params, num_heads: int) -> Float[Array, "h d k"]:
    """Key maps of every head, from the shared ones."""
    if "key" in params:
        return jnp.repeat(params["key"], num_heads // params["key"].shape[0], axis=0)
    return jnp.einsum("dc,hck->hdk", params["down"], params["up"])


def projections(
    params: Params, x: Float[Array, "m d"]
) -> tuple[Float[Array, "h m k"], Float[Array, "h m k"]]:
    """Every item's query and key in every head; a shared map projects once."""
    queries = project(x, params["query"])
    if "key" in params:
        keys = project(x, params["key"])
        return queries, jnp.repeat(keys, len(queries) // len(keys), axis=0)
    return queries, jnp.einsum("mc,hck->hmk", x @ params["down"], params["up"])


def initial_weights(
    seeds: Sequence[int], design: KeyDesign, d_model: int, max_width: int, scale: float, purpose: str
) -> dict[str, np.ndarray]:
    """Gaussian weights of every seed, maps with entries of standard deviation ``scale``; zeros up to ``max_width``.

    Columns of zeros in both of two factors get zero gradients, so that a wider program trains the same run.
    """
    h, g, k, c = design.num_heads, design.num_kv_heads, design.head_dim, design.latent_dim
    drawn: list[dict[str, np.ndarray]] = []
    for seed in seeds:
        rng = seeded_rng(seed, purpose)
        one = {"query": scale * rng.standard_normal((h, d_model, k))}
        if c is None:
            one["key"] = scale * rng.standard_normal((g, d_model, k))
            one = {n: np.pad(v, ((0, 0), (0, 0), (0, max_width - k))) for n, v in one.items()}
        else:
            part = np.sqrt(scale / np.sqrt(c))
            one["up"] = np.pad(part * rng.standard_normal((h, c, k)), ((0, 0), (0, max_width - c), (0, 0)))
            one["down"] = np.pad(part * rng.standard_normal((d_model, c)), ((0, 0), (0, max_width - c)))
        drawn.append(one)
    return {name: np.stack([one[name] for one in drawn]).astype(np.float32) for name in drawn[0]}


def cut(factors: dict[str, np.ndarray], design: KeyDesign) -> dict[str, np.ndarray]:
    """One run's factors without the columns that a wider program had in reserve."""
    if design.latent_dim is None:
        return {name: factors[name][..., : design.head_dim] for name in ("query", "key")}
    c = design.latent_dim
    return {
        "query": factors["query"],
        "up": factors["up"][:, :c],
        "down": factors["down"][:, :c],
    }


class _Shared(Whole):
    """How a problem's logits come about where heads share their keys."""

    def logits(
        self, params: Params, x: Array, edges: Array, setting: Setting, temperature: Array | None
    ) -> Float[Array, "m m"]:
        """The channel's logits, less its offset."""
        scores, _ = max_over_heads(*projections(params, x))
        return jnp.exp(params["log_scale"]) * scores - params["offset"]


@partial(jax.jit, static_argnames=("max_steps", "check_every", "setting"))
def _optimise_shared(params, embeddings, adjacency, scalars, **static):
    return optimise(params, embeddings, adjacency, scalars, **static, way=_Shared())


def train_shared_joint(
    embeddings: Float[np.ndarray, "b m d"],
    adjacency: Bool[np.ndarray, "b m m"],
    *,
    design: KeyDesign,
    seeds: Sequence[int],
    max_width: int | None = None,
    options: JointOptions | None = None,
    starts: Sequence[SharedChannel] | None = None,
) -> list[SharedChannel]:
    """All heads and their shared keys at once, by gradient descent on the maximum; one channel per problem.

    The scale of the logits is put into the query maps at the end, so that a channel can be trained on from where it is.

    Args:
        embeddings: items of each problem ``(b, m, d)``, unit norm.
        adjacency: edges of each problem ``(b, m, m)``, [source, target].
        design: heads and how they share keys.
        seeds: one per problem; they decide the initial weights.
        max_width: `KeyDesign.width` the program is compiled for, the design's own if None. It changes no run but by
            rounding.
        options: settings of the trainer, `theory.training.PLAIN` if None; of it aggregation, temperature and loss.
        starts: channels of the same design to start from, one per problem, in place of random weights.

    Raises:
        ValueError: as `theory.training.types.check_batch`, for another aggregation, or for starts of another shape.
    """
    options = options or PLAIN
    if options.aggregation != "max":
        raise ValueError(f"aggregation: expected 'max', got {options.aggregation!r}")
    if options.temperature or options.loss != "cross-entropy":
        raise NotImplementedError("heads with shared keys are trained jointly by PLAIN's loss alone")
    width = design.width if max_width is None else max_width
    check_batch(embeddings, adjacency, design.num_heads, design.width, width, seeds)
    weight = edge_weight(adjacency, options)
    drawn = initial_weights(seeds, design, embeddings.shape[-1], width, options.init_scale, JOINT_PURPOSE)
    offset = np.zeros(len(seeds), np.float32)
    if starts is not None:
        drawn = _started(starts, drawn, design)
        offset = np.array([start.threshold - np.log(weight) for start in starts], np.float32)
    params = {name: jnp.asarray(value) for name, value in drawn.items()}
    params |= {"log_scale": jnp.zeros(len(seeds), jnp.float32), "offset": jnp.asarray(offset)}
    runs = jax.device_get(
        _optimise_shared(
            params,
            jnp.asarray(embeddings, jnp.float32),
            jnp.asarray(adjacency),
            scalars_of(weight, options),
            **static_of(options),
        )
    )
    channels = []
    for b in range(len(seeds)):
        kept = {name: leaf[b] for name, leaf in runs.kept.items()}
        with np.errstate(invalid="ignore", over="ignore"):
            kept["query"] = kept["query"] * np.exp(kept["log_scale"])
        threshold = float(kept["offset"] + np.log(weight))
        finite = all(np.isfinite(leaf).all() for leaf in (runs.loss[b], threshold, *kept.values()))
        steps = int(runs.steps[b])
        channels.append(
            SharedChannel(
                factors=cut(kept, design),
                threshold=threshold,
                loss=float(runs.loss[b]),
                steps=steps,
                learning_rate=options.learning_rate,
                reason=None if finite else f"loss, weights or threshold not finite after {steps} steps",
            )
        )
    return channels


def _started(
    starts: Sequence[SharedChannel], drawn: dict[str, np.ndarray], design: KeyDesign
) -> dict[str, np.ndarray]:
    """Factors of the channels, filled up to the shapes of what would have been drawn."""
    if len(starts) != len(drawn["query"]):
        raise ValueError(
            f"starts: expected one for each of {len(drawn['query'])} problems, got {len(starts)}"
        )
    filled = {name: np.zeros_like(value) for name, value in drawn.items()}
    for b, start in enumerate(starts):
        for name, value in filled.items():
            expected = cut({n: v[b] for n, v in filled.items()}, design)[name].shape
            own = start.factors.get(name)
            if own is None or own.shape != expected:
                got = "none" if own is None else own.shape
                raise ValueError(f"starts: expected {name} of shape {expected}, got {got}")
            value[(b, *(slice(size) for size in expected))] = own
    return filled
