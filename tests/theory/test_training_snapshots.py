"""`theory.training.snapshots`: a run is a prefix of its continuation, and the one that `train_joint` makes."""

from dataclasses import replace

import numpy as np
import pytest

from theory.problems import make_problem
from theory.training import PLAIN, train_joint
from theory.training.joint import initial_params, optimise_jointly
from theory.training.snapshots import joint_snapshots

ITEMS, WIDTH, HEADS, DIM = 23, 7, 3, 2
SEEDS = (0, 5)
OPTIONS = replace(PLAIN, max_steps=50, patience=1000)


@pytest.fixture(scope="module")
def batch():
    problems = [
        make_problem(
            num_items=ITEMS, num_edges=ITEMS, d_model=WIDTH, embedding="gaussian", graph="permutation", seed=s
        )
        for s in SEEDS
    ]
    embeddings = np.stack([p.embeddings for p in problems])
    return embeddings, np.stack([p.graph.adjacency() for p in problems])


def _weights(channels):
    return np.stack([np.stack([c.query_weights, c.key_weights]) for c in channels])


def test_snapshots_are_those_of_one_run(batch):
    sizes = {"num_heads": HEADS, "head_dim": DIM, "seeds": SEEDS}
    early, late = joint_snapshots(*batch, **sizes, steps=(13, 50))
    _, other = joint_snapshots(*batch, **sizes, steps=(31, 50))
    np.testing.assert_array_equal(_weights(late), _weights(other))
    assert [c.steps for c in early] == [13, 13]
    assert [c.threshold for c in late] == [c.threshold for c in other]
    trained = train_joint(*batch, **sizes, options=OPTIONS)
    # Another program of the same steps: float32 rounding, which 50 steps of descent enlarge.
    np.testing.assert_allclose(_weights(late), _weights(trained), rtol=0, atol=2e-3)
    assert np.abs(_weights(early) - _weights(trained)).max() > 0.1
    np.testing.assert_allclose([c.threshold for c in late], [c.threshold for c in trained], atol=2e-3)


def test_training_can_go_on_from_the_parameters_it_ended_with(batch):
    start = initial_params(
        SEEDS, num_heads=HEADS, d_model=WIDTH, head_dim=DIM, max_head_dim=DIM, scale=OPTIONS.init_scale
    )
    embeddings, adjacency = batch
    ended = optimise_jointly(start, embeddings, adjacency, DIM, OPTIONS)
    trained = train_joint(*batch, num_heads=HEADS, head_dim=DIM, seeds=SEEDS, options=OPTIONS)
    np.testing.assert_array_equal(_weights(ended.channels), _weights(trained))
    np.testing.assert_array_equal(ended.params["query"][1], ended.channels[1].query_weights)
    on = optimise_jointly(ended.params, embeddings, adjacency, DIM, OPTIONS)
    assert all(b.loss < a.loss for a, b in zip(ended.channels, on.channels, strict=True))


@pytest.mark.parametrize("steps", [(), (0, 3), (5, 5), (7, 3)])
def test_steps_are_checked(batch, steps):
    with pytest.raises(ValueError, match="steps: expected ascending positive integers"):
        joint_snapshots(*batch, num_heads=HEADS, head_dim=DIM, seeds=SEEDS, steps=steps)
