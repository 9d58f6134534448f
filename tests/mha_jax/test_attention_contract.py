"""The contract of attention: every implementation against the float64 oracle, forwards and backwards."""

import pytest

from tests.mha_jax.cases import EVERYTHING, Case, Shape, check, expected, pairs, run
from tests.mha_jax.implementations import ALL, BLOCKS, BLOCKWISE, DENSE, NEEDS

pytestmark = [pytest.mark.usefixtures("strict")]

# jax.nn and Flax take values of the keys' width and these shapes; T < S and T > S.
SQUARE = Shape(E=11)
TALL = Shape(T=7, S=5, E=11, K=2)
EVEN = Shape(K=6, E=11)

MASKS = [
    # Each argument by itself, in the shapes that every implementation takes. `jax.nn` first checks the oracle here.
    Case("plain", SQUARE),
    Case("plain, T > S", TALL),
    Case("large logits, T > S", TALL, magnitude=6.0),
    Case("causal, T < S", SQUARE, options={"is_causal": True}),
    Case("causal, T > S", TALL, options={"is_causal": True}),
    Case("window of one number", SQUARE, options={"local_window_size": 2}),
    Case("causal window", TALL, options={"local_window_size": (2, 1), "is_causal": True}, empty_rows=True),
    Case("key lengths", SQUARE, lengths={"key_value_seq_lengths": [4, 7]}),
    Case("mask B1TS, no groups", EVEN, mask="B1TS"),
    Case("bias B1TS", SQUARE, bias="B1TS"),
    Case("bias 111S, causal", TALL, bias="111S", options={"is_causal": True}),
    # What we promise beyond.
    Case("no argument"),
    Case("mask B11S, bias BNTS", mask="B11S", bias="BNTS"),
    Case("mask 1NT1, bias 111S", mask="1NT1", bias="111S"),
    Case("mask 11TS, bias 1NTS", mask="11TS", bias="1NTS"),
    Case("mask BNTS, bias B1T1", mask="BNTS", bias="B1T1"),
    Case("mask 1111, bias 1N1S", mask="1111", bias="1N1S"),
    Case("-inf bias", bias="BNTS", infinite_bias=True),
    Case("-inf bias, T > S, causal", TALL, bias="1N1S", infinite_bias=True, options={"is_causal": True}),
    Case(
        "both lengths",
        lengths={"query_seq_lengths": [3, 5], "key_value_seq_lengths": [6, 0]},
        empty_rows=True,
    ),
    Case("lengths for all", lengths={"query_seq_lengths": 4, "key_value_seq_lengths": 3}, empty_rows=True),
    Case("offset, causal", lengths={"query_offset": [1, -2]}, options={"is_causal": True}, empty_rows=True),
    Case("offset, window", lengths={"query_offset": 3}, options={"local_window_size": (3, 0)}),
    Case(
        "offsets, window",
        lengths={"query_offset": [4, 0]},
        options={"local_window_size": (1, 0)},
        empty_rows=True,
    ),
    Case("soft cap, bias", bias="1N11", options={"logits_soft_cap": 0.7, "scale": 0.6}),
    Case("soft cap, -inf bias", bias="11TS", infinite_bias=True, options={"logits_soft_cap": 0.7}),
    Case("head mask TN", head_mask="TN"),
    Case("head mask of a head", head_mask="N", mask="B1TS"),
    EVERYTHING,
]
SHAPES = [
    Case("one key", Shape(S=1), bias="BNTS"),
    Case("one query", Shape(T=1), lengths={"query_offset": [4, 6]}, options={"is_causal": True}),
    Case("no keys", Shape(S=0), bias="BNTS", options={"is_causal": True}),
    Case("no queries", Shape(T=0), mask="B11S"),
    Case("no examples", Shape(batch=(0,))),
    Case("no batch axis", Shape(batch=()), mask="NTS", bias="1TS", lengths={"key_value_seq_lengths": 5}),
    Case(
        "two batch axes",
        Shape(batch=(2, 3)),
        mask="B11S",
        lengths={"query_seq_lengths": [[1, 5, 3], [4, 0, 5]]},
    ),
    Case("one head", Shape(N=1, K=1)),
    Case("one key/value head", Shape(K=1), mask="BNTS"),
    Case("no groups", Shape(K=6), mask="1N1S", options={"is_causal": True}),
    Case("width one", Shape(D=1, E=1), options={"is_causal": True}),
]
DTYPES = [
    Case(f"{name} {dtype}", shape, mask, bias, head_mask=head_mask, options=options, dtype=dtype)
    for dtype in ("bfloat16", "float16")
    for name, shape, mask, bias, head_mask, options in [
        ("plain", SQUARE, None, None, None, {}),
        ("everything", Shape(), "B1TS", "1NTS", "TN", {"is_causal": True, "logits_soft_cap": 2.0}),
    ]
]
# Run once more in float64.
FLOAT64 = {"mask 11TS, bias 1NTS", "both lengths", "everything"}
# Left to the slow tests: close to another case.
SLOW = {
    "plain",
    "causal, T > S",
    "window of one number",
    "key lengths",
    "bias B1TS",
    "no argument",
    "mask 1111, bias 1N1S",
    "-inf bias, T > S, causal",
    "lengths for all",
    "offset, window",
    "soft cap, -inf bias",
    "head mask TN",
    "no examples",
    "one head",
    "no groups",
    "width one",
    "plain bfloat16",
    "plain float16",
}
# In blocks of the usual size the arrays are one block.
ONE_BLOCK = {"causal window", "no keys", "everything", "one query"}


def check_case(implementation, case, *, optimised=False):
    arrays = case.draw()
    found = run(implementation, case, arrays, optimised=optimised)
    wanted = expected(case, arrays, has_lse=found[1] is not None)
    check(found, wanted, case.dtype, terms=32 * max(1, case.magnitude**2))


def test_our_own_implementations_leave_no_case_out():
    assert not any(x.cannot for x in (DENSE, BLOCKWISE, BLOCKS))
    needed = {x for case in MASKS + SHAPES + DTYPES for x in case.needs}
    assert NEEDS - needed <= {
        "dropout",
        "lse",
        "unread positions",
        "float64",
    }  # these have tests of their own


@pytest.mark.parametrize(("implementation", "case"), pairs(ALL, MASKS + SHAPES, float64=FLOAT64, slow=SLOW))
def test_against_the_oracle(implementation, case):
    check_case(implementation, case)


@pytest.mark.parametrize(
    ("implementation", "case"),
    pairs([BLOCKWISE], MASKS + SHAPES, slow={x.name for x in MASKS + SHAPES} - ONE_BLOCK),
)
def test_one_block_against_the_oracle(implementation, case):
    """In programs compiled as a user's are."""
    check_case(implementation, case, optimised=True)


@pytest.mark.parametrize(("implementation", "case"), pairs(ALL, DTYPES, slow=SLOW))
def test_dtypes_of_16_bits(implementation, case):
    check_case(implementation, case)
