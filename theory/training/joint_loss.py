"""The loss of joint training (`theory.training.joint`), its gradient, and what is judged by it.

`Whole` is how a device computes that has whole problems. `theory.training.sharded` and `theory.training.shared_keys`
derive other ways from it, which the same loop trains.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from theory.channel import max_over_heads, project, soft_max_over_heads, sum_over_heads
from theory.training.joint_options import JointOptions, Setting

Params = dict[str, Array]


def edge_weight(adjacency: Bool[np.ndarray, "b m m"], options: JointOptions) -> float:
    """Weight of an edge in the loss."""
    return balanced_weight(adjacency) if options.positive_weight is None else options.positive_weight


def balanced_weight(adjacency: Bool[np.ndarray, "b m m"]) -> float:
    """``sqrt(non-edges / edges)`` of problems that all have as many edges."""
    edges = int(adjacency[0].sum())
    return float(np.sqrt((adjacency[0].size - edges) / edges))


def penalties(
    logits: Float[Array, "t m"], edges: Bool[Array, "t m"], setting: Setting
) -> Float[Array, "t m"]:
    """Loss of every pair, without weights."""
    signed = jnp.where(edges, logits, -logits)
    if setting.loss == "hinge":
        return jnp.square(jnp.maximum(1.0 - signed, 0.0))
    return jax.nn.softplus(-signed)


def own_logit(weight: Float[Array, ""], setting: Setting) -> Float[Array, ""]:
    """The logit above which a channel says edge."""
    return jnp.zeros_like(weight) if setting.loss == "hinge" else jnp.log(weight)


class Whole:
    """How a device that has whole problems computes; `theory.training.sharded` and `shared_keys` have other ways."""

    def logits(
        self, params: Params, x: Array, edges: Array, setting: Setting, temperature: Array | None
    ) -> Float[Array, "t m"]:
        """The channel's logits, less its offset; over the hard maximum where there is no temperature."""
        queries, keys = project(x, params["query"]), project(x, params["key"])
        scale = jnp.exp(params["log_scale"])
        if setting.aggregation == "sum":
            return scale * sum_over_heads(queries, keys) - params["offset"]
        if temperature is None:
            return scale * max_over_heads(queries, keys)[0] - params["offset"]
        return soft_max_over_heads(scale * queries, keys, temperature) - params["offset"]

    def total_weight(self, x: Array, edges: Array, weight: Array) -> Array:
        """Sum of all pairs' weights."""
        return jnp.sum(jnp.where(edges, weight, 1.0))

    def over_rows(self, reduce: Any, values: Any) -> Any:
        """Reduce over the devices that share a problem's rows: none here."""
        return values

    def loss_and_gradient(
        self, params: Params, x: Array, edges: Array, weight: Array, setting: Setting, temperature: Array
    ) -> tuple[Array, Params]:
        """Loss of one problem, and its gradient; each device differentiates the loss of its own rows."""
        weights = jnp.where(edges, weight, 1.0)
        everything = self.total_weight(x, edges, weight)

        def own(params: Params) -> Array:
            logits = self.logits(params, x, edges, setting, temperature if setting.soft else None)
            return jnp.sum(weights * penalties(logits, edges, setting)) / everything

        return self.over_rows(jax.lax.psum, jax.value_and_grad(own)(params))

    def judged(
        self, params: Params, x: Array, edges: Array, weight: Array, setting: Setting
    ) -> tuple[Array, Array]:
        """Whether some threshold answers every pair right, and whether the channel's own does."""
        logits = self.logits(params, x, edges, setting, None)
        lowest = self.over_rows(jax.lax.pmin, jnp.min(logits, where=edges, initial=jnp.inf))
        highest = self.over_rows(jax.lax.pmax, jnp.max(logits, where=~edges, initial=-jnp.inf))
        own = own_logit(weight, setting)
        return lowest > highest, (lowest > own) & (highest <= own)

    def all_done(self, done: Bool[Array, " b"]) -> Bool[Array, ""]:
        """Whether no run is left."""
        return jnp.all(done)
