"""Every implementation of attention under one signature, each with what it cannot do and why.

``call(query, key, value, bias=None, mask=None, **options) -> (output, lse)`` with the arguments of
`mha_jax.dot_product_attention`; ``lse`` is None where an implementation returns none. A case states what it needs
(`cases.Case.needs`) and is run for every implementation that does not declare that it cannot.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
from flax import linen, nnx

import mha_jax
from mha_jax import attention
from mha_jax._kernels.blocks import Axis
from mha_jax.nnx import attention_fn

# What a case may need beyond plain softmax attention with one mask argument.
NEEDS = frozenset(
    {
        "value head dim",  # E != D
        "grouped heads",
        "batch axes",  # another number of them than one
        "bias",
        "causal",
        "window",
        "lengths",
        "query_offset",
        "soft cap",
        "scale",
        "head_mask",
        "dropout",
        "lse",
        "rows without keys",  # zeros, and zero gradients
        "unread positions",  # hold anything
        "-inf bias",
        "float64",
        "16 bits",  # logits and softmax in float32, one cast at the end
    }
)


@dataclasses.dataclass(frozen=True, eq=False)
class Implementation:
    name: str
    call: Callable[..., Any]
    cannot: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if not set(self.cannot) <= NEEDS:
            raise ValueError(f"{self.name}: declares {set(self.cannot) - NEEDS}, which no case needs")

    def can(self, needs):
        return not set(needs) & set(self.cannot)


def _ours(implementation):
    def call(query, key, value, bias=None, mask=None, **options):
        return mha_jax.dot_product_attention(
            query, key, value, bias, mask, implementation=implementation, return_residual=True, **options
        )

    return call


def _in_blocks(queries, keys):
    """Blockwise in small blocks, so that small arrays have many, the last of them ragged."""

    def small(num_queries, num_keys, *_):
        return Axis(num_queries, min(queries, num_queries)), Axis(num_keys, min(keys, num_keys))

    def call(*arguments, **options):
        with mock.patch.object(attention, "choose_blocks", small):
            return _ours("blockwise")(*arguments, **options)

    return call


def _jax_nn(query, key, value, bias=None, mask=None, **options):
    output = jax.nn.dot_product_attention(query, key, value, bias, mask, implementation="xla", **options)
    return output, None


def _identity(key, shape, dtype):
    """A Flax layer whose projections do nothing is attention alone."""
    del key
    return jnp.eye(*shape, dtype=dtype)


def _together(x):
    """(..., T, N, D) to (..., T, N * D), which a Flax layer takes apart."""
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


def _flax_nnx(implementation):
    def call(query, key, value, mask=None, *, is_causal=False):
        layer = nnx.MultiHeadAttention(
            num_heads=query.shape[-2],
            in_features=query.shape[-2] * query.shape[-1],
            num_kv_heads=key.shape[-2],
            in_kv_features=key.shape[-2] * key.shape[-1],
            use_bias=False,
            decode=False,
            param_dtype=query.dtype,
            kernel_init=_identity,
            attention_fn=functools.partial(attention_fn, implementation=implementation),
            rngs=nnx.Rngs(0),
        )
        output = layer(_together(query), _together(key), _together(value), mask=mask, is_causal=is_causal)
        return output.reshape(query.shape), None

    return call


def _flax_linen(implementation):
    def call(query, key, value, mask=None):
        layer = linen.MultiHeadDotProductAttention(
            num_heads=query.shape[-2],
            use_bias=False,
            param_dtype=query.dtype,
            kernel_init=_identity,
            attention_fn=functools.partial(attention_fn, implementation=implementation),
        )
        inputs = _together(query), _together(key), _together(value)
        output, _ = layer.init_with_output(jax.random.key(0), *inputs, mask=mask)
        return output.reshape(query.shape), None

    return call


_FLAX_CANNOT = {
    "value head dim": "has one width of a head",
    "bias": "has no such argument",
    "-inf bias": "has no such argument",
    "window": "has no such argument",
    "lengths": "has no such argument",
    "query_offset": "has no such argument",
    "soft cap": "has no such argument",
    "scale": "has no such argument",
    "head_mask": "has no such argument",
    "dropout": "has a stream of random numbers of its own",
    "lse": "does not return it",
}

DENSE = Implementation("dense", _ours("dense"))
BLOCKWISE = Implementation("blockwise", _ours("blockwise"))
BLOCKS = Implementation("blocks of 2 x 3", _in_blocks(2, 3))
JAX_NN = Implementation(
    "jax.nn",
    _jax_nn,
    {
        "value head dim": "refuses values of another width than keys",
        "batch axes": "takes (T, N, D) and (B, T, N, D) alone",
        "query_offset": "has no such argument",
        "soft cap": "has no such argument",
        "head_mask": "has no such argument",
        "dropout": "has no such argument",
        "lse": "returns it without a gradient, in the dtype of the keys",
        "rows without keys": "gives the mean of all values, with gradients",
        "unread positions": "multiplies them by 0, which keeps a NaN",
        "-inf bias": "gives NaN gradients in a row of -inf alone",
        "float64": "softmax in float32",
        "16 bits": "promotes dtypes on its own, and asks for products of float16 that a CPU does not have",
    },
)
FLAX_NNX = Implementation("flax.nnx", _flax_nnx("dense"), _FLAX_CANNOT)
FLAX_LINEN = Implementation(
    "flax.linen",
    _flax_linen("blockwise"),
    {**_FLAX_CANNOT, "grouped heads": "has none", "causal": "takes a mask instead"},
)
# One block of queries: keys and values are read as they came, a block at a time (`mha_jax._kernels.blocks.read_once`).
KEY_BLOCKS = Implementation("blocks of keys", _in_blocks(10**6, 3))
# Small blocks stand for blockwise in most tests: small arrays fit into one block of the usual size.
OURS = (DENSE, BLOCKS, KEY_BLOCKS)
FLAX = (FLAX_NNX, FLAX_LINEN)
ALL = (*OURS, JAX_NN, *FLAX)
