"""Multi-head attention as a layer of Flax NNX."""

import functools
from collections.abc import Sequence
from typing import Any, Literal, overload

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, Real

from mha_jax._layers import Params
from mha_jax.attention import Implementation, attention_weights
from mha_jax.cache import KVCache, init_cache
from mha_jax.nnx.layer import AttentionLayer, check_rngs
from mha_jax.projections import (
    attended_positions,
    init_multi_head_attention,
    multi_head_attention,
    project_heads,
    sizes_of,
)
from mha_jax.rope import RotaryEmbedding


class MultiHeadAttention(AttentionLayer):
    """Multi-head, grouped or multi-query attention.

    All sizes are free: see `mha_jax.projections`. Attributes can be changed between calls (``layer.implementation =
    "blockwise"``); under ``nnx.jit`` that compiles anew.

    Example::

        layer = MultiHeadAttention(d_model=64, num_heads=8, is_causal=True, rngs=nnx.Rngs(0))
        y, weights = layer(x, return_weights=True)  # (..., T, 64), (..., 8, T, T)

        layer.init_cache(1024, batch_shape=x.shape[:-2])
        y = layer(prompt, decode=True)  # any number of tokens at a time
        y = layer(token, decode=True)
    """

    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int,
        head_dim: int | None = None,
        value_head_dim: int | None = None,
        num_kv_heads: int | None = None,
        d_kv: int | None = None,
        d_out: int | None = None,
        use_bias: bool = False,
        qk_norm: bool = False,
        rope: RotaryEmbedding | None = None,
        is_causal: bool = False,
        local_window_size: int | tuple[int, int] | None = None,
        logits_soft_cap: float | None = None,
        scale: float | None = None,
        dropout_rate: float = 0.0,
        deterministic: bool = False,
        decode: bool = False,
        implementation: Implementation | None = None,
        precision: jax.lax.PrecisionLike = None,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        """Draws parameters (from the stream ``params``).

        Args:
            d_model: width of the input, M.
            num_heads: query heads, N.
            head_dim: D. None: ``d_model / num_heads``.
            value_head_dim: E. None: ``head_dim``.
            num_kv_heads: K, a divisor of ``num_heads``. None: ``num_heads``.
            d_kv: width of the input of keys and values. None: ``d_model``.
            d_out: width of the output. None: ``d_model``.
            use_bias: add biases to the projections.
            qk_norm: normalise every query and key head by its root mean square.
            rope: rotates queries and keys by their positions. None: no rotation.
            is_causal: default of calls that do not decode.
            local_window_size: as in `mha_jax.dot_product_attention`, like the next two.
            logits_soft_cap: see there.
            scale: see there.
            dropout_rate: of attention weights, in [0, 1); an own mask for every head.
            deterministic: no dropout (default of calls).
            decode: attend the cache (default of calls).
            implementation: as in `mha_jax.dot_product_attention`.
            precision: of all products.
            dtype: of the computation. None: what JAX promotes inputs and parameters to.
            param_dtype: of the parameters.
            rngs: random streams: ``params``; ``dropout`` where there is dropout.

        Raises:
            ValueError: a size or the rate is outside its range, or ``rngs`` are no ``nnx.Rngs``;
                see `mha_jax.init_multi_head_attention`.
        """
        check_rngs(rngs)
        params = init_multi_head_attention(
            rngs.params(),
            d_model,
            num_heads,
            head_dim=head_dim,
            value_head_dim=value_head_dim,
            num_kv_heads=num_kv_heads,
            d_kv=d_kv,
            d_out=d_out,
            use_bias=use_bias,
            qk_norm=qk_norm,
            dtype=param_dtype,
        )
        super().__init__(
            params,
            is_causal=is_causal,
            dropout_rate=dropout_rate,
            deterministic=deterministic,
            decode=decode,
            rope=rope,
            scale=scale,
            local_window_size=local_window_size,
            logits_soft_cap=logits_soft_cap,
            implementation=implementation,
            precision=precision,
            dtype=dtype,
            rngs=rngs,
        )
        self.num_heads, self.d_model, self.head_dim = params["query"]["kernel"].shape
        self.num_kv_heads, self.d_kv, self.value_head_dim = params["value"]["kernel"].shape
        self.d_out = params["out"]["kernel"].shape[-1]

    @classmethod
    def from_params(
        cls, params: Params, *, rngs: nnx.Rngs | None = None, **options: Any
    ) -> "MultiHeadAttention":
        """A layer of given parameters, with all sizes read from them.

        Args:
            params: of `mha_jax.init_multi_head_attention`, `mha_jax.projections.select_heads` or `params_from_flax`.
            rngs: for dropout. None: ``nnx.Rngs(0)``.
            **options: the other arguments of the class but sizes.

        Raises:
            ValueError: parameters do not fit together.
        """
        sizes = sizes_of(params)
        make = functools.partial(
            cls,
            d_model=sizes["M"],
            num_heads=sizes["N"],
            head_dim=sizes["D"],
            value_head_dim=sizes["E"],
            num_kv_heads=sizes["K"],
            d_kv=sizes["M_kv"],
            d_out=sizes["M_out"],
            **options,
        )
        layer = nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0)))  # draws nothing
        layer._set_state(params, nnx.Rngs(0) if rngs is None else rngs)
        return layer

    def init_cache(
        self, capacity: int, *, batch_shape: Sequence[int] = (), dtype: DTypeLike | None = None
    ) -> None:
        """Makes an empty cache, in place of the one there is.

        Args:
            capacity: tokens that it can hold. What happens past it: `mha_jax.cache`.
            batch_shape: batch axes of the inputs.
            dtype: of the entries. None: of the computation, or of the parameters.

        Raises:
            ValueError: a size is not a positive integer, or the dtype is not floating point.
        """
        cache = init_cache(
            capacity,
            self.num_kv_heads,
            self.head_dim,
            value_head_dim=self.value_head_dim,
            batch_shape=tuple(batch_shape),
            dtype=self._cache_dtype(dtype, self.params["key"]["kernel"]),
        )
        self._new_cache(cache)

    @overload
    def __call__(
        self, x_q: Array, x_kv: Array | None = None, *, return_weights: Literal[False] = ..., **call: Any
    ) -> Array: ...
    @overload
    def __call__(
        self, x_q: Array, x_kv: Array | None = None, *, return_weights: Literal[True], **call: Any
    ) -> tuple[Array, Array]: ...
    def __call__(  # pyright: ignore[reportInconsistentOverload] (overloads leave out most arguments)
        self,
        x_q: Float[Array, "... t m"],
        x_kv: Float[Array, "... s m_kv"] | None = None,
        *,
        mask: Bool[Array, "..."] | None = None,
        bias: Float[Array, "..."] | None = None,
        head_mask: Real[Array, "..."] | None = None,
        query_seq_lengths: Int[Array, "..."] | int | None = None,
        key_value_seq_lengths: Int[Array, "..."] | int | None = None,
        query_positions: Real[Array, "..."] | None = None,
        key_positions: Real[Array, "..."] | None = None,
        query_offset: Int[Array, "..."] | int = 0,
        is_causal: bool | None = None,
        deterministic: bool | None = None,
        decode: bool | None = None,
        rngs: nnx.Rngs | nnx.RngStream | None = None,
        return_weights: bool = False,
    ) -> Float[Array, "... t m_out"] | tuple[Float[Array, "... t m_out"], Float[Array, "... n t s"]]:
        """Attends from ``x_q`` to ``x_kv``, or to itself, or (decoding) to the cache, into which it is taken first.

        Args:
            x_q: ``(..., T, M)``.
            x_kv: ``(..., S, M_kv)``. None: ``x_q``.
            mask: True attends; rank 4 for inputs of rank 3, broadcasts to ``(..., N, T, S)``. While decoding, ``S`` is
                the capacity of the cache.
            bias: added to the logits; broadcasts likewise.
            head_mask: multiplies the outputs of heads; broadcasts to ``(..., T, N)``, so ``(N,)`` will do.
            query_seq_lengths: as in `mha_jax.dot_product_attention`, like the next.
            key_value_seq_lengths: see there.
            query_positions: for RoPE, see `mha_jax.multi_head_attention`, like the next two.
            key_positions: see there.
            query_offset: see there.
            is_causal: None: what the layer was made with; while decoding always.
            deterministic: no dropout. None: what the layer was made with.
            decode: attend the cache. None: what the layer was made with.
            rngs: for dropout, in place of the layer's.
            return_weights: also return the weights, without dropout and head mask. They are computed once more,
                whole: O(T S) memory in every implementation.

        Returns:
            ``(..., T, M_out)``; with ``return_weights`` a pair of it and ``(..., N, T, S)``.

        Raises:
            ValueError: an argument does not fit; see `mha_jax.multi_head_attention`, `mha_jax.dot_product_attention`.
            NotImplementedError: the named implementation cannot do this.
        """
        params, cache = self.params, self._cached(KVCache, decode)
        causal = self._causal(is_causal, cache)
        settings: dict[str, Any] = {"rope": self.rope, "dtype": self.dtype}
        if self.rope is not None:
            query_positions, key_positions = attended_positions(
                x_q,
                x_kv,
                query_positions,
                key_positions,
                query_offset=query_offset if cache is None else cache.length,
                cached=cache is not None,
            )
        settings |= {"query_positions": query_positions, "key_positions": key_positions}
        masking = self._masking() | {
            "mask": mask,
            "bias": bias,
            "query_seq_lengths": query_seq_lengths,
            "key_value_seq_lengths": key_value_seq_lengths,
        }
        result: Any = multi_head_attention(
            params,
            x_q,
            x_kv,
            cache=cache,
            is_causal=causal,
            query_offset=query_offset,
            head_mask=head_mask,
            implementation=self.implementation,
            **settings,
            **masking,
            **self._dropout(deterministic, rngs),
        )
        output, appended = (result, None) if cache is None else result
        if appended is not None:
            self._keep(appended)
        if not return_weights:
            return output
        query, key, _ = project_heads(params, x_q, x_kv, precision=self.precision, **settings)
        if cache is not None and appended is not None:
            key, query_offset, causal = appended.key.astype(query.dtype), cache.length, True
        weights = attention_weights(query, key, is_causal=bool(causal), query_offset=query_offset, **masking)
        return output, weights
