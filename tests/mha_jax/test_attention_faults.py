"""Kinds of fault that were reported against other implementations of attention; none of them here.

Each test runs over implementations, layouts and shapes, with the oracle or an identity as the judge.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mha_jax
from tests.mha_jax.cases import (
    DTYPE,
    EVERYTHING,
    Case,
    Shape,
    array,
    epsilon,
    float64_slow,
    jit,
    judge,
    pairs,
    run,
)
from tests.mha_jax.implementations import BLOCKWISE, DENSE, JAX_NN, OURS, Implementation
from tests.mha_jax.oracle import Attention

pytestmark = [pytest.mark.usefixtures("strict")]

each = pytest.mark.parametrize("implementation", OURS, ids=lambda x: x.name)


HIDING_BIAS = Case("-inf bias", bias="BNTS", infinite_bias=True)
LENGTHS = Case(
    "both lengths", lengths={"query_seq_lengths": [3, 5], "key_value_seq_lengths": [6, 0]}, empty_rows=True
)


# --- layout -----------------------------------------------------------------------------------------------------


@each
def test_heads_are_axis_minus_two_and_groups_repeat_their_key_head(implementation):
    """Head n reads key/value head n // G (not n % K), and nothing else of another head."""
    case = Case("heads", Shape(N=6, K=3))
    arrays = case.draw()
    output, _, gradients = run(implementation, case, arrays)
    q, k, v = (np.asarray(arrays[x], np.float64) for x in ("query", "key", "value"))
    for n in range(6):
        score = np.einsum("btd,bsd->bts", q[:, :, n], k[:, :, n // 2]) / np.sqrt(11)
        weight = np.exp(score) / np.exp(score).sum(-1, keepdims=True)
        np.testing.assert_allclose(np.asarray(output)[:, :, n], weight @ v[:, :, n // 2], atol=1e-5)
    # The gradient of a key/value head is the sum over its group: of runs in which one query head has a cotangent.
    d_output, _ = case.cotangents()
    program = jit(
        lambda g: jax.vjp(lambda k, v: implementation.call(arrays["query"], k, v)[0], *_kv(arrays))[1](g)
    )
    parts = [program(d_output * array(np.arange(6) == n, DTYPE)[None, None, :, None]) for n in range(6)]
    for n, (dk, dv) in enumerate(parts):
        others = [i for i in range(3) if i != n // 2]
        assert not np.any(np.asarray(dk)[:, :, others])
        assert not np.any(np.asarray(dv)[:, :, others])
    np.testing.assert_allclose(sum(np.asarray(dv) for _, dv in parts), gradients["value"], atol=1e-5)


def _kv(arrays):
    return arrays["key"], arrays["value"]


# --- range and precision ----------------------------------------------------------------------------------------


@each
def test_float16_logits_beyond_its_range(implementation):
    """160 * 160 * 11 / sqrt(11) is above 65504. In float32 such logits, and their lse, have an error of 1e-2."""
    case = Case("range", mask="B1TS", dtype="float16")
    arrays = case.draw()
    arrays["query"][:], arrays["key"][:], arrays["key"][:, 2] = 160, 160, -160
    judge(implementation, case, arrays, terms=160 * 160 * 11**0.5)


@each
def test_bfloat16_errs_by_one_rounding(implementation):
    """Sharp weights: rounded logits would err by far more than the output's own rounding."""
    case = Case("sharp", Shape((1,), 64, 64, 2, 2, 64, 64), magnitude=4.0, dtype="bfloat16")
    (output, _, _), (wanted, _, _) = judge(implementation, case, case.draw())
    error = np.abs(np.asarray(output, np.float64) - wanted)
    assert np.all(error <= 2.0**-8 * np.abs(wanted) + 1e-3)


@each
@pytest.mark.parametrize("low", [-1e9, float(np.finfo(np.float32).min)])
def test_a_row_under_a_low_but_finite_bias_has_weights_that_sum_to_one(implementation, low):
    """Such masks are usual elsewhere. The row is no row without a key: it has the softmax of its equal logits.

    A log-sum-exp of float32 cannot tell the sum of its terms there: ``exp(logit - lse)`` would be 1 for every key.
    """
    arrays = HIDING_BIAS.draw()
    arrays["bias"][np.isneginf(arrays["bias"])] = 0
    arrays["query"][:, 1], arrays["bias"][:, :, 1] = 0, low
    (_, _, gradients), (_, _, wanted) = judge(implementation, HIDING_BIAS, arrays)
    np.testing.assert_allclose(gradients["value"], wanted["value"], atol=1e-4)


@each
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_lse_of_16_bits_is_float32_and_has_a_gradient(implementation, dtype):
    case = Case(f"lse {dtype}", dtype=dtype)
    arrays = case.draw()
    arrays["query"] *= 4

    @jit
    def slope(q):
        return jax.value_and_grad(lambda q: implementation.call(q, arrays["key"], arrays["value"])[1].sum())(
            q
        )

    lse, gradient = slope(arrays["query"])
    assert lse.dtype == jnp.float32
    oracle = Attention(**arrays, **case.options)
    np.testing.assert_allclose(lse, oracle.lse.sum(), rtol=1e-6)  # 2 ** -8 in bfloat16
    wanted = oracle.gradients(np.zeros(case.shape.of("BTNE")), np.ones(case.shape.of("BTN")))["query"]
    size = np.abs(wanted).max()
    np.testing.assert_allclose(np.asarray(gradient, np.float64), wanted, atol=2 * epsilon(dtype) * size)


@float64_slow
@each
@pytest.mark.parametrize("split", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_two_halves_of_the_keys_merge_by_lse(implementation, split):
    """Forwards and backwards; in example 1 the second half has no key that may be read."""
    case = Case("both halves", bias="BNTS", lengths={"key_value_seq_lengths": [6, split]})
    arrays = case.draw()

    def merged(query, key, value, bias, key_value_seq_lengths):
        parts = []
        for keys, start in (slice(None, split), 0), (slice(split, None), split):
            lengths = jnp.maximum(key_value_seq_lengths - start, 0)
            x = query, key[:, keys], value[:, keys], bias[..., keys]
            parts.append(implementation.call(*x, key_value_seq_lengths=lengths))
        total = jnp.logaddexp(parts[0][1], parts[1][1])
        return sum(jnp.exp(lse - total)[..., None] * output for output, lse in parts), total

    halves = Implementation(f"{implementation.name} halves", merged)
    judge(halves, case, arrays)


# --- alignment, windows, lengths --------------------------------------------------------------------------------


@float64_slow
@each
@pytest.mark.parametrize(("T", "S"), [(5, 3), pytest.param(1, 5, marks=pytest.mark.slow)])
def test_causal_without_an_offset_is_aligned_top_left(implementation, T, S):
    """Query 0 reads key 0 alone, query t the first t + 1 keys: by gradients that are exactly zero, and by jax.nn."""
    arrays = Case("causal", Shape(T=T, S=S, E=11)).draw()

    @jit
    def reads(q, k, v):
        """Which keys move the output of a query, (T, S), by the gradients in k and v."""

        def of_query(t):
            def total(k, v):
                output, lse = implementation.call(q, k, v, is_causal=True)
                return jnp.sum(output[:, t]) + jnp.sum(lse[:, t])

            dk, dv = jax.grad(total, (0, 1))(k, v)
            return jnp.any(dk != 0, axis=(0, 2, 3)), jnp.any(dv != 0, axis=(0, 2, 3))

        return jax.vmap(of_query)(jnp.arange(T))

    for found in reads(arrays["query"], arrays["key"], arrays["value"]):
        np.testing.assert_array_equal(found, np.tri(T, S, dtype=bool))
    with jax.numpy_dtype_promotion("standard"):  # jax.nn promotes float64 to float32 and back
        theirs, _ = jit(lambda x: JAX_NN.call(**x, is_causal=True))(arrays)
    ours, _ = jit(lambda x: implementation.call(**x, is_causal=True))(arrays)
    np.testing.assert_allclose(ours, theirs, atol=5e-6)


@float64_slow
@each
def test_an_offset_is_a_part_of_the_queries(implementation):
    """Queries 3..7 of 8 in a causal window, alone with the offset 3, alone in chunks, and one by one."""
    whole = Case("whole", Shape(T=8, S=8), options={"is_causal": True, "local_window_size": (4, 0)})
    arrays = whole.draw()
    output, lse, _ = run(implementation, whole, arrays)

    @jit
    def part(q, offset):
        x = q, arrays["key"], arrays["value"]
        return implementation.call(*x, query_offset=offset, is_causal=True, local_window_size=(4, 0))

    for start, stop in [(3, 8), (0, 5), (2, 7), *((t, t + 1) for t in range(8))]:
        found = part(arrays["query"][:, start:stop], np.int32(start))
        np.testing.assert_allclose(found[0], np.asarray(output)[:, start:stop], atol=2e-6)
        np.testing.assert_allclose(found[1], np.asarray(lse)[:, start:stop], atol=2e-6)


BANDS = [
    ({"local_window_size": (0, 3)}, lambda t, s: 0 <= s - t <= 3),
    ({"local_window_size": (2, 0)}, lambda t, s: -2 <= s - t <= 0),
    ({"local_window_size": 1}, lambda t, s: -1 <= s - t <= 1),
    ({"local_window_size": (0, 0)}, lambda t, s: s == t),
    ({"local_window_size": (100, 100)}, lambda t, s: True),
    ({"local_window_size": (1, 2), "is_causal": True}, lambda t, s: -1 <= s - t <= 0),
    ({"local_window_size": (1, 2), "query_offset": 2}, lambda t, s: -1 <= s - t - 2 <= 2),
]


@each
def test_a_window_without_a_mask_is_the_band(implementation):
    arrays = Case("windows", Shape(E=11)).draw()
    program = jit(lambda arrays: [implementation.call(**arrays, **options) for options, _ in BANDS])
    for (output, lse), (options, band) in zip(program(arrays), BANDS, strict=True):
        mask = np.array([[[[band(t, s) for s in range(7)] for t in range(5)]]])
        oracle = Attention(**arrays, mask=mask)
        np.testing.assert_allclose(output, oracle.output, atol=5e-6, err_msg=str(options))
        np.testing.assert_allclose(lse, oracle.lse, atol=5e-6, err_msg=str(options))


def test_jax_nn_has_the_same_windows():
    arrays = Case("windows", Shape(E=11)).draw()
    theirs = [options for options, _ in BANDS if "query_offset" not in options]
    for options, output in zip(
        theirs, jit(lambda x: [JAX_NN.call(**x, **y)[0] for y in theirs])(arrays), strict=True
    ):
        np.testing.assert_allclose(
            output, Attention(**arrays, **options).output, atol=5e-6, err_msg=str(options)
        )


@each
def test_lengths_alone_equal_the_mask(implementation):
    by_mask = Case("by mask", mask="B1TS")
    for i, (queries, keys) in enumerate([([5, 5], [3, 7]), ([2, 0], [7, 7]), ([4, 5], [0, 2])]):
        arrays = by_mask.draw(i)
        mask = (np.arange(5) < np.array(queries)[:, None])[:, None, :, None]
        mask = mask & (np.arange(7) < np.array(keys)[:, None])[:, None, None, :]
        wanted = run(implementation, by_mask, arrays | {"mask": mask}, seed=i)
        del arrays["mask"]
        lengths = {
            "query_seq_lengths": np.array(queries, np.int32),
            "key_value_seq_lengths": np.array(keys, np.int32),
        }
        found = run(implementation, LENGTHS, arrays | lengths, seed=i)
        for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(x, y, atol=1e-5)


# --- sizes ------------------------------------------------------------------------------------------------------

SIZES = [
    Case("8 x 256, bias", Shape((1,), 8, 256, 2, 1, 4, 6), bias="1NTS"),
    Case("256 x 8, lengths", Shape((1,), 256, 8, 2, 1, 4, 6), lengths={"key_value_seq_lengths": [5]}),
    Case("192 x 192, causal", Shape((1,), 192, 192, 2, 2, 24, 24), options={"is_causal": True}),
    Case("7 x 8, wide", Shape((1,), 7, 8, 2, 2, 48, 48)),
]
LARGE = [
    Case("4092 x 4092, causal", Shape((1,), 4092, 4092, 1, 1, 8, 8), options={"is_causal": True}),
    Case("1021 x 1531, mask", Shape((2,), 1021, 1531, 2, 1, 16, 8), mask="B11S", bias="1N1S"),
    Case(
        "1531 x 1021, window",
        Shape((2,), 1531, 1021, 2, 1, 16, 8),
        options={"local_window_size": (300, 5)},
        lengths={"query_offset": [-10, 17]},
        empty_rows=True,
    ),
]


@pytest.mark.parametrize(("implementation", "case"), pairs([DENSE, BLOCKWISE], SIZES, slow=[SIZES[3].name]))
def test_any_size(implementation, case):
    judge(implementation, case, case.draw())


@pytest.mark.slow
@pytest.mark.parametrize(("implementation", "case"), pairs([DENSE, BLOCKWISE], LARGE))
def test_any_large_size(implementation, case):
    judge(implementation, case, case.draw())


# --- broadcast masks and biases ---------------------------------------------------------------------------------

BROADCASTS = [b + n + t + s for b in "B1" for n in "N1" for t in "T1" for s in "S1"]


@pytest.mark.slow
@pytest.mark.parametrize("letters", BROADCASTS)
@each
def test_every_broadcast_of_mask_and_bias(implementation, letters):
    """The gradient of a bias is summed over the axes that it is broadcast over, for each of its shapes."""
    case = Case(f"broadcast {letters}", mask=BROADCASTS[-1 - BROADCASTS.index(letters)], bias=letters)
    judge(implementation, case, case.draw())


def test_the_mask_of_every_key_head_is_refused():
    case = Case("grouped", mask="BKTS")
    with pytest.raises(ValueError, match=r"^mask: expected .*, got \(2, 3, 5, 7\)"):
        mha_jax.dot_product_attention(**case.draw())


@each
def test_repeatable_to_the_bit(implementation):
    case = EVERYTHING
    arrays = case.draw()
    first, *others = (run(implementation, case, arrays) for _ in range(5))
    for other in others:
        for x, y in zip(jax.tree.leaves(first), jax.tree.leaves(other), strict=True):
            np.testing.assert_array_equal(x, y)
