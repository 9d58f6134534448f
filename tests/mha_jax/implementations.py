"""Every implementation of attention under one signature, each with what it cannot do and why.

``call(query, key, value, bias=None, mask=None, **options) -> (output, lse)`` with the arguments of
`mha_jax.dot_product_attention`; ``lse`` is None where an implementation returns none. A case states what it needs
(`cases.Case.needs`) and is run for every implementation that does not declare that it cannot.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import jax

import mha_jax
from mha_jax import attention
from mha_jax._kernels.blocks import Blocks

# What a case may need beyond plain softmax attention with one mask argument.
NEEDS = frozenset(
    {
        "value head dim",  # E != D
        "grouped heads",
        "batch axes",  # another number of them than one
        "bias",
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
    whole = attention.blockwise_attention

    def small(operands, options, heads, blocks):
        return whole(operands, options, heads, Blocks(min(queries, blocks.queries), min(keys, blocks.keys)))

    def call(*arguments, **options):
        with mock.patch.object(attention, "blockwise_attention", small):
            return _ours("blockwise")(*arguments, **options)

    return call


def _jax_nn(query, key, value, bias=None, mask=None, **options):
    output = jax.nn.dot_product_attention(query, key, value, bias, mask, implementation="xla", **options)
    return output, None


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
# Small blocks stand for blockwise in most tests: small arrays fit into one block of the usual size.
OURS = (DENSE, BLOCKS)
ALL = (*OURS, JAX_NN)
