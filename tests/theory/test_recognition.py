"""Contexts and metrics against enumeration and hand-made cases."""

import itertools
from inspect import unwrap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from theory.recognition import channel_scores, context_answers, evaluate, recognise, sample_context


def _graph(num_items: int, rng: np.random.Generator, probability: float = 0.3) -> np.ndarray:
    adjacency = rng.random((num_items, num_items)) < probability
    np.fill_diagonal(adjacency, False)
    adjacency[0, 1] = True
    return adjacency


def _f1(predicted: np.ndarray, adjacency: np.ndarray) -> float:
    if not predicted.any():
        return 0.0
    hits = (predicted & adjacency).sum()
    if hits == 0:
        return 0.0
    precision, recall = hits / predicted.sum(), hits / adjacency.sum()
    return 2 * precision * recall / (precision + recall)


def _factors(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return rng.normal(size=(11, 7)), rng.normal(size=(5, 7, 3)), rng.normal(size=(5, 7, 3))


def test_scores_are_the_maximum_over_heads():
    items, queries, keys = _factors(np.random.default_rng(0))
    scores = channel_scores(items, queries, keys)
    for source, target in itertools.product(range(11), repeat=2):
        heads = [np.dot(items[source] @ q, items[target] @ k) for q, k in zip(queries, keys, strict=True)]
        np.testing.assert_allclose(scores[source, target], max(heads), rtol=0, atol=1e-13)


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_sum_over_heads_is_one_head(seed: int, num_heads: int, head_dim: int):
    rng = np.random.default_rng(seed)
    items = rng.normal(size=(13, 7))
    queries, keys = rng.normal(size=(2, num_heads, 7, head_dim))
    wide_query, wide_key = (w.transpose(1, 0, 2).reshape(1, 7, num_heads * head_dim) for w in (queries, keys))
    summed = channel_scores(items, queries, keys, "sum")
    for aggregation in ("max", "sum"):
        one_head = channel_scores(items, wide_query, wide_key, aggregation)
        np.testing.assert_allclose(summed, one_head, rtol=0, atol=1e-11)  # |scores| reach ~ 1e2
    assert np.linalg.matrix_rank(summed) <= min(num_heads * head_dim, 7)


def test_maximum_over_heads_is_not_one_head():
    items, queries, keys = _factors(np.random.default_rng(1))
    assert np.linalg.matrix_rank(channel_scores(items, queries, keys)) == 11
    assert np.linalg.matrix_rank(channel_scores(items, queries, keys, "sum")) == 7


def test_scores_are_computed_in_float64():
    items, queries, keys = (array.astype(np.float32) for array in _factors(np.random.default_rng(2)))
    exact = channel_scores(items.astype(np.float64), queries.astype(np.float64), keys.astype(np.float64))
    assert channel_scores(items, queries, keys).dtype == np.float64
    np.testing.assert_array_equal(channel_scores(items, queries, keys), exact)


@pytest.mark.parametrize("aggregation", ["max", "sum"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e308])
def test_diverged_factors_are_refused(aggregation, bad: float):
    items, queries, keys = _factors(np.random.default_rng(3))
    queries[2, 4, 1] = bad
    keys *= 1e3
    with pytest.raises(ValueError, match="expected finite"):
        channel_scores(items, queries, keys, aggregation)


def test_a_head_at_minus_infinity_is_not_hidden_by_the_maximum():
    items = np.ones((2, 1))
    queries = np.array([1e200, 1.0]).reshape(2, 1, 1)
    keys = np.array([-1e200, 1.0]).reshape(2, 1, 1)
    with pytest.raises(ValueError, match="scores: expected finite"):
        channel_scores(items, queries, keys)


def test_shapes_and_aggregation_are_checked():
    items, queries, keys = _factors(np.random.default_rng(4))
    plain = unwrap(channel_scores)
    with pytest.raises(ValueError, match=r"embeddings: expected shape \(m, 7\) .* got \(11, 5\)"):
        plain(items[:, :5], queries, keys)
    with pytest.raises(ValueError, match="query_weights, key_weights: expected one shape"):
        plain(items, queries, keys[:3])
    with pytest.raises(ValueError, match="aggregation: expected 'max' or 'sum', got 'mean'"):
        plain(items, queries, keys, "mean")
    with pytest.raises(ValueError, match="scores, adjacency: expected one shape"):
        unwrap(evaluate)(np.zeros((3, 3)), np.zeros((5, 5), bool), 0.0)


def test_metrics_by_hand():
    scores = np.array([[0.0, 5.0, 1.0], [4.0, 0.5, 2.0], [3.0, 6.0, -1.0]])
    adjacency = np.zeros((3, 3), bool)
    adjacency[[0, 1, 2], [1, 2, 0]] = True  # scores 5, 2, 3 against 6, 4, 1, 0.5, 0, -1
    result = evaluate(scores, adjacency, 4.5)
    assert result.micro_f1 == 2 * 1 / (2 + 3)
    # cuts after 6, 5, 4, 3, 2, 1, ...: 2 TP / (predicted + 3) = 0, 2/5, 2/6, 4/7, 6/8, 6/9, ...
    assert result.best_f1 == 0.75
    assert result.best_threshold == 1.5
    assert not result.exact_recovery
    assert result.argmax_accuracy == 1 / 3
    assert (result.smallest_edge, result.largest_non_edge) == (2.0, 6.0)


def test_a_separating_channel():
    rng = np.random.default_rng(5)
    adjacency = _graph(7, rng)
    scores = rng.random((7, 7)) + np.where(adjacency, 2.0, 0.0)
    result = evaluate(scores, adjacency, 1.5)
    assert result.exact_recovery
    assert result.micro_f1 == result.best_f1 == result.argmax_accuracy == 1
    assert result.best_threshold == (result.smallest_edge + result.largest_non_edge) / 2
    assert evaluate(scores, adjacency, 10.0).micro_f1 == 0  # nothing predicted
    assert evaluate(scores, adjacency, result.smallest_edge).micro_f1 < 1  # strictly above


def test_no_threshold_separates_a_tie():
    scores = np.array([[0.0, 1.0], [1.0, 0.0]])
    adjacency = np.array([[False, True], [False, False]])
    result = evaluate(scores, adjacency, 0.5)
    assert not result.exact_recovery
    assert result.best_f1 == 2 / 3
    assert result.best_threshold == 0.5


def test_argmax_tie_with_a_non_neighbour_is_wrong():
    scores = np.array([[0.0, 1.0, 1.0], [2.0, 0.0, 2.0], [9.0, 9.0, 9.0]])
    adjacency = np.zeros((3, 3), bool)
    adjacency[0, 1] = adjacency[1, [0, 2]] = True  # row 0: a tie with a non-neighbour, row 1: of two
    assert evaluate(scores, adjacency, 0.5).argmax_accuracy == 0.5


SMALL = st.integers(-3, 3).map(float)  # many ties
WIDE = st.floats(-1e307, 1e307)


@given(st.data(), st.sampled_from([SMALL, WIDE]))
@settings(max_examples=100, deadline=None)
def test_best_threshold_is_the_best_of_all(data: st.DataObject, elements: st.SearchStrategy[float]):
    scores = data.draw(hnp.arrays(np.float64, (5, 5), elements=elements))
    adjacency = data.draw(hnp.arrays(np.bool_, (5, 5)).filter(lambda a: 0 < a.sum() < 25))
    result = evaluate(scores, adjacency, 0.0)
    levels = np.unique(scores)
    candidates = [_f1(scores > level, adjacency) for level in [*levels, np.nextafter(levels[0], -np.inf)]]
    assert result.best_f1 == pytest.approx(max(candidates), abs=1e-15)
    assert np.isfinite(result.best_threshold)
    assert evaluate(scores, adjacency, result.best_threshold).micro_f1 == result.best_f1
    assert result.exact_recovery == (result.best_f1 == 1) == (result.smallest_edge > result.largest_non_edge)
    assert result.micro_f1 == pytest.approx(_f1(scores > 0, adjacency), abs=1e-15)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_metrics_ignore_an_increasing_map_of_the_scores(seed: int):
    rng = np.random.default_rng(seed)
    scores, adjacency = rng.normal(size=(7, 7)), _graph(7, rng)
    plain, mapped = evaluate(scores, adjacency, 0.25), evaluate(4 * scores - 8, adjacency, -7.0)
    for name in ("micro_f1", "best_f1", "exact_recovery", "argmax_accuracy"):
        assert getattr(plain, name) == getattr(mapped, name)
    assert mapped.best_threshold == pytest.approx(4 * plain.best_threshold - 8, abs=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_scores_that_are_not_finite_are_refused(bad: float):
    adjacency = _graph(3, np.random.default_rng(6))
    scores = np.zeros((3, 3))
    with pytest.raises(ValueError, match="threshold: expected a finite number"):
        evaluate(scores, adjacency, bad)
    scores[2, 0] = bad
    with pytest.raises(ValueError, match="scores: expected finite"):
        evaluate(scores, adjacency, 0.0)
    with pytest.raises(ValueError, match="scores: expected finite"):
        recognise(scores, 0.0, np.array([0, 1]))


@pytest.mark.parametrize("value", [False, True])
def test_a_graph_needs_an_edge_and_a_non_edge(value: bool):
    with pytest.raises(ValueError, match="adjacency: expected at least one edge and one non-edge"):
        evaluate(np.zeros((3, 3)), np.full((3, 3), value), 0.0)


def test_answers_by_hand():
    adjacency = np.zeros((5, 5), bool)
    adjacency[[0, 0, 0, 3, 4], [1, 3, 4, 0, 2]] = True
    assert context_answers(adjacency, np.array([4, 0, 3])) == ((), (3, 4), (0,))
    assert recognise(adjacency + 0.0, 0.5, np.array([4, 0, 3])) == ((), (3, 4), (0,))
    assert context_answers(adjacency, np.array([2])) == ((),)


def test_contexts_are_distinct_and_uniform():
    rng = np.random.default_rng(7)
    draws = 6000
    counts = np.zeros((5, 5))
    for _ in range(draws):
        first, second = sample_context(5, 2, rng)
        counts[first, second] += 1
    assert (np.diag(counts) == 0).all()
    off_diagonal = counts[~np.eye(5, dtype=bool)]
    assert np.abs(off_diagonal - draws / 20).max() < 4.5 * np.sqrt(draws / 20)
    assert sorted(sample_context(5, 5, rng).tolist()) == list(range(5))


@pytest.mark.parametrize("size", [0, 6])
def test_context_size_is_checked(size: int):
    with pytest.raises(ValueError, match=f"size: expected .* got {size}"):
        sample_context(5, size, np.random.default_rng(8))


@pytest.mark.parametrize("context", [[1, 1], [0, 5], [-1, 2]])
def test_contexts_are_checked(context: list[int]):
    with pytest.raises(ValueError, match="context: expected"):
        context_answers(np.zeros((5, 5), bool), np.array(context))


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.02, 0.1]))
@settings(max_examples=25, deadline=None)
def test_all_pairs_right_iff_all_contexts_of_two_right(seed: int, noise: float):
    rng = np.random.default_rng(seed)
    adjacency = _graph(5, rng)
    answers = adjacency ^ (rng.random((5, 5)) < noise)  # the diagonal may be wrong, too
    scores = rng.random((5, 5)) + np.where(answers, 1.0, 0.0)

    def right(size: int) -> bool:
        contexts = (np.array(items) for items in itertools.permutations(range(5), size))
        return all(recognise(scores, 1.0, c) == context_answers(adjacency, c) for c in contexts)

    pairs_right = bool((answers == adjacency).all())
    assert pairs_right == right(2)
    assert pairs_right == right(3)
    assert pairs_right == (evaluate(scores, adjacency, 1.0).micro_f1 == 1)
