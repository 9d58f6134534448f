"""Several relations at once: the floors, what each of their conditions is for, the task, training."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from theory.relations import (
    RelationsModel,
    draw_values,
    error_floor,
    exact_error,
    make_relations,
    mixing_weights,
    readout_floor,
    train_relations,
)
from theory.relations.training import answers, head_weights, initial_params


def best_readout(weights, selection):
    """Least error of any linear read-out, item by item: the part of the targets' rows outside the mixtures' span."""
    p = np.moveaxis(weights, 1, 0)
    residual = selection - selection @ np.linalg.pinv(p) @ p
    return np.square(residual).sum(axis=(1, 2)) / selection.shape[1]


@pytest.mark.parametrize(("relations", "heads"), [(1, 1), (2, 1), (3, 2), (4, 1), (4, 3), (2, 4)])
def test_no_weights_and_no_readout_go_below_the_floor(relations, heads):
    """Weights of any sign, sharp and soft, and the best read-out for each item."""
    rng = np.random.default_rng(0)
    items, targets = 11, 7
    selection = np.zeros((items, relations, targets))
    for u in range(items):
        selection[u, np.arange(relations), rng.permutation(targets)[:relations]] = 1
    for sharpness in (0.1, 3.0, 50.0):
        logits = sharpness * rng.standard_normal((heads, items, targets))
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        for p in (weights, logits):
            assert best_readout(p, selection).min() >= error_floor(relations, heads) - 1e-9
    # Reached by reading h targets, and by mixtures of targets.
    read = np.zeros((heads, items, targets))
    for head in range(heads):
        read[head] = selection[:, head % relations]
    mixed = read + read[:1] if heads > 1 else selection.mean(axis=1)[None]
    for p in (read, mixed):
        np.testing.assert_allclose(best_readout(p, selection), error_floor(relations, heads), atol=1e-9)


def test_targets_that_coincide_need_fewer_heads():
    selection = np.array([[[1.0, 0, 0], [1.0, 0, 0]]])
    assert best_readout(np.array([[[1.0, 0, 0]]]), selection) == pytest.approx(0, abs=1e-12)
    assert error_floor(2, 1) == 0.5


def test_keys_that_see_the_values_break_the_floor():
    """One head, two relations: the docstring's counter-example, read out by one matrix."""
    rng = np.random.default_rng(1)
    eps, draws = 0.01, 20000
    values = rng.standard_normal((draws, 2))
    logits = eps * values
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    head = np.stack([(p * values).sum(1), p @ np.array([1.0, -1.0])], axis=1)
    readout = np.array([[1, 1 / eps], [1, -1 / eps]])
    error = np.square(head @ readout.T - values).mean()
    assert error < 1e-3 < error_floor(2, 1)
    # The second theorem is left: a head of width 1 stays at 1/2, one of width 2 may be exact.
    assert readout_floor(2, 1, 1, 1) == 0.5
    assert readout_floor(2, 1, 1, 2) == 0
    narrow = np.linalg.lstsq(head[:, :1], values, rcond=None)[0]
    # 20,000 draws: variances are known to 1%.
    assert np.square(head[:, :1] @ narrow - values).mean() >= 0.5 * (1 - 0.03)


def test_signs_are_told_apart_and_gaussian_values_are_not():
    """From the mixture 2/3, 1/3: every pair of signs gives another sum; the mean of a Gaussian given it is linear."""
    signs = np.array([[a, b] for a in (-1, 1) for b in (-1, 1)])
    assert len({round(float(x), 9) for x in signs @ np.array([2 / 3, 1 / 3])}) == 4
    values = np.random.default_rng(2).standard_normal((200_000, 2))
    mixture = values @ np.array([2 / 3, 1 / 3])
    edges = np.quantile(mixture, np.linspace(0, 1, 101)[1:-1])
    bins = np.digitize(mixture, edges)
    # A step function of 100 steps is a read-out of any shape; 2,000 draws a step.
    means = np.stack([np.bincount(bins, v) / np.bincount(bins) for v in values.T], axis=1)
    assert np.square(values - means[bins]).mean() >= error_floor(2, 1) * (1 - 0.01)


def test_exact_error_is_the_mean_over_values():
    rng = np.random.default_rng(3)
    heads, items, relations, width = 2, 5, 3, 2
    weights = rng.dirichlet(np.ones(items), size=(heads, items)).astype(np.float32)
    readout = rng.standard_normal((relations, width, heads, width)) / 2
    targets = np.stack([np.roll(np.arange(items), r + 1) for r in range(relations)])
    values = rng.standard_normal((20_000, items, width))
    mixed = np.einsum("iuj,bja->buia", weights, values)
    out = np.einsum("racd,bucd->bura", readout, mixed)
    errors = np.square(out - values[:, targets.T]).mean(axis=(1, 2, 3))
    found = exact_error(weights, readout.astype(np.float32), targets)
    assert found == pytest.approx(errors.mean(), abs=4 * errors.std() / np.sqrt(len(errors)))


