"""Dropout of attention: its statistics, a mask for each head, the same in every implementation and backwards."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.mha_jax.cases import DTYPE, Case, Shape, check, float64_slow, jit
from tests.mha_jax.implementations import BLOCKS, BLOCKWISE, DENSE, OURS
from tests.mha_jax.oracle import Attention

pytestmark = [pytest.mark.usefixtures("strict")]

each = pytest.mark.parametrize("implementation", OURS, ids=lambda x: x.name)
RATE = 0.3
SHAPE = Shape(T=29, S=31, N=6, K=3, D=2, E=31)


@jit
def _kept_by_all(key):
    zeros = jnp.zeros(SHAPE.of("BTND")), jnp.zeros(SHAPE.of("BSKD"))
    values = jnp.broadcast_to(jnp.eye(SHAPE.S)[None, :, None], SHAPE.of("BSKE"))
    return [x.call(*zeros, values, dropout_rate=RATE, dropout_key=key) for x in (*OURS, BLOCKWISE)]


def _kept(seed):
    """Weights after dropout in units of those before, (implementation, B, N, T, S), and lse.

    All weights are equal, and values that are unit vectors show them.
    """
    outputs, lse = zip(*_kept_by_all(jax.random.key(seed)), strict=True)
    return np.stack(outputs).swapaxes(2, 3) * SHAPE.S, np.stack(lse)


def _is_a_share(mean, draws, probability):
    """Within five standard deviations of a mean of so many independent draws."""
    assert abs(mean - probability) < 5 * math.sqrt(probability * (1 - probability) / draws)


def test_a_kept_weight_is_scaled_and_the_lse_stays():
    weights, lse = _kept(0)
    dropped = weights == 0
    np.testing.assert_allclose(weights[~dropped], 1 / (1 - RATE), rtol=1e-5)
    np.testing.assert_allclose(lse, math.log(SHAPE.S), rtol=1e-6)
    _is_a_share(dropped[0].mean(), dropped[0].size, RATE)
    for axes in (0, 2, 3), (1, 2, 3), (0, 1, 2), (0, 1, 3):  # of every head, example, key and query
        for share in dropped[0].mean(axes):
            _is_a_share(share, dropped[0].size // len(dropped[0].mean(axes)), RATE)


def test_every_implementation_drops_the_same():
    weights, _ = _kept(1)
    for other in weights[1:]:
        np.testing.assert_array_equal(other == 0, weights[0] == 0)


def test_every_head_example_query_and_key_has_its_own_draws():
    """Two slices agree where both are kept or both dropped: a share of p^2 + (1 - p)^2 if they are independent."""
    kept = _kept(2)[0][0] != 0
    agreement = RATE**2 + (1 - RATE) ** 2
    rows = kept.reshape(-1, SHAPE.T, SHAPE.S)
    for i in range(len(rows)):
        for j in range(i):
            _is_a_share((rows[i] == rows[j]).mean(), rows[i].size, agreement)
    for shift in 1, 2, 3, 7:
        _is_a_share(
            (kept[..., shift:, :] == kept[..., :-shift, :]).mean(), kept[..., shift:, :].size, agreement
        )
        _is_a_share((kept[..., shift:] == kept[..., :-shift]).mean(), kept[..., shift:].size, agreement)


def test_the_key_decides():
    first, again, other = (_kept(i)[0] for i in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    _is_a_share(np.mean((first == 0) == (other == 0)), first[0].size, RATE**2 + (1 - RATE) ** 2)


@float64_slow
@each
def test_gradients_drop_what_the_output_dropped(implementation):
    """Against the oracle, told which weights were kept. Unit vectors as values show that, in the same program."""
    case = Case(
        "dropout", Shape(S=7, E=7), bias="1NTS", mask="B1TS", head_mask="TN", options={"is_causal": True}
    )
    arrays = case.draw()
    g, d_lse = case.cotangents()

    @jit
    def both(arrays, key):
        def attend(smooth):
            x = {"dropout_rate": RATE, "dropout_key": key, **case.options}
            return implementation.call(**smooth, mask=arrays["mask"], **x)

        smooth = {x: y for x, y in arrays.items() if x != "mask"}
        (output, lse), pullback = jax.vjp(attend, smooth)
        units = jnp.broadcast_to(jnp.eye(7, dtype=DTYPE)[None, :, None], case.shape.of("BSKE"))
        shown, _ = attend(smooth | {"value": units, "head_mask": jnp.ones(case.shape.of("TN"), DTYPE)})
        return (output, lse, pullback((g, d_lse))[0]), shown

    found, shown = both(arrays, jax.random.key(5))
    kept = np.asarray(shown).swapaxes(1, 2) != 0
    oracle = Attention(**arrays, kept=kept, dropout_rate=RATE, **case.options)
    assert 0 < kept[oracle.allowed].mean() < 1
    check(found, (oracle.output, oracle.lse, oracle.gradients(g, d_lse)), DTYPE)


def test_rate_zero_is_no_dropout_and_old_keys_are_keys():
    x = Case("dropout").draw()
    key = jax.random.key(3)
    none = jit(lambda: (DENSE.call(**x), DENSE.call(**x, dropout_rate=0.0, dropout_key=key)))()
    np.testing.assert_array_equal(none[0][0], none[1][0])
    attend = jit(lambda *keys: [BLOCKS.call(**x, dropout_rate=0.5, dropout_key=y)[0] for y in keys])
    np.testing.assert_array_equal(*attend(key, jax.random.PRNGKey(3)))
