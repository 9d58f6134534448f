"""`theory.retrieval.snapshots`: the runs are those of `train`, importance is what finite differences say."""

import jax
import numpy as np
import pytest

from theory.retrieval import RetrievalModel, TrainingOptions, max_task, predict, train, watch

MODEL = RetrievalModel(5, 3, 3, 2, readout_width=7)
TASK = max_task(2, 5, width=3)
OPTIONS = TrainingOptions(
    learning_rates=(3e-2,), num_steps=90, batch_size=50, num_train=600, num_test=250, warmup=10
)
SEEDS = (0, 3)


@pytest.fixture(scope="module")
def watched():
    return watch(MODEL, TASK, seeds=SEEDS, steps=(7, 90), learning_rate=3e-2, options=OPTIONS)


@pytest.mark.slow  # the trainer's own program is compiled as well
def test_the_last_look_is_what_training_gives(watched):
    runs = train(MODEL, TASK, seeds=SEEDS, options=OPTIONS)
    every = np.ones((1, 3), bool)
    for run, own in zip(runs, watched, strict=True):
        found = jax.tree.map(lambda leaf: leaf[1], own.params)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(run.params), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=2e-3)  # another program of the same steps
        assert run.nmse is not None
        # Scores are of the standardised targets' mean and deviation in the training set: the same ratio.
        assert own.scores(1, every)[0] == pytest.approx(1 - run.nmse, abs=1e-3)
        assert own.scores(0, every)[0] < own.scores(1, every)[0]


def test_without_any_head_a_constant_is_left(watched):
    own = watched[0]
    hidden, out = (
        jax.tree.map(lambda leaf: leaf[1], own.params["readout"][name]) for name in ("hidden", "out")
    )
    state = own.params["class_token"][1] @ hidden["kernel"] + hidden["bias"]
    constant = float(jax.nn.gelu(state) @ out["kernel"] + out["bias"])
    targets = own.test_targets.astype(float)
    expected = 1 - np.square(targets - constant).mean() / targets.var()
    assert own.scores(1, np.zeros((1, 3), bool))[0] == pytest.approx(expected, rel=1e-4)


def test_importance_is_the_mean_of_absolute_finite_differences(watched):
    own, step = watched[1], 1e-2
    params = jax.tree.map(lambda leaf: leaf[1], own.params)
    [layer] = params["layers"]

    @jax.jit
    def losses(factors):
        kernel = layer["out"]["kernel"] * factors[:, None, None]
        changed = {**params, "layers": [{**layer, "out": {"kernel": kernel}}]}
        outputs = jax.vmap(lambda x: predict(changed, x, encoder="linear", scale=MODEL.attention_scale))(
            own.train_inputs
        )
        return (outputs - own.train_targets) ** 2

    def difference(direction):
        return np.asarray(losses(1 + step * direction), float) - np.asarray(
            losses(1 - step * direction), float
        )

    derivative = [np.abs(difference(direction)) / (2 * step) for direction in np.eye(3, dtype=np.float32)]
    expected = np.array([one.mean() for one in derivative])
    # Central differences of a smooth loss, outputs in float32: a few parts in a thousand.
    np.testing.assert_allclose(own.importance(1), expected / np.linalg.norm(expected), rtol=1e-2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": ()}, "steps: expected ascending numbers from 1 to 90"),
        ({"steps": (5, 91)}, "steps: expected ascending numbers from 1 to 90"),
        ({"task": max_task(2, 4, width=3)}, "task: expected length and width"),
        ({"model": RetrievalModel(5, 3, 3, 2, num_layers=2)}, "model: expected one layer, got 2"),
    ],
)
def test_mistakes_are_named(change, message):
    given = {"model": MODEL, "task": TASK, "steps": (7,)} | change
    with pytest.raises(ValueError, match=message):
        watch(given.pop("model"), given.pop("task"), seeds=(0,), learning_rate=1e-2, options=OPTIONS, **given)
