"""Arguments of attention: which are refused and how, also under ``python -O``; the signature; the default."""

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mha_jax
from tests.mha_jax import bad_arguments
from tests.mha_jax.cases import DTYPE, Case, jit
from tests.mha_jax.implementations import OURS

ROOT = Path(__file__).resolve().parent.parent.parent

# Without the checks of annotations, which come first in tests and are not there for a user.
ATTEND = inspect.unwrap(mha_jax.dot_product_attention)
WEIGH = inspect.unwrap(mha_jax.attention_weights)


@pytest.mark.parametrize("name", bad_arguments.CASES)
@pytest.mark.parametrize("implementation", ["dense", "blockwise"])
def test_bad_arguments_are_refused_by_name(implementation, name):
    assert bad_arguments.complaint(ATTEND, WEIGH, name, implementation) is None


def test_they_are_refused_without_asserts_too():
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-O", "-m", "tests.mha_jax.bad_arguments"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"asserts": False, "wrong": {}}


def test_the_signature_is_a_superset_of_that_of_jax_nn():
    """Same names in the same order, same defaults, of the same kind."""
    ours = inspect.signature(ATTEND).parameters
    theirs = inspect.signature(jax.nn.dot_product_attention).parameters
    shared = [x for x in ours if x in theirs]
    assert shared == list(theirs)
    for name, parameter in theirs.items():
        assert (ours[name].kind, ours[name].default) == (parameter.kind, parameter.default), name
    for name in ours.keys() - theirs.keys():
        assert ours[name].kind is inspect.Parameter.KEYWORD_ONLY, name
    weights = inspect.signature(WEIGH).parameters
    for name in weights:
        assert (weights[name].kind, weights[name].default) == (ours[name].kind, ours[name].default), name
    left_out = {"value", "implementation", "return_residual", "head_mask"}
    assert left_out - {"head_mask"} <= ours.keys() - weights.keys() <= left_out


def test_numpy_and_python_arguments_are_as_good_as_jax_arrays():
    arrays = Case("numbers", mask="B1TS", bias="1N11").draw()
    lengths = np.array([3, 5], np.int32)
    same = [
        {"key_value_seq_lengths": jnp.asarray(lengths), "query_offset": jnp.int32(2)},
        {"key_value_seq_lengths": lengths, "query_offset": 2},
        {"key_value_seq_lengths": lengths.astype(np.uint8), "query_offset": np.int64(2), "scale": 11**-0.5},
        {"key_value_seq_lengths": lengths, "query_offset": np.array([2, 2]), "scale": np.float32(11**-0.5)},
        {"key_value_seq_lengths": lengths, "query_offset": np.array([2]), "is_causal": np.True_},
    ]

    @jit
    def attend():
        return [mha_jax.dot_product_attention(**{**arrays, "is_causal": True, **given}) for given in same]

    first, *others = attend()
    for other in others:
        np.testing.assert_allclose(other, first, atol=1e-6)


def test_mixed_precision_arguments():
    """A bias and a head mask in another floating point than the queries; gradients in their own."""
    case = Case("mixed", bias="1NTS", head_mask="TN", dtype="bfloat16")
    arrays = case.draw()
    wide = {x: arrays[x].astype(np.float32) for x in ("bias", "head_mask")}
    for implementation in OURS:
        with jax.numpy_dtype_promotion("strict"):
            f = jit(
                jax.grad(lambda y, x, call=implementation.call: call(**(x | y))[0].astype(jnp.float32).sum())
            )
            found, wanted = f(wide, arrays), f({x: arrays[x] for x in wide}, arrays)
        for name in wide:
            assert found[name].dtype == jnp.float32
            other = np.asarray(wanted[name], np.float32)
            np.testing.assert_allclose(found[name], other, atol=2.0**-7 * np.abs(other).max())


def test_the_default_implementation_is_one_of_the_valid_ones():
    arrays = Case("default", mask="B1TS", bias="1NTS", dtype=DTYPE).draw()
    names = None, "xla", "dense"
    found = jit(lambda: [mha_jax.dot_product_attention(**arrays, implementation=x) for x in names])()
    np.testing.assert_allclose(found[0], found[2], atol=1e-5)
    np.testing.assert_array_equal(found[1], found[2])


@pytest.mark.skipif(jax.default_backend() == "gpu", reason="a GPU may have it")
def test_an_implementation_that_cannot_says_so():
    case = Case("cudnn")
    with pytest.raises(NotImplementedError, match="cudnn"):
        mha_jax.dot_product_attention(**case.draw(), implementation="cudnn")
