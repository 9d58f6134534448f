"""`theory.retrieval`: the model against plain multi-head attention, and its training."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mha_jax.projections import multi_head_attention
from theory.retrieval import (
    RetrievalModel,
    TrainingOptions,
    class_weights,
    initial_params,
    max_task,
    predict,
    tokens,
    train,
    uniform_attention_nmse,
)

SMALL = TrainingOptions(
    learning_rates=(3e-2,), num_steps=120, batch_size=50, num_train=500, num_test=250, warmup=10
)
MODELS = [
    RetrievalModel(7, 3, 2, 5, "linear", readout_width=11, positions=True),
    RetrievalModel(7, 3, 2, 5, "mlp", encoder_width=13, readout_width=11, positions=True),
    RetrievalModel(7, 3, 3, 7, "product", readout_width=11),
]


def _perturbed(model, seed=0):
    """Parameters without a zero among them."""
    rng = np.random.default_rng(seed)
    dtype = jnp.zeros(()).dtype
    return jax.tree.map(
        lambda leaf: jnp.asarray(leaf + 0.3 * rng.standard_normal(leaf.shape), dtype),
        initial_params(model, rng),
    )


@pytest.mark.float64
@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.encoder + ("+positions" if m.positions else ""))
def test_the_reordered_products_are_plain_multi_head_attention(model):
    params = _perturbed(model)
    inputs = jnp.asarray(np.random.default_rng(1).standard_normal((7, 3)), params["class_token"].dtype)

    def plain(params, inputs):
        [layer] = params["layers"]
        encoded = tokens(params, inputs, model.encoder)
        first = params["class_token"][None]
        query = {"kernel": layer["query"]["kernel"] * jnp.exp(layer["log_sharpness"])[:, None, None]}
        layer = {"query": query} | {name: layer[name] for name in ("key", "value", "out")}
        state = (first + multi_head_attention(layer, first, encoded))[0]
        hidden, out = params["readout"]["hidden"], params["readout"]["out"]
        return jax.nn.gelu(state @ hidden["kernel"] + hidden["bias"]) @ out["kernel"] + out["bias"]

    folded = partial(predict, encoder=model.encoder, scale=model.attention_scale)
    (expected, expected_grads), (found, grads) = jax.jit(
        lambda *args: (jax.value_and_grad(plain)(*args), jax.value_and_grad(folded)(*args))
    )(params, inputs)
    tolerance = float(1e4 * jnp.finfo(inputs.dtype).eps)  # some hundreds of products, and cancellation
    np.testing.assert_allclose(found, expected, rtol=tolerance)
    leaves = jax.tree_util.tree_leaves_with_path(grads), jax.tree.leaves(expected_grads)
    for (path, leaf), other in zip(*leaves, strict=True):
        leaf, other = np.asarray(leaf), np.asarray(other)
        largest = np.abs(other).max() + 1
        np.testing.assert_allclose(leaf, other, rtol=0, atol=tolerance * largest, err_msg=str(path))
    run = jax.jit(partial(class_weights, encoder=model.encoder, scale=model.attention_scale))
    weights = np.asarray(run(params, inputs))
    assert weights.shape == (model.num_heads, 7)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=tolerance)


def test_the_order_of_tokens_matters_only_where_there_are_positions():
    inputs = jnp.asarray(np.random.default_rng(2).standard_normal((7, 3)), jnp.float32)
    for positions in (False, True):
        model = RetrievalModel(7, 3, 2, 5, readout_width=11, positions=positions, num_layers=2)
        params = _perturbed(model)
        run = jax.jit(jax.vmap(partial(predict, params, encoder="linear", scale=model.attention_scale)))
        forwards, backwards = run(jnp.stack([inputs, inputs[::-1]]))
        same = np.isclose(forwards, backwards, rtol=1e-4)
        assert same == (not positions)


def _parts(run):
    return [run.params["layers"][0][name] for name in ("query", "key", "value", "out")]


def _error(run):
    assert run.nmse is not None
    return run.nmse


@pytest.fixture(scope="module")
def trained():
    model = RetrievalModel(5, 3, 2, 3, readout_width=8)
    return model, max_task(2, 5, width=3), train(model, max_task(2, 5, width=3), seeds=(0, 1), options=SMALL)


def test_two_heads_learn_two_maxima_and_need_their_attention(trained):
    _, _, runs = trained
    assert [run.seed for run in runs] == [0, 1]
    for run in runs:
        assert _error(run) < 0.1
        assert run.nmse_uniform > 5 * _error(run)
        assert min(run.matched) > 0.8
        assert sorted(run.heads) == [0, 1]


def test_nmse_is_that_of_the_returned_parameters(trained):
    model, task, runs = trained
    inputs = task.sample(np.random.default_rng(3), 2000)
    run = jax.jit(
        jax.vmap(partial(predict, encoder="linear", scale=model.attention_scale), in_axes=(None, 0))
    )
    outputs, targets = np.asarray(run(runs[0].params, inputs), float), task.targets(inputs)
    slope, intercept = np.polyfit(outputs, targets, 1)  # the run's targets are standardised
    error = np.square(slope * outputs + intercept - targets).mean() / targets.var()
    assert error == pytest.approx(runs[0].nmse, rel=0.5)


@pytest.mark.slow
def test_a_run_depends_neither_on_its_neighbours_nor_on_surplus_heads(trained):
    model, task, runs = trained
    larger = RetrievalModel(5, 3, 3, 4, readout_width=8)
    padded = train(model, task, seeds=(1, 0), options=SMALL, compiled=larger)
    assert [run.seed for run in padded] == [1, 0]
    for run, other in zip(padded[::-1], runs, strict=True):
        # the same numbers in another order of summation, 120 steps on
        assert run.nmse == pytest.approx(other.nmse, rel=0.1)
        assert run.heads == other.heads
    layer = padded[0].params["layers"][0]
    for name in ("query", "key", "value", "out"):
        assert layer[name]["kernel"].shape[0] == 3
        assert np.count_nonzero(layer[name]["kernel"][2]) == 0
    assert np.count_nonzero(padded[0].params["class_token"]) == model.embedding_dim


def test_one_head_reads_no_two_maxima(trained):
    model = RetrievalModel(5, 3, 1, 3, readout_width=8)
    for run in train(model, trained[1], seeds=(0, 1), options=SMALL, compiled=trained[0]):
        assert _error(run) > 0.2
        assert run.matched is not None
        assert run.heads is not None
        assert [m is None for m in run.matched] == [h is None for h in run.heads]
        assert sorted(m is None for m in run.matched) == [False, True]
        # the program has room for a second head: it stays zero
        assert all(np.count_nonzero(kernels["kernel"][1]) == 0 for kernels in _parts(run))
        assert np.count_nonzero(run.params["class_token"]) == model.embedding_dim


def test_uniform_attention_has_the_error_of_the_mean_token(trained):
    model, task, _ = trained
    for run in train(model, task, seeds=(0, 1), options=replace(SMALL, uniform=True)):
        assert run.nmse == run.nmse_uniform
        # 500 samples to learn from, 250 to judge by: a relative error of some percent
        assert run.nmse == pytest.approx(uniform_attention_nmse(task.vectors, 5), rel=0.25)


@pytest.mark.slow
def test_two_layers_of_one_head_learn_two_maxima(trained):
    model = RetrievalModel(5, 3, 1, 6, readout_width=8, num_layers=2)
    runs = train(
        model, trained[1], seeds=(0, 1, 2), options=TrainingOptions((1e-2, 3e-2), 800, 50, 2000, 250, 10)
    )
    assert min(map(_error, runs)) < 0.05
    assert {run.matched for run in runs} == {None}


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_run_that_diverges_says_so(trained):
    model, task, _ = trained
    for run in train(model, task, seeds=(0, 1), options=replace(SMALL, learning_rates=(1e30,))):
        assert run.nmse is None
        assert run.matched is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RetrievalModel(5, 3, 2, 4, "product"), "per_head_dim: expected length .* 15 / 2 .* got 4"),
        (lambda: RetrievalModel(5, 3, 1, 15, "product", positions=True), "positions: expected False"),
        (lambda: RetrievalModel(5, 3, 0, 4), "num_heads: expected a positive integer, got 0"),
        (lambda: TrainingOptions(num_train=7), "num_train: expected a multiple of batch_size = 250, got 7"),
        (lambda: TrainingOptions(num_test=7), "num_test: expected a multiple of 250, got 7"),
        (lambda: TrainingOptions(learning_rates=()), "learning_rates: expected positive numbers"),
        (
            lambda: train(RetrievalModel(5, 3, 2, 4), max_task(2, 7, width=3), seeds=(0,)),
            r"task: expected length and width \(5, 3\), got \(7, 3\)",
        ),
        (
            lambda: train(RetrievalModel(5, 3, 2, 4), max_task(2, 5, width=3), seeds=(0, 0)),
            r"seeds: expected different non-negative integers, got \[0, 0\]",
        ),
        (
            lambda: initial_params(
                RetrievalModel(5, 3, 2, 4), np.random.default_rng(0), RetrievalModel(5, 3, 1, 9)
            ),
            "compiled: expected sizes of at least",
        ),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_parameters_are_counted():
    for model in MODELS:
        params = initial_params(model, np.random.default_rng(0))
        counted = {
            name: params[name] for name in ("encoder", "positions", "lift", "readout") if name in params
        }
        assert model.num_parameters == sum(leaf.size for leaf in jax.tree.leaves(counted))
        readout = sum(leaf.size for leaf in jax.tree.leaves(params["readout"]))
        assert model.num_readout_parameters == readout
