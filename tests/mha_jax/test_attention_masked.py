"""Rows of attention that may attend nothing, and positions that no query attends: zeros, and nothing of what is there.

Faults of this kind were reported against many implementations; see `test_attention_faults.py` for the others.
"""

import jax
import numpy as np
import pytest

import mha_jax
from tests.mha_jax.cases import DTYPE, EVERYTHING, Case, Shape, compiled, float64_slow, jit, judge, pairs, run
from tests.mha_jax.implementations import FLAX, OURS
from tests.mha_jax.oracle import Attention

pytestmark = [pytest.mark.usefixtures("strict")]

FLOAT64 = pytest.mark.float64
each = pytest.mark.parametrize("implementation", OURS, ids=lambda x: x.name)

# --- rows without a key -----------------------------------------------------------------------------------------

BNTS = Case("mask BNTS, bias B1T1", mask="BNTS", bias="B1T1")
ROWS = Case("mask 1NT1, bias 111S", mask="1NT1", bias="111S")
BIAS = Case("-inf bias", bias="BNTS", infinite_bias=True)
LENGTHS = Case(
    "both lengths", lengths={"query_seq_lengths": [3, 5], "key_value_seq_lengths": [6, 0]}, empty_rows=True
)
OFFSET = Case(
    "offset, causal", lengths={"query_offset": [1, -2]}, options={"is_causal": True}, empty_rows=True
)


def _rows(shape, which):
    """Rows without a key (B, N, T), one pattern of them."""
    empty = np.zeros(shape.of("BNT"), bool)
    if which == "a row":
        empty[0, 2, -1] = True
    elif which == "a query in all heads":
        empty[:, :, 1] = True
    elif which == "a head":
        empty[:, 3] = True
    elif which == "an example":
        empty[1] = True
    elif which == "all":
        empty[:] = True
    return empty


@FLOAT64
@pytest.mark.parametrize("which", ["a row", "a query in all heads", "a head", "an example", "all"])
@pytest.mark.parametrize(
    ("implementation", "case"), [(x, case) for x in OURS for case in (BNTS, BIAS)], ids=lambda x: x.name
)
def test_a_row_without_a_key_is_zero_with_zero_gradients(implementation, case, which):
    empty = _rows(case.shape, which)
    arrays = case.draw()
    if "mask" in arrays:
        arrays["mask"][..., 0] = True
        arrays["mask"][empty] = False
    else:
        arrays["bias"][np.isneginf(arrays["bias"])] = 0
        arrays["bias"][empty] = -np.inf
    (output, lse, gradients), _ = judge(implementation, case, arrays)
    rows = empty.swapaxes(1, 2)
    assert not np.any(np.asarray(output)[rows])
    assert not np.any(np.asarray(gradients["query"])[rows])
    np.testing.assert_array_equal(np.isneginf(lse), rows)
    if case is BIAS:
        assert not np.any(np.asarray(gradients["bias"])[empty])


@float64_slow
@pytest.mark.parametrize(
    ("implementation", "case"),
    [(x, case) for x in OURS for case in (ROWS, LENGTHS, OFFSET)],
    ids=lambda x: x.name,
)
def test_rows_without_a_key_by_other_arguments(implementation, case):
    arrays = case.draw()
    if case is ROWS:
        arrays["mask"][:, :, 2] = False
    (output, _, gradients), wanted = judge(implementation, case, arrays)
    rows = np.isneginf(wanted[1])
    assert 0 < rows.mean() < 1
    assert not np.any(np.asarray(output)[rows])
    assert not np.any(np.asarray(gradients["query"])[rows])


@each
def test_what_comes_back_to_a_row_without_a_key_goes_no_further(implementation):
    """Its output and lse are constants: a NaN in their cotangents (of a logarithm, say) changes no bit."""
    arrays = ROWS.draw()
    arrays["mask"][:, :, 2] = False
    program = compiled(implementation.call)
    d_output, d_lse = ROWS.cotangents()
    wanted = program(arrays, d_output, d_lse)[2]
    rows = np.isneginf(program(arrays, d_output, d_lse)[1])
    d_output[rows], d_lse[rows] = np.nan, np.nan
    for name, gradient in program(arrays, d_output, d_lse)[2].items():
        np.testing.assert_array_equal(gradient, wanted[name], err_msg=name)


