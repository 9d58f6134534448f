"""Attention under JAX's transformations: maps over any axis, Jacobians, gradients of gradients where promised."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads, check_vjp

from tests.mha_jax.cases import DTYPE, X64, Shape, array, float64_slow, jit
from tests.mha_jax.implementations import DENSE, OURS
from tests.mha_jax.oracle import Attention

pytestmark = [pytest.mark.usefixtures("strict")]

each = pytest.mark.parametrize("implementation", OURS, ids=lambda x: x.name)
TOLERANCE = 1e-10 if X64 else 2e-5
SMALL = Shape(batch=(), T=3, S=5, N=4, K=2, D=2, E=3)
OPTIONS = {"is_causal": True, "logits_soft_cap": 1.5}


def _draw(axes=(), seed=0, shape=SMALL):
    rng = np.random.default_rng(seed)
    sizes = {"query": "TND", "key": "SKD", "value": "SKE", "bias": "NTS"}
    arrays = {x: array(rng.standard_normal((*axes, *shape.of(y))), DTYPE) for x, y in sizes.items()}
    arrays["mask"] = rng.random((*axes, *shape.of("1TS"))) < 0.7
    return arrays


@pytest.mark.float64
@each
def test_vmap_of_value_and_gradient_equals_a_loop(implementation):
    """Of one example without batch axes, over axes in the middle; the key and the bias shared."""
    one = _draw()
    many = _draw((3,), seed=1)
    arrays = one | {x: many[x] for x in ("query", "value", "mask")}
    g = array(np.random.default_rng(2).standard_normal(SMALL.of("TNE")), DTYPE)

    def value_and_gradients(query, key, value, bias, mask):
        def loss(*x):
            output, lse = implementation.call(*x, mask, **OPTIONS)
            return jnp.sum(output * g) + jnp.sum(jnp.where(jnp.isneginf(lse), 0, lse))

        return jax.value_and_grad(loss, (0, 1, 2, 3))(query, key, value, bias)

    axes = {"query": 1, "key": None, "value": 3, "bias": None, "mask": 2}
    moved = {x: arrays[x] if axis is None else np.moveaxis(arrays[x], 0, axis) for x, axis in axes.items()}
    mapped = jax.vmap(value_and_gradients, in_axes=tuple(axes.values()), out_axes=0)
    _, gradients = jit(mapped)(*moved.values())
    for i in range(3):
        example = one | {x: many[x][i] for x in ("query", "value", "mask")}
        oracle = Attention(**example, **OPTIONS)
        wanted = oracle.gradients(g, np.ones(oracle.lse.shape))
        for name, found in zip(("query", "key", "value", "bias"), gradients, strict=True):
            np.testing.assert_allclose(np.asarray(found)[i], wanted[name], atol=TOLERANCE, err_msg=name)


@float64_slow
@each
@pytest.mark.parametrize(
    "mapped",
    [
        ("query",),
        ("key", "bias"),
        ("key_value_seq_lengths", "query_offset"),
        *(
            pytest.param((x,), marks=pytest.mark.slow)
            for x in ("key", "value", "bias", "mask", "query_offset")
        ),
    ],
    ids="-".join,
)
def test_vmap_over_some_arguments_alone(implementation, mapped):
    arrays = _draw((2,)) | {
        "key_value_seq_lengths": np.array([4, 2], np.int32),
        "query_offset": np.array([1, -1], np.int32),
    }
    names = tuple(arrays)
    shared = [arrays[x] if x in mapped else arrays[x][0] for x in names]

    def attend(*x):
        return implementation.call(**dict(zip(names, x, strict=True)), **OPTIONS)

    output, lse = jit(jax.vmap(attend, in_axes=tuple(0 if x in mapped else None for x in names)))(*shared)
    for i in range(2):
        oracle = Attention(**{x: arrays[x][i if x in mapped else 0] for x in names}, **OPTIONS)
        np.testing.assert_allclose(np.asarray(output)[i], oracle.output, atol=TOLERANCE)
        np.testing.assert_allclose(np.asarray(lse)[i], oracle.lse, atol=TOLERANCE)


@float64_slow
@each
def test_jacobian_by_rows_is_the_gradient_of_every_output(implementation):
    arrays = _draw(seed=3)

    def attend(query, key, value):
        return implementation.call(query, key, value, arrays["bias"], arrays["mask"], **OPTIONS)[0]

    jacobians = jit(jax.jacrev(attend, (0, 1, 2)))(arrays["query"], arrays["key"], arrays["value"])
    oracle = Attention(**arrays, **OPTIONS)
    for index in np.ndindex(*SMALL.of("TNE")):
        g = np.zeros(SMALL.of("TNE"))
        g[index] = 1
        wanted = oracle.gradients(g)
        for name, jacobian in zip(("query", "key", "value"), jacobians, strict=True):
            np.testing.assert_allclose(
                np.asarray(jacobian)[index], wanted[name], atol=TOLERANCE, err_msg=name
            )


def _loss(implementation, arrays, options):
    """A smooth function of everything that has a gradient, the lse of rows with a key too."""
    weight = array(np.random.default_rng(5).standard_normal(SMALL.of("TNE")), DTYPE)

    def loss(query, key, value, bias, head_mask):
        x = query, key, value, bias, arrays["mask"]
        output, lse = implementation.call(*x, head_mask=head_mask, **options)
        return jnp.sum(jnp.tanh(output) * weight) + jnp.sum(jnp.sin(jnp.where(jnp.isneginf(lse), 0, lse)))

    head_mask = array(np.random.default_rng(6).standard_normal(SMALL.of("TN")), DTYPE)
    return loss, (*(arrays[x] for x in ("query", "key", "value", "bias")), head_mask)


@each
def test_a_scale_that_is_an_array_has_a_gradient(implementation):
    """Without a cap, logits are linear in scale and query alike: scale dL/dscale = <query, dL/dquery>."""
    arrays = _draw(seed=11)
    rest = {x: y for x, y in arrays.items() if x != "query"}

    @jit
    def gradients(query, scale):
        return jax.grad(lambda q, s: jnp.sum(jnp.sin(implementation.call(q, **rest, scale=s)[0])), (0, 1))(
            query, scale
        )

    scale = array(0.7, DTYPE)
    d_query, d_scale = gradients(arrays["query"], scale)
    assert abs(float(d_scale)) > 0.01
    np.testing.assert_allclose(scale * d_scale, np.sum(np.asarray(d_query) * arrays["query"]), atol=1e-5)


def _point(implementation, options):
    arrays = _draw(seed=4)
    arrays["mask"][..., 1, :] = False
    return _loss(implementation, arrays, {**OPTIONS, **options})


# Finite differences are taken in float64.
if X64:
    STEP: dict[str, Any] = {"eps": 1e-5, "atol": 1e-6, "rtol": 1e-6}

    @pytest.mark.float64
    @each
    def test_gradients_are_those_of_finite_differences(implementation):
        """At a fixed key of the dropout: what a gradient drops is what the output dropped."""
        loss, at = _point(implementation, {"dropout_rate": 0.4, "dropout_key": jax.random.key(7)})
        value, gradients = jit(loss), jit(jax.grad(loss, tuple(range(len(at)))))
        check_vjp(value, lambda *x: (value(*x), lambda g: tuple(g * y for y in gradients(*x))), at, **STEP)

    @pytest.mark.float64
    @pytest.mark.slow
    @each
    def test_all_derivatives_that_are_promised_are_those_of_finite_differences(implementation):
        loss, at = _point(implementation, {})
        how = (
            {"order": 2, "modes": ["fwd", "rev"]}
            if implementation is DENSE
            else {"order": 1, "modes": ["rev"]}
        )
        check_grads(jax.jit(loss), at, **how, **STEP)


@pytest.mark.float64
def test_forward_mode_and_hessian_of_dense():
    """The Jacobian-vector product is the oracle's gradient along it, and so are the Hessian's, by differences."""
    arrays = _draw(seed=8)
    tangent = _draw(seed=9)["query"]
    g = np.random.default_rng(10).standard_normal(SMALL.of("TNE"))

    def value(query):
        rest = {x: y for x, y in arrays.items() if x != "query"}
        output, lse = DENSE.call(query, **rest, **OPTIONS)
        return jnp.sum(output * array(g, DTYPE)) + jnp.sum(jnp.where(jnp.isneginf(lse), 0, lse))

    def gradient(query):
        oracle = Attention(**{**arrays, "query": query}, **OPTIONS)
        return oracle.gradients(g, np.ones(oracle.lse.shape))["query"]

    @jit
    def derivatives(query):
        return jax.jvp(value, (query,), (tangent,))[1], jax.jvp(jax.grad(value), (query,), (tangent,))[1]

    along, hessian_along = derivatives(arrays["query"])
    wide = np.asarray(arrays["query"], np.float64), np.asarray(tangent, np.float64)
    np.testing.assert_allclose(along, (gradient(wide[0]) * wide[1]).sum(), atol=10 * TOLERANCE)
    difference = (gradient(wide[0] + 1e-4 * wide[1]) - gradient(wide[0] - 1e-4 * wide[1])) / 2e-4
    np.testing.assert_allclose(hessian_along, difference, atol=1e-6 if X64 else 1e-4)
