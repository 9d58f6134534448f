"""Partitions decided exactly, and their predicted chance."""

import numpy as np
import pytest

from theory.bounds import single_head_max_items, width_requirement
from theory.certificates import certify_head, multiplier_bound
from theory.partitions import (
    certify_partition,
    even_partition,
    partition_max_items,
    partition_success_probability,
)
from theory.problems import make_problem


def _problem(num_items, d_model, seed):
    made = make_problem(
        num_items=num_items,
        num_edges=num_items,
        d_model=d_model,
        embedding="gaussian",
        graph="permutation",
        seed=seed,
    )
    return made.embeddings, made.graph.adjacency()


def test_shares_are_even_random_and_all_edges():
    _, adjacency = _problem(11, 4, 0)
    parts = even_partition(adjacency, 3, np.random.default_rng(0))
    assert sorted(part.sum() for part in parts) == [3, 4, 4]
    assert (parts.sum(axis=0) == adjacency).all()
    assert (parts != even_partition(adjacency, 3, np.random.default_rng(1))).any()


@pytest.mark.parametrize(("num_items", "verdict"), [(20, "separable"), (60, "inseparable")])
def test_verdicts_come_with_proofs_that_can_be_checked(num_items, verdict):
    items, adjacency = _problem(num_items, 8, 1)  # predicted half-way point of two heads: about 28
    parts = even_partition(adjacency, 2, np.random.default_rng(0))
    found = certify_partition(items, adjacency, parts)
    assert found.verdict == verdict
    if verdict == "separable":
        assert found.failed is None
        for part, head in zip(parts, found.heads, strict=True):
            scores = items @ head.weights @ items.T
            assert scores[part].min() > scores[~adjacency].max()
    else:
        assert found.failed is not None
        head, part = found.heads[found.failed], parts[found.failed]
        assert len(found.heads) == found.failed + 1
        assert head.multipliers is not None
        assert (head.multipliers[adjacency & ~part] == 0).all()  # edges of other heads do not bind it
        assert multiplier_bound(items, part, ~adjacency, head.multipliers) < 1e-9


def test_one_failed_partition_is_not_the_head_count():
    """A graph that two heads hold by one partition and not by another."""
    items, adjacency = _problem(29, 8, 3)
    verdicts = {
        certify_partition(items, adjacency, even_partition(adjacency, 2, np.random.default_rng(s))).verdict
        for s in range(12)
    }
    assert {"separable", "inseparable"} <= verdicts


def test_undecided_heads_are_counted_apart():
    items, adjacency = _problem(40, 8, 1)
    parts = even_partition(adjacency, 2, np.random.default_rng(0))
    assert certify_partition(items, adjacency, parts, max_iterations=1).verdict == "undecided"

    def second_fails(*args, **kwargs):
        calls.append(1)
        return certify_head(*args, **{**kwargs, "max_iterations": 1 if len(calls) == 1 else 200})

    calls = []
    found = certify_partition(
        *_problem(60, 8, 1),
        even_partition(_problem(60, 8, 1)[1], 2, np.random.default_rng(0)),
        certify=second_fails,
    )
    assert (found.verdict, found.failed) == ("inseparable", 1)  # one proof is enough


def test_one_head_has_the_known_ceiling():
    assert partition_max_items(16, 1) == pytest.approx(single_head_max_items(16), rel=1e-6)
    m = partition_max_items(24, 4, 0.5)
    assert partition_success_probability(m, m, 24, 4) == pytest.approx(0.5, abs=1e-6)
    # each of four heads has to succeed: below the size at which one of them does in half of the cases
    assert width_requirement(m / 4, m * m - m) < 24**2
    assert partition_max_items(24, 4, 0.9) < m < partition_max_items(24, 4, 0.1)


def test_chance_agrees_with_exact_solves():
    """48 problems at the predicted half-way point: within four standard deviations and the drift of a small d."""
    m = round(partition_max_items(8, 2))
    held = 0
    for seed in range(48):
        items, adjacency = _problem(m, 8, seed)
        parts = even_partition(adjacency, 2, np.random.default_rng(seed))
        held += certify_partition(items, adjacency, parts).verdict == "separable"
    # the drift: at small d the measured curve is the predicted one of a graph up to 12% smaller
    low = partition_success_probability(m, m, 8, 2)
    high = partition_success_probability(m / 1.12, m / 1.12, 8, 2)
    noise = 4 * np.sqrt(0.25 / 48)
    assert low - noise < held / 48 < high + noise


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x, a: even_partition(a, 13, np.random.default_rng(0)),
            "num_heads: expected 1 to the 12 edges",
        ),
        (lambda x, a: certify_partition(x, a, np.stack([a, a])), "parts: expected masks"),
        (lambda x, a: partition_max_items(1, 1), "d_model, num_heads: expected"),
        (lambda x, a: partition_max_items(8, 1, 1.0), "probability: expected"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(*_problem(12, 4, 0))
