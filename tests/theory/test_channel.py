"""`theory.channel`: the fused maximum over heads against the einsum, in values, heads, gradients and memory."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads

from theory.channel import head_scores, max_over_heads, project, sum_over_heads

# (heads, rows, columns, head_dim): one head; a fused block; fused blocks with a filled-up last one; products in
# one block, in two, in blocks with a filled-up last one.
SHAPES = [
    (1, 5, 7, 2),
    (3, 5, 7, 2),
    (11, 5, 7, 3),
    (17, 5, 7, 1),
    (3, 5, 11, 7),
    (5, 7, 3, 11),
    (7, 2, 5, 13),
]


def _dtype():
    return np.float64 if jax.config.read("jax_enable_x64") else np.float32


def _tolerance(scale):
    return 64 * scale * np.finfo(_dtype()).eps


def _draw(shape, seed=0, batch=()):
    heads, rows, columns, width = shape
    rng = np.random.default_rng(seed)
    return (
        jnp.asarray(rng.standard_normal((*batch, heads, rows, width)), _dtype()),
        jnp.asarray(rng.standard_normal((*batch, heads, columns, width)), _dtype()),
        jnp.asarray(rng.standard_normal((*batch, rows, columns)), _dtype()),
    )


def _oracle(queries, keys, grad):
    """Scores, heads, gradients in float64 NumPy, with a loop over pairs for the gradients."""
    q, k, g = (np.asarray(x, np.float64) for x in (queries, keys, grad))
    all_scores = np.einsum("htk,hsk->hts", q, k)
    head = all_scores.argmax(0)
    grad_queries, grad_keys = np.zeros_like(q), np.zeros_like(k)
    for t in range(q.shape[1]):
        for s in range(k.shape[1]):
            i = head[t, s]
            grad_queries[i, t] += g[t, s] * k[i, s]
            grad_keys[i, s] += g[t, s] * q[i, t]
    return all_scores.max(0), head, grad_queries, grad_keys


def _value_and_gradients(queries, keys, grad, tile=None):
    (scores, head), pullback = jax.vjp(lambda q, k: max_over_heads(q, k, tile=tile), queries, keys)
    return scores, head, *pullback((grad, np.zeros(head.shape, jax.dtypes.float0)))


def _same_as_oracle(found, expected, width):
    assert np.array_equal(found[1], expected[1])
    assert found[1].dtype == np.int32
    for name, x, y, scale in zip(("scores", "dq", "dk"), (found[0], *found[2:]), (expected[0], *expected[2:]),
                                 (width, 11, 11), strict=True):  # fmt: skip
        assert x.dtype == _dtype(), name
        np.testing.assert_allclose(x, y, rtol=0, atol=_tolerance(4 * scale), err_msg=name)


@pytest.mark.float64
@pytest.mark.parametrize("tile", [None, 1, 2, 3, 5, 100])
@pytest.mark.parametrize("shape", SHAPES)
def test_values_heads_and_gradients_are_those_of_the_einsum(shape, tile):
    args = _draw(shape)
    found = jax.jit(_value_and_gradients, static_argnums=3)(*args, tile)
    _same_as_oracle(found, _oracle(*args), shape[-1])


@pytest.mark.float64
@pytest.mark.parametrize("shape", [(3, 5, 7, 2), (5, 7, 3, 11)])
def test_without_jit(shape):
    args = _draw(shape, seed=1)
    _same_as_oracle(_value_and_gradients(*args, 2), _oracle(*args), shape[-1])


@pytest.mark.float64
@pytest.mark.parametrize("tile", [None, 2])
def test_gradients_against_finite_differences(tile):
    queries, keys, grad = _draw((3, 5, 7, 2), seed=2)
    loss = jax.jit(lambda q, k: jnp.sum(grad * jnp.tanh(max_over_heads(q, k, tile=tile)[0])))
    if _dtype() == np.float64:  # a step that crosses no tie: best and second best differ by more
        margin = np.sort(head_scores(queries, keys), axis=0)
        assert np.min(margin[-1] - margin[-2]) > 1e-4
        check_grads(loss, (queries, keys), order=1, modes=["rev"], eps=1e-6, atol=1e-7, rtol=1e-7)
    else:
        check_grads(loss, (queries, keys), order=1, modes=["rev"], eps=1e-3, atol=1e-2, rtol=1e-2)


@pytest.mark.float64
def test_ties_go_to_the_lowest_head_forwards_and_backwards():
    rng = np.random.default_rng(3)  # small integers: products and sums are exact
    for width in (2, 7):
        queries = jnp.asarray(rng.integers(-3, 4, (2, 5, width)), _dtype())
        keys = jnp.asarray(rng.integers(-3, 4, (2, 7, width)), _dtype())
        copies = np.array([0, 1, 0, 1, 1, 0, 0, 1, 1, 0, 1])
        expected = _oracle(queries[copies], keys[copies], np.ones((5, 7)))
        found = _value_and_gradients(queries[copies], keys[copies], jnp.ones((5, 7), _dtype()), 3)
        assert np.all(np.asarray(found[1]) < 2)
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("width", [2, 7])
def test_all_zero_scores_are_won_by_head_zero(width):
    _, head = max_over_heads(jnp.zeros((5, 3, width)), jnp.zeros((5, 2, width)))
    assert not np.any(head)


@pytest.mark.parametrize("width", [2, 7])
@pytest.mark.parametrize("bad", [0, 2, 4])
def test_a_nan_in_any_head_is_seen(width, bad):
    queries, keys, grad = _draw((5, 3, 7, width), seed=4)
    queries = queries.at[bad, 1, 0].set(jnp.nan).at[4, 1, 0].set(jnp.nan)
    scores, head, grad_queries, grad_keys = _value_and_gradients(queries, keys, grad, 2)
    nan_row = np.isnan(np.asarray(scores))
    assert np.all(nan_row[1])
    assert not np.any(nan_row[[0, 2]])
    assert np.all(np.asarray(head)[1] == bad)
    np.testing.assert_array_equal(scores, head_scores(queries, keys).max(0))
    assert np.all(np.isfinite(grad_queries))  # keys are finite
    assert np.any(np.isnan(grad_keys[bad]))


def test_infinite_scores():
    queries = jnp.array([[[-jnp.inf], [1.0]], [[-jnp.inf], [jnp.inf]], [[-jnp.inf], [jnp.inf]]])
    scores, head = max_over_heads(queries, jnp.ones((3, 1, 1)))
    np.testing.assert_array_equal(scores[:, 0], [-np.inf, np.inf])
    np.testing.assert_array_equal(head[:, 0], [0, 1])


@pytest.mark.float64
@pytest.mark.parametrize(("shape", "tile"), [((3, 5, 7, 2), None), ((5, 7, 3, 11), 3), ((1, 5, 7, 2), None)])
def test_vmap_equals_a_loop(shape, tile):
    args = _draw(shape, seed=5, batch=(3,))
    tolerance = _tolerance(44)

    def loss(q, k, g):
        return jnp.sum(g * jnp.tanh(max_over_heads(q, k, tile=tile)[0]))

    batched = jax.jit(jax.vmap(jax.grad(loss, argnums=(0, 1))))(*args)
    scores, head = jax.vmap(lambda q, k: max_over_heads(q, k, tile=tile))(*args[:2])
    for b in range(3):
        q, k, g = (x[b] for x in args)
        one_scores, one_head = max_over_heads(q, k, tile=tile)
        np.testing.assert_allclose(scores[b], one_scores, rtol=0, atol=tolerance)
        np.testing.assert_array_equal(head[b], one_head)
        for x, y in zip(batched, jax.grad(loss, argnums=(0, 1))(q, k, g), strict=True):
            np.testing.assert_allclose(x[b], y, rtol=0, atol=tolerance)
    # one argument batched, the other shared
    shared = jax.vmap(lambda q, k: max_over_heads(q, k, tile=tile)[0], in_axes=(0, None))(args[0], args[1][1])
    expected = [head_scores(q, args[1][1]).max(0) for q in args[0]]
    np.testing.assert_allclose(shared, np.stack(expected), rtol=0, atol=tolerance)


def test_head_has_no_gradient_and_can_be_returned_beside_the_loss():
    queries, keys, grad = _draw((3, 5, 7, 2), seed=6)

    def loss(q):
        scores, head = max_over_heads(q, keys)
        return jnp.sum(grad * scores), head

    gradient, head = jax.grad(loss, has_aux=True)(queries)
    np.testing.assert_array_equal(head, max_over_heads(queries, keys)[1])
    assert gradient.shape == queries.shape


@pytest.mark.parametrize("width", [2, 8])
@pytest.mark.parametrize(("tile", "fraction"), [(None, 0.5), (16, 0.125)])
def test_compiled_memory_is_far_below_one_score_for_every_head(width, tile, fraction):
    heads, items = 16, 101

    def run(q, k, g):
        return _value_and_gradients(q, k, g, tile)

    shapes = [(heads, items, width), (heads, items, width), (items, items)]
    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    temporary = jax.jit(run).lower(*args).compile().memory_analysis().temp_size_in_bytes
    # copies of queries and keys (transposed, in blocks, rotated) and of their gradients are O(m D_K)
    linear = 10 * heads * items * width * 4
    assert temporary < fraction * heads * items * items * 4 + linear
    assert linear < 2 * heads * items * items * 4 * width / 16


@pytest.mark.float64
@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(1, 7), st.integers(1, 7), st.integers(1, 3), st.integers(0, 2**31))
def test_the_sum_over_heads_is_one_head_of_their_total_width(heads, rows, columns, width, seed):
    rng = np.random.default_rng(seed)
    q, k = rng.standard_normal((heads, rows, width)), rng.standard_normal((heads, columns, width))
    total = np.asarray(sum_over_heads(jnp.asarray(q, _dtype()), jnp.asarray(k, _dtype())))
    one = [jnp.asarray(np.concatenate(list(x), axis=1)[None], _dtype()) for x in (q, k)]
    tolerance = _tolerance(4 * heads * width)
    np.testing.assert_allclose(total, max_over_heads(*one)[0], rtol=0, atol=tolerance)
    np.testing.assert_allclose(total, np.einsum("htk,hsk->ts", q, k), rtol=0, atol=tolerance)
    singular = np.linalg.svd(total.astype(np.float64), compute_uv=False)
    assert np.all(singular[heads * width :] < 10 * tolerance)


@pytest.mark.float64
def test_the_maximum_over_heads_is_not_bounded_in_rank():
    queries, keys, _ = _draw((2, 7, 7, 1), seed=7)
    singular = np.linalg.svd(np.asarray(max_over_heads(queries, keys)[0], np.float64), compute_uv=False)
    assert singular[2] > 1e-2  # the control above would fail


@pytest.mark.float64
def test_head_scores_and_project_against_numpy():
    queries, keys, _ = _draw((3, 5, 7, 2), seed=8)
    expected = np.stack([np.asarray(q) @ np.asarray(k).T for q, k in zip(queries, keys, strict=True)])
    np.testing.assert_allclose(head_scores(queries, keys), expected, rtol=0, atol=_tolerance(8))
    rng = np.random.default_rng(9)
    embeddings = jnp.asarray(rng.standard_normal((7, 5)), _dtype())
    weights = jnp.asarray(rng.standard_normal((3, 5, 2)), _dtype())
    expected = np.stack([np.asarray(embeddings) @ np.asarray(w) for w in weights])
    np.testing.assert_allclose(project(embeddings, weights), expected, rtol=0, atol=_tolerance(20))


@pytest.mark.parametrize("function", [max_over_heads, sum_over_heads, head_scores])
@pytest.mark.parametrize(
    ("queries", "keys", "named"),
    [
        ((0, 5, 2), (0, 7, 2), "queries"),
        ((3, 0, 2), (3, 7, 2), "queries"),
        ((3, 5, 0), (3, 7, 0), "queries"),
        ((3, 5, 2), (3, 0, 2), "keys"),
        ((3, 5, 2), (2, 7, 2), "keys"),
        ((3, 5, 2), (3, 7, 1), "keys"),
        ((5, 2), (3, 7, 2), "queries"),
        ((3, 5, 2), (7, 2), "keys"),
    ],
)
def test_bad_shapes_are_refused(function, queries, keys, named):
    with pytest.raises(ValueError, match=rf"^{named}: expected .*, got \("):
        inspect.unwrap(function)(
            jnp.zeros(queries), jnp.zeros(keys)
        )  # unwrapped: no run-time type check before


def test_bad_dtypes_are_refused():
    whole, half, single = (jnp.zeros((3, 5, 2), dtype) for dtype in (jnp.int32, jnp.bfloat16, jnp.float32))
    for queries, keys, named in [(whole, whole, "queries"), (half, half, "queries"), (single, half, "keys")]:
        with pytest.raises(ValueError, match=rf"^{named}: expected .*float32.*, got"):
            inspect.unwrap(max_over_heads)(queries, keys)


@pytest.mark.parametrize("tile", [0, -3, True, 2.0, "4"])
def test_a_bad_tile_is_refused(tile):
    queries, keys, _ = _draw((3, 5, 7, 2))
    with pytest.raises(ValueError, match="^tile: expected a positive integer or None, got "):
        inspect.unwrap(max_over_heads)(queries, keys, tile=tile)


@pytest.mark.parametrize(
    ("embeddings", "weights", "named"),
    [
        ((0, 5), (3, 5, 2), "embeddings"),
        ((7,), (3, 5, 2), "embeddings"),
        ((7, 5), (3, 4, 2), "weights"),
        ((7, 5), (0, 5, 2), "weights"),
        ((7, 5), (5, 2), "weights"),
    ],
)
def test_bad_projections_are_refused(embeddings, weights, named):
    with pytest.raises(ValueError, match=rf"^{named}: expected .*, got \("):
        inspect.unwrap(project)(jnp.zeros(embeddings), jnp.zeros(weights))
