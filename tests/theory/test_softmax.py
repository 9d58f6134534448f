"""Softmax in place of the maximum: theorems on constructed, trained and adversarial scores; heads; training."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from theory.problems import make_problem
from theory.softmax import (
    SoftmaxOptions,
    absent_output,
    channel_margin,
    decode_direction,
    draw_contexts,
    head_scores_of,
    idle_weight,
    item_rates,
    neighbours,
    one_owner_error,
    one_owner_heads,
    owner_stray_weight,
    owner_weight,
    pair_rates,
    routed_values,
    shared_output,
    softmax_weights,
    sufficient_scale,
    train_softmax,
    weights_on,
)
from theory.softmax import training as softmax_training
from theory.training import train

SLACK = 1 + 1e-9


def _scores(rng, h, size, owners, gamma, tau, *, idle):
    """One query's scores at item 0 = its edge; ties with the bounds are common."""
    scores = tau - gamma * (1 + rng.choice([0, 0, rng.exponential()], size=(h, size)))
    scores[:owners, 0] = tau + gamma * (1 + rng.choice([0, rng.exponential()], size=owners))
    if not idle:
        scores[owners:, 0] = tau + gamma * rng.uniform(-1, 1, h - owners)
    return scores


def _weights(scores, tau, beta):
    whole = np.broadcast_to(scores[:, None, :], (len(scores), scores.shape[1], scores.shape[1]))
    return weights_on(whole, np.arange(scores.shape[1]), tau, beta)[:, 0]


@settings(deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 10**6),
    h=st.integers(1, 6),
    size=st.integers(1, 9),
    gamma=st.floats(0.01, 3),
    beta=st.floats(0.01, 30),
    tau=st.floats(-2, 2),
    data=st.data(),
)
def test_no_scores_break_the_guarantees(seed, h, size, gamma, beta, tau, data):
    rng = np.random.default_rng(seed)
    k = data.draw(st.integers(1, h))
    idle = data.draw(st.booleans())
    x = float(np.exp(-beta * gamma))
    weights = _weights(_scores(rng, h, size, k, gamma, tau, idle=idle), tau, beta)
    assert (weights[:k, 0] * SLACK >= owner_weight(x, size)).all()
    assert (weights[:k, 1:].sum(axis=1) <= owner_stray_weight(x, size) * SLACK + 1e-15).all()
    values = rng.standard_normal((size, 3))
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    if rng.random() < 0.5:  # the worst: all others opposite to the neighbour's value
        values[1:] = -values[0]
    out = weights.sum(axis=0) @ values
    kappa = weights[:, 0].sum()
    promise = shared_output(x, size, h, k, idle=idle)
    assert promise.kappa_low <= kappa * SLACK
    assert kappa <= promise.kappa_high * SLACK
    assert np.linalg.norm(out - kappa * values[0]) <= promise.error * SLACK + 1e-12
    if idle:
        assert (weights[k:].sum(axis=1) <= idle_weight(x, size) * SLACK).all()
    if idle and k == 1:
        bound = one_owner_error(x, size, h)
        assert np.linalg.norm(out - values[0]) <= bound * SLACK + 1e-12
        if size >= 2:
            assert bound <= h * size * x * SLACK
    absent = _weights(tau - gamma * (1 + rng.exponential(size=(h, size))), tau, beta)
    assert np.linalg.norm(absent.sum(axis=0) @ values) <= absent_output(x, size, h) * SLACK


@pytest.mark.parametrize(("h", "size"), [(1, 2), (3, 5), (4, 48)])
def test_the_bounds_are_attained(h, size):
    """All others exactly at the margin, with values opposite to the neighbour's."""
    gamma, beta, tau = 0.5, 6.0, 0.3
    x = float(np.exp(-beta * gamma))
    scores = np.full((h, size), tau - gamma)
    scores[0, 0] = tau + gamma
    values = np.full((size, 1), -1.0)
    values[0] = 1.0
    weights = _weights(scores, tau, beta)
    assert weights[0, 0] == pytest.approx(owner_weight(x, size), rel=1e-12)
    assert weights[0, 1:].sum() == pytest.approx(owner_stray_weight(x, size), rel=1e-12)
    error = 1.0 - (weights.sum(axis=0) @ values)[0]
    slack = (
        (h - 1) * 2 * weights[-1, 0] if h > 1 else 0.0
    )  # idle heads' weight on the neighbour itself goes the other way
    assert error == pytest.approx(one_owner_error(x, size, h) - slack, rel=1e-12)
    assert _weights(scores[1:], tau, beta).sum(axis=-1) == pytest.approx([idle_weight(x, size)] * (h - 1))


