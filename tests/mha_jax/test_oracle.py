"""The float64 oracle: against sums written out one by one, finite differences, and `jax.nn`."""

import itertools
import math

import jax
import numpy as np
import pytest

from tests.mha_jax.oracle import Attention

BATCH, T, S, N, K, D, E = 2, 3, 5, 6, 2, 7, 11


def _draw(seed=0):
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((BATCH, *x)) for x in ((T, N, D), (S, K, D), (S, K, E)))
    options = {
        "bias": rng.standard_normal((1, N, 1, S)),
        "mask": rng.random((BATCH, 1, T, S)) < 0.8,
        "head_mask": rng.standard_normal((T, N)),
        "kept": rng.random((BATCH, N, T, S)) < 0.7,
        "key_value_seq_lengths": np.array([5, 4]),
        "query_seq_lengths": np.array([2, 3]),
        "query_offset": np.array([3, 1]),
    }
    statics = {
        "scale": 0.3,
        "logits_soft_cap": 1.5,
        "dropout_rate": 0.3,
        "is_causal": True,
        "local_window_size": (3, 2),
    }
    return q, k, v, {**options, **statics}


def test_forward_is_the_sums_written_out():
    q, k, v, x = _draw()
    found = Attention(q, k, v, **x)
    for b, n, t in itertools.product(range(BATCH), range(N), range(T)):
        position = t + x["query_offset"][b]
        logits = {}
        for s in range(S):
            causal = s <= position and position - 3 <= s <= position + 2
            within = s < x["key_value_seq_lengths"][b] and t < x["query_seq_lengths"][b]
            if causal and within and x["mask"][b, 0, t, s]:
                score = 0.3 * float(q[b, t, n] @ k[b, s, n // (N // K)])
                logits[s] = 1.5 * math.tanh(score / 1.5) + x["bias"][0, n, 0, s]
        total = sum(math.exp(y) for y in logits.values())
        expected = np.zeros(E)
        for s, y in logits.items():
            assert found.weights[b, n, t, s] == pytest.approx(math.exp(y) / total)
            kept = x["kept"][b, n, t, s] / 0.7
            expected += x["head_mask"][t, n] * kept * math.exp(y) / total * v[b, s, n // (N // K)]
        np.testing.assert_allclose(found.output[b, t, n], expected, atol=1e-12)
        assert found.lse[b, t, n] == (pytest.approx(math.log(total)) if logits else -math.inf)
    assert 0 < found.allowed.any(-1).mean() < 1  # rows with keys and rows without


def test_gradients_are_those_of_finite_differences():
    q, k, v, x = _draw(1)
    rng = np.random.default_rng(2)
    d_output = rng.standard_normal((BATCH, T, N, E))
    d_lse = rng.standard_normal((BATCH, T, N))

    def value(**changed):
        found = Attention(**{"query": q, "key": k, "value": v, **x, **changed})
        lse = np.where(np.isneginf(found.lse), 0, found.lse)
        return float((found.output * d_output).sum() + (lse * d_lse).sum())

    gradients = Attention(q, k, v, **x).gradients(d_output, d_lse)
    assert set(gradients) == {"query", "key", "value", "bias", "head_mask"}
    for name, gradient in gradients.items():
        at = {"query": q, "key": k, "value": v, **x}[name]
        assert gradient.shape == at.shape
        for _ in range(3):
            direction = rng.standard_normal(at.shape)
            step = 1e-5
            difference = value(**{name: at + step * direction}) - value(**{name: at - step * direction})
            assert (gradient * direction).sum() == pytest.approx(difference / (2 * step), rel=1e-6), name


def test_what_nobody_reads_may_hold_anything():
    q, k, v, x = _draw(3)
    expected = Attention(q, k, v, **x)
    keys_read, queries_read = expected.allowed.any((1, 2)), expected.allowed.any((1, 3))
    assert not keys_read.all()
    assert not queries_read.all()
    for y, read in (q, queries_read), (k, keys_read), (v, keys_read):
        y[~read] = np.nan
    found = Attention(q, k, v, **x)
    np.testing.assert_array_equal(found.output, expected.output)
    d_output = np.ones((BATCH, T, N, E))
    for name, gradient in found.gradients(d_output).items():
        np.testing.assert_array_equal(gradient, expected.gradients(d_output)[name])


def test_agrees_with_jax_nn():
    rng = np.random.default_rng(4)
    q, k, v = (rng.standard_normal((BATCH, *x)).astype(np.float32) for x in ((T, N, D), (S, K, D), (S, K, D)))
    bias = rng.standard_normal((1, N, T, S)).astype(np.float32)
    mask = rng.random((BATCH, 1, T, S)) < 0.7
    mask[..., 0] = True  # jax.nn has another answer for a row without a key
    options = {
        "is_causal": True,
        "local_window_size": (2, 1),
        "key_value_seq_lengths": np.array([4, 3], np.int32),
        "scale": 0.4,
    }
    d_output = rng.standard_normal(q.shape).astype(np.float32)

    @jax.jit
    def run(*arrays):
        def attend(*x):
            return jax.nn.dot_product_attention(*x, mask=mask, return_residual=True, **options)

        output, pullback, lse = jax.vjp(attend, *arrays, has_aux=True)
        return output, lse, *pullback(d_output)

    output, lse, *found = run(q, k, v, bias)
    expected = Attention(q, k, v, bias, mask, **options)
    np.testing.assert_allclose(output, expected.output, atol=2e-6)
    np.testing.assert_allclose(lse, expected.lse, atol=2e-6)
    gradients = expected.gradients(d_output)
    for name, gradient in zip(("query", "key", "value", "bias"), found, strict=True):
        np.testing.assert_allclose(gradient, gradients[name], atol=5e-6, err_msg=name)
