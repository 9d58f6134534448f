"""Multi-head latent attention as a layer of Flax NNX."""

from collections.abc import Sequence
from typing import Any, Literal, overload

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, Real

from mha_jax.attention import Implementation, attention_weights
from mha_jax.cache import LatentCache, init_latent_cache
from mha_jax.latent import init_latent_attention, latent_attention, latent_heads, project_latents, sizes_of
from mha_jax.nnx.layer import AttentionLayer, check_rngs
from mha_jax.rope import RotaryEmbedding, positions_from


class MultiHeadLatentAttention(AttentionLayer):
    """Multi-head latent attention (MLA): see `mha_jax.latent`.

    The cache keeps one latent and one rotated key a token for all heads.

    Example::

        layer = MultiHeadLatentAttention(d_model=64, num_heads=8, is_causal=True, rngs=nnx.Rngs(0))
        y = layer(x)
        layer.init_cache(1024, batch_shape=x.shape[:-2])
        y = layer(prompt, decode=True)
        y = layer(token, decode=True, absorbed=True)  # the same numbers, less work for few tokens
    """

    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int,
        head_dim: int | None = None,
        value_head_dim: int | None = None,
        latent_dim: int | None = None,
        rope_dim: int | None = None,
        query_latent_dim: int | None = None,
        d_out: int | None = None,
        latent_norm: bool = False,
        absorbed: bool = False,
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
            num_heads: N.
            head_dim: D, without the rotated part. None: ``d_model / num_heads``.
            value_head_dim: E. None: ``head_dim``.
            latent_dim: d_c. None: ``4 head_dim``.
            rope_dim: d_R, even. None: ``head_dim / 2``.
            query_latent_dim: of compressed queries. None: they are not compressed.
            d_out: width of the output. None: ``d_model``.
            latent_norm: normalise latents by their root mean square.
            absorbed: attend the latents themselves (default of calls).
            rope: settings of RoPE. None: ``RotaryEmbedding()``.
            is_causal: default of calls that do not decode.
            local_window_size: as in `mha_jax.dot_product_attention`, like the next two.
            logits_soft_cap: see there.
            scale: of the scores. None: ``1 / sqrt(D + d_R)``.
            dropout_rate: of attention weights, in [0, 1); an own mask for every head.
            deterministic: no dropout (default of calls).
            decode: attend the cache (default of calls).
            implementation: as in `mha_jax.dot_product_attention`.
            precision: of all products.
            dtype: of the computation. None: what JAX promotes input and parameters to.
            param_dtype: of the parameters.
            rngs: random streams: ``params``; ``dropout`` where there is dropout.

        Raises:
            ValueError: a size or the rate is outside its range, or ``rngs`` are no ``nnx.Rngs``;
                see `mha_jax.init_latent_attention`.
        """
        check_rngs(rngs)
        params = init_latent_attention(
            rngs.params(),
            d_model,
            num_heads,
            head_dim=head_dim,
            value_head_dim=value_head_dim,
            latent_dim=latent_dim,
            rope_dim=rope_dim,
            query_latent_dim=query_latent_dim,
            d_out=d_out,
            latent_norm=latent_norm,
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
        self.absorbed = absorbed
        sizes = sizes_of(params)
        self.d_model, self.num_heads, self.head_dim = sizes["M"], sizes["N"], sizes["D"]
        self.value_head_dim, self.latent_dim, self.rope_dim = sizes["E"], sizes["C"], sizes["R"]
        self.d_out = sizes["M_out"]

    def init_cache(
        self, capacity: int, *, batch_shape: Sequence[int] = (), dtype: DTypeLike | None = None
    ) -> None:
        """Makes an empty cache, in place of the one there is; see `MultiHeadAttention.init_cache`."""
        dtype = self._cache_dtype(dtype, self.params["latent"]["kernel"])
        self._new_cache(
            init_latent_cache(
                capacity, self.latent_dim, self.rope_dim, batch_shape=tuple(batch_shape), dtype=dtype
            )
        )

    @overload
    def __call__(self, x: Array, *, return_weights: Literal[False] = ..., **call: Any) -> Array: ...
    @overload
    def __call__(self, x: Array, *, return_weights: Literal[True], **call: Any) -> tuple[Array, Array]: ...
    def __call__(  # pyright: ignore[reportInconsistentOverload] (overloads leave out most arguments)
        self,
        x: Float[Array, "... t m"],
        *,
        mask: Bool[Array, "..."] | None = None,
        bias: Float[Array, "..."] | None = None,
        head_mask: Real[Array, "..."] | None = None,
        query_seq_lengths: Int[Array, "..."] | int | None = None,
        key_value_seq_lengths: Int[Array, "..."] | int | None = None,
        positions: Real[Array, "..."] | None = None,
        is_causal: bool | None = None,
        absorbed: bool | None = None,
        deterministic: bool | None = None,
        decode: bool | None = None,
        rngs: nnx.Rngs | nnx.RngStream | None = None,
        return_weights: bool = False,
    ) -> Float[Array, "... t m_out"] | tuple[Float[Array, "... t m_out"], Float[Array, "... n t s"]]:
        """Attends from ``x`` to itself, or (decoding) to the cache, into which its latents are taken first.

        Args:
            x: ``(..., T, M)``.
            mask: as in `MultiHeadAttention`, like all arguments but these:
            bias: see there.
            head_mask: see there.
            query_seq_lengths: see there.
            key_value_seq_lengths: see there.
            positions: for RoPE, see `mha_jax.latent_attention`.
            is_causal: see there.
            absorbed: which form. None: what the layer was made with.
            deterministic: see there.
            decode: see there.
            rngs: see there.
            return_weights: see there.

        Returns:
            ``(..., T, M_out)``; with ``return_weights`` a pair of it and ``(..., N, T, S)``.

        Raises:
            ValueError: an argument does not fit; see `mha_jax.latent_attention`, `mha_jax.dot_product_attention`.
            NotImplementedError: the named implementation cannot do this.
        """
        params, cache = self.params, self._cached(LatentCache, decode)
        causal = self._causal(is_causal, cache)
        absorbed = self.absorbed if absorbed is None else absorbed
        offset = 0 if cache is None else cache.length
        positions = positions_from(offset, x.shape[-2]) if positions is None else positions
        settings: dict[str, Any] = {"rope": self.rope, "positions": positions, "dtype": self.dtype}
        masking = self._masking() | {
            "mask": mask,
            "bias": bias,
            "query_seq_lengths": query_seq_lengths,
            "key_value_seq_lengths": key_value_seq_lengths,
        }
        result: Any = latent_attention(
            params,
            x,
            cache=cache,
            absorbed=absorbed,
            is_causal=causal,
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
        settings["precision"] = self.precision
        latents = project_latents(params, x, **settings) if appended is None else appended[:2]
        query, key, _ = latent_heads(params, x, *latents, absorbed=True, **settings)
        if masking["scale"] is None:
            masking["scale"] = (self.head_dim + self.rope_dim) ** -0.5
        causal = cache is not None or bool(causal)
        return output, attention_weights(query, key, is_causal=causal, query_offset=offset, **masking)
