"""`theory.rank.approximation`: against enumeration, closed forms and exact ranks.

The optimiser takes float64 in any case, so nothing here is run once more in float64.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from theory.rank import (
    PATTERNS,
    best_approximations,
    bounded_permutation_kl,
    circle_kl,
    mean_kl,
    required_head_dim,
    softmax,
    truncation,
)

BOUND = 6.0
OPTIONS = {"width": 5, "num_starts": 3, "num_steps": 200}


def _enumerated(pattern):
    """The least divergence at d_k = 1, n = 3: keys in every direction of the centred plane, queries by Newton."""
    angles = np.linspace(0, np.pi, 721)
    plane = np.array([[1, -1, 0], [1, 1, -2]]) / np.sqrt([[2], [6]])
    key = (np.stack([np.cos(angles), np.sin(angles)], axis=-1) @ plane)[:, None, :]
    u = np.zeros((len(angles), 3, 1))
    for _ in range(60):
        logits = u * key
        weights = np.exp(logits - logsumexp(logits, axis=-1, keepdims=True))
        mean = (weights * key).sum(-1, keepdims=True)
        slope = mean - (pattern * key).sum(-1, keepdims=True)
        u -= np.clip(slope / ((weights * key**2).sum(-1, keepdims=True) - mean**2 + 1e-9), -1, 1)
    logits = u * key
    divergence = (pattern * (np.log(pattern) - logits)).sum(-1) + logsumexp(logits, axis=-1)
    return divergence.mean(-1).min()


def _doubled(pattern):
    """Every query and key twice: the least divergence at any d_k is the same.

    Divergence is convex in the logits, and two equal keys may be averaged without a higher rank.
    """
    return np.kron(pattern, np.full((2, 2), 0.5))


THREE_TOKENS = list(np.random.default_rng(4).dirichlet(np.ones(3), (4, 3)))


@pytest.fixture(scope="module")
def problems():
    """All approximations of these tests, by one compiled program (n = 6)."""
    rng = np.random.default_rng(0)
    patterns = {name: make(6, rng) for name, make in PATTERNS.items() if name != "low-rank"}
    keys = [(name, k, b) for name in patterns for k in range(1, 6) for b in (None, BOUND)]
    keys += [(index, 1, None) for index in range(len(THREE_TOKENS))]
    doubled = dict(enumerate(map(_doubled, THREE_TOKENS)))
    found = best_approximations(
        [(patterns | doubled)[name] for name, _, _ in keys],
        [k for _, k, _ in keys],
        bounds=[b for _, _, b in keys],
        seeds=[0] * len(keys),
        **OPTIONS,
    )
    return patterns | doubled, dict(zip(keys, found, strict=True))


def test_one_dimension_and_three_tokens_against_enumeration(problems):
    for index, pattern in enumerate(THREE_TOKENS):
        best = _enumerated(pattern)  # a grid of 1/4 degree: above the minimum by about its square
        assert best - 1e-4 <= problems[1][index, 1, None].kl <= best + 1e-7


def test_what_is_said_of_a_head_is_true_of_it(problems):
    patterns, found = problems
    for (name, head_dim, bound), head in found.items():
        assert head.queries.shape == head.keys.shape == (6, head_dim)
        logits = head.queries @ head.keys.T
        assert head.max_logit == np.abs(logits).max()
        np.testing.assert_allclose(mean_kl(patterns[name], softmax(logits)), head.kl, rtol=1e-6, atol=1e-12)
        assert head.kl == min(x for x in head.starts if x is not None)
        if bound is not None:
            longest = [np.linalg.norm(x, axis=1).max() for x in (head.queries, head.keys)]
            assert max(longest) <= np.sqrt(bound) * (1 + 1e-12)


def test_divergence_reaches_zero_at_the_rank_of_the_centred_log_and_not_before(problems):
    patterns, found = problems
    for name in ("random", "soft-permutation", "gaussian-band", "window-band"):
        required = required_head_dim(patterns[name])
        assert required is not None
        for head_dim in range(1, 6):
            kl = found[name, head_dim, None].kl
            assert (kl < 1e-12) == (head_dim >= required), (name, head_dim, kl)
            assert (mean_kl(patterns[name], truncation(patterns[name], head_dim)) < 1e-12) == (
                head_dim >= required
            )


def test_more_dimensions_and_fewer_bounds_never_hurt_and_no_truncation_is_better(problems):
    patterns, found = problems
    for (name, head_dim, bound), head in found.items():
        wider = found.get((name, head_dim + 1, bound))
        assert wider is None or wider.kl <= head.kl * 1.001 + 1e-9
        assert found[name, head_dim, None].kl <= head.kl + 1e-9
        if isinstance(name, str) and name != "permutation" and bound is None:
            assert head.kl <= mean_kl(patterns[name], truncation(patterns[name], head_dim)) + 1e-12


def test_a_bounded_permutation_reaches_its_closed_form_and_the_circle(problems):
    _, found = problems
    least = bounded_permutation_kl(6, BOUND)
    for head_dim in range(1, 6):
        assert found["permutation", head_dim, BOUND].kl >= least * (1 - 1e-9)
    assert found["permutation", 5, BOUND].kl == pytest.approx(least, rel=1e-3)
    assert found["permutation", 2, BOUND].kl == pytest.approx(circle_kl(6, BOUND), rel=1e-3)
    assert found["permutation", 2, None].kl < 1e-6  # without a bound logits grow
    assert found["permutation", 2, None].max_logit > 20


def test_no_bounded_head_beats_the_closed_form():
    """Random heads, and simplices turned a little: none comes below."""
    rng = np.random.default_rng(2)
    for n in (2, 3, 7):
        corners = np.linalg.svd(np.eye(n) - 1 / n)[0][:, : n - 1]
        corners /= np.linalg.norm(corners, axis=1, keepdims=True)
        exact = mean_kl(np.eye(n), softmax(BOUND * corners @ corners.T))
        assert exact == pytest.approx(bounded_permutation_kl(n, BOUND), rel=1e-9)
        for noise in (0.01, 0.1, 1.0, 10.0):
            for _ in range(50):
                query, key = (corners + noise * rng.standard_normal((n, n - 1)) for _ in range(2))
                query, key = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (query, key))
                assert mean_kl(np.eye(n), softmax(BOUND * query @ key.T)) >= exact * (1 - 1e-9)


def test_divergence_by_hand():
    uniform, hard = np.full((2, 2), 0.5), np.eye(2)
    assert mean_kl(hard, uniform) == pytest.approx(np.log(2))
    assert mean_kl(uniform, hard) == np.inf
    skewed = np.array([[0.5, 0.5], [0.75, 0.25]])
    by_hand = (0.75 * np.log(1.5) + 0.25 * np.log(0.5)) / 2
    assert mean_kl(skewed, uniform) == pytest.approx(by_hand)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16, np.float32])
def test_patterns_of_every_dtype_are_approximated_as_what_they_are(dtype):
    """Rows sum to 1 only up to the rounding of the dtype; ones with and without zeros."""
    rng = np.random.default_rng(8)
    patterns = [softmax(rng.standard_normal((6, 6)).astype(dtype)), np.eye(6).astype(dtype)]
    assert abs(patterns[0].astype(float).sum(axis=1) - 1).max() > 1e-9
    options = {"bounds": [None, None], "seeds": [0, 0], "width": 5, "num_starts": 1, "num_steps": 200}
    exact = [p.astype(float) / p.astype(float).sum(axis=1, keepdims=True) for p in patterns]
    narrow, wide = (best_approximations(given, [5, 5], **options) for given in (patterns, exact))
    for head, other in zip(narrow, wide, strict=True):
        assert head.kl == pytest.approx(other.kl, abs=float(jnp.finfo(dtype).eps))
        assert head.kl < 2 * float(jnp.finfo(dtype).eps)


def test_bad_problems_are_refused():
    pattern = np.full((3, 3), 1 / 3)
    good = {"bounds": [None], "seeds": [0], "width": 2}
    with pytest.raises(ValueError, match="head_dims: expected 1 to width = 2, got"):
        best_approximations([pattern], [3], **good)
    with pytest.raises(ValueError, match="expected one of each a problem"):
        best_approximations([pattern], [1, 2], **good)
    with pytest.raises(ValueError, match="num_steps: expected a positive integer"):
        best_approximations([pattern], [1], num_steps=0, **good)
    assert best_approximations([], [], bounds=[], seeds=[], width=2) == []
    with pytest.raises(ValueError, match="num_keys"):
        bounded_permutation_kl(1, 2.0)
    with pytest.raises(ValueError, match="bound: expected a non-negative number"):
        bounded_permutation_kl(3, -1.0)
