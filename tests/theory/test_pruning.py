"""`theory.pruning`: what heads hold and what their removal costs, by hand and against the plain way."""

import numpy as np
import pytest

from theory.pruning import ablation_losses, best_f1, edges_won, kept_f1, scores_by_head
from theory.recognition import channel_scores, evaluate


def _random(seed, heads=5, items=13, edges=29, ties=False):
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((heads, items, items))
    adjacency = np.zeros((items, items), bool)
    adjacency.flat[rng.choice(items * items, edges, replace=False)] = True
    scores += 0.8 * adjacency * (rng.random((heads, items, items)) < 0.5)
    return (np.round(scores) if ties else scores), adjacency


@pytest.mark.parametrize("ties", [False, True])
def test_best_f1_is_that_of_all_thresholds(ties):
    for seed in range(20):
        scores, adjacency = _random(seed, ties=ties)
        for some in (scores[0], scores.max(axis=0)):
            assert best_f1(some, adjacency) == evaluate(some, adjacency, 0.0).best_f1
    _, adjacency = _random(0)
    assert best_f1(np.where(adjacency, 1.0, 0.0), adjacency) == 1.0


def test_heads_scores_make_the_channel():
    rng = np.random.default_rng(3)
    embeddings, (query, key) = rng.standard_normal((11, 5)), rng.standard_normal((2, 3, 5, 2))
    found = scores_by_head(embeddings, query, key)
    assert found.shape == (3, 11, 11)
    np.testing.assert_array_equal(found.max(axis=0), channel_scores(embeddings, query, key))


def test_an_edge_is_won_by_the_best_head_above_the_threshold():
    scores = np.full((3, 3, 3), -1.0)
    adjacency = np.zeros((3, 3), bool)
    for place, values in {(0, 1): (5, 4, 0), (1, 2): (2, 3, 1), (2, 0): (0.5, 0.2, 0.9)}.items():
        adjacency[place] = True
        scores[:, *place] = values
    scores[2, 2, 2] = 9.0  # no edge: not won
    assert edges_won(scores, adjacency, 1.0).tolist() == [1, 1, 0]
    assert edges_won(scores, adjacency, 0.0).tolist() == [1, 1, 1]
    assert edges_won(scores, adjacency, 6.0).tolist() == [0, 0, 0]


def test_a_removal_costs_what_the_others_lack():
    for seed in range(5):
        scores, adjacency = _random(seed)
        kept = np.array([True, False, True, True, True])
        expected = np.zeros(5)
        whole = evaluate(scores[kept].max(axis=0), adjacency, 0.0).best_f1
        for head in np.flatnonzero(kept):
            left = kept.copy()
            left[head] = False
            expected[head] = whole - evaluate(scores[left].max(axis=0), adjacency, 0.0).best_f1
        assert ablation_losses(scores, adjacency, kept).tolist() == expected.tolist()
        assert kept_f1(scores, adjacency, kept) == whole


def test_the_last_head_costs_everything_and_none_leaves_chance():
    scores, adjacency = _random(1)
    alone = np.arange(5) == 3
    losses = ablation_losses(scores, adjacency, alone)
    assert losses[3] == evaluate(scores[3], adjacency, 0.0).best_f1 > 0
    assert losses.sum() == losses[3]
    nothing = np.zeros(5, bool)
    assert not ablation_losses(scores, adjacency, nothing).any()
    assert kept_f1(scores, adjacency, nothing) == pytest.approx(2 * 29 / (169 + 29))
