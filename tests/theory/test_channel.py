"""`theory.channel`: the fused maximum over heads against the einsum: values, gradients, memory, errors."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads

from theory.channel import head_scores, max_over_heads, project, soft_max_over_heads, sum_over_heads

# (heads, rows, columns, head_dim) and tile: one head; one fused block; fused blocks, the last one filled up;
# products in one block, in full blocks, in blocks with the last one filled up. Tiles: none, one row, one that
# divides the rows, one that does not, one larger than the rows.
CASES = [
    ((1, 5, 7, 2), 2),
    ((3, 5, 7, 2), None),
    ((11, 5, 7, 3), 2),
    ((17, 5, 7, 1), 100),
    ((3, 2, 11, 5), 1),
    ((6, 4, 5, 13), 2),
    ((5, 7, 3, 11), 3),
]


def _dtype():
    return np.float64 if jax.config.read("jax_enable_x64") else np.float32


def _tolerance(terms):
    """Rounding of a sum of products of a few normal draws."""
    return float(64 * terms * np.finfo(_dtype()).eps)


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


def _check_against_oracle(found, args):
    expected = _oracle(*args)
    assert found[1].dtype == np.int32
    np.testing.assert_array_equal(found[1], expected[1])
    for i, name in (0, "scores"), (2, "dq"), (3, "dk"):
        assert found[i].dtype == _dtype(), name
        np.testing.assert_allclose(found[i], expected[i], rtol=0, atol=_tolerance(13), err_msg=name)


@pytest.mark.float64
@pytest.mark.parametrize(("shape", "tile"), CASES)
def test_values_heads_and_gradients_are_those_of_the_einsum(shape, tile):
    args = _draw(shape)
    _check_against_oracle(jax.jit(_value_and_gradients, static_argnums=3)(*args, tile), args)


@pytest.mark.float64
def test_without_jit():
    args = _draw((3, 5, 7, 2), seed=1)
    _check_against_oracle(_value_and_gradients(*args), args)


@pytest.mark.float64
def test_gradients_against_finite_differences():
    queries, keys, grad = _draw((3, 5, 7, 2), seed=2)
    loss = jax.jit(lambda q, k: jnp.sum(grad * jnp.tanh(max_over_heads(q, k)[0])))
    step, tolerance = (1e-6, 1e-7) if _dtype() == np.float64 else (1e-3, 1e-2)
    if _dtype() == np.float64:  # the step crosses no tie
        best = np.sort(head_scores(queries, keys), axis=0)
        assert np.min(best[-1] - best[-2]) > 100 * step
    check_grads(loss, (queries, keys), order=1, modes=["rev"], eps=step, atol=tolerance, rtol=tolerance)


@pytest.mark.float64
@pytest.mark.parametrize("width", [2, 7])
def test_ties_go_to_the_lowest_head_forwards_and_backwards(width):
    rng = np.random.default_rng(3)  # small integers: products and sums are exact
    copies = np.array([0, 1, 0, 1, 1, 0, 0, 1, 1, 0, 1])
    queries = jnp.asarray(rng.integers(-3, 4, (2, 5, width))[copies], _dtype())
    keys = jnp.asarray(rng.integers(-3, 4, (2, 7, width))[copies], _dtype())
    ones = jnp.ones((5, 7), _dtype())
    found = jax.jit(_value_and_gradients)(queries, keys, ones)
    assert set(np.unique(found[1])) == {0, 1}
    for x, y in zip(found, _oracle(queries, keys, ones), strict=True):
        np.testing.assert_array_equal(x, y)


def test_infinite_scores_and_all_equal_ones():
    queries = jnp.array([[[-jnp.inf], [1.0], [0.0]], [[-jnp.inf], [jnp.inf], [0.0]]])[jnp.array([0, 1, 1])]
    scores, head = max_over_heads(queries, jnp.ones((3, 1, 1)))
    np.testing.assert_array_equal(scores[:, 0], [-np.inf, np.inf, 0])
    np.testing.assert_array_equal(head[:, 0], [0, 1, 0])


@pytest.mark.parametrize("width", [2, 7])
def test_a_nan_in_any_head_is_seen(width):
    run = jax.jit(_value_and_gradients)
    for bad in 0, 2, 4:
        queries, keys, grad = _draw((5, 3, 7, width), seed=4)
        queries = queries.at[bad, 1, 0].set(jnp.nan).at[4, 1, 0].set(jnp.nan)
        scores, head, grad_queries, grad_keys = run(queries, keys, grad)
        all_scores = np.einsum("htk,hsk->hts", queries, keys)
        assert np.all(np.isnan(np.asarray(scores)[1]))
        np.testing.assert_allclose(scores, all_scores.max(0), rtol=0, atol=_tolerance(width))  # NaN where NaN
        np.testing.assert_array_equal(head, all_scores.argmax(0))
        assert np.all(np.asarray(head)[1] == bad)
        assert np.all(np.isfinite(grad_queries))  # keys are finite
        assert np.all(np.isnan(np.asarray(grad_keys)[bad, :, 0]))


@pytest.mark.float64
@pytest.mark.parametrize(("shape", "tile"), [((3, 5, 7, 2), None), ((5, 6, 3, 11), 2)])
def test_vmap_of_the_gradient_equals_a_loop(shape, tile):
    args = _draw(shape, seed=5, batch=(3,))

    def gradients(q, k, g):
        def loss(q, k):
            scores, head = max_over_heads(q, k, tile=tile)
            return jnp.sum(g * scores), (scores, head)

        (_, outputs), grads = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(q, k)
        return *outputs, *grads

    batched = jax.jit(jax.vmap(gradients))(*args)
    for b in range(3):
        _check_against_oracle([x[b] for x in batched], [x[b] for x in args])


@pytest.mark.float64
def test_vmap_with_shared_keys():
    queries, keys, _ = _draw((3, 5, 7, 2), seed=6, batch=(3,))
    shared = jax.vmap(lambda q, k: max_over_heads(q, k)[0], in_axes=(0, None))(queries, keys[1])
    expected = np.einsum("bhtk,hsk->bhts", queries, keys[1]).max(1)
    np.testing.assert_allclose(shared, expected, rtol=0, atol=_tolerance(2))


def _temporary_bytes(function, shape):
    heads, items, width = shape
    shapes = [(heads, items, width), (heads, items, width), (items, items)]
    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    analysis = jax.jit(function).lower(*args).compile().memory_analysis()
    assert analysis is not None
    return analysis.temp_size_in_bytes


@pytest.mark.parametrize(("width", "tile", "fraction"), [(2, None, 0.5), (7, None, 0.5), (2, 16, 0.125)])
def test_compiled_memory_is_below_one_score_for_every_head(width, tile, fraction):
    heads, items = 16, 251
    found = _temporary_bytes(lambda q, k, g: _value_and_gradients(q, k, g, tile), (heads, items, width))
    # copies of queries and keys (transposed, in blocks, moved on by one) and of their gradients are O(m D_K)
    linear = 10 * heads * items * width * 4
    every_head = heads * items * items * 4
    assert linear < every_head * 0.3
    assert found < fraction * every_head + linear


def test_the_einsum_needs_memory_for_every_head():
    def einsum(q, k, g):
        scores, pullback = jax.vjp(lambda q, k: head_scores(q, k).max(0), q, k)
        return scores, *pullback(g)

    assert _temporary_bytes(einsum, (16, 251, 7)) > 16 * 251 * 251 * 4  # or the test above shows nothing


@pytest.mark.float64
@settings(max_examples=12, deadline=None)
@given(st.sampled_from([(1, 5, 7, 2), (3, 11, 13, 1), (3, 11, 7, 2), (2, 3, 13, 5)]), st.integers(0, 2**31))
def test_the_sum_over_heads_is_one_head_of_their_total_width(shape, seed):
    heads, _, _, width = shape
    queries, keys, _ = _draw(shape, seed)
    total = sum_over_heads(queries, keys)
    one_query, one_key = (jnp.asarray(np.concatenate(list(x), axis=1)[None]) for x in (queries, keys))
    tolerance = _tolerance(4 * heads * width)
    np.testing.assert_allclose(total, max_over_heads(one_query, one_key)[0], rtol=0, atol=tolerance)
    np.testing.assert_allclose(total, np.einsum("htk,hsk->ts", queries, keys), rtol=0, atol=tolerance)
    singular = np.linalg.svd(np.asarray(total, np.float64), compute_uv=False)
    assert np.all(singular[heads * width :] < 10 * tolerance)


@pytest.mark.float64
def test_the_rank_of_the_maximum_is_not_bounded_by_the_total_width():
    queries, keys, _ = _draw((2, 7, 7, 1), seed=7)
    singular = np.linalg.svd(np.asarray(max_over_heads(queries, keys)[0], np.float64), compute_uv=False)
    assert singular[2] > 1e-2


@pytest.mark.float64
def test_head_scores_and_project_against_numpy():
    queries, keys, _ = _draw((3, 5, 7, 2), seed=8)
    expected = np.stack([np.asarray(q) @ np.asarray(k).T for q, k in zip(queries, keys, strict=True)])
    np.testing.assert_allclose(head_scores(queries, keys), expected, rtol=0, atol=_tolerance(2))
    rng = np.random.default_rng(9)
    embeddings = jnp.asarray(rng.standard_normal((7, 5)), _dtype())
    weights = jnp.asarray(rng.standard_normal((3, 5, 2)), _dtype())
    expected = np.stack([np.asarray(embeddings) @ np.asarray(w) for w in weights])
    np.testing.assert_allclose(project(embeddings, weights), expected, rtol=0, atol=_tolerance(5))


# Refusals. The tests' run-time type checks would come first: `unwrap` takes them off.


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
        inspect.unwrap(function)(jnp.zeros(queries), jnp.zeros(keys))


@pytest.mark.parametrize(
    ("queries", "keys", "named"),
    [("int32", "int32", "queries"), ("bfloat16", "bfloat16", "queries"), ("float32", "bfloat16", "keys")],
)
def test_bad_dtypes_are_refused(queries, keys, named):
    with pytest.raises(ValueError, match=rf"^{named}: expected .*float32.*, got"):
        inspect.unwrap(max_over_heads)(jnp.zeros((3, 5, 2), queries), jnp.zeros((3, 5, 2), keys))


@pytest.mark.parametrize("tile", [0, -3, True, 2.0, "4"])
def test_a_bad_tile_is_refused(tile):
    queries, keys, _ = _draw((3, 5, 7, 2))
    with pytest.raises(ValueError, match=r"^tile: expected a positive integer or None, got "):
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


def _soft_reference(queries, keys, temperature):
    return temperature * jax.nn.logsumexp(head_scores(queries, keys) / temperature, axis=0)


@pytest.mark.parametrize(("heads", "temperature"), [(1, 0.7), (3, 5.0), (3, 0.05), (7, 1.0)])
def test_soft_maximum_and_its_gradient_are_those_of_logsumexp(heads, temperature):
    rng = np.random.default_rng(heads)
    q, k = (jnp.asarray(rng.standard_normal((heads, n, 4)), jnp.float32) for n in (9, 11))
    weight = jnp.asarray(rng.standard_normal((9, 11)), jnp.float32)
    found, expected = (
        jax.value_and_grad(lambda q, k, f=f: jnp.sum(weight * f(q, k, temperature)), argnums=(0, 1))(q, k)
        for f in (soft_max_over_heads, _soft_reference)
    )
    # Exponents are scores over the temperature: their rounding is that many times the scores'.
    tolerance = 64 * np.finfo(np.float32).eps * (1 + float(jnp.abs(head_scores(q, k)).max()) / temperature)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=10 * tolerance), found, expected
    )


def test_soft_maximum_lies_above_the_maximum_by_no_more_than_its_bound():
    rng = np.random.default_rng(5)
    q, k = (jnp.asarray(rng.standard_normal((5, n, 3)), jnp.float32) for n in (20, 30))
    best, _ = max_over_heads(q, k)
    for temperature in (0.01, 0.5, 4.0):
        above = np.asarray(soft_max_over_heads(q, k, temperature) - best)
        assert above.min() >= -1e-5
        assert above.max() <= temperature * np.log(5) + 1e-5
    equal = soft_max_over_heads(q.at[:].set(q[0]), k.at[:].set(k[0]), 2.0)
    np.testing.assert_allclose(equal, head_scores(q, k)[0] + 2 * np.log(5), rtol=1e-5, atol=1e-5)


def test_a_head_that_is_not_finite_shows_in_the_soft_maximum():
    q, k = jnp.ones((2, 3, 2)), jnp.ones((2, 4, 2))
    soft = np.asarray(soft_max_over_heads(q.at[1, 2, 0].set(jnp.nan), k, 1.0))
    assert np.isnan(soft[2]).all()
    assert np.isfinite(soft[:2]).all()
