"""`mha_jax.rope` against rotations of complex numbers in float64, and the properties it is used for."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mha_jax.rope import RotaryEmbedding, apply_rope, positions_from

BATCH, TOKENS, HEADS, WIDTH = 2, 7, 3, 10
STYLES = ["half", "interleaved"]


# Compiled once for each setting; more than ten times faster than one operation after another.
_rope = functools.partial(jax.jit, static_argnums=2)(
    lambda x, positions, rotary=None: apply_rope(x, positions, rotary)
)


def _dtype():
    return jnp.float64 if jax.config.read("jax_enable_x64") else jnp.float32


def _draw(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), _dtype())


def _oracle(x, positions, base, dims, style):
    """Pairs as complex numbers, times ``exp(i position rate)``."""
    x, positions = np.asarray(x, np.float64), np.asarray(positions, np.float64)
    out = x.copy()
    for pair in range(dims // 2):
        first, second = (pair, pair + dims // 2) if style == "half" else (2 * pair, 2 * pair + 1)
        turn = np.exp(1j * positions * base ** (-2 * pair / dims))
        turned = (x[..., first] + 1j * x[..., second]) * turn[..., None]
        out[..., first], out[..., second] = turned.real, turned.imag
    return out


@pytest.mark.float64
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("dims", [None, 6])
def test_equals_complex_rotation(style, dims):
    rotary = RotaryEmbedding(base=97.0, dims=dims, style=style)
    x = _draw(BATCH, TOKENS, HEADS, WIDTH)
    shared = jnp.asarray([0, 5, 1, 40, 3, 3, 2])
    own = jnp.stack([shared, shared[::-1] + 11])
    fractional = shared.astype(x.dtype) / 3
    for positions in (shared, own, own[:1], fractional):
        found = _rope(x, positions, rotary)
        expected = _oracle(x, positions, 97.0, dims or WIDTH, style)
        assert found.dtype == x.dtype
        np.testing.assert_allclose(found, expected, rtol=0, atol=300 * float(jnp.finfo(x.dtype).eps))
    if dims is not None:
        np.testing.assert_array_equal(_rope(x, own, rotary)[..., dims:], x[..., dims:])


def test_defaults_are_base_10000_all_dims_half_split():
    x = _draw(TOKENS, HEADS, WIDTH)
    positions = jnp.arange(TOKENS)
    np.testing.assert_allclose(
        _rope(x, positions), _oracle(x, positions, 10_000.0, WIDTH, "half"), rtol=0, atol=1e-5
    )


@pytest.mark.float64
@pytest.mark.parametrize("dims", [None, 6])
def test_styles_differ_by_the_known_permutation(dims):
    x = _draw(TOKENS, HEADS, WIDTH)
    width = dims or WIDTH
    order = np.concatenate([np.arange(0, width, 2), np.arange(1, width, 2), np.arange(width, WIDTH)])
    positions = jnp.arange(3, 3 + TOKENS)
    half = _rope(x[..., order], positions, RotaryEmbedding(dims=dims, style="half"))
    interleaved = _rope(x, positions, RotaryEmbedding(dims=dims, style="interleaved"))
    np.testing.assert_allclose(half, interleaved[..., order], rtol=0, atol=8 * float(jnp.finfo(x.dtype).eps))
    assert np.abs(_rope(x, positions, RotaryEmbedding(dims=dims)) - interleaved).max() > 0.1


@pytest.mark.float64
@pytest.mark.parametrize("style", STYLES)
def test_products_depend_on_the_difference_of_positions_alone(style):
    rotary = RotaryEmbedding(style=style, dims=6)
    query, key = _draw(1, 1, WIDTH, seed=1), _draw(1, 1, WIDTH, seed=2)
    eps = float(jnp.finfo(query.dtype).eps)

    def product(query_position, key_position):
        rotated = (
            _rope(x, jnp.asarray([p]), rotary) for x, p in ((query, query_position), (key, key_position))
        )
        return float(jnp.einsum("tnd,snd->", *rotated))

    for shift in (1, 13, 4001):
        # An angle near ``shift`` radians is rounded to about ``shift * eps``.
        np.testing.assert_allclose(
            product(5 + shift, 3 + shift), product(5, 3), rtol=0, atol=(shift + 10) * 16 * eps
        )
    assert abs(product(5, 3) - product(3, 5)) > 0.01
    assert abs(product(5, 3) - product(6, 3)) > 0.01


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_narrow_inputs_are_rotated_in_float32(dtype):
    x = _draw(TOKENS, HEADS, WIDTH).astype(dtype)
    positions = jnp.arange(1000, 1000 + TOKENS)  # in bfloat16 these would all be 1000 or 1008
    found = _rope(x, positions)
    assert found.dtype == dtype
    expected = _oracle(x.astype(jnp.float32), positions, 10_000.0, WIDTH, "half")
    np.testing.assert_allclose(
        found.astype(jnp.float32), expected, rtol=float(jnp.finfo(dtype).eps), atol=1e-3
    )


def test_gradient_is_the_inverse_rotation():
    x, grad = _draw(TOKENS, HEADS, WIDTH), _draw(TOKENS, HEADS, WIDTH, seed=1)
    positions = jnp.arange(TOKENS)
    found = jax.jit(lambda x, grad: jax.vjp(lambda x: apply_rope(x, positions), x)[1](grad)[0])(x, grad)
    np.testing.assert_allclose(found, _rope(grad, -positions), rtol=0, atol=1e-6)


def test_positions_from_offsets():
    np.testing.assert_array_equal(positions_from(5, 3), [5, 6, 7])
    np.testing.assert_array_equal(positions_from(jnp.asarray([2, 7]), 3), [[2, 3, 4], [7, 8, 9]])


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"base": 0}, "base"),
        ({"base": True}, "base"),
        ({"base": float("inf")}, "base"),
        ({"dims": 0}, "dims"),
        ({"dims": 3}, "dims"),
        ({"dims": 2.0}, "dims"),
        ({"dims": -2}, "dims"),
        ({"style": "gptj"}, "style"),
    ],
)
def test_settings_are_checked(settings, name):
    # Not by calling the class: the type checker would refuse most of these before the class does.
    unchecked = object.__new__(RotaryEmbedding)
    unchecked.__dict__.update({"base": 1.0, "dims": None, "style": "half"} | settings)
    with pytest.raises(ValueError, match=f"^{name}: expected .*, got "):
        unchecked.__post_init__()


@pytest.mark.parametrize(
    ("x", "positions", "rotary", "message"),
    [
        (np.zeros((7, 3)), np.arange(7), None, "x: expected shape"),
        (np.zeros((7, 3, 10), int), np.arange(7), None, "x: expected a floating-point array, got int"),
        (np.zeros((7, 3, 10)), np.arange(6), None, r"positions: expected shape \(7,\)"),
        (np.zeros((7, 3, 10)), np.arange(1), None, r"positions: expected shape \(7,\)"),
        (np.zeros((2, 7, 3, 10)), np.zeros((3, 7)), None, r"that broadcasts to \(2, 7\), got \(3, 7\)"),
        (np.zeros((7, 3, 10)), np.zeros((2, 7)), None, r"positions: .*got \(2, 7\)"),
        (np.zeros((7, 3, 10)), np.zeros(()), None, r"positions: .*got \(\)"),
        (
            np.zeros((7, 3, 10)),
            np.arange(7),
            RotaryEmbedding(dims=12),
            "dims: expected at most .* 10, got 12",
        ),
        (np.zeros((7, 3, 9)), np.arange(7), None, r"dims: expected an even number .*\(9\) is odd"),
        (np.zeros((7, 3, 10)), np.arange(7), True, "rotary: expected a RotaryEmbedding or None, got True"),
    ],
)
def test_arguments_are_checked(x, positions, rotary, message):
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(apply_rope)(jnp.asarray(x), jnp.asarray(positions), rotary)


def test_settings_can_be_a_static_argument():
    assert hash(RotaryEmbedding(dims=4)) == hash(RotaryEmbedding(dims=4)) != hash(RotaryEmbedding(dims=6))
