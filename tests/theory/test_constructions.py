"""Constructed heads against their formulas, and channels of few bits."""

import numpy as np
import pytest

from theory.constructions import (
    CONSTRUCTIONS,
    KINDS_OF_PAIRS,
    balanced,
    best_num_heads,
    bits_used,
    construct,
    predicted_head_dim,
    quantise,
    score_variances,
    signatures,
    success_probability,
)
from theory.embeddings import gaussian_unit_norm
from theory.graphs import permutation_graph
from theory.recognition import channel_scores, evaluate


def problem(seed, num_items, d_model):
    rng = np.random.default_rng(seed)
    return gaussian_unit_norm(num_items, d_model, rng), permutation_graph(num_items, rng), rng


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_variances_are_those_of_independent_items(construction):
    """One block of sources and targets that are different items, and two more items out of it: the formula's case."""
    d, k, block, draws = 24, 8, 6, 1500
    squares = np.zeros((draws, len(KINDS_OF_PAIRS)))
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        x = gaussian_unit_norm(2 * block + 2, d, rng)
        edges = np.stack([np.arange(block), block + np.arange(block)], axis=1)
        weights = construct(construction, x, edges, num_heads=1, head_dim=k, rng=rng)
        s = channel_scores(x, *weights)
        own = np.diagonal(s[:block, block : 2 * block])
        others = s[:block, block : 2 * block][~np.eye(block, dtype=bool)]
        cases = own - 1, others, s[:block, -1], s[-2, block : 2 * block], s[-2:-1, -1]
        squares[seed] = [np.square(case).mean() for case in cases]
    found, error = squares.mean(0), squares.std(0) / np.sqrt(draws)
    expected = np.array(list(score_variances(construction, d, k, block).values()))
    # Zero-forcing's mean of an inverse Wishart matrix is that of Gaussian rows: unit norms change it by O(1 / d).
    slack = 2 / d if construction == "zero-forcing" else 0.0
    assert (np.abs(found - expected) <= 4 * error + slack * expected + 1e-12).all()


def test_own_scores_are_one_and_zero_forcing_is_exact():
    x, graph, rng = problem(0, 20, 30)
    for construction in CONSTRUCTIONS:
        queries, keys = construct(construction, x, graph.edges, num_heads=4, head_dim=30, rng=rng)
        assert queries.shape == keys.shape == (4, 30, 30)
        scores = np.stack([channel_scores(x, q[None], k[None]) for q, k in zip(queries, keys, strict=True)])
        own = scores[:, graph.edges[:, 0], graph.edges[:, 1]]
        if construction == "zero-forcing":
            np.testing.assert_allclose(np.sort(np.abs(own - 1), axis=0)[0], 0, atol=1e-9)
        else:
            assert np.abs(own - 1).min(axis=0).max() < 0.9
            assert own.max(axis=0).mean() == pytest.approx(1, abs=0.35)


def test_one_head_an_edge_always_works():
    x, graph, rng = problem(1, 24, 6)
    for construction in ("matched-filter", "zero-forcing"):
        weights = construct(construction, x, graph.edges, num_heads=24, head_dim=1, rng=rng)
        assert evaluate(channel_scores(x, *weights), graph.adjacency(), 0.0).exact_recovery
        assert success_probability(construction, 24, 6, 24, 1) == 1


@pytest.mark.parametrize(
    ("construction", "heads", "head_dim"),
    [("matched-filter", 8, 24), ("one-sided", 2, 44), ("zero-forcing", 2, 16)],
)
def test_success_is_as_frequent_as_predicted(construction, heads, head_dim):
    """Between impossible and certain; scores are neither independent nor normal: within 0.3 and four deviations."""
    items, d, seeds = 40, 48, 60
    predicted = [success_probability(construction, items, d, heads, k) for k in (2, head_dim, d)]
    hits = []
    for k in (2, head_dim):
        right = 0
        for seed in range(seeds if k > 2 else 5):
            x, graph, rng = problem(seed, items, d)
            weights = construct(construction, x, graph.edges, num_heads=heads, head_dim=k, rng=rng)
            right += evaluate(channel_scores(x, *weights), graph.adjacency(), 0.0).exact_recovery
        hits.append(right)
    assert predicted[0] < 1e-6
    assert hits[0] == 0
    assert predicted[0] < predicted[1] < predicted[2]
    assert 0.05 < predicted[1] < 0.95
    assert abs(hits[1] / seeds - predicted[1]) < 0.3 + 4 * np.sqrt(0.25 / seeds)
    assert hits[1] > 0