def test_without_idle_heads_the_value_does_not_come_out():
    """A second head that likes the edge doubles the output: the clause is needed, the direction stays."""
    tau, gamma, beta, size = 1.0, 0.5, 20.0, 6
    scores = np.full((2, size), tau - gamma)
    scores[:, 0] = tau + gamma
    out = _weights(scores, tau, beta).sum(axis=0)
    x = float(np.exp(-beta * gamma))
    assert abs(out[0] - 1) > 0.9 > one_owner_error(x, size, 2)
    assert out[0] * SLACK >= shared_output(x, size, 2, 2).kappa_low


def test_a_sufficient_scale_suffices_and_nine_tenths_of_it_do_not_promise_so():
    scale = sufficient_scale(0.01, 48, 4, 0.1)
    assert one_owner_error(np.exp(-scale * 0.01), 48, 4) <= 0.1
    assert absent_output(np.exp(-scale * 0.01), 48, 4) <= 0.1
    assert one_owner_error(np.exp(-0.9 * scale * 0.01), 48, 4) > 0.1


def test_margin_and_owners_by_hand():
    scores = np.zeros((2, 2, 2))
    scores[:, 0, 1] = [5.0, 2.0]
    scores[:, 1, 0] = [3.0, 4.0]
    scores[0, 0, 0] = 1.0
    adjacency = np.array([[False, True], [True, False]])
    found = channel_margin(scores, adjacency)
    # smallest best score 4, largest non-edge 1
    assert (found.threshold, found.margin) == (2.5, 1.5)
    assert found.owners.tolist() == [1, 1]
    assert found.one_owner_margin == 2.5 - 3.0  # head 0 scores the second edge above the threshold
    scores[0, 1, 0] = 2.0
    assert channel_margin(scores, adjacency).one_owner_margin == 0.5


@pytest.fixture(scope="module")
def problems():
    made = [
        make_problem(
            num_items=24, num_edges=24, d_model=16, embedding="gaussian", graph="permutation", seed=s
        )
        for s in range(2)
    ]
    return np.stack([p.embeddings for p in made]), np.stack([p.graph.adjacency() for p in made])


def test_constructed_channels_route_their_neighbours_values(problems):
    embeddings, adjacency = problems
    for x, a in zip(embeddings, adjacency, strict=True):
        heads = one_owner_heads(x, a, 3)
        assert heads is not None
        scores = x @ heads @ x.T
        found = channel_margin(scores, a)
        assert found.one_owner_margin > 0
        assert set(found.owners.tolist()) == {1}
        contexts = draw_contexts(24, 12, 20, np.random.default_rng(0))
        for error in (0.5, 0.05):
            scale = sufficient_scale(found.one_owner_margin, 12, 3, error)
            wanted = neighbours(a, contexts)
            values = np.concatenate([x, np.zeros_like(x[:1])])
            out = np.stack(
                [weights_on(scores, c, found.threshold, scale).sum(axis=0) @ x[c] for c in contexts]
            )
            assert np.linalg.norm(out - values[wanted], axis=-1).max() <= error
        assert (decode_direction(out, x) == wanted).all()


def test_trained_channels_answer_every_context_as_softmax(problems):
    """The k-owner form: exact channels of a trainer, whatever their owners."""
    embeddings, adjacency = problems
    channels = train("joint", embeddings, adjacency, num_heads=4, head_dim=4, seeds=[0, 1])
    for x, a, channel in zip(embeddings, adjacency, channels, strict=True):
        scores = head_scores_of(x, channel.query_weights, channel.key_weights)
        found = channel_margin(scores, a)
        assert found.margin > 0
        scale = sufficient_scale(found.margin, 12, 4, 0.1)
        decay = float(np.exp(-scale * found.margin))
        contexts = draw_contexts(24, 12, 20, np.random.default_rng(1))
        owners = dict(zip(map(tuple, np.argwhere(a)), found.owners, strict=True))
        maps = np.stack([weights_on(scores, c, found.threshold, scale) for c in contexts])
        assert pair_rates(a, contexts, maps.max(axis=1) > 0.5).accuracy == 1
        for context, weights, wanted in zip(contexts, maps, neighbours(a, contexts), strict=True):
            for t, u in enumerate(context):
                total = weights[:, t].sum(axis=0)
                if wanted[t] == 24:
                    assert np.linalg.norm(total @ x[context]) <= absent_output(decay, 12, 4)
                    continue
                promise = shared_output(decay, 12, 4, int(owners[u, wanted[t]]))
                kappa = total[context == wanted[t]].sum()
                assert promise.kappa_low <= kappa * SLACK
                assert kappa <= promise.kappa_high * SLACK
                assert np.linalg.norm(total @ x[context] - kappa * x[wanted[t]]) <= promise.error * SLACK


