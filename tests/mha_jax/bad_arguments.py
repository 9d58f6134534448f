"""Arguments of attention that must be refused, and how. Run as a program, it prints what is not, as JSON.

So that the same list is run by a test and, without asserts and without checked annotations, by ``python -O``.
"""

import json
import sys

import jax
import ml_dtypes
import numpy as np

import mha_jax

B, T, S, N, K, D, E = 2, 5, 7, 6, 3, 11, 13


def good():
    return {"query": _ones((B, T, N, D)), "key": _ones((B, S, K, D)), "value": _ones((B, S, K, E))}


def _ones(shape):
    return np.ones(shape, np.float32)


def _bools(*shape):
    return np.ones(shape, bool)


# Changed arguments; the argument that is named; words that the message has, in order: what was expected, what came.
CASES = {
    # shapes
    "rank 2": ({"query": _ones((N, D))}, "query", "(6, 11)"),
    "no head dim": ({"query": _ones((B, T, N, 0)), "key": _ones((B, S, K, 0))}, "query", "(2, 5, 6, 0)"),
    "no query head": ({"query": _ones((B, T, 0, D))}, "query", "(2, 5, 0, 11)"),
    "no key head": ({"key": _ones((B, S, 0, D)), "value": _ones((B, S, 0, E))}, "key", "0"),
    "heads do not divide": ({"key": _ones((B, S, 4, D)), "value": _ones((B, S, 4, E))}, "key", "6 4"),
    "more key heads": ({"key": _ones((B, S, 12, D)), "value": _ones((B, S, 12, E))}, "key", "6 12"),
    "(B, N, T, D)": ({"query": _ones((B, N, T, D))}, "key", "5 3"),
    "another width": ({"key": _ones((B, S, K, D + 1))}, "key", "11 (2, 7, 3, 12)"),
    "another batch": ({"key": _ones((3, S, K, D)), "value": _ones((3, S, K, E))}, "key", "2 (3, 7, 3, 11)"),
    "batch to broadcast": (
        {"key": _ones((1, S, K, D)), "value": _ones((1, S, K, E))},
        "key",
        "(1, 7, 3, 11)",
    ),
    "key of another rank": ({"key": _ones((S, K, D))}, "key", "(7, 3, 11)"),
    "value of another rank": ({"value": _ones((S, K, E))}, "value", "(7, 3, 13)"),
    "value of another length": ({"value": _ones((B, S + 1, K, E))}, "value", "7 (2, 8, 3, 13)"),
    "value of other heads": ({"value": _ones((B, S, N, E))}, "value", "3 (2, 7, 6, 13)"),
    # dtypes
    "integers": ({"query": np.ones((B, T, N, D), np.int32)}, "query", "float32 int32"),
    "complex": ({"query": np.ones((B, T, N, D), np.complex64)}, "query", "float32 complex64"),
    "key of another dtype": ({"key": np.ones((B, S, K, D), ml_dtypes.bfloat16)}, "key", "float32 bfloat16"),
    "value of another dtype": ({"value": np.ones((B, S, K, E), np.float16)}, "value", "float32 float16"),
    # masks and biases
    "mask of a smaller rank": ({"mask": _bools(T, S)}, "mask", "(2, 6, 5, 7) (5, 7)"),
    "mask of a larger rank": ({"mask": _bools(1, B, N, T, S)}, "mask", "(2, 6, 5, 7) (1, 2, 6, 5, 7)"),
    "mask (B, T, N, S)": ({"mask": _bools(B, T, N, S)}, "mask", "(2, 6, 5, 7) (2, 5, 6, 7)"),
    "mask of key heads": ({"mask": _bools(1, K, T, S)}, "mask", "(2, 6, 5, 7) (1, 3, 5, 7)"),
    "mask of numbers": ({"mask": _ones((1, 1, T, S))}, "mask", "bool float32"),
    "bias of a smaller rank": ({"bias": _ones((N, T, S))}, "bias", "(2, 6, 5, 7) (6, 5, 7)"),
    "bias of another size": ({"bias": _ones((1, 1, S, T))}, "bias", "(2, 6, 5, 7) (1, 1, 7, 5)"),
    "bias of bools": ({"bias": _bools(1, 1, T, S)}, "bias", "bool"),
    "bias of no size": ({"bias": _ones((1, 1, 0, S))}, "bias", "(2, 6, 5, 7) (1, 1, 0, 7)"),
    "head mask (N, T)": ({"head_mask": _ones((N, T))}, "head_mask", "(2, 5, 6) (6, 5)"),
    "head mask of a larger rank": ({"head_mask": _ones((1, B, T, N))}, "head_mask", "(2, 5, 6) (1, 2, 5, 6)"),
    "head mask of key heads": ({"head_mask": _ones(K)}, "head_mask", "(2, 5, 6) (3,)"),
    # lengths and offset
    "lengths of another batch": (
        {"query_seq_lengths": np.ones(3, np.int32)},
        "query_seq_lengths",
        "(2,) (3,)",
    ),
    "lengths of numbers": ({"key_value_seq_lengths": _ones(B)}, "key_value_seq_lengths", "int float32"),
    "lengths of every query": (
        {"key_value_seq_lengths": np.ones((B, T), np.int32)},
        "key_value_seq_lengths",
        "(2,) (2, 5)",
    ),
    "offset of another batch": (
        {"query_offset": np.ones(T, np.int32), "is_causal": True},
        "query_offset",
        "(5,)",
    ),
    "offset of numbers": ({"query_offset": 1.5, "is_causal": True}, "query_offset", "int"),
    # windows
    "negative window": ({"local_window_size": -1}, "local_window_size", "-1"),
    "negative side": ({"local_window_size": (2, -3)}, "local_window_size", "(2, -3)"),
    "window of three": ({"local_window_size": (1, 2, 3)}, "local_window_size", "(1, 2, 3)"),
    "window of a number": ({"local_window_size": 1.5}, "local_window_size", "1.5"),
    # numbers
    "scales": ({"scale": _ones(N)}, "scale", "6"),
    "no cap": ({"logits_soft_cap": 0.0}, "logits_soft_cap", "positive 0.0"),
    "negative cap": ({"logits_soft_cap": -1.0}, "logits_soft_cap", "positive -1.0"),
    "cap that is none": ({"logits_soft_cap": float("nan")}, "logits_soft_cap", "positive nan"),
    "infinite cap": ({"logits_soft_cap": float("inf")}, "logits_soft_cap", "inf"),
    "rate of one": ({"dropout_rate": 1.0, "dropout_key": jax.random.key(0)}, "dropout_rate", "[0, 1) 1.0"),
    "negative rate": (
        {"dropout_rate": -0.1, "dropout_key": jax.random.key(0)},
        "dropout_rate",
        "[0, 1) -0.1",
    ),
    "rate that is none": (
        {"dropout_rate": float("nan"), "dropout_key": jax.random.key(0)},
        "dropout_rate",
        "nan",
    ),
    "no key": ({"dropout_rate": 0.5}, "dropout_key", "0.5 None"),
    "many keys": (
        {"dropout_rate": 0.5, "dropout_key": jax.random.split(jax.random.key(0), 3)},
        "dropout_key",
        "(3,)",
    ),
    "unknown implementation": ({"implementation": "flash"}, "implementation", "dense flash"),
    "causal by an array": ({"is_causal": np.ones(1, bool)}, "is_causal", "bool"),
}
# Of which these say nothing about attention_weights, which has no such argument.
OUTPUT_ALONE = ("value", "head_mask", "implementation")


