"""Hard-concrete gates: random numbers in [0, 1] that are often exactly 0 or 1, with a gradient.

A gate multiplies a head's output. Training its ``log_alpha`` with a penalty on the expected number of open gates closes
those heads that the loss does not need:

    s = sigmoid((log u - log(1 - u) + log_alpha) / temperature),  u uniform on (0, 1)
    g = clip(s (high - low) + low, 0, 1)
    P(g > 0) = sigmoid(log_alpha - temperature log(-low / high))

Half precision is computed, and comes back, in float32.

Source: Louizos et al. 2018 for the distribution, Voita et al. 2019 for heads; constants as in the latter's code.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mha_jax.analysis._maps import AnyArray, Scalar, at_least_single, option

TEMPERATURE = 0.33
LOW, HIGH = -0.1, 1.1
NOISE_MARGIN = 1e-6
"""Uniform noise keeps this distance from 0 and 1, so that its logit is finite."""


def hard_concrete(
    log_alpha: Float[AnyArray, "*gates"],
    uniform: Float[AnyArray, "*gates"],
    *,
    temperature: Scalar = TEMPERATURE,
) -> Float[Array, "*gates"]:
    """Gates from uniform noise; differentiable in ``log_alpha``.

    Args:
        log_alpha: the larger, the likelier open.
        uniform: noise in (0, 1), of the same shape.
        temperature: positive; the smaller, the oftener exactly 0 or 1; may be traced.

    Returns:
        Numbers in [0, 1].

    Raises:
        ValueError: if shapes differ or the temperature is not positive.
    """
    log_alpha, uniform = at_least_single(log_alpha), at_least_single(uniform)
    if uniform.shape != log_alpha.shape:
        raise ValueError(f"uniform: expected shape {log_alpha.shape}, got {uniform.shape}")
    temperature = _temperature(temperature, log_alpha.dtype)
    logit = jnp.log(uniform) - jnp.log1p(-uniform)
    return _stretch(jax.nn.sigmoid((logit + log_alpha) / temperature))


def sample_gates(
    key: Array, log_alpha: Float[AnyArray, "*gates"], *, temperature: Scalar = TEMPERATURE
) -> Float[Array, "*gates"]:
    """`hard_concrete` with noise drawn from a key."""
    log_alpha = at_least_single(log_alpha)  # in less the margin is not representable next to 1
    noise = jax.random.uniform(key, log_alpha.shape, log_alpha.dtype, NOISE_MARGIN, 1 - NOISE_MARGIN)
    return hard_concrete(log_alpha, noise, temperature=temperature)


def open_probability(
    log_alpha: Float[AnyArray, "*gates"], *, temperature: Scalar = TEMPERATURE
) -> Float[Array, "*gates"]:
    """Probability that a gate is not 0.

    Raises:
        ValueError: if the temperature is not positive.
    """
    log_alpha = at_least_single(log_alpha)
    temperature = _temperature(temperature, log_alpha.dtype)
    return jax.nn.sigmoid(log_alpha - temperature * float(np.log(-LOW / HIGH)))


def open_penalty(
    log_alpha: Float[AnyArray, "*gates"], *, temperature: Scalar = TEMPERATURE
) -> Float[Array, ""]:
    """Expected number of gates that are not 0: the penalty L_C, which a coefficient multiplies in the loss."""
    return open_probability(log_alpha, temperature=temperature).sum()


def settled_gates(log_alpha: Float[AnyArray, "*gates"]) -> Float[Array, "*gates"]:
    """Gates without noise, as used after training: ``clip((high - low) sigmoid(log_alpha) + low, 0, 1)``."""
    return _stretch(jax.nn.sigmoid(at_least_single(log_alpha)))


def _stretch(share: Float[Array, "*gates"]) -> Float[Array, "*gates"]:
    return jnp.clip(share * (HIGH - LOW) + LOW, 0.0, 1.0)


def _temperature(temperature: Scalar, dtype: Any) -> Any:
    return option(temperature, "temperature", lambda t: t > 0, "a positive number", dtype)