@pytest.mark.float64
def test_heads_of_the_kernels_are_those_of_the_definition():
    rng = np.random.default_rng(3)
    h, m, d, k, e = 3, 7, 5, 2, 4
    x, q, w = rng.standard_normal((m, d)), rng.standard_normal((h, d, k)), rng.standard_normal((h, d, k))
    context = np.array([4, 0, 6, 1, 2])
    expected = weights_on(head_scores_of(x, q, w), context, 0.7, 1.3)
    queries, keys = (jnp.asarray(x[context] @ part) for part in (q, w))
    rtol, atol = (1e-5, 1e-6) if queries.dtype == jnp.float32 else (1e-10, 1e-14)
    weights = softmax_weights(queries, keys, jnp.asarray(0.7), jnp.asarray(1.3))
    np.testing.assert_allclose(weights[..., :-1], expected, rtol=rtol, atol=atol)
    np.testing.assert_allclose(weights[..., -1], 1 - expected.sum(axis=-1), rtol=rtol, atol=atol)
    values = rng.standard_normal((5, e))
    out = routed_values(queries, keys, jnp.asarray(values), jnp.asarray(0.7), jnp.asarray(1.3))
    np.testing.assert_allclose(out, expected.sum(axis=0) @ values, rtol=rtol, atol=atol)


def test_rates_by_hand():
    edges = np.zeros((4, 4), bool)
    edges[[0, 1, 2, 3], [1, 2, 3, 0]] = True
    contexts = np.array([[0, 1, 3], [2, 1, 0]])
    wanted = np.array([[1, 4, 0], [4, 2, 1]])
    assert (neighbours(edges, contexts) == wanted).all()
    answers = np.array([[1, 4, 1], [0, 2, 4]])  # right, right, wrong; wrong, right, missed
    assert item_rates(edges, contexts, answers) == (2 * 2 / (4 + 4), 3 / 6)
    said = answers[:, :, None] == contexts[:, None, :]
    assert pair_rates(edges, contexts, said) == (2 * 2 / (4 + 4), 3 / 6)
    draws = jax.vmap(lambda c: softmax_training.context_answers(jnp.asarray(edges), c))(jnp.asarray(contexts))
    assert (np.asarray(draws) == wanted).all()


@pytest.mark.parametrize("task", ["values", pytest.param("weights", marks=pytest.mark.slow)])
def test_training_learns_a_small_graph_and_depends_on_its_seed_alone(problems, task):
    embeddings, adjacency = problems
    options = SoftmaxOptions(context_size=12, num_contexts=8, num_steps=300, learning_rate=0.05)
    kwargs = {"num_heads": 2, "head_dim": 8, "options": options}
    first, second = train_softmax(task, embeddings, adjacency, seeds=[0, 1], **kwargs)
    contexts = draw_contexts(24, 12, 40, np.random.default_rng(2))
    scores = head_scores_of(embeddings[0], first.query_weights, first.key_weights)
    maps = np.stack([weights_on(scores, c, first.threshold, first.scale) for c in contexts])
    if task == "weights":
        rates = pair_rates(adjacency[0], contexts, maps.max(axis=1) > 0.5)
    else:
        out = np.stack([w.sum(axis=0) @ embeddings[0][c] for w, c in zip(maps, contexts, strict=True)])
        logits = first.logit_scale * out @ embeddings[0].T
        answers = np.where(logits.max(axis=-1) > first.none_logit, logits.argmax(axis=-1), 24)
        rates = item_rates(adjacency[0], contexts, answers)
    assert rates.accuracy > 0.9  # "none" everywhere has about a half
    swapped = train_softmax(task, embeddings[::-1], adjacency[::-1], seeds=[1, 0], **kwargs)
    np.testing.assert_allclose(swapped[1].query_weights, first.query_weights, rtol=2e-2, atol=2e-2)
    assert not np.allclose(first.query_weights, second.query_weights)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: owner_weight(0.0, 3), "decay: expected"),
        (lambda: idle_weight(0.5, 0), "context_size: expected"),
        (lambda: shared_output(0.5, 3, 2, 3), "owners: expected"),
        (lambda: one_owner_error(0.5, 3, 0), "num_heads: expected"),
        (lambda: sufficient_scale(0.0, 3, 1, 0.1), "margin: expected"),
        (lambda: sufficient_scale(1.0, 1, 1, 0.1), "context_size: expected"),
        (lambda: sufficient_scale(1.0, 3, 1, 4.0), "error: expected"),
        (lambda: channel_margin(np.zeros((1, 2, 2)), np.ones((2, 2), bool)), "adjacency: expected"),
        (
            lambda: one_owner_heads(np.eye(2), np.array([[False, True], [False, False]]), 2),
            "num_heads: expected",
        ),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