def complaint(attend, weigh, name, implementation):
    """What is wrong with the refusal of a case; None if nothing is."""
    changed, argument, words = CASES[name]
    arguments = {**good(), "implementation": implementation, **changed}
    calls = [(attend, arguments)]
    if argument not in OUTPUT_ALONE:
        calls.append((weigh, {x: y for x, y in arguments.items() if x not in OUTPUT_ALONE}))
    for call, given in calls:
        try:
            jax.eval_shape(lambda call=call, given=given: call(**given))  # computes nothing
        except ValueError as error:
            message = str(error)
        except Exception as error:
            return f"raised {type(error).__name__}: {error}"
        else:
            return "was not refused"
        if not message.startswith(f"{argument}: expected ") or ", got " not in message:
            return f"says {message!r}"
        at = 0
        for word in words.replace(", ", ",\0").split():
            word = word.replace("\0", " ")
            if message.find(word, at) < 0:
                return f"says {message!r}, without {word!r}"
            at = message.find(word, at)
    return None


def main():
    found = {}
    for name in CASES:
        wrong = complaint(mha_jax.dot_product_attention, mha_jax.attention_weights, name, "dense")
        if wrong:
            found[name] = wrong
    json.dump({"asserts": __debug__, "wrong": found}, sys.stdout)


if __name__ == "__main__":
    main()
