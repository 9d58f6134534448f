"""What all trainers promise: one interface, outcomes that stand up in float64, runs that do not see each other."""

import functools
import inspect
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from theory.problems import make_problem
from theory.recognition import Recovery, channel_scores, evaluate
from theory.training import PLAIN, TRAINERS, Channel, JointOptions, PolishOptions, joint, polish, train, types
from theory.training.types import check_batch, initial_factors

ITEMS, D_MODEL, HEADS, WIDTH, SEEDS = 23, 7, 3, 5, (0, 1, 2)
EASY = 5  # every trainer recovers all seeds at this head_dim
HARD = 2  # joint misses edges of all seeds, the others of some or none

pytestmark = pytest.mark.float64
each_trainer = pytest.mark.parametrize("trainer", TRAINERS)


@functools.cache
def _batch(seeds: tuple[int, ...] = SEEDS) -> tuple[np.ndarray, np.ndarray]:
    problems = [
        make_problem(
            num_items=ITEMS,
            num_edges=ITEMS,
            d_model=D_MODEL,
            embedding="gaussian",
            graph="permutation",
            seed=seed,
        )
        for seed in seeds
    ]
    return np.stack([p.embeddings for p in problems]), np.stack([p.graph.adjacency() for p in problems])


@functools.cache
def _trained(trainer, head_dim: int, seeds=SEEDS, width: int = WIDTH) -> list[Channel]:
    return train(trainer, *_batch(seeds), num_heads=HEADS, head_dim=head_dim, seeds=seeds, max_head_dim=width)


def _judge(channel: Channel, seed: int) -> Recovery:
    (embeddings,), (adjacency,) = _batch((seed,))
    scores = channel_scores(embeddings, channel.query_weights, channel.key_weights)
    return evaluate(scores, adjacency, channel.threshold)


def _missed(channel: Channel, seed: int) -> int:
    (embeddings,), (adjacency,) = _batch((seed,))
    scores = channel_scores(embeddings, channel.query_weights, channel.key_weights)
    return int(np.sum(scores[adjacency] <= scores[~adjacency].max()))


def _assert_same(one: Channel, other: Channel) -> None:
    np.testing.assert_array_equal(one.query_weights, other.query_weights)
    np.testing.assert_array_equal(one.key_weights, other.key_weights)
    assert (one.threshold, one.loss, one.steps, one.reason) == (
        other.threshold,
        other.loss,
        other.steps,
        other.reason,
    )


@each_trainer
@pytest.mark.parametrize("head_dim", [EASY, HARD])
def test_channels_are_finite_float32_of_the_size_asked_for(trainer, head_dim):
    for channel in _trained(trainer, head_dim):
        for weights in (channel.query_weights, channel.key_weights):
            assert weights.shape == (HEADS, D_MODEL, head_dim)
            assert weights.dtype == np.float32
            assert np.isfinite(weights).all()
        assert np.isfinite(channel.threshold)
        assert np.isfinite(channel.loss)
        assert channel.steps > 0
        assert channel.reason is None
        options = {"joint": JointOptions(), "plain": PLAIN, "polish": PolishOptions()}.get(trainer)
        assert channel.learning_rate == (options and options.learning_rate)


@each_trainer
def test_an_easy_graph_is_recovered_exactly(trainer):
    for seed, channel in zip(SEEDS, _trained(trainer, EASY), strict=True):
        recovery = _judge(channel, seed)
        assert recovery.exact_recovery
        assert recovery.micro_f1 == 1  # by the channel's own threshold


@pytest.mark.parametrize("trainer", ["greedy", "polish"])
@pytest.mark.parametrize("head_dim", [1, HARD, EASY])
def test_the_loss_of_greedy_and_polish_counts_the_missed_edges(trainer, head_dim):
    for seed, channel in zip(SEEDS, _trained(trainer, head_dim), strict=True):
        missed = _missed(channel, seed)
        assert channel.loss == pytest.approx(missed / ITEMS, abs=1e-12)
        # The trained threshold lies between the edges held and all non-edges: nothing else is missed, none invented.
        held = ITEMS - missed
        assert _judge(channel, seed).micro_f1 == pytest.approx(2 * held / (held + ITEMS), abs=1e-12)


