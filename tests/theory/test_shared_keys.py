"""Heads that share their keys: trainers, what they return, conversion from heads with keys of their own."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from theory.problems import make_problem
from theory.recognition import channel_scores
from theory.training import PLAIN
from theory.training.shared_keys import (
    KeyDesign,
    SharedChannel,
    head_keys,
    projections,
    train_shared_joint,
)
from theory.training.shared_keys_alternate import (
    _hinge,
    _step_size,
    train_shared_alternate,
)
from theory.training.shared_keys_convert import low_rank, mean_pool

DESIGNS = {
    "mha": KeyDesign(4, 4, 2),
    "gqa": KeyDesign(4, 2, 3),
    "mqa": KeyDesign(4, 1, 5),
    "mla": KeyDesign(4, 1, 3, 5),
}


def judge(channel, items, edges):
    """Recovery of a run that ended well."""
    judged = channel.judge(items, edges)
    assert judged is not None
    return judged


def problems(num_items, d_model, seeds):
    made = [
        make_problem(
            num_items=num_items,
            num_edges=num_items,
            d_model=d_model,
            embedding="gaussian",
            graph="permutation",
            seed=seed,
        )
        for seed in seeds
    ]
    return np.stack([p.embeddings for p in made]), np.stack([p.graph.adjacency() for p in made])


def factors(design, d_model, seed, batch=()):
    rng = np.random.default_rng(seed)
    h, g, k, c = design.num_heads, design.num_kv_heads, design.head_dim, design.latent_dim
    shapes = {"query": (h, d_model, k)}
    shapes |= {"key": (g, d_model, k)} if c is None else {"up": (h, c, k), "down": (d_model, c)}
    return {n: rng.standard_normal((*batch, *s)).astype(np.float32) for n, s in shapes.items()}


@pytest.mark.parametrize("name", DESIGNS)
def test_weights_written_out_are_the_shared_ones(name):
    design = DESIGNS[name]
    own = factors(design, 7, 1)
    query, key = SharedChannel(own, 1.0, 0.0, 0, None).weights()
    assert query.shape == key.shape == (4, 7, design.head_dim)
    assert query.dtype == key.dtype == np.float64
    for i in range(4):
        one = own["down"] @ own["up"][i] if "down" in own else own["key"][i * design.num_kv_heads // 4]
        np.testing.assert_allclose(key[i], one, rtol=1e-6, atol=1e-6)
    # What a token caches determines all heads' keys: as many dimensions as the design says.
    assert np.linalg.matrix_rank(np.concatenate(list(key), axis=1), tol=1e-4) == min(7, design.cache_dims)
    x = np.random.default_rng(2).standard_normal((11, 7)).astype(np.float32)
    params = {n: jnp.asarray(v) for n, v in own.items()}
    queries, keys = projections(params, jnp.asarray(x))
    np.testing.assert_allclose(queries, x @ query, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(keys, x @ key, rtol=2e-5, atol=2e-4)
    np.testing.assert_allclose(head_keys(params, 4), key, rtol=2e-5, atol=2e-5)


@pytest.mark.float64
@pytest.mark.parametrize("name", ["gqa", "mla"])
def test_gradient_and_line_of_the_hinge(name):
    """The gradient by hand against the loss's own; the step along a line against the loss on that line."""
    design = DESIGNS[name]
    rng = np.random.default_rng(3)
    params = {n: jnp.asarray(v) for n, v in factors(design, 5, 3).items()}
    params["threshold"] = jnp.asarray(rng.standard_normal(4), jnp.float32)
    x = jnp.asarray(rng.standard_normal((7, 5)), jnp.float32)
    y = jnp.asarray(rng.integers(-1, 2, (4, 7, 7)), jnp.float32)
    one = jnp.where(y == 0, -1.0, 1.0).astype(jnp.float32)

    def loss(params):
        keys = jnp.einsum("md,hdk->hmk", x, head_keys(params, 4))
        scores = jnp.einsum("md,hdk,hnk->hmn", x, params["query"], keys)
        scores = scores - params["threshold"][:, None, None]
        return 0.5 * jnp.sum(jnp.where(y == 0, 0.0, jnp.maximum(1 - y * scores, 0.0)) ** 2)

    value, gradient = jax.jit(jax.value_and_grad(loss))(params)
    fit = jax.jit(_hinge)(params, x, y, one)
    assert fit.loss == pytest.approx(float(value), rel=1e-5)
    scale = max(float(jnp.abs(leaf).max()) for leaf in gradient.values())
    for leaf in gradient:
        np.testing.assert_allclose(fit.gradient[leaf], gradient[leaf], atol=1e-5 * scale)
    direction = jax.tree.map(lambda leaf: -leaf / scale, gradient)
    t = jax.jit(_step_size)(params, direction, fit, x, y, one, jnp.array(False))
    losses = jax.jit(lambda t: loss(jax.tree.map(lambda a, b: a + t * b, params, direction)))

    def along(t):
        return float(losses(jnp.float32(t)))

    assert along(float(t)) < float(value)
    # It is a minimum along the line, or nearly: neither a quarter less nor a quarter more is better.
    assert along(float(t)) <= min(along(0.75 * float(t)), along(1.25 * float(t))) * 1.02


