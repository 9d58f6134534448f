"""Variants of joint training: what each changes, what is watched, and that annealing does what it is for."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from theory.problems import make_problem
from theory.recognition import channel_scores, evaluate
from theory.training import variants
from theory.training.variants import VARIANTS, VariantOptions, train_variant

OPTIONS = VariantOptions(num_steps=300, num_looks=10)


@pytest.fixture(scope="module")
def problems():
    made = [
        make_problem(num_items=20, num_edges=20, d_model=6, embedding="gaussian", graph="permutation", seed=s)
        for s in range(2)
    ]
    return np.stack([p.embeddings for p in made]), np.stack([p.graph.adjacency() for p in made])


def _loss(variant, progress, dealt=None, scale=0.0, seed=0):
    rng = np.random.default_rng(3)
    x, edges = jnp.asarray(rng.standard_normal((5, 3)), jnp.float32), np.zeros((5, 5), bool)
    edges[np.arange(5), (np.arange(5) + 1) % 5] = True
    params = {
        "query": jnp.asarray(rng.standard_normal((2, 3, 2)), jnp.float32),
        "key": jnp.asarray(rng.standard_normal((2, 3, 2)), jnp.float32),
        "log_scale": jnp.float32(scale),
        "offset": jnp.float32(0.4),
    }
    dealt = np.zeros((5, 5), np.int32) if dealt is None else dealt
    arguments = (x, jnp.asarray(edges), jnp.asarray(dealt), jnp.float32(2.0), jnp.float32(progress))
    value = variants._loss(params, *arguments, jax.random.key(seed), variant)
    logits = np.exp(scale) * np.einsum(
        "hmk,hnk->hmn", *(np.asarray(x) @ np.asarray(params[n]) for n in ("query", "key"))
    )
    return float(value), logits, edges


def _expected(best, edges, hinge=False):
    signed = np.where(edges, 1, -1) * (best - 0.4)
    losses = np.maximum(1 - signed, 0) ** 2 if hinge else np.log1p(np.exp(-signed))
    weights = np.where(edges, 2.0, 1.0)
    return (weights * losses).sum() / weights.sum()


def test_losses_are_those_of_their_definitions():
    value, logits, edges = _loss("adam", 0.0)
    best = logits.max(axis=0)
    assert value == pytest.approx(_expected(best, edges), rel=1e-5)
    assert _loss("hinge", 0.0)[0] == pytest.approx(_expected(best, edges, hinge=True), rel=1e-5)
    soft = 5.0 * np.log(np.exp(logits / 5.0).sum(axis=0))
    assert _loss("anneal", 0.0)[0] == pytest.approx(_expected(soft, edges), rel=1e-5)
    assert _loss("anneal-hinge", 0.0)[0] == pytest.approx(_expected(soft, edges, hinge=True), rel=1e-5)
    dealt = np.ones((5, 5), np.int32)
    own = np.where(edges, logits[1], best)
    assert _loss("partition", 0.0, dealt)[0] == pytest.approx(_expected(own, edges), rel=1e-5)
    shares = (np.exp(logits) / np.exp(logits).sum(axis=0))[:, edges].mean(axis=1)
    balanced = _expected(best, edges) + 0.1 * 2 * (shares**2).sum()
    assert _loss("balance", 0.0)[0] == pytest.approx(balanced, rel=1e-5)


def test_what_is_annealed_ends_as_the_maximum():
    value, logits, edges = _loss("shuffle", 0.0)
    assert value != _loss("shuffle", 0.0, seed=1)[0]
    hard = _expected(logits.max(axis=0), edges)
    assert _loss("shuffle", 0.6)[0] == pytest.approx(hard, rel=1e-5)
    assert _loss("anneal", 0.6)[0] == pytest.approx(hard, rel=0.02)  # a temperature of 0.05 is left
    assert _loss("anneal", 0.1)[0] != pytest.approx(hard, rel=0.02)


def test_looks_by_hand():
    winners = np.array([[0, 1, 1, 0], [0, 1, 0, 1], [0, 0, 0, 1]])
    found = variants._watched(np.array([0.2, 0.9, 0.8]), np.array([False, True, False]), winners, True, 3)
    assert (found.best_f1, found.exact) == (0.9, True)
    assert found.agreement.tolist() == [0.25, 0.75, 1.0]
    assert found.settled.tolist() == [0.25, 0.75, 1.0]
    assert found.shares.tolist() == [3, 1, 0]
    back = variants._watched(np.zeros(3), np.zeros(3, bool), np.array([[1], [0], [1]]), True, 2)
    assert (back.agreement.tolist(), back.settled.tolist()) == ([1.0, 0.0, 1.0], [0.0, 0.0, 1.0])


def test_f1_and_exactness_of_a_look_are_those_of_the_metrics(problems):
    embeddings, adjacency = problems
    rng = np.random.default_rng(0)
    query, key = (rng.standard_normal((3, 6, 2)).astype(np.float32) for _ in range(2))
    params = {"query": jnp.asarray(query), "key": jnp.asarray(key), "log_scale": jnp.float32(0.5)}
    x, a = embeddings[0], adjacency[0]
    f1, exact, heads = variants._look(params, jnp.asarray(x, jnp.float32), jnp.asarray(a), 20)
    expected = evaluate(channel_scores(x, query, key), a, 0.0)
    assert float(f1) == pytest.approx(expected.best_f1, rel=1e-6)
    assert bool(exact) == expected.exact_recovery
    scores = np.einsum("hmk,hnk->hmn", x @ query, x @ key)
    assert np.asarray(heads).tolist() == scores.argmax(axis=0)[a].tolist()


def test_a_run_depends_on_its_seed_and_size_alone(problems):
    embeddings, adjacency = problems
    alone = train_variant(
        "adam", embeddings, adjacency, num_heads=2, head_dims=[2, 4], seeds=[0, 1], options=OPTIONS
    )
    turned = train_variant(
        "adam",
        embeddings[::-1],
        adjacency[::-1],
        num_heads=2,
        head_dims=[4, 2],
        seeds=[1, 0],
        options=OPTIONS,
    )
    np.testing.assert_allclose(alone[1].f1, turned[0].f1, atol=1e-6)
    np.testing.assert_allclose(alone[0].settled, turned[1].settled, atol=1e-6)
    assert alone[0].best_f1 < alone[1].best_f1


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_learns_an_easy_graph(variant):
    made = [
        make_problem(num_items=10, num_edges=10, d_model=6, embedding="gaussian", graph="permutation", seed=s)
        for s in range(2)
    ]
    embeddings, adjacency = (
        np.stack([p.embeddings for p in made]),
        np.stack([p.graph.adjacency() for p in made]),
    )
    options = replace(OPTIONS, num_steps=1500)
    found = train_variant(
        variant, embeddings, adjacency, num_heads=2, head_dims=[6, 6], seeds=[0, 1], options=options
    )
    assert all(run.finite for run in found)
    assert max(run.best_f1 for run in found) >= 0.95


@pytest.mark.slow
def test_annealing_recovers_what_a_hard_maximum_does_not():
    """96 items, d = 16, four heads of four dimensions: below the budget that joint descent needs (the records)."""
    made = [
        make_problem(
            num_items=96, num_edges=96, d_model=16, embedding="gaussian", graph="permutation", seed=s
        )
        for s in range(2)
    ]
    x, a = np.stack([p.embeddings for p in made]), np.stack([p.graph.adjacency() for p in made])
    runs = {
        name: train_variant(name, x, a, num_heads=4, head_dims=[4, 4], seeds=[0, 1])
        for name in ("adam", "anneal-hinge")
    }
    assert min(run.best_f1 for run in runs["anneal-hinge"]) > 0.95
    assert max(run.best_f1 for run in runs["adam"]) < 0.7
    assert min(run.settled[2] for run in runs["adam"]) > max(run.settled[2] for run in runs["anneal-hinge"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head_dims": [2]}, "head_dims: expected one for each of 2"),
        ({"seeds": [0, -1]}, "seeds: expected non-negative"),
    ],
)
def test_mistakes_are_named(problems, changes, message):
    arguments = {"variant": "adam", "num_heads": 2, "head_dims": [2, 2], "seeds": [0, 1]} | changes
    variant = arguments.pop("variant")
    with pytest.raises(ValueError, match=message):
        train_variant(variant, *problems, **arguments)