def test_polish_holds_no_fewer_edges_than_greedy_and_keeps_an_exact_channel():
    for head_dim in (1, HARD, EASY):
        for before, after in zip(_trained("greedy", head_dim), _trained("polish", head_dim), strict=True):
            assert after.loss <= before.loss
            if after.loss == before.loss:
                np.testing.assert_array_equal(after.query_weights, before.query_weights)
                np.testing.assert_array_equal(after.key_weights, before.key_weights)
                assert after.threshold == before.threshold
            assert (after.steps > before.steps) == (before.loss > 0)


def test_polish_keeps_the_best_channel_it_passes():
    """One-dimensional heads hold two edges each from the start and never more: descent can only lose some."""
    embeddings, adjacency = _batch()
    padding = ((0, 0), (0, 0), (0, 0), (0, WIDTH - 1))
    greedy = _trained("greedy", 1)
    params = {
        "query": jnp.asarray(np.pad(np.stack([channel.query_weights for channel in greedy]), padding)),
        "key": jnp.asarray(np.pad(np.stack([channel.key_weights for channel in greedy]), padding)),
        "threshold": jnp.ones(len(SEEDS), jnp.float32),
    }
    items = jnp.asarray(embeddings, jnp.float32)
    run = polish._polish(params, items, jnp.asarray(adjacency), options=PolishOptions())
    for name in ("query", "key"):
        np.testing.assert_array_equal(run.best[name], params[name])
        np.testing.assert_array_equal(run.params[name][..., 1:], 0)
        assert (run.params[name] != params[name]).any()
    np.testing.assert_array_equal(run.held.number, 2 * HEADS)


def test_polish_finds_room_for_edges_that_a_poor_start_misses(monkeypatch):
    """The start is the greedy channel with noise on its weights: it misses edges that the channel can hold."""
    rng = np.random.default_rng(0)
    starts = []
    for seed, exact in zip(SEEDS, _trained("greedy", EASY), strict=True):
        noise = 0.02 * rng.standard_normal(exact.query_weights.shape) * (exact.query_weights != 0)
        start = replace(exact, query_weights=(exact.query_weights + noise).astype(np.float32))
        assert _missed(start, seed) > 0
        starts.append(replace(start, loss=_missed(start, seed) / ITEMS))
    monkeypatch.setattr(polish, "train_greedy", lambda *_, **__: starts)
    polished = train("polish", *_batch(), num_heads=HEADS, head_dim=EASY, seeds=SEEDS)
    for seed, channel in zip(SEEDS, polished, strict=True):
        assert _judge(channel, seed).exact_recovery


@each_trainer
def test_a_run_does_not_see_its_neighbours(trainer):
    """Seed 0 ends early among neighbours that go on much longer, and the other way round; bitwise the same."""
    seeds = (0, 2, 1)
    dim = EASY if trainer == "joint" else HARD  # where it does not recover it goes on to the last step
    usual, shuffled = _trained(trainer, dim), _trained(trainer, dim, seeds)
    for seed in SEEDS:
        _assert_same(usual[seed], shuffled[seeds.index(seed)])
    other = _trained(trainer, dim, (0, 0, 0))
    for channel in other:
        _assert_same(channel, usual[0])
    steps = [channel.steps for channel in usual]
    assert len(set(steps)) > 1  # else nothing had to be frozen


@pytest.mark.parametrize("trainer", ["joint", "plain", pytest.param("greedy", marks=pytest.mark.slow)])
def test_a_run_alone_ends_as_in_a_batch(trainer):
    for seed in SEEDS[:2]:
        (alone,), together = _trained(trainer, EASY, (seed,)), _trained(trainer, EASY)[seed]
        assert _judge(alone, seed).exact_recovery
        assert alone.steps == pytest.approx(together.steps, rel=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ["joint", "plain", "greedy"])
def test_the_compiled_width_changes_no_outcome(trainer):
    for seed in SEEDS:
        wide, narrow = _trained(trainer, EASY, width=D_MODEL)[seed], _trained(trainer, EASY)[seed]
        assert _judge(wide, seed).exact_recovery
        assert _judge(narrow, seed).exact_recovery
        assert wide.steps == pytest.approx(narrow.steps, rel=0.5)