SMALL = {"mha": KeyDesign(3, 3, 3), "mqa": KeyDesign(3, 1, 5), "mla": KeyDesign(3, 1, 4, 6)}


LATENT = pytest.param("mla", marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def alternated():
    """Two problems and a function that trains a design on them, with room to spare: all are found."""
    x, a = problems(19, 7, (0, 1))
    return (
        x,
        a,
        functools.cache(
            lambda name: train_shared_alternate(x, a, design=SMALL[name], seeds=(0, 1), max_width=8)
        ),
    )


@pytest.mark.float64
@pytest.mark.parametrize("name", ["mqa", LATENT])
def test_alternating_training_finds_channels_that_hold_in_float64(alternated, name):
    x, a, found = alternated
    design = SMALL[name]
    for items, edges, channel in zip(x, a, found(name), strict=True):
        judged = judge(channel, items, edges)
        assert judged.exact_recovery
        assert channel.loss == 0.0
        assert judged.micro_f1 == 1.0  # at the common threshold 1
        assert channel.threshold == 1.0
        query, key = channel.weights()
        assert query.shape == (3, 7, design.head_dim)
        assert np.linalg.matrix_rank(np.concatenate(list(key), axis=1), tol=1e-4) <= design.cache_dims
        np.testing.assert_allclose(
            channel_scores(items, query, key),
            np.max([(items @ q) @ (items @ k).T for q, k in zip(query, key, strict=True)], axis=0),
            rtol=1e-9,
            atol=1e-9,
        )


def test_a_run_does_not_depend_on_its_neighbours(alternated):
    x, a = problems(19, 7, (1, 2))
    again = train_shared_alternate(x, a, design=SMALL["mqa"], seeds=(1, 2), max_width=8)[0]
    assert again.steps == alternated[2]("mqa")[1].steps
    for name, factor in alternated[2]("mqa")[1].factors.items():
        np.testing.assert_allclose(again.factors[name], factor, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_run_does_not_depend_on_the_width_compiled(alternated):
    x, a, found = alternated
    alone = train_shared_alternate(x[1:], a[1:], design=SMALL["mqa"], seeds=(1,), max_width=5)[0]
    beside = found("mqa")[1]
    assert alone.steps == beside.steps
    np.testing.assert_allclose(alone.factors["query"], beside.factors["query"], rtol=0.02, atol=0.02)


def test_what_cannot_be_held_is_counted(alternated):
    # A theorem: with one key dimension for all heads there are two extreme targets, hence two edges.
    x, a, _ = alternated
    channels = train_shared_alternate(x, a, design=KeyDesign(3, 1, 1), seeds=(0, 1), max_width=8)
    for items, edges, channel in zip(x, a, channels, strict=True):
        scores = channel_scores(items, *channel.weights())
        held = int((scores[edges] > scores[~edges].max()).sum())
        assert held == round(19 * (1 - channel.loss)) <= 2
        assert not judge(channel, items, edges).exact_recovery


@pytest.mark.float64
@pytest.mark.parametrize("name", ["mqa", LATENT])
def test_joint_training_of_shared_keys(name):
    x, a = problems(19, 7, (0, 1))
    options = replace(PLAIN, max_steps=4000)
    design = replace(SMALL[name], head_dim=6) if name == "mqa" else SMALL[name]
    channels = train_shared_joint(x, a, design=design, seeds=(0, 1), max_width=8, options=options)
    for items, edges, channel in zip(x, a, channels, strict=True):
        judged = judge(channel, items, edges)
        assert judged.exact_recovery
        assert judged.best_f1 == 1.0
        assert channel.steps < 4000
    if name == "mqa":  # from where it ended there is nothing to do
        again = train_shared_joint(
            x, a, design=design, seeds=(0, 1), max_width=8, options=options, starts=channels
        )
        assert all(channel.steps <= 100 for channel in again)
        assert all(
            judge(channel, items, edges).exact_recovery
            for items, edges, channel in zip(x, a, again, strict=True)
        )


@pytest.mark.slow
def test_joint_training_with_own_keys_is_that_of_the_channel():
    """One step of Adam from the same weights as `theory.training.joint` gives the same weights."""
    from theory.training.joint import initial_params, optimise_jointly

    x, a = problems(19, 7, (0, 1))
    options = replace(PLAIN, max_steps=50)
    params = initial_params((0, 1), num_heads=3, d_model=7, head_dim=3, max_head_dim=3, scale=0.3)
    theirs = optimise_jointly(params, x, a, 3, options).channels
    log_weight = np.log(np.sqrt((19 * 19 - 19) / 19))
    starts = [
        SharedChannel(
            {n: np.asarray(params[n][b]) for n in ("query", "key")}, float(log_weight), 0.0, 0, None
        )
        for b in range(2)
    ]
    ours = train_shared_joint(x, a, design=SMALL["mha"], seeds=(0, 1), options=options, starts=starts)
    for own, other, items in zip(ours, theirs, x, strict=True):
        scale = own.threshold / other.threshold  # ours has the scale of the logits in its queries
        np.testing.assert_allclose(
            channel_scores(items, *own.weights()),
            scale * channel_scores(items, other.query_weights, other.key_weights),
            rtol=1e-3,
            atol=1e-3,
        )


def channel_of(design, seed):
    return SharedChannel(factors(design, 7, seed), 2.0, 0.5, 9, 0.1)


def matrices(channel):
    query, key = channel.weights()
    return query @ np.swapaxes(key, 1, 2)


def test_mean_pooling():
    channel = channel_of(KeyDesign(4, 4, 3), 5)
    pooled = mean_pool(channel, 2)
    assert pooled.factors["key"].shape == (2, 7, 3)
    np.testing.assert_array_equal(pooled.factors["query"], channel.factors["query"])
    np.testing.assert_allclose(
        pooled.factors["key"][1], (channel.factors["key"][2] + channel.factors["key"][3]) / 2, rtol=1e-6
    )
    same = replace(
        channel, factors=channel.factors | {"key": np.repeat(channel.factors["key"][:1], 4, axis=0)}
    )
    np.testing.assert_allclose(matrices(mean_pool(same, 1)), matrices(same), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="num_kv_heads: expected a divisor of num_heads = 4, got 3"):
        mean_pool(channel, 3)


def test_low_rank_fit_is_the_nearest_and_sees_no_gauge():
    channel = channel_of(KeyDesign(4, 4, 3), 6)
    for design in (KeyDesign(4, 4, 3), KeyDesign(4, 1, 7), KeyDesign(4, 1, 3, 7)):
        np.testing.assert_allclose(matrices(low_rank(channel, design)), matrices(channel), atol=1e-5)
    design = KeyDesign(4, 2, 2)
    fit = low_rank(channel, design)
    assert fit.factors["key"].shape == (2, 7, 2)
    # The error is what the singular values left out have, by Eckart and Young.
    for group in (slice(0, 2), slice(2, 4)):
        values = np.linalg.svd(matrices(channel)[group].reshape(14, 7), compute_uv=False)
        error = ((matrices(fit) - matrices(channel))[group] ** 2).sum()
        assert error == pytest.approx((values[2:] ** 2).sum(), rel=1e-4)
    assert ((matrices(mean_pool(channel, 2)) - matrices(channel)) ** 2).sum() > (
        (matrices(low_rank(channel, KeyDesign(4, 2, 3))) - matrices(channel)) ** 2
    ).sum()
    rotation = np.random.default_rng(7).standard_normal((4, 3, 3))
    turned = replace(
        channel,
        factors={
            "query": (channel.factors["query"] @ rotation).astype(np.float32),
            "key": (channel.factors["key"] @ np.swapaxes(np.linalg.inv(rotation), 1, 2)).astype(np.float32),
        },
    )
    np.testing.assert_allclose(matrices(low_rank(turned, design)), matrices(fit), atol=1e-4)
    latent = low_rank(channel, KeyDesign(4, 1, 2, 4))
    assert np.linalg.matrix_rank(np.concatenate(list(latent.weights()[1]), axis=1), tol=1e-4) == 4
    with pytest.raises(ValueError, match="design: expected num_heads = 4, got 2"):
        low_rank(channel, KeyDesign(2, 1, 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, a: KeyDesign(4, 3, 2), "num_kv_heads: expected a divisor of num_heads = 4, got 3"),
        (lambda x, a: KeyDesign(4, 2, 2, 0), "latent_dim: expected a positive integer, got 0"),
        (
            lambda x, a: train_shared_alternate(x, a, design=SMALL["mqa"], seeds=(0,)),
            "seeds: expected one for each of 2 problems, got 1",
        ),
        (
            lambda x, a: train_shared_alternate(x, a, design=SMALL["mqa"], seeds=(0, 1), max_width=3),
            "expected at least head_dim = 5, got 3",
        ),
        (
            lambda x, a: train_shared_joint(
                x, a, design=SMALL["mqa"], seeds=(0, 1), options=replace(PLAIN, aggregation="sum")
            ),
            "aggregation: expected 'max', got 'sum'",
        ),
        (
            lambda x, a: train_shared_joint(
                x, a, design=SMALL["mqa"], seeds=(0, 1), starts=[channel_of(SMALL["mha"], 1)] * 2
            ),
            r"starts: expected query of shape \(3, 7, 5\), got \(3, 7, 3\)",
        ),
    ],
)
def test_what_is_refused(call, message):
    x, a = problems(11, 7, (0, 1))
    with pytest.raises(ValueError, match=message):
        call(x, a)
