"""How alike heads are: Jensen-Shannon distances between their attention maps."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from mha_jax.analysis._maps import AnyArray, Scalar, counted
from mha_jax.analysis.spread import entropy_terms, smooth


def head_distances(
    weights: Float[AnyArray, "N T T"],
    tokens: Bool[AnyArray, " T"] | None = None,
    *,
    smoothing: Scalar = 0.001,
    is_causal: bool = False,
) -> Float[Array, "N N"]:
    """Jensen-Shannon divergence between every two heads on one example, summed over its tokens, in nats.

    ``d(i, j) = sum_t H((p_i + p_j) / 2) - (H(p_i) + H(p_j)) / 2`` with p_i the attention of head i at query t,
    smoothed as in `attention_entropy`. Sums over the examples of a corpus by addition; heads of several layers are
    compared by putting them into one axis. Needs memory for a few copies of the maps and works through the pairs
    once, however many heads there are.

    Source: Clark et al. 2019 (with their smoothing of 0.001).

    Args:
        weights: attention maps of all heads on one example.
        tokens: False for padding.
        smoothing: in [0, 1); may be traced.
        is_causal: a query may attend itself and what comes before; matters for the smoothing alone.

    Returns:
        Symmetric, 0 on the diagonal; at most ``T log 2``.

    Raises:
        ValueError: an argument has a wrong shape, dtype or value; the message names it.
    """
    maps, real, queries = counted(weights, tokens, None)
    if maps.ndim != 3:
        raise ValueError(f"weights: expected maps (N, T, T) of one example, got {maps.shape}")
    maps = jnp.where(queries[None, :, None], smooth(maps, real, smoothing, is_causal), 0)
    num_heads = maps.shape[0]
    own = _entropy(maps)

    def shifted(shift: Array) -> Float[Array, " N"]:
        other = jnp.roll(maps, -shift, axis=0)
        return _entropy((maps + other) / 2) - (own + jnp.roll(own, -shift)) / 2

    # Head i against head i + shift (modulo N), for half of the shifts: every pair once.
    shifts = jnp.arange(1, num_heads // 2 + 1)
    found = jnp.maximum(jax.lax.map(shifted, shifts), 0)
    first = jnp.broadcast_to(jnp.arange(num_heads)[None, :], found.shape)
    second = (first + jnp.broadcast_to(shifts[:, None], found.shape)) % num_heads
    distances = jnp.zeros((num_heads, num_heads), maps.dtype)
    return distances.at[first, second].set(found).at[second, first].set(found)


def _entropy(maps: Float[Array, "N T T"]) -> Float[Array, " N"]:
    return entropy_terms(maps).sum((-2, -1))