def test_initial_columns_do_not_depend_on_the_compiled_width():
    draw = functools.partial(initial_factors, d_model=7, head_dim=3, scale=0.5)
    narrow, wide = (draw([3, 5], ["a", "b", "c"], max_head_dim=width) for width in (3, 11))
    for a, b in zip(narrow, wide, strict=True):
        np.testing.assert_array_equal(a, b[..., :3])
        np.testing.assert_array_equal(b[..., 3:], 0)
        assert (a.dtype, a.shape) == (np.float32, (2, 3, 7, 3))
    every = np.concatenate(narrow).reshape(12, -1)  # of problems and names, queries and keys
    assert len(np.unique(every, axis=0)) == 12
    np.testing.assert_array_equal(draw([5], ["b"], max_head_dim=3)[0][0, 0], narrow[0][1, 1])
    many, _ = initial_factors([4], ["a"], d_model=101, head_dim=97, max_head_dim=97, scale=0.5)
    # The variance of n squares of standard deviation 1/2 has a relative standard deviation of sqrt(2 / n).
    assert np.var(many) == pytest.approx(0.25, rel=5 * np.sqrt(2 / many.size))


def test_inactive_columns_stay_zero():
    embeddings, adjacency = _batch()
    run = joint._optimise(
        joint.initial_params(
            SEEDS, num_heads=HEADS, d_model=D_MODEL, head_dim=HARD, max_head_dim=WIDTH, scale=0.3
        ),
        jnp.asarray(embeddings, jnp.float32),
        jnp.asarray(adjacency),
        joint.scalars_of(float(np.sqrt(ITEMS - 1)), PLAIN),
        **joint.static_of(PLAIN),
    )
    for name in ("query", "key"):
        np.testing.assert_array_equal(run.params[name][..., HARD:], 0)
        assert (run.params[name][..., :HARD] != 0).all()
    np.testing.assert_array_equal(
        run.params["query"][..., :HARD], np.stack([c.query_weights for c in _trained("plain", HARD)])
    )


def test_a_joint_run_stops_at_recovery_and_a_plain_one_on_its_plateau():
    for trainer in ("joint", "plain"):
        for channel in _trained(trainer, EASY):
            assert channel.steps % PLAIN.check_every == 0
            assert channel.steps < PLAIN.max_steps
    assert PLAIN.patience is not None
    failed = _trained("plain", 1)
    assert all(PLAIN.patience * PLAIN.check_every < c.steps < PLAIN.max_steps for c in failed)
    assert {c.steps for c in _trained("joint", 1)} == {JointOptions().max_steps}


def test_joint_runs_that_diverge_have_a_reason_and_spare_their_neighbours():
    embeddings, adjacency = (array.copy() for array in _batch())
    embeddings[1] *= 1e25
    channels = train(
        "joint", embeddings, adjacency, num_heads=HEADS, head_dim=HARD, seeds=SEEDS, max_head_dim=WIDTH
    )
    assert channels[1].reason is not None
    assert "not finite" in channels[1].reason
    assert channels[1].steps == JointOptions().check_every
    for sound in (0, 2):
        _assert_same(channels[sound], _trained("joint", HARD)[sound])


def test_a_joint_run_whose_scale_vanishes_has_a_reason():
    channels = train(
        "joint",
        *_batch(),
        num_heads=HEADS,
        head_dim=HARD,
        seeds=SEEDS,
        max_head_dim=WIDTH,
        joint_options=JointOptions(learning_rate=1e6),
    )
    for channel in channels:
        assert channel.reason is not None
        assert "not finite" in channel.reason


@pytest.mark.parametrize("trainer", ["greedy", "polish"])
def test_greedy_heads_that_diverge_have_a_reason_and_spare_their_neighbours(trainer):
    embeddings, adjacency = (array.copy() for array in _batch())
    embeddings[1] *= 1e15  # the scores are finite, their squares are not
    channels = train(
        trainer, embeddings, adjacency, num_heads=HEADS, head_dim=EASY, seeds=SEEDS, max_head_dim=WIDTH
    )
    assert channels[1].reason is not None
    assert "not finite" in channels[1].reason
    for sound in (0, 2):
        _assert_same(channels[sound], _trained(trainer, EASY)[sound])


