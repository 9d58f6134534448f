"""Hard-concrete gates: expectations against Monte Carlo."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mha_jax import analysis

pytestmark = pytest.mark.float64

LOG_ALPHA = jnp.array([-3.0, -0.7, 0.0, 0.4, 2.5])
DRAWS = 40_000
SIGMAS = 5


@pytest.fixture(scope="module")
def draws():
    log_alpha = jnp.broadcast_to(LOG_ALPHA, (DRAWS, LOG_ALPHA.size))
    return np.asarray(analysis.sample_gates(jax.random.key(3), log_alpha), float)


def test_the_share_of_open_gates_is_as_computed(draws):
    expected = np.asarray(analysis.open_probability(LOG_ALPHA))
    spread = np.sqrt(expected * (1 - expected) / DRAWS)
    assert (np.abs((draws > 0).mean(0) - expected) < SIGMAS * spread).all()
    np.testing.assert_allclose(analysis.open_penalty(LOG_ALPHA), expected.sum(), rtol=1e-6)


def test_the_share_of_gates_that_are_fully_open_mirrors_that_of_closed_ones(draws):
    full = 1 - np.asarray(analysis.open_probability(-LOG_ALPHA))  # the distribution is symmetric about 1/2
    assert (draws == 1).any(0).all()
    assert (draws == 0).any(0).all()
    expected = np.asarray(jax.nn.sigmoid(LOG_ALPHA - 0.33 * np.log(1.1 / 0.1)), float)
    np.testing.assert_allclose(full, expected, rtol=1e-5)
    spread = np.sqrt(expected * (1 - expected) / DRAWS)
    assert (np.abs((draws == 1).mean(0) - expected) < SIGMAS * spread).all()


def test_the_mean_gate_and_its_slope_are_those_of_a_quadrature(draws):
    uniform = jnp.asarray((np.arange(4000) + 0.5) / 4000, LOG_ALPHA.dtype)

    def mean(log_alpha):
        noise = jnp.broadcast_to(uniform[:, None], (4000, LOG_ALPHA.size))
        return analysis.hard_concrete(jnp.broadcast_to(log_alpha, noise.shape), noise).mean(0)

    means = np.asarray(mean(LOG_ALPHA))
    assert (np.abs(draws.mean(0) - means) < SIGMAS * draws.std(0) / np.sqrt(DRAWS) + 1e-3).all()
    slopes = jax.grad(lambda log_alpha: mean(log_alpha).sum())(LOG_ALPHA)
    difference = (mean(LOG_ALPHA + 0.05) - mean(LOG_ALPHA - 0.05)) / 0.1
    np.testing.assert_allclose(slopes, difference, atol=2e-3)
    assert (np.asarray(slopes) > 1e-3).all()


def test_settled_gates_are_the_published_ones():
    found = analysis.settled_gates(LOG_ALPHA)
    np.testing.assert_allclose(
        found, np.clip(1.2 / (1 + np.exp(-np.asarray(LOG_ALPHA))) - 0.1, 0, 1), rtol=1e-5
    )
    assert found[0] == 0
    assert found[-1] == 1


def test_errors_name_the_argument():
    with pytest.raises(ValueError, match="temperature: expected a positive number, got 0"):
        analysis.open_probability(LOG_ALPHA, temperature=0.0)
    with pytest.raises(ValueError, match=r"uniform: expected shape \(5,\), got \(4,\)"):
        inspect.unwrap(analysis.hard_concrete)(LOG_ALPHA, LOG_ALPHA[:4])
