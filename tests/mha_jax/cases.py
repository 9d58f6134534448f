"""Cases of the contract: shapes, arguments, random inputs, and the comparison of a run with the oracle.

The lengths of the axes of a case are distinct, primes but for the number of query heads, so that swapped axes fail.
One program (`compiled`) serves every case with the same shapes and static options, whatever the arrays hold.
"""

import dataclasses
import functools
import zlib
from collections.abc import Mapping
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

from tests.mha_jax.oracle import Attention

X64 = jax.config.read("jax_enable_x64")
DTYPE = "float64" if X64 else "float32"
DIFFERENTIABLE = ("query", "key", "value", "bias", "head_mask")
# For programs that run once for a moment: code that is not optimised compiles in a fifth of the time.
QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


def jit(function):
    return jax.jit(function, compiler_options=QUICK)


def float64_slow(test):
    """Mark a test that is run once more in float64, but then with the slow tests."""
    return pytest.mark.float64(pytest.mark.slow(test) if X64 else test)


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of the axes, by the project's letters."""

    batch: tuple[int, ...] = (2,)
    T: int = 5
    S: int = 7
    N: int = 6
    K: int = 3
    D: int = 11
    E: int = 13

    def of(self, letters):
        """Array shape by letters: "B" stands for the batch axes, "1" for an axis of size 1."""
        sizes = []
        for letter in letters:
            sizes += self.batch if letter == "B" else [1 if letter == "1" else getattr(self, letter)]
        return tuple(sizes)


@dataclasses.dataclass(frozen=True)
class Case:
    """One set of arguments. Masks and biases are given by the letters of their axes, such as "B1TS"."""

    name: str
    shape: Shape = dataclasses.field(default_factory=Shape)
    mask: str | None = None
    bias: str | None = None
    infinite_bias: bool = False
    head_mask: str | None = None
    lengths: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # lengths and query_offset
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # static
    magnitude: float = 1.0  # standard deviation of queries and keys
    empty_rows: bool = False  # where rows without a key come from the arguments above, not from a random mask
    dtype: str = DTYPE

    @property
    def needs(self):
        x, options = self.shape, {**self.lengths, **self.options}
        needs = {
            "value head dim": x.E != x.D,
            "grouped heads": x.N != x.K,
            "batch axes": len(x.batch) != 1,
            "bias": self.bias is not None,
            "-inf bias": self.infinite_bias,
            "head_mask": self.head_mask is not None,
            "causal": "is_causal" in options,
            "window": "local_window_size" in options,
            "lengths": {"query_seq_lengths", "key_value_seq_lengths"} & options.keys(),
            "query_offset": "query_offset" in options,
            "soft cap": "logits_soft_cap" in options,
            "scale": "scale" in options,
            "dropout": "dropout_rate" in options,
            "rows without keys": self.empty_rows or self.mask is not None or x.S == 0,
            "float64": self.dtype == "float64",
            "16 bits": self.dtype in ("bfloat16", "float16"),
        }
        return frozenset(name for name, needed in needs.items() if needed)

    def draw(self, seed=0) -> dict[str, Any]:
        """Arrays of the case, as a dictionary of arguments."""
        rng = np.random.default_rng([seed, zlib.crc32(self.name.encode())])

        def normal(letters, magnitude=1.0):
            return array(magnitude * rng.standard_normal(self.shape.of(letters)), self.dtype)

        arrays = {
            "query": normal("BTND", self.magnitude),
            "key": normal("BSKD", self.magnitude),
            "value": normal("BSKE"),
        }
        if self.bias is not None:
            arrays["bias"] = normal(self.bias)
            if self.infinite_bias:
                arrays["bias"][rng.random(arrays["bias"].shape) < 0.3] = -np.inf
        if self.mask is not None:
            arrays["mask"] = rng.random(self.shape.of(self.mask)) < 0.6
        if self.head_mask is not None:
            arrays["head_mask"] = normal(self.head_mask)
        return arrays | {name: np.asarray(x, np.int32) for name, x in self.lengths.items()}

    def cotangents(self, seed=0):
        """Of output and lse."""
        rng = np.random.default_rng([seed, 1])
        d_output = array(rng.standard_normal(self.shape.of("BTNE")), self.dtype)
        return d_output, array(rng.standard_normal(self.shape.of("BTN")), wide(self.dtype))


EVERYTHING = Case(
    "everything",
    mask="B1TS",
    bias="1NTS",
    head_mask="B1N",
    lengths={"query_seq_lengths": [5, 3], "key_value_seq_lengths": [6, 7], "query_offset": [2, 1]},
    options={"is_causal": True, "local_window_size": (4, 3), "logits_soft_cap": 1.3, "scale": 0.4},
)


