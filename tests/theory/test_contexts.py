"""Training in contexts: unbiased steps, runs that resume, measures and bounds that agree with those of small graphs."""

from dataclasses import replace
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from theory.certificates import certify_head, multiplier_bound
from theory.embeddings import gaussian_unit_norm
from theory.graphs import permutation_graph
from theory.recognition import channel_scores, evaluate
from theory.recognition_tiled import recover_tiled
from theory.single_head_large import large_margin_bound, minimise_over_all_pairs, whitened
from theory.training.contexts import ContextOptions, Task, advance, context_loss, pair_weights, start
from theory.training.contexts import _draw as draw
from theory.training.contexts_greedy import fit_large_head, split_of
from theory.training.joint_loss import penalties
from theory.training.joint_options import Setting


def problem(num_items=11, d_model=5, seed=0):
    rng = np.random.default_rng(seed)
    items = gaussian_unit_norm(num_items, d_model, rng)
    graph = permutation_graph(num_items, rng)
    target = np.empty(num_items, int)
    target[graph.edges[:, 0]] = graph.edges[:, 1]
    return items, graph.adjacency(), target


def random_params(d_model, heads, width, seed):
    rng = np.random.default_rng(seed)
    query, key = rng.standard_normal((2, heads, d_model, width)).astype(np.float32)
    return {
        "query": jnp.asarray(query),
        "key": jnp.asarray(key),
        "log_scale": jnp.float32(0.3),
        "offset": jnp.float32(0.2),
    }


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("wanted", [7, 4])
def test_a_steps_gradient_is_that_of_all_pairs_on_average(wanted, soft):
    """All contexts of a sources among the wanted and b of the others, each as likely."""
    items, adjacency, target = problem(7, 3)
    a, b = (3, 0) if wanted == 7 else (2, 2)
    params, weight = random_params(3, 2, 2, 1), 4.7
    setting, temperature = Setting("max", soft, "hinge"), jnp.float32(0.4)
    x, to = jnp.asarray(items, jnp.float32), jnp.asarray(target)

    def all_pairs(params):
        scores = jnp.exp(params["log_scale"]) * jnp.einsum(
            "ud,hdk,vc,hck->huv", x, params["query"], x, params["key"]
        )
        best = 0.4 * jax.nn.logsumexp(scores / 0.4, axis=0) - 0.4 * np.log(2) if soft else scores.max(axis=0)
        free = jnp.asarray(adjacency) & (jnp.arange(7) >= wanted)[:, None]
        own = jnp.where(free, 0.0, jnp.where(adjacency, weight, 1.0))
        return jnp.sum(own * penalties(best - params["offset"], jnp.asarray(adjacency), setting)) / own.sum()

    weights = pair_weights(7, wanted, a, b, weight)
    losses, gradients = [], []
    step = jax.jit(jax.value_and_grad(context_loss), static_argnums=5)
    for own in combinations(range(wanted), a):
        for other in combinations(range(wanted, 7), b):
            sources = jnp.asarray(own + other)
            loss, gradient = step(params, x, sources, to, weights, setting, temperature)
            losses.append(float(loss))
            gradients.append(gradient)
    expected, gradient = jax.value_and_grad(all_pairs)(params)
    assert np.ptp(losses) > 0.05 * float(expected)  # single contexts do differ
    assert np.mean(losses) == pytest.approx(float(expected), rel=1e-5)
    for name, leaf in gradient.items():
        mean = np.mean([np.asarray(g[name]) for g in gradients], axis=0)
        np.testing.assert_allclose(mean, leaf, rtol=2e-5, atol=1e-5 * float(np.abs(leaf).max()))


def test_sources_are_drawn_without_replacement_and_evenly():
    order = jnp.asarray(np.random.default_rng(0).permutation(10))
    keys = jax.random.split(jax.random.key(0), 4000)
    drawn = np.asarray(jax.vmap(lambda key: draw(key, order, jnp.int32(6), 3, 2))(keys))
    place = np.argsort(np.asarray(order))[drawn]
    assert (place[:, :3] < 6).all()
    assert (place[:, 3:] >= 6).all()
    assert all(len(set(row)) == 5 for row in drawn.tolist())
    share = np.bincount(place.ravel(), minlength=10) / len(keys)
    expected = np.array([0.5] * 10)  # 3 of 6, 2 of 4
    assert np.abs(share - expected).max() < 5 * np.sqrt(0.25 / len(keys))


def run(lengths, options, seed=0):
    items, _, target = problem(24, 12, seed)
    task = Task(jnp.asarray(items, jnp.float32), jnp.asarray(target), jnp.arange(24), jnp.int32(24))
    state, losses = start(seed, 12, 2, 6, options), []
    for length in lengths:
        state = jax.tree.map(jnp.asarray, jax.device_get(state))  # as written down and read again
        state, stretch = advance(state, task, jnp.int32(seed), options=options, split=(12, 0), length=length)
        losses += stretch.tolist()
    return items, target, state, losses


def test_a_run_in_stretches_is_the_run_in_one():
    options = ContextOptions(num_sources=12, num_steps=40, learning_rate=0.1)
    *_, whole, losses = run([40], options)
    *_, parts, others = run([20, 20], options)
    np.testing.assert_allclose(losses, others, rtol=1e-5)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    *_, other, _ = run([20], options)
    assert int(other.step) == 20
    assert int(whole.step) == 40


