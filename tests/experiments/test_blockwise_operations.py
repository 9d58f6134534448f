"""The formula against the products of the traced kernel, and against the compiler where there is no loop."""

import functools
import math

import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import jaxprs_in_params

from experiments import bench_heads
from experiments.blockwise_operations import (
    EXPONENTIALS_OF_AN_ENTRY,
    OPERATIONS_OF_AN_ENTRY,
    blockwise_operations,
)
from mha_jax import dot_product_attention, init_multi_head_attention
from mha_jax._kernels.blocks import choose_blocks

STEP = bench_heads._step(
    lambda params, x: bench_heads.multi_head_attention(params, x, implementation="blockwise")
)


def arguments(batch, length, d_model, heads):
    x = jnp.ones((batch, length, d_model))
    return init_multi_head_attention(jax.random.key(0), d_model, heads), x, x


def traced_products(jaxpr, turns):
    """Operations of all products; of what is in a loop as often as the loop, inside a loop, turns."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            total += 2 * equation.outvars[0].aval.size * math.prod(shape[axis] for axis in contracted)
        loop = equation.primitive.name == "while"
        for inner in jaxprs_in_params(equation.params):
            total += (turns[0] if loop else 1) * traced_products(inner, turns[1:] if loop else turns)
    return total


@pytest.mark.parametrize(("batch", "length", "heads"), [(2, 64, 4), (1, 1024, 2), (2, 512, 64)])
def test_products_are_those_of_the_traced_kernel(batch, length, heads):
    d_model = 128
    queries, keys = choose_blocks(length, length, batch * heads, 4, "cpu")
    assert queries.size % queries.block == keys.size % keys.block == 0
    assert queries.number == keys.number  # one order of loops forwards, the other backwards
    turns = [queries.number, keys.number] if queries.number > 1 else []
    found = traced_products(jax.make_jaxpr(STEP)(*arguments(batch, length, d_model, heads)).jaxpr, turns)
    needed = bench_heads.product_operations(batch, length, d_model)
    whole = blockwise_operations(needed, batch, length, d_model, heads)
    assert found == whole - OPERATIONS_OF_AN_ENTRY * batch * heads * length**2
    assert found - needed == 2 * batch * length**2 * d_model


def test_what_grows_with_the_heads_is_what_the_compiler_counts_without_loops():
    length, d_model = 256, 64
    attention = functools.partial(dot_product_attention, implementation="blockwise")
    counts = {}
    for heads in (4, 8):
        x = jnp.ones((1, length, heads, d_model // heads))
        step = jax.jit(lambda q, k, v, g: jax.vjp(attention, q, k, v)[1](g))
        counts[heads] = bench_heads.compiled_operations(step.lower(x, x, x, x).compile())
    entries = 4 * length**2
    more, exponentials = (
        (counts[8][name] - counts[4][name]) / entries for name in ("compiled_operations", "transcendentals")
    )
    assert more == pytest.approx(
        OPERATIONS_OF_AN_ENTRY, rel=0.05
    )  # and a few for each row: 1 / 256 of an entry
    assert exponentials == pytest.approx(EXPONENTIALS_OF_AN_ENTRY, rel=0.01)


def test_ours_is_counted_by_formula_where_its_program_has_a_loop():
    sizes = {"batch": 2, "length": 3, "d_model": 4, "num_heads": 2, "product_operations": 1000}
    looped = sizes | {"contender": "ours", "compiled_operations": None}
    assert bench_heads.operations(looped) == 1000 + 2 * 2 * 9 * 4 + 6 * 2 * 2 * 9
    assert bench_heads.operations(looped | {"compiled_operations": 7}) == 7
    assert bench_heads.operations(looped | {"contender": "torch_sdpa"}) is None