@each_trainer
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num_heads": 0}, "num_heads: expected a positive integer, got 0"),
        ({"head_dim": 0}, "head_dim: expected a positive integer, got 0"),
        ({"head_dim": -3}, "head_dim: expected a positive integer, got -3"),
        ({"max_head_dim": 1}, "max_head_dim: expected at least head_dim = 2, got 1"),
        ({"seeds": (0, 1)}, "seeds: expected one for each of 3 problems, got 2"),
        ({"seeds": (0, 1, -1)}, r"seeds: expected non-negative integers, got \[0, 1, -1\]"),
    ],
)
def test_bad_sizes_are_refused(trainer, changed, message):
    arguments = {"num_heads": HEADS, "head_dim": 2, "seeds": SEEDS, "max_head_dim": 2, **changed}
    with pytest.raises(ValueError, match=message):
        train(trainer, *_batch(), **arguments)


@each_trainer
def test_bad_arrays_are_refused(trainer):
    embeddings, adjacency = _batch()
    sizes = {"num_heads": HEADS, "head_dim": 2, "seeds": SEEDS}
    for bad in (np.nan, np.inf):
        wrong = embeddings.copy()
        wrong[2, 3, 5] = bad
        with pytest.raises(ValueError, match="embeddings: expected finite numbers"):
            train(trainer, wrong, adjacency, **sizes)
    unequal = adjacency.copy()
    unequal[1, 0, ~unequal[1, 0]] = True
    with pytest.raises(ValueError, match="adjacency: expected the same positive number of edges"):
        train(trainer, embeddings, unequal, **sizes)
    with pytest.raises(ValueError, match="adjacency: expected the same positive number of edges"):
        train(trainer, embeddings, np.zeros_like(adjacency), **sizes)


def test_another_trainer_is_refused():
    with pytest.raises(
        ValueError, match=r"trainer: expected one of \('joint', 'plain', 'greedy', 'polish'\), got 'adam'"
    ):
        inspect.unwrap(train)("adam", *_batch(), num_heads=HEADS, head_dim=2, seeds=SEEDS)


def test_edges_are_listed_per_problem():
    embeddings, adjacency = _batch()
    edges = check_batch(embeddings, adjacency, HEADS, 2, 2, SEEDS)
    for listed, matrix in zip(edges, adjacency, strict=True):
        assert {tuple(edge) for edge in listed.tolist()} == {tuple(e) for e in np.argwhere(matrix).tolist()}


@pytest.mark.slow
@each_trainer
def test_64_bit_jax_changes_nothing(trainer):
    embeddings, adjacency = _batch()
    results = []
    for wide in (False, True):
        with jax.enable_x64(wide):
            results.append(
                train(
                    trainer,
                    embeddings,
                    adjacency,
                    num_heads=HEADS,
                    head_dim=HARD,
                    seeds=SEEDS,
                    max_head_dim=WIDTH,
                )
            )
    for one, other in zip(*results, strict=True):
        _assert_same(one, other)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_steps", 0),
        ("check_every", -1),
        ("patience", 0),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("positive_weight", -1.0),
        ("init_scale", -1.0),
        ("min_fall", 1.0),
        ("temperature", -1.0),
        ("aggregation", "mean"),
        ("loss", "square"),
    ],
)
def test_settings_of_joint_training_that_are_none_are_refused(field, value):
    with pytest.raises(ValueError, match=f"{field}: expected"):
        JointOptions(**{field: value})


def test_arrays_that_are_no_batch_are_refused():
    items, edges = _batch()
    sizes = {"num_heads": 2, "head_dim": 2, "seeds": SEEDS}
    for x, a, said in (
        (items[0], edges[0], "embeddings: expected a non-empty batch"),
        (items, edges.astype(int), "adjacency: expected booleans of shape"),
        (items[:, :-1], edges, "adjacency: expected booleans of shape"),
    ):
        with pytest.raises(ValueError, match=said):
            check_batch_of(x, a, **sizes)
    with pytest.raises(ValueError, match=r"num_heads: expected a positive integer, got 2\.5"):
        check_batch_of(items, edges, **(sizes | {"num_heads": 2.5}))


def check_batch_of(embeddings, adjacency, *, num_heads, head_dim, seeds):
    """Without the tests' own checks of types, as a user has it."""
    check = inspect.unwrap(types.check_batch)
    return check(embeddings, adjacency, num_heads, head_dim, 4, seeds)