def test_a_graph_that_fits_is_learned_and_judged_as_small_graphs_are():
    options = ContextOptions(num_sources=12, num_steps=600, learning_rate=0.1, temperature=2.0)
    items, target, state, losses = run([600], options)
    assert losses[-1] < 0.01 * losses[0]
    query, key = np.asarray(state.params["query"]), np.asarray(state.params["key"])
    assert recover_tiled(items, query, key, target, tile=7).exact


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("tile", [5, 64])
def test_the_measures_are_those_of_all_scores(heads, tile):
    items, adjacency, target = problem(37, 16, 3)
    params = random_params(16, heads, 9, 5)
    query, key = np.asarray(params["query"]), np.asarray(params["key"])
    # lift half of the edges, so that the best threshold lies in the middle
    query = 0.1 * query + items.T @ (items[target] * (target % 2 == 0)[:, None]) @ key
    scores = channel_scores(items, query, key)
    expected, found = evaluate(scores, adjacency, 0.0), recover_tiled(items, query, key, target, tile=tile)
    assert expected.best_f1 > 2 / 12
    assert found.best_f1 == pytest.approx(expected.best_f1)
    predicted = scores > found.best_threshold
    assert found.wrong == (predicted & ~adjacency).sum()
    assert found.missed == (~predicted & adjacency).sum()
    assert found.above_all == (scores[adjacency] > scores[~adjacency].max()).sum()
    assert found.smallest_edge == pytest.approx(expected.smallest_edge)
    assert found.largest_non_edge == pytest.approx(expected.largest_non_edge)


def test_a_diverged_channel_and_another_graph_are_refused():
    items, _, target = problem()
    weights = np.full((1, 5, 2), np.nan)
    with pytest.raises(ValueError, match="scores: expected finite"):
        recover_tiled(items, weights, weights, target)
    with pytest.raises(ValueError, match="target: expected a permutation"):
        recover_tiled(items, np.ones((1, 5, 2)), np.ones((1, 5, 2)), np.zeros(11, int))
    with pytest.raises(ValueError, match="free: expected one head of 5"):
        start(0, 5, 2, 5, ContextOptions(), free=True)


def test_passes_over_all_pairs_find_what_the_certified_solver_finds():
    """Above the ceiling of one head: the same loss, and a margin bound that falls with the gradient."""
    items, adjacency, target = problem(40, 6, 2)
    white = whitened(items)
    np.testing.assert_allclose(white.items.T @ white.items / 40, np.eye(6) / 6, atol=1e-12)
    exact = certify_head(items, adjacency, ~adjacency)
    assert exact.verdict == "inseparable"
    zero = np.zeros((6, 6))
    fits = [
        minimise_over_all_pairs(white.items, target, zero, 0.0, weight=1.0, passes=n, tile=16)
        for n in (3, 60)
    ]
    total = 40 + 40 * 39
    assert 0.5 * total * fits[1].losses.min() == pytest.approx(exact.loss, rel=1e-4)
    assert 0.5 * total * fits[1].losses.min() > exact.loss * (1 - 1e-5)
    bounds = [
        large_margin_bound(
            items, target, white.back @ f.matrix @ white.back.T, f.threshold, weight=1.0, tile=9
        )
        for f in fits
    ]
    assert None not in bounds
    assert bounds[1] < 0.2 * bounds[0]  # pyright: ignore[reportOptionalOperand, reportOperatorIssue]


def test_the_margin_bound_is_that_of_the_multipliers():
    items, adjacency, target = problem(23, 5, 4)
    matrix, threshold, weight = np.random.default_rng(1).standard_normal((5, 5)), 0.3, 3.0
    scores = items @ matrix @ items.T
    slack = np.maximum(1 - np.where(adjacency, 1, -1) * (scores - threshold), 0) * np.where(
        adjacency, weight, 1
    )
    expected = multiplier_bound(items, adjacency, ~adjacency, slack)
    found = large_margin_bound(items, target, matrix, threshold, weight=weight, tile=6)
    assert found == pytest.approx(expected, rel=1e-9)
    separating = (np.eye(5), 1e3)  # all scores far below the threshold: only edges have residuals
    alone = np.where(adjacency, 1.0, 0.0)
    expected = multiplier_bound(items, adjacency, ~adjacency, alone)
    assert large_margin_bound(items, target, *separating, weight=weight) == pytest.approx(expected, rel=1e-2)


def test_heads_choose_edges_that_they_do_hold():
    items, _, target = problem(64, 16, 6)
    left = np.ones(64, bool)
    left[:20] = False
    options = ContextOptions(num_sources=32, num_steps=600, learning_rate=0.1, temperature=0.0)
    head = fit_large_head(whitened(items).items, target, left, head_dim=4, goal=12, seed=0, options=options)
    scores = (whitened(items).items @ head.query) @ (whitened(items).items @ head.key).T
    own = scores[np.arange(64), target]
    assert not head.held[~left].any()
    assert (own[head.held] > 1.0).all()
    assert head.held.sum() >= 10
    scores[np.arange(64), target] = -np.inf
    assert (scores > 1.0).sum() <= head.held.sum() // 4


@pytest.mark.parametrize(
    ("wanted", "expected"), [(100, (32, 0)), (60, (16, 16)), (13, (8, 24)), (97, (16, 2)), (1, (1, 31))]
)
def test_contexts_are_split_between_wanted_and_other_sources(wanted, expected):
    assert split_of(wanted, 100, 32) == expected


def test_draws_do_not_depend_on_the_length_of_the_schedule_alone():
    """Another seed draws other contexts: losses of the first step differ."""
    options = ContextOptions(num_sources=12, num_steps=4, learning_rate=0.1)
    *_, first = run([2], options)
    *_, longer = run([2], replace(options, num_steps=400, temperature=0.0))
    assert first[0] != longer[0]
