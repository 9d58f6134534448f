"""The compiler's count of operations, and where there is none."""

import jax
import jax.numpy as jnp
import pytest

from experiments.operations import compiled_operations
from experiments.translation.data import COPY
from experiments.translation.plan import TranslationPoint, shape_of
from experiments.translation.subwords import encoded
from experiments.translation.units import train

NONE = {"compiled_operations": None, "transcendentals": None}


def test_the_count_is_that_of_a_product_and_none_with_a_loop():
    a, b = jnp.ones((7, 11)), jnp.ones((11, 13))
    product = jax.jit(lambda a, b: a @ b).lower(a, b).compile()
    assert compiled_operations(product) == {"compiled_operations": 2 * 7 * 11 * 13, "transcendentals": 0}
    assert compiled_operations(product, loops=1) == NONE
    looped = jax.jit(lambda a: jax.lax.fori_loop(0, jnp.sum(a).astype(int), lambda _, x: x + 1, a))
    assert compiled_operations(looped.lower(a).compile()) == NONE


def test_of_a_scan_one_step_is_counted_and_none_where_a_step_has_a_loop():
    a, b = jnp.ones((7, 11)), jnp.ones((5, 11, 11))
    scan = jax.jit(lambda a, b: jax.lax.scan(lambda x, y: (x @ y, None), a, b)[0]).lower(a, b).compile()
    [count] = [v for k, v in compiled_operations(scan, loops=1).items() if k == "compiled_operations"]
    assert count == pytest.approx(2 * 7 * 11 * 11, rel=0.01)  # and the counter of steps
    inner = lambda x, y: (jax.lax.fori_loop(0, 3 + x[0, 0].astype(int), lambda _, z: z @ y, x), None)  # noqa: E731
    nested = jax.jit(lambda a, b: jax.lax.scan(inner, a, b)[0]).lower(a, b).compile()
    assert compiled_operations(nested, loops=1) == NONE


def test_a_training_over_long_rows_has_no_count():
    """Attention there goes over blocks, in a loop."""
    sizes = {"vocab_size": 275, "d_model": 8, "d_ff": 8, "num_layers": 1, "num_heads": 4}
    point = TranslationPoint(
        arm="A", pairs=COPY, dropout_rate=0.0, head_dim=2, value_head_dim=2, num_steps=10, rows=1, length=1024,
        warmup=5, learning_rate=0.01, seed=0, **sizes,
    )  # fmt: skip
    text = encoded(COPY, 275)
    trained = train([point], shape_of(point, text.subwords.vocab_size), text)
    assert trained.flops_per_step is None