@each
def test_weights_and_output_agree_on_masked_rows(implementation):
    """The function that returns weights is the same attention."""
    weigh = jit(lambda q, k, mask, bias: mha_jax.attention_weights(q, k, bias, mask))
    for which in "a row", "a head", "an example":
        arrays = BNTS.draw()
        empty = _rows(BNTS.shape, which)
        arrays["mask"] = arrays["mask"] & ~empty[..., None]
        weights = np.asarray(weigh(arrays["query"], arrays["key"], arrays["mask"], arrays["bias"]))
        output, lse, _ = run(implementation, BNTS, arrays)
        values = np.repeat(np.asarray(arrays["value"]), 2, axis=-2)
        np.testing.assert_allclose(np.einsum("bnts,bsne->btne", weights, values), output, atol=2e-6)
        np.testing.assert_allclose(weights.sum(-1).swapaxes(1, 2), ~np.isneginf(lse), atol=2e-6)
        assert not np.any(weights[~np.broadcast_to(arrays["mask"], weights.shape)])


def test_weights_are_those_of_the_oracle():
    """For every restriction, and after dropout, if there is any, those that the output has."""
    case = EVERYTHING
    arrays = {x: y for x, y in case.draw().items() if x not in ("value", "head_mask")}
    key = jax.random.key(8)
    units = np.broadcast_to(np.eye(7, dtype=DTYPE)[:, None], (*case.shape.of("BS"), 3, 7))

    @jit
    def weigh():
        dropout = {"dropout_rate": 0.4, "dropout_key": key}
        weights = mha_jax.attention_weights(**arrays, **case.options)
        dropped = mha_jax.attention_weights(**arrays, **case.options, **dropout)
        shown = mha_jax.dot_product_attention(**arrays, value=units, **case.options, **dropout)
        return weights, dropped, shown

    weights, dropped, shown = weigh()
    oracle = Attention(**arrays, value=units, **case.options)
    np.testing.assert_allclose(weights, oracle.weights, atol=5e-6)
    np.testing.assert_allclose(dropped, np.asarray(shown).swapaxes(1, 2), atol=5e-6)
    assert 0 < np.mean(np.asarray(dropped)[oracle.allowed] == 0) < 1


# --- positions that nobody reads --------------------------------------------------------------------------------

UNREAD = [
    Case("mask B1TS, no groups", Shape(K=6, E=11), mask="B1TS"),
    Case("mask B11S, bias BNTS", mask="B11S", bias="BNTS"),
    BNTS,
    ROWS,
    BIAS,
    Case("-inf bias 1N1S", bias="1N1S", infinite_bias=True),
    LENGTHS,
    Case(
        "both lengths, bias", bias="11TS", lengths={"query_seq_lengths": 4, "key_value_seq_lengths": [3, 5]}
    ),
    Case("causal, T < S", options={"is_causal": True}),
    OFFSET,
    Case(
        "window beside the keys",
        lengths={"query_offset": 9},
        options={"local_window_size": (4, 1)},
        empty_rows=True,
    ),
    Case("no batch axis", Shape(batch=()), mask="NTS", bias="1TS", lengths={"key_value_seq_lengths": 5}),
    EVERYTHING,
]


def _hide(case, arrays):
    """Take keys 1 and 4 and query 3 from everybody, by whatever of the arguments can."""
    for name, present, hidden in (("mask", case.mask, False), ("bias", case.infinite_bias, -np.inf)):
        if present:
            if arrays[name].shape[-1] > 1:
                arrays[name][..., [1, 4]] = hidden
            if arrays[name].shape[-2] > 1:
                arrays[name][..., 3, :] = hidden
    return arrays


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize(
    ("implementation", "case"),
    pairs((*OURS, *FLAX), UNREAD, float64={BNTS.name}, slow={"-inf bias 1N1S", "both lengths, bias"}),
)
def test_what_nobody_reads_never_arrives(implementation, case, bad):
    """NaN and inf change no bit of output, lse or any gradient, and get a gradient of zero themselves."""
    arrays = _hide(case, case.draw())
    oracle = Attention(**arrays, **case.options)
    read = {"query": np.any(oracle.allowed, (-3, -1))}
    read["key"] = read["value"] = np.any(oracle.allowed, (-3, -2))
    assert not all(x.all() for x in read.values())
    clean, planted = dict(arrays), dict(arrays)
    for name, x in read.items():
        clean[name] = np.where(x[..., None, None], arrays[name], arrays[name].dtype.type(0))
        planted[name] = np.where(x[..., None, None], arrays[name], arrays[name].dtype.type(bad))
    wanted, _ = judge(implementation, case, clean)
    found = run(implementation, case, planted)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(x, y)
    for name, x in read.items():
        assert not np.any(np.asarray(found[2][name])[~x]), name