def array(x, dtype):
    """A NumPy array of any dtype of JAX. Tests make and change their arrays in NumPy, where nothing is compiled."""
    return np.asarray(x).astype(getattr(ml_dtypes, dtype, dtype))


def wide(dtype):
    """The dtype of logits, softmax and lse."""
    return "float64" if dtype == "float64" else "float32"


def epsilon(dtype):
    """Distance from 1 to the next number."""
    return float(ml_dtypes.finfo(dtype).eps)


@functools.cache
def compiled(call, static=(), optimised=False):
    """``run(arrays, d_output, d_lse) -> (output, lse, gradients by name)``, one for all arrays."""

    def run(arrays, d_output, d_lse):
        smooth = {name: x for name, x in arrays.items() if name in DIFFERENTIABLE}
        rest = {name: x for name, x in arrays.items() if name not in DIFFERENTIABLE}
        (output, lse), pullback = jax.vjp(lambda smooth: call(**smooth, **rest, **dict(static)), smooth)
        return output, lse, pullback((d_output, None if lse is None else d_lse))[0]

    return jax.jit(run) if optimised else jit(run)


def run(implementation, case, arrays=None, *, seed=0, optimised=False):
    """Output, lse and gradients of an implementation at a case's arrays, or at others of the same shapes."""
    arrays = case.draw(seed) if arrays is None else arrays
    program = compiled(implementation.call, tuple(case.options.items()), optimised)
    return program(arrays, *case.cotangents(seed))


def expected(case, arrays, *, has_lse=True, seed=0):
    """The same by the oracle."""
    oracle = Attention(**arrays, **case.options)
    d_output, d_lse = case.cotangents(seed)
    return oracle.output, oracle.lse, oracle.gradients(d_output, d_lse if has_lse else None)


def check(found, wanted, dtype, *, terms=32):
    """Compare a run with the oracle.

    Sums of products are in `wide(dtype)`: an error of a few units in the last place for each of ``terms`` products, of
    the size of the largest entry. Then there is one rounding of the output to ``dtype``, by half of its last place;
    gradients also depend on the output as it was rounded.
    """
    output, lse, gradients = found
    wanted_output, wanted_lse, wanted_gradients = wanted
    assert set(gradients) == set(wanted_gradients)
    assert output.dtype == dtype
    rounding = 0.0 if dtype == wide(dtype) else epsilon(dtype)
    _close("output", output, wanted_output, dtype, terms, rtol=rounding / 2)
    if lse is not None:
        assert lse.dtype == wide(dtype)
        _close("lse", lse, wanted_lse, dtype, terms)
    for name, gradient in gradients.items():
        assert gradient.dtype == dtype, name
        _close(f"gradient of {name}", gradient, wanted_gradients[name], dtype, terms, rounding=4 * rounding)


def _close(name, found, wanted, dtype, terms, *, rounding=0.0, rtol=0.0):
    finite = wanted[np.isfinite(wanted)]
    size = max(1.0, np.abs(finite).max(initial=0))
    atol = (4 * terms * epsilon(wide(dtype)) + rounding) * size
    assert found.shape == wanted.shape, f"{name}: shape {found.shape}, expected {wanted.shape}"
    np.testing.assert_allclose(np.asarray(found, np.float64), wanted, rtol=rtol, atol=atol, err_msg=name)


def judge(implementation, case, arrays, *, seed=0, terms=None):
    """Run, compare with the oracle, and return the run and the oracle's."""
    found = run(implementation, case, arrays, seed=seed)
    wanted = expected(case, arrays, has_lse=found[1] is not None, seed=seed)
    check(found, wanted, case.dtype, terms=terms or 32 * max(1, case.magnitude**2))
    return found, wanted


def pairs(implementations, cases, *, float64=(), slow=()):
    """Every implementation with every case that it can do, for `pytest.mark.parametrize`.

    Cases named in ``slow`` are run with the slow tests. Run once more in float64 are those named in ``float64``, and
    with the slow tests all others.
    """

    def marks(case):
        found = [pytest.mark.float64] if case.dtype == DTYPE else []
        left_out = case.name not in float64 if X64 else case.name in slow
        return [*found, pytest.mark.slow] if left_out else found

    return [
        pytest.param(x, case, marks=marks(case), id=f"{x.name}-{case.name}")
        for x in implementations
        for case in cases
        if x.can(case.needs)
    ]