def test_tasks_have_different_targets_and_grow():
    task = make_relations(32, 8, 4, seed=1)
    every = np.vstack([np.arange(32)[None], task.targets])
    assert all(len(set(column)) == 5 for column in every.T)
    assert all(sorted(row) == list(range(32)) for row in task.targets)
    np.testing.assert_array_equal(make_relations(32, 8, 2, seed=1).targets, task.targets[:2])


@pytest.mark.parametrize("law", ["gaussian", "signs"])
def test_values_are_isotropic(law):
    values = np.asarray(draw_values(jax.random.key(0), law, (20_000, 3)))
    # Standard errors of 20,000 draws: 1 / sqrt(20,000) = 0.007 for means and covariances, 0.01 for variances.
    np.testing.assert_allclose(values.mean(0), 0, atol=0.03)
    np.testing.assert_allclose(values.T @ values / len(values), np.eye(3), atol=0.04)


def test_mixing_weights_go_round_the_relations():
    task = make_relations(32, 8, 4, seed=0)
    weights = mixing_weights(task.targets, 3)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-6)
    assert weights[0, 5, task.targets[0, 5]] == pytest.approx(1 / 3)
    assert weights[0, 5, task.targets[3, 5]] == pytest.approx(2 / 3)
    assert weights[1, 5, task.targets[1, 5]] == 1


@pytest.mark.float64
def test_answers_are_mixtures_read_out():
    model = RelationsModel(num_heads=2, head_dim=3, value_dim=2)
    task = make_relations(16, 5, 2, seed=0)
    params = initial_params(model, 5, 2, seed=0)
    params["log_sharpness"] = np.array([0.0, 1.0], np.float32)
    x = task.embeddings.astype(np.float32)
    weights = np.asarray(head_weights(jax.tree.map(jnp.asarray, params), jnp.asarray(x)))
    logits = np.exp([0.0, 1.0])[:, None, None] / np.sqrt(3)
    logits = logits * np.einsum("md,hdk,hek,ne->hmn", x, params["query"], params["key"], x)
    expected = np.exp(logits)
    np.testing.assert_allclose(weights, expected / expected.sum(-1, keepdims=True), rtol=2e-5)
    values = np.random.default_rng(0).standard_normal((3, 16, 2)).astype(np.float32)
    out = np.asarray(answers(params, jnp.asarray(weights), jnp.asarray(values), 2))
    read = np.einsum("hmn,bna->bmha", weights, values).reshape(3, 16, 4)
    np.testing.assert_allclose(
        out.reshape(3, 16, 4), read @ params["readout"]["kernel"], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("heads", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_one_head_reads_one_relation_and_two_read_two(heads):
    tasks = [make_relations(16, 12, 2, seed) for seed in range(2)]
    model = RelationsModel(num_heads=heads, head_dim=12 // heads, value_dim=2, num_steps=400, num_test=64)
    runs = train_relations(model, tasks, [0, 1])
    errors = [run.expected_error for run in runs if run.expected_error is not None]
    accuracies = [run.accuracy for run in runs if run.accuracy is not None]
    assert len(errors) == len(accuracies) == 2
    if heads == 2:
        assert min(errors) < 0.1
        assert max(accuracies) > 0.9
        return
    for run in runs:
        assert run.standard_error is not None
        assert run.error == pytest.approx(run.expected_error, abs=5 * run.standard_error)
    assert min(errors) >= 0.5 - 1e-5
    assert max(errors) < 0.56
    assert max(accuracies) < 0.7


@pytest.mark.parametrize("law", ["signs", pytest.param("gaussian", marks=pytest.mark.slow)])
def test_an_mlp_reads_two_signs_from_one_mixture_but_not_two_normal_numbers(law):
    model = RelationsModel(
        num_heads=1,
        head_dim=8,
        readout="mlp",
        attention="mixed",
        value_dim=1,
        hidden=16,
        law=law,
        num_steps=500,
        num_test=512,
    )
    [run] = train_relations(model, [make_relations(16, 8, 2, seed=0)], [0])
    assert run.error is not None
    assert run.standard_error is not None
    if law == "signs":
        assert run.error < 0.1
    else:
        assert run.error >= 0.5 - 4 * run.standard_error


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: error_floor(0, 1), "num_relations: expected a positive integer, got 0"),
        (lambda: readout_floor(1, 1, 0, 1), "value_dim, head_width: expected positive"),
        (lambda: make_relations(16, 8, 3, 0), "num_relations: expected 1 to num_items / 8 = 2, got 3"),
        (lambda: RelationsModel(0, 1), "num_heads: expected a positive integer"),
        (lambda: RelationsModel(1, 1, num_test=10), "num_test: expected a multiple of 16"),
        (lambda: RelationsModel(1, 1, learning_rate=0.0), "learning_rate: expected a positive number"),
        (lambda: train_relations(RelationsModel(1, 1), [], []), "seeds: expected one for each of 0 tasks"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()
