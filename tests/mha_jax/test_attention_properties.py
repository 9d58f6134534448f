"""Attention at arguments that nobody thought of, drawn by hypothesis: against the oracle, and with NaN planted.

Masks, biases, lengths and offsets are data of one program for each shape and kind of band, so that examples are cheap.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.mha_jax.cases import Case, Shape, array, check, expected, float64_slow, run
from tests.mha_jax.implementations import OURS
from tests.mha_jax.oracle import Attention

pytestmark = [pytest.mark.usefixtures("strict")]

each = pytest.mark.parametrize("implementation", OURS, ids=lambda x: x.name)
POOL = [
    Case(
        "drawn",
        Shape(T=3, S=5, N=2, K=1, D=2, E=3),
        mask="BNTS",
        bias="B1TS",
        head_mask="TN",
        lengths={"query_seq_lengths": [0, 0], "key_value_seq_lengths": [0, 0], "query_offset": [0, 0]},
        options=options,
    )
    for options in ({"is_causal": True}, {"local_window_size": (2, 1)})
]


@st.composite
def arguments(draw, case):
    """Arrays of a case: masks of any pattern, biases with -inf, lengths and offsets from below to beyond the range."""
    arrays = case.draw(draw(st.integers(0, 2**16)))
    shape = case.shape

    def integers(low, high):
        return draw(hnp.arrays(np.int32, shape.batch, elements=st.integers(low, high)))

    arrays["mask"] = draw(hnp.arrays(bool, shape.of(case.mask), fill=st.booleans()))
    hidden = draw(hnp.arrays(bool, shape.of(case.bias), fill=st.just(False)))
    arrays["bias"] = np.where(hidden, -np.inf, arrays["bias"]).astype(arrays["bias"].dtype)
    arrays["query_seq_lengths"] = integers(0, shape.T + 1)
    arrays["key_value_seq_lengths"] = integers(0, shape.S + 1)
    arrays["query_offset"] = integers(-shape.T - 1, shape.S + 1)
    return arrays


def _judge_with_nan_where_nobody_reads(implementation, case, arrays):
    oracle = Attention(**arrays, **case.options)
    for name, axes in ("query", (-3, -1)), ("key", (-3, -2)), ("value", (-3, -2)):
        read = np.any(oracle.allowed, axes)[..., None, None]
        arrays[name] = array(np.where(read, arrays[name], np.nan), case.dtype)
    check(run(implementation, case, arrays), expected(case, arrays), case.dtype)


@float64_slow
@pytest.mark.parametrize("case", POOL, ids=["causal", "window"])
@each
def test_any_mask(implementation, case):
    @settings(max_examples=30, deadline=None, derandomize=True, database=None)
    @given(arguments(case))
    def judge(arrays):
        _judge_with_nan_where_nobody_reads(implementation, case, arrays)

    judge()


@st.composite
def cases(draw):
    """A case of any small shape, and with any arguments."""
    size = st.sampled_from([0, 1, 2, 3, 5, 7, 16, 17])
    key_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    shape = Shape(
        batch=tuple(draw(st.lists(st.integers(1, 3), max_size=2))),
        T=draw(size),
        S=draw(size),
        N=key_heads * group,
        K=key_heads,
        D=draw(st.sampled_from([1, 2, 3, 8])),
        E=draw(st.sampled_from([1, 2, 5, 8])),
    )

    def letters(axes):
        return draw(st.none() | st.tuples(*(st.sampled_from([x, "1"]) for x in axes)).map("".join))

    def batch_axes(letters):  # "1" for "B": an axis of size 1 in place of every batch axis
        if letters is None or letters[0] == "B":
            return letters
        return "1" * len(shape.batch) + letters[1:]

    integers = hnp.arrays(np.int32, shape.batch, elements=st.integers(-3, 18)).map(np.ndarray.tolist)
    lengths = {
        name: draw(integers)
        for name in ("query_offset", "query_seq_lengths", "key_value_seq_lengths")
        if draw(st.booleans())
    }
    options = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "is_causal": st.just(True),
                "local_window_size": st.tuples(st.integers(0, 9), st.integers(0, 9)),
                "logits_soft_cap": st.sampled_from([0.5, 3.0]),
                "scale": st.sampled_from([0.1, 1.0]),
            },
        )
    )
    mask, bias, head_mask = (batch_axes(letters(x)) for x in ("BNTS", "BNTS", "BTN"))
    dtype = draw(st.sampled_from(["float32", "bfloat16", "float16"]))
    infinite = bias is not None and draw(st.booleans())
    return Case("any", shape, mask, bias, infinite, head_mask, lengths, options, dtype=dtype)


@pytest.mark.slow
@each
def test_any_shape(implementation):
    @settings(max_examples=80, deadline=None, derandomize=True, database=None)
    @given(cases())
    def judge(case):
        _judge_with_nan_where_nobody_reads(implementation, case, case.draw())

    judge()
