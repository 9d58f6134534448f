"""`theory.retrieval`: tasks, the theorem's arithmetic, hand-set weights."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from theory.retrieval import (
    RetrievalTask,
    apply_relu_network,
    exponent,
    general_task,
    match_heads,
    max_task,
    max_variance,
    memorising_head,
    nmse,
    num_hidden_units,
    predict,
    retrieving_heads,
    tournament,
    uniform_attention_nmse,
    unread_nmse,
    vacuous_length,
)


@partial(jax.jit, static_argnames="encoder")
def _predict(params, inputs, scale, encoder):
    return jax.vmap(lambda x: predict(params, x, encoder=encoder, scale=scale))(inputs)


def _outputs(model, params, inputs, scale=None):
    scale = model.attention_scale if scale is None else scale
    return np.asarray(_predict(params, jnp.asarray(inputs), scale, model.encoder))


def test_max_task_by_hand():
    task = max_task(2, 3, width=5)
    inputs = np.zeros((1, 3, 5))
    inputs[0, :, 0], inputs[0, :, 1] = [1, 7, 2], [-3, -1, -2]
    values, positions = task.retrieved(inputs)
    np.testing.assert_array_equal(values, [[-7, 1]])
    np.testing.assert_array_equal(positions, [[1, 1]])
    np.testing.assert_array_equal(task.targets(inputs), [6])
    assert task.sample(np.random.default_rng(0), 7).shape == (7, 3, 5)


def test_random_directions_are_unit_vectors_of_their_seed():
    first, again, other = (max_task(3, 2, width=5, directions="random", seed=s).vectors for s in (1, 1, 2))
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1, rtol=1e-12)
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.1


def test_general_task_looks_for_each_minimum_in_its_own_positions():
    task = general_task(3, 7, width=2, window=3, outer=lambda z: z @ np.array([1.0, 10.0, 100.0]))
    starts = [0, 2, 4]  # i * 7 // 3
    inputs = task.sample(np.random.default_rng(1), 5)
    assert inputs.min() >= 0
    assert inputs.max() <= 1
    expected = np.zeros(5)
    for i, start in enumerate(starts):
        window = [(start + j) % 7 for j in range(3)]
        costs = np.square(inputs[:, window].astype(float) - task.vectors[i]).sum(axis=-1) / 2
        expected += 10.0**i * costs.min(axis=1)
        assert set(task.retrieved(inputs)[1][:, i]) <= set(window)
    np.testing.assert_allclose(task.targets(inputs), expected, rtol=1e-12)


def test_a_constant_has_chance_level_and_scale_does_not_matter():
    targets = np.random.default_rng(2).standard_normal(101)
    assert nmse(np.full(101, targets.mean()), targets) == pytest.approx(1)
    assert nmse(targets + 0.1 * targets.std(), targets) == pytest.approx(0.01)
    with pytest.raises(ValueError, match="targets: expected more than one value"):
        nmse(targets, np.ones(101))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: max_task(5, 3, width=4), "num_targets: expected at most width = 4, got 5"),
        (lambda: max_task(2, 0, width=4), "length: expected a positive integer, got 0"),
        (lambda: max_task(2, 3, width=4, directions="both"), "directions: expected one of .* got 'both'"),
        (lambda: general_task(2, 13, width=4, window=3), "window: expected from 3.25 to 13 positions, got 3"),
        (
            lambda: general_task(2, 13, width=4, window=14),
            "window: expected from 3.25 to 13 positions, got 14",
        ),
        (lambda: retrieving_heads(np.eye(3), 5, num_layers=2), "num_layers: expected a divisor of 3, got 2"),
        (lambda: exponent(7, 4, 4, 2), "num_heads: expected fewer than num_targets = 4, got 4"),
        (lambda: vacuous_length(0, 4, 2), "num_heads: expected a positive integer, got 0"),
        (lambda: uniform_attention_nmse(np.ones((2, 3)), 5), "variance: expected a number"),
        (lambda: max_variance(0), "length: expected a positive integer, got 0"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_position_sets_below_a_quarter_are_refused():
    task = max_task(2, 13, width=3)
    members = np.zeros((2, 13), bool)
    members[:, :3] = True
    with pytest.raises(ValueError, match=r"members: .* at least length / 4 = 3.25 positions, got \[3, 3\]"):
        RetrievalTask("own", 13, 3, task.costs, task.outer, members, task.sampler, task.vectors)


@pytest.mark.parametrize(
    ("heads", "targets", "dim", "length"), [(3, 4, 8, 136), (3, 4, 2, 64), (1, 4, 4, 40), (2, 3, 5, 68)]
)
def test_the_bound_says_nothing_up_to_the_vacuous_length(heads, targets, dim, length):
    assert vacuous_length(heads, targets, dim) == length
    assert exponent(length, heads, targets, dim) == pytest.approx(0, abs=1e-12)
    assert exponent(length + 1, heads, targets, dim) > 0 > exponent(length - 1, heads, targets, dim)


def test_the_exponent_grows_like_the_length():
    # k = (T/4 - s - D + 1) / ((n + 1) s + 1) - 1 with s = 1, D = 2, n = 2, T = 128
    assert exponent(128, 1, 2, 2) == pytest.approx((32 - 1 - 2 + 1) / 4 - 1)


def test_variance_of_a_maximum():
    assert max_variance(1) == pytest.approx(1, rel=1e-9)
    assert max_variance(2) == pytest.approx(1 - 1 / np.pi, rel=1e-9)
    draws = np.random.default_rng(3).standard_normal((40_000, 13)).max(axis=1)
    # the variance of a sample variance is about 2 / n here: 5 standard deviations
    assert max_variance(13) == pytest.approx(draws.var(), rel=5 * np.sqrt(2 / 40_000))


@pytest.mark.parametrize("directions", ["orthonormal", "random"])
def test_the_mean_token_explains_what_the_formula_says(directions):
    task = max_task(3, 5, width=3, directions=directions)
    inputs = task.sample(np.random.default_rng(4), 40_000).astype(float)
    targets, means = task.targets(inputs), inputs.mean(axis=1)
    design = np.concatenate([np.ones((len(means), 1)), means, means**2, means**3], axis=1)
    found = nmse(design @ np.linalg.lstsq(design, targets, rcond=None)[0], targets)
    variance = None if directions == "orthonormal" else float(targets.var())
    assert uniform_attention_nmse(task.vectors, 5, variance) == pytest.approx(found, abs=0.012)


def test_unread_targets_by_hand():
    assert unread_nmse(3, 4, 128) == 0.25
    assert unread_nmse(4, 4, 8) == unread_nmse(5, 4, 8) == 0
    told = 1 / (2 * (1 - 1 / np.pi))  # of each maximum of two, by their mean
    assert unread_nmse(1, 4, 2) == pytest.approx(1 - told)
    assert unread_nmse(2, 4, 2) == pytest.approx(0.75 * (1 - told))


@pytest.mark.float64
@pytest.mark.parametrize("directions", ["orthonormal", "random"])
@pytest.mark.parametrize(("targets", "layers"), [(3, 1), (2, 2), (4, 2)])
def test_as_many_heads_as_targets_retrieve_exactly(targets, layers, directions):
    task = max_task(targets, 7, width=5, directions=directions)
    model, params = retrieving_heads(task.vectors, 7, num_layers=layers)
    assert model.num_heads * model.num_layers == targets
    inputs = task.sample(np.random.default_rng(5), 503)
    error = nmse(_outputs(model, params, inputs), task.targets(inputs))
    assert error < 1e-3
    assert error < 1e-6  # what sharpness 1e4 should give
    assert nmse(_outputs(model, params, inputs, scale=0.0), task.targets(inputs)) > 0.5


@pytest.mark.float64
def test_blunt_heads_do_not_retrieve():
    task = max_task(3, 7, width=5)
    model, params = retrieving_heads(task.vectors, 7, sharpness=1.0)
    inputs = task.sample(np.random.default_rng(6), 503)
    assert nmse(_outputs(model, params, inputs), task.targets(inputs)) > 0.1


@pytest.mark.float64
def test_one_wide_head_copies_the_whole_sequence():
    model, params = memorising_head(7, 3)
    assert (model.num_heads, model.per_head_dim) == (1, 21)
    inputs = np.random.default_rng(7).standard_normal((11, 7, 3)).astype(np.float32)
    for unit in (0, 1, 9, 20):  # a read-out that shows one entry of what the class token got
        probe = np.zeros((21, 2), np.float32)
        probe[unit] = 1, -1
        readout = {
            "hidden": {"kernel": probe, "bias": np.zeros(2, np.float32)},
            "out": {"kernel": np.array([1, -1], np.float32), "bias": np.zeros((), np.float32)},
        }
        shown = _outputs(model, params | {"readout": readout}, inputs)
        # gelu(u) - gelu(-u) = u up to a few roundings of numbers below 4
        np.testing.assert_allclose(shown, inputs.reshape(11, 21)[:, unit], rtol=0, atol=2e-6)


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 13])
def test_a_tournament_of_rectifiers_finishes_the_memorising_head(length):
    task = max_task(3, length, width=3, directions="random")
    layers = tournament(task.vectors, length)
    assert len(layers) - 1 == int(np.ceil(np.log2(length)))
    inputs = task.sample(np.random.default_rng(8), 53)
    found = apply_relu_network(layers, inputs.reshape(53, length * 3))
    np.testing.assert_allclose(found, task.targets(inputs), rtol=0, atol=1e-12)
    if length & (length - 1) == 0:
        assert num_hidden_units(layers) == 3 * 3 * (length - 1)


def test_heads_are_assigned_so_that_they_agree_most():
    top = np.array([[0, 5], [1, 5], [2, 5], [3, 5]])
    positions = np.array([[5, 0], [5, 1], [5, 9], [4, 3]])
    assert match_heads(top, positions) == ((0.75, 0.75), (1, 0))
    assert match_heads(top[:, :1], positions) == ((None, 0.75), (None, 0))
    assert match_heads(np.concatenate([top, top], axis=1), positions)[0] == (0.75, 0.75)