def test_predicted_sizes():
    sizes = 256, 256
    assert predicted_head_dim("zero-forcing", *sizes, 1) is None
    for construction in CONSTRUCTIONS:
        found = predicted_head_dim(construction, *sizes, 4)
        assert found is not None
        assert success_probability(construction, *sizes, 4, found) >= 0.5
        assert success_probability(construction, *sizes, 4, found - 1) < 0.5
    assert best_num_heads("zero-forcing", *sizes, (1, 2, 4, 8)) == 2
    assert best_num_heads("matched-filter", 96, 16, (1, 2, 4)) is None


def test_rounding_is_to_the_nearest_of_even_levels():
    rng = np.random.default_rng(0)
    w = rng.standard_normal((3, 5, 4)).astype(np.float32)
    for bits in (1, 2, 5):
        rounded = quantise(w, bits)
        for matrix, own in zip(rounded, w.astype(np.float64), strict=True):
            largest = np.abs(own).max()
            levels = np.linspace(-largest, largest, 2**bits)
            nearest = levels[np.abs(own[..., None] - levels).argmin(-1)]
            np.testing.assert_allclose(matrix, nearest, rtol=1e-12)
    np.testing.assert_array_equal(np.sign(quantise(w, 1)), np.sign(w))
    np.testing.assert_allclose(quantise(w, 24), w, atol=2.0**-23 * np.abs(w).max())
    np.testing.assert_array_equal(quantise(np.zeros((1, 2, 2)), 3), 0)


@pytest.mark.parametrize("head_dim", [3, 9])
def test_balanced_weights_are_the_same_channel_with_even_factors(head_dim):
    rng = np.random.default_rng(1)
    x = gaussian_unit_norm(8, 6, rng)
    q, k = rng.standard_normal((2, 2, 6, head_dim))
    even = balanced(10 * q, k)
    np.testing.assert_allclose(channel_scores(x, *even), channel_scores(x, 10 * q, k), atol=1e-10)
    norms = [np.linalg.norm(factor, axis=(1, 2)) for factor in even]
    np.testing.assert_allclose(norms[0], norms[1], rtol=1e-10)
    assert bits_used(6, 2 * head_dim, 5) == 2 * 6 * 2 * head_dim * 5


def test_signatures_are_of_unit_norm():
    rows = signatures(2000, 16, np.random.default_rng(0))
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1)
    products = (rows @ rows.T)[np.triu_indices(2000, 1)]
    # 2 million dependent pairs, the rows' sums concentrate: 1 / 16 within some percent.
    assert np.square(products).mean() == pytest.approx(1 / 16, rel=0.03)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edges": np.array([[0, 1], [0, 2]])}, "edges: expected a matching"),
        ({"num_heads": 9}, "num_heads: expected 1 to num_edges = 8, got 9"),
        ({"construction": "one-sided", "head_dim": 7}, "head_dim: expected 1 to d_model = 6, got 7"),
        ({"num_heads": 1}, "num_heads: expected blocks of at most d_model - 2 = 4 edges"),
    ],
)
def test_refuses(change, message):
    x, graph, rng = problem(0, 8, 6)
    arguments = {"construction": "zero-forcing", "edges": graph.edges, "num_heads": 2, "head_dim": 3} | change
    with pytest.raises(ValueError, match=message):
        construct(arguments.pop("construction"), x, arguments.pop("edges"), rng=rng, **arguments)


def test_refuses_sizes():
    with pytest.raises(ValueError, match="block_size: expected at most d_model - 2 = 4, got 5"):
        score_variances("zero-forcing", 6, 3, 5)
    with pytest.raises(ValueError, match="head_dim: expected a positive integer, got 0"):
        score_variances("one-sided", 6, 0, 5)
    with pytest.raises(ValueError, match="num_heads: expected 1 to num_items = 4, got 5"):
        success_probability("one-sided", 4, 6, 5, 2)
    with pytest.raises(ValueError, match="bits: expected an integer from 1 to 32, got 0"):
        quantise(np.ones((1, 1, 1)), 0)
