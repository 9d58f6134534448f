"""What the attention layers for Flax NNX have in common: parameters, cache, dropout, settings."""

from typing import Any

import jax
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array

from mha_jax._layers import Params
from mha_jax.attention import Implementation
from mha_jax.rope import RotaryEmbedding


def check_rngs(rngs: Any) -> None:
    """A ValueError unless these are random streams."""
    if not isinstance(rngs, nnx.Rngs):
        raise ValueError(f"rngs: expected nnx.Rngs, got {rngs!r}")


class AttentionLayer(nnx.Module):
    """State of a layer; the pure functions do the work.

    Args:
        params: as the pure functions take them.
        is_causal: default of calls that do not decode.
        rope: settings of RoPE.
        local_window_size: as in `mha_jax.dot_product_attention`, like the next three.
        logits_soft_cap: see there.
        scale: see there.
        implementation: see there.
        dropout_rate: of attention weights.
        deterministic: default of calls.
        decode: default of calls.
        precision: of all products.
        dtype: of the computation.
        rngs: for dropout.

    Raises:
        ValueError: the rate is not in [0, 1).
    """

    def __init__(
        self,
        params: Params,
        *,
        is_causal: bool,
        rope: RotaryEmbedding | None,
        local_window_size: int | tuple[int, int] | None,
        logits_soft_cap: float | None,
        scale: float | None,
        implementation: Implementation | None,
        dropout_rate: float,
        deterministic: bool,
        decode: bool,
        precision: jax.lax.PrecisionLike,
        dtype: DTypeLike | None,
        rngs: nnx.Rngs,
    ) -> None:
        if not 0 <= dropout_rate < 1:
            raise ValueError(f"dropout_rate: expected a number in [0, 1), got {dropout_rate!r}")
        self.is_causal = is_causal
        self.rope = rope
        self.local_window_size = local_window_size
        self.logits_soft_cap = logits_soft_cap
        self.scale = scale
        self.implementation = implementation
        self.dropout_rate = dropout_rate
        self.deterministic = deterministic
        self.decode = decode
        self.precision = precision
        self.dtype = dtype
        self._set_state(params, rngs)
        self.cache: Any = nnx.data(None)

    @property
    def params(self) -> dict[str, dict[str, Any]]:
        """The parameters, as the pure functions take them."""
        parts = {part: getattr(self, part) for part in self._parts}
        return {part: {name: arrays[name].get_value() for name in arrays} for part, arrays in parts.items()}

    def set_view(self, deterministic: bool | None = None, decode: bool | None = None) -> None:
        """Used by ``nnx.view``.

        Args:
            deterministic: turns dropout off.
            decode: attend the cache, which ``init_cache`` makes.
        """
        self.deterministic = self.deterministic if deterministic is None else deterministic
        self.decode = self.decode if decode is None else decode

    def _set_state(self, params: Params, rngs: nnx.Rngs) -> None:
        self.rngs: Any = rngs.dropout.fork() if self.dropout_rate > 0 else nnx.data(None)
        self._parts = tuple(params)
        for part, arrays in params.items():
            setattr(self, part, nnx.Dict({name: nnx.Param(array) for name, array in arrays.items()}))

    def _masking(self) -> dict[str, Any]:
        """Settings that attention and the weights alone have in common."""
        names = "local_window_size", "logits_soft_cap", "scale", "precision"
        return {name: getattr(self, name) for name in names}

    def _causal(self, is_causal: bool | None, cache: Any) -> bool | None:
        """None with a cache, where the pure functions are causal unless told to be, and then refuse."""
        return self.is_causal if is_causal is None and cache is None else is_causal

    def _dropout(self, deterministic: bool | None, rngs: nnx.Rngs | nnx.RngStream | None) -> dict[str, Any]:
        if self.dropout_rate == 0 or (self.deterministic if deterministic is None else deterministic):
            return {}
        stream = self.rngs if rngs is None else rngs
        if stream is None:
            raise ValueError(
                "rngs: expected random streams for dropout, got None (the layer was made without)"
            )
        key = (stream.dropout if isinstance(stream, nnx.Rngs) else stream)()
        return {"dropout_rate": self.dropout_rate, "dropout_key": key}

    def _new_cache(self, cache: Any) -> None:
        self.cache = nnx.Dict({name: nnx.Cache(array) for name, array in cache._asdict().items()})

    def _cached(self, kind: Any, decode: bool | None) -> Any:
        """The cache where this call decodes, None where it does not."""
        if not (self.decode if decode is None else decode):
            return None
        if self.cache is None:
            raise ValueError("decode: expected False before init_cache has made a cache, got True")
        return kind(**{name: self.cache[name].get_value() for name in kind._fields})

    def _keep(self, cache: Any) -> None:
        for name, array in cache._asdict().items():
            self.cache[name].set_value(array)

    def _cache_dtype(self, dtype: DTypeLike | None, kernel: Array) -> DTypeLike:
        return next(x for x in (dtype, self.dtype, kernel.dtype) if x is not None)
