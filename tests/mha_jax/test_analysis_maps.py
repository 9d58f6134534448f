"""Measures of attention maps, on maps made by hand."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mha_jax import analysis, attention_weights

pytestmark = pytest.mark.float64

# Two heads on four tokens, the last of which is padding where TOKENS says so.
FIRST_HEAD = [[0.5, 0.25, 0.25, 0.0], [0.6, 0.1, 0.3, 0.0], [0.2, 0.7, 0.1, 0.0], [0.9, 0.05, 0.05, 0.0]]
SECOND_HEAD = [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
MAPS = np.array([FIRST_HEAD, SECOND_HEAD])
TOKENS = np.array([True, True, True, False])


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_shares_divide_by_all_queries_that_are_no_padding():
    found = analysis.attention_shares(MAPS, TOKENS, delimiters=np.array([False, True, False, True]))
    expected = {
        "previous": [(0.6 + 0.7) / 3, 0],
        "next": [(0.25 + 0.3) / 3, 2 / 3],
        "self": [(0.5 + 0.1 + 0.1) / 3, 0],
        "first": [(0.5 + 0.6 + 0.2) / 3, 1 / 3],
        "delimiter": [(0.25 + 0.1 + 0.7) / 3, 1 / 3],
    }
    assert set(found) == set(expected)
    for name, shares in expected.items():
        close(found[name].mean(), shares)
        close(found[name].count, [3, 3])
    assert "delimiter" not in analysis.attention_shares(MAPS, TOKENS)


def test_shares_of_chosen_queries_divide_by_their_number():
    delimiters = np.array([False, True, False, False])
    share = analysis.attention_share(MAPS, analysis.key_selector(delimiters), TOKENS, queries=~delimiters)
    close(share.mean(), [(0.25 + 0.7) / 2, 1 / 2])
    none = analysis.attention_share(MAPS, analysis.offset_selector(4, -2), TOKENS, queries=~TOKENS)
    assert np.isnan(none.mean()).all()
    close(none.count, [0, 0])


def test_weights_on_padded_keys_do_not_count():
    dirty = MAPS.copy()
    dirty[:, :3, 3] = 0.5
    dirty[:, 3] = np.nan
    for measure in (analysis.attention_entropy, analysis.confidence):
        close(measure(dirty, TOKENS).mean(), measure(MAPS, TOKENS).mean())
    for name, share in analysis.attention_shares(dirty, TOKENS).items():
        close(share.mean(), analysis.attention_shares(MAPS, TOKENS)[name].mean())
    close(analysis.head_distances(dirty, TOKENS), analysis.head_distances(MAPS, TOKENS))


def test_entropy_is_in_nats():
    rows = np.array(FIRST_HEAD)[:3, :3]
    expected = -(rows * np.log(rows)).sum(1).mean()
    close(analysis.attention_entropy(MAPS, TOKENS).mean(), [expected, 0])
    uniform = np.full((1, 5, 5), 0.2)
    close(analysis.attention_entropy(uniform).mean(), [np.log(5)])


@pytest.mark.parametrize("smoothing", [0.0, 0.01])
def test_gradients_are_finite_where_a_causal_map_is_zero(smoothing):
    logits = jax.random.normal(jax.random.key(0), (3, 4, 4))
    mask = jnp.tril(jnp.ones((4, 4), bool))[None]
    tokens = jnp.arange(4) < 3

    def entropy(logits):
        maps = jax.nn.softmax(jnp.where(mask, logits, -jnp.inf), axis=-1)
        return analysis.attention_entropy(maps, tokens, smoothing=smoothing, is_causal=True).total.sum()

    def distance(logits):
        maps = jax.nn.softmax(jnp.where(mask, logits, -jnp.inf), axis=-1)
        found = analysis.head_distances(maps, tokens, smoothing=smoothing, is_causal=True)
        return found[0, 1] + 2 * found[0, 2]

    direction = jax.random.normal(jax.random.key(1), logits.shape)
    for measure in (entropy, distance):
        slope = jax.grad(measure)(logits)
        assert np.isfinite(slope).all()
        assert not slope[:, ~np.tri(4, dtype=bool)].any()
        step = 1e-2
        difference = (measure(logits + step * direction) - measure(logits - step * direction)) / (2 * step)
        assert abs(difference) > 0.01
        np.testing.assert_allclose((slope * direction).sum(), difference, rtol=5e-3)
    # The map itself, not what made it: maps of exact zeros, and heads that are the same.
    maps = jnp.asarray(MAPS)
    for measure in (
        lambda m: analysis.attention_entropy(m, TOKENS).total.sum(),
        lambda m: analysis.head_distances(m, TOKENS, smoothing=0.0).sum(),
        lambda m: analysis.head_distances(jnp.concatenate([m, m]), smoothing=0.0).sum(),
    ):
        assert np.isfinite(jax.grad(measure)(maps)).all()
    slope = jax.grad(lambda m: analysis.attention_entropy(m).total.sum())(maps)
    np.testing.assert_allclose(slope[0, 0], [np.log(2) - 1, np.log(4) - 1, np.log(4) - 1, 0], rtol=1e-5)


def test_smoothing_mixes_with_the_keys_that_may_be_attended():
    smoothed = 0.9 * np.array([1.0, 0, 0]) + 0.1 / 3
    expected = -(smoothed * np.log(smoothed)).sum()
    close(analysis.attention_entropy(MAPS, TOKENS, smoothing=0.1).mean()[1], expected)
    causal = np.tril(np.ones((3, 3))) / np.array([[1], [2], [3]])
    found = analysis.attention_entropy(causal[None], smoothing=0.3, is_causal=True)
    close(found.total, [np.log(2) + np.log(3)])  # uniform stays uniform


def test_confidence_is_the_mean_largest_weight():
    close(analysis.confidence(MAPS, TOKENS).mean(), [(0.5 + 0.6 + 0.7) / 3, 1])
    special = np.array([True, False, False, False])
    close(analysis.confidence(MAPS, TOKENS, queries=~special).mean(), [(0.6 + 0.7) / 2, 1])
    found = analysis.confidence(MAPS, TOKENS, queries=~special, keys=~special)
    close(found.mean(), [(0.3 + 0.7) / 2, 1 / 2])


def test_examples_and_layers_keep_their_axes_and_pieces_add_up():
    rng = np.random.default_rng(0)
    maps = rng.dirichlet(np.ones(5), size=(2, 3, 4, 5))  # layers, examples, heads, queries
    tokens = np.arange(5) < np.array([[5], [2], [4]])
    whole = analysis.attention_entropy(maps, tokens)
    assert whole.mean().shape == (2, 3, 4)
    close(whole.count[0, :, 0], [5, 2, 4])
    pieces = [analysis.attention_entropy(maps[:, i], tokens[i]) for i in range(3)]
    close((pieces[0] + pieces[1] + pieces[2]).mean(), whole.over(1).mean())
    one = analysis.attention_entropy(maps[1, 1, :, :2, :2]).mean()
    padded = maps[1, 1].copy()
    padded[:, :2, 2:] = 0
    close(analysis.attention_entropy(padded, tokens[1]).mean(), one)


def test_sums_are_trees_that_transformations_take():
    maps = jnp.asarray(np.stack([MAPS, MAPS[::-1]]))
    start = analysis.Total(jnp.zeros(2, maps.dtype), jnp.zeros(2, maps.dtype))
    total, _ = jax.lax.scan(lambda sums, m: (sums + analysis.confidence(m), None), start, maps)
    close(total.mean(), jax.vmap(analysis.confidence)(maps).over(0).mean())


def test_distance_of_heads_is_the_divergence_summed_over_tokens():
    rng = np.random.default_rng(1)
    maps = rng.dirichlet(np.ones(4) / 3, size=(5, 4))
    maps[3] = maps[1]
    maps[4] = np.eye(4)
    for smoothing in (0.0, 0.001):
        p = (1 - smoothing) * maps + smoothing / 4
        m = (p[:, None] + p[None]) / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(p[:, None] > 0, p[:, None] * np.log(p[:, None] / m), 0)
        halves = terms.sum((-2, -1))
        found = analysis.head_distances(maps, smoothing=smoothing)
        np.testing.assert_allclose(found, (halves + halves.T) / 2, atol=2e-6)
    assert found[1, 3] < 1e-6
    np.testing.assert_array_equal(np.diag(found), 0)
    disjoint = np.stack([np.eye(4), np.roll(np.eye(4), 1, axis=1)])
    close(analysis.head_distances(disjoint, smoothing=0.0), 4 * np.log(2) * (1 - np.eye(2)))


def test_word_maps_sum_to_a_word_and_average_from_it():
    # Pieces: [CLS], word 0 of two pieces, word 1, padding.
    words = np.array([-1, 0, 0, 1, -1])
    maps = np.zeros((2, 5, 5))
    maps[0, 1] = [0.1, 0.2, 0.3, 0.4, 0.0]
    maps[0, 2] = [0.0, 0.1, 0.1, 0.8, 0.0]
    maps[0, 3] = [0.5, 0.2, 0.1, 0.2, 0.0]
    maps[1] = np.eye(5)
    found = analysis.word_maps(maps, words, 3)
    close(found[0], [[0.35, 0.6, 0], [0.3, 0.2, 0], [0, 0, 0]])
    close(found[1], [[1, 0, 0], [0, 1, 0], [0, 0, 0]])
    both = analysis.word_maps(maps, np.stack([words, words]), 3)
    close(both, found)


def test_dependencies_are_predicted_in_both_directions_without_the_diagonal():
    # Word 0 depends on 1, word 1 is the root, word 2 depends on 1; word 3 is not there.
    maps = np.array([[0.9, 0.1, 0.0, 0.9], [0.7, 0.2, 0.1, 0.9], [0.3, 0.2, 0.5, 0.9], [0.0, 0.9, 0.9, 0.0]])
    real = np.array([True, True, True, False])
    attends = analysis.attended_word(maps, real)
    attended = analysis.attended_word(maps, real, attends=False)
    np.testing.assert_array_equal(attends[:3], [1, 0, 0])
    np.testing.assert_array_equal(attended[:3], [1, 2, 1])
    heads, relations = np.array([1, -1, 1, 0]), np.array([0, -1, 1, -1])
    hits = analysis.dependency_hits(jnp.stack([attends, attended]), heads, relations, 2)
    close(hits.total, [[1, 0], [1, 1]])
    close(hits.count, [[1, 1], [1, 1]])


def test_fixed_offsets_are_the_baseline():
    heads, relations = np.array([1, 2, -1, 2, 3]), np.array([0, 0, -1, 1, 1])
    hits = analysis.offset_hits(heads, relations, 2, (-2, -1, 1))
    close(hits.total, [[0, 0], [0, 2], [2, 0]])
    close(hits.count, [[2, 2]] * 3)
    outside = analysis.offset_hits(np.array([-1, 0]), np.array([0, 0]), 1, (-1, 1))
    close(outside.total, [[1], [0]])  # the root's head, -1, is not the word before the first


def test_nobody_attends_where_there_are_no_words():
    for maps in (np.zeros((2, 0, 0)), analysis.word_maps(MAPS, np.full(4, -1), 0)):
        for attends in (True, False):
            found = analysis.attended_word(maps, attends=attends)
            assert found.shape == (*maps.shape[:-2], 0)
            assert jnp.issubdtype(found.dtype, jnp.integer)
    hits = analysis.dependency_hits(np.zeros((2, 0), int), np.zeros(0, int), np.zeros(0, int), 3)
    close(hits.count, np.zeros((2, 3)))


def test_numbers_of_words_may_be_traced():
    found = jax.jit(analysis.offset_hits, static_argnums=2)(np.array([1, 0]), np.array([0, 0]), 1)
    close(found.total, analysis.offset_hits(np.array([1, 0]), np.array([0, 0]), 1).total)


def test_lists_are_taken_everywhere():
    maps = MAPS.tolist()
    hits = inspect.unwrap(analysis.offset_hits)([1, 2, -1], [0, 0, -1], 1)
    close(hits.total, analysis.offset_hits(np.array([1, 2, -1]), np.array([0, 0, -1]), 1).total)
    assert hits.total.sum() == 2
    for name, arguments in (
        ("attention_entropy", (maps,)),
        ("confidence", (maps,)),
        ("head_distances", (maps,)),
        ("attention_share", (maps, np.eye(4, dtype=bool).tolist())),
        ("word_maps", (maps, [0, 1, 1, -1], 2)),
        ("attended_word", (maps,)),
        ("dependency_hits", ([[1, 0, 0]], [1, 2, -1], [0, 0, -1], 1)),
        ("induction_score", (maps, [1, 2, 1, 2])),
        ("previous_token_score", (maps, TOKENS.tolist())),
        ("sink_score", (maps, TOKENS.tolist())),
    ):
        function = inspect.unwrap(getattr(analysis, name))
        arrays = (np.asarray(value) if isinstance(value, list) else value for value in arguments)
        jax.tree.map(close, function(*arguments), function(*arrays))


def test_scores_of_causal_heads():
    ids = np.array([7, 8, 9, 7, 8, 9])
    selector = np.zeros((6, 6), bool)
    selector[3, 1] = selector[4, 2] = selector[5, 3] = True
    np.testing.assert_array_equal(analysis.induction_selector(ids), selector)
    repeated = np.array(analysis.induction_selector(np.array([1, 1, 1])))
    np.testing.assert_array_equal(repeated, [[0, 0, 0], [0, 0, 0], [0, 1, 0]])
    maps = np.zeros((3, 6, 6))
    maps[0] = np.tril(np.ones((6, 6))) / np.arange(1, 7)[:, None]
    maps[1, :, 0] = 1
    maps[2] = selector + 0.0
    maps[2, 1:3, 0] = 1
    close(analysis.induction_score(maps, ids).mean(), [(1 / 4 + 1 / 5 + 1 / 6) / 3, 0, 1])
    close(analysis.induction_score(maps, ids, np.arange(6) < 5).mean(), [(1 / 4 + 1 / 5) / 2, 0, 1])
    close(analysis.previous_token_score(maps).mean(), [sum(1 / t for t in range(2, 7)) / 5, 1 / 5, 1 / 5])
    close(analysis.sink_score(maps).mean(), [sum(1 / t for t in range(2, 7)) / 5, 1, 2 / 5])


def test_padding_may_stand_on_the_left():
    """What is measured of a sequence does not depend on where its padding is."""
    ids = np.array([7, 8, 7, 8, 5])
    maps = np.tril(np.random.default_rng(0).dirichlet(np.ones(5), size=(2, 5)))
    maps /= maps.sum(-1, keepdims=True)
    measures = {
        "previous": lambda m, tokens, ids: analysis.previous_token_score(m, tokens),
        "sink": lambda m, tokens, ids: analysis.sink_score(m, tokens),
        "induction": lambda m, tokens, ids: analysis.induction_score(m, ids, tokens),
        "entropy": lambda m, tokens, ids: analysis.attention_entropy(
            m, tokens, smoothing=0.1, is_causal=True
        ),
        "confidence": lambda m, tokens, ids: analysis.confidence(m, tokens),
    } | {
        name: lambda m, tokens, ids, name=name: analysis.attention_shares(m, tokens)[name]
        for name in ("previous", "next", "self", "first")
    }
    for name, measure in measures.items():
        alone = measure(maps, None, ids)
        assert (np.asarray(alone.total) > 0).all() or name == "next"
        for left, right in ((1, 0), (2, 1), (0, 2)):
            padded = np.pad(maps, ((0, 0), (left, right), (left, right)), constant_values=0.3)
            tokens = np.pad(np.ones(5, bool), (left, right))
            # Padding is token 8: the key behind it is no continuation of an earlier 8.
            found = measure(padded, tokens, np.pad(ids, (left, right), constant_values=8))
            close(found.total, alone.total)
            close(found.count, alone.count)
    close(analysis.previous_token_score(np.ones((1, 4, 4)), np.array([False, True, True, True])).count, [2])
    everything = analysis.sink_score(np.ones((2, 1, 3, 3)), np.array([[False] * 3, [True] * 3]))
    close(everything.count, [[0], [2]])


def test_measures_take_the_maps_of_the_kernels():
    query, key = jax.random.normal(jax.random.key(0), (2, 3, 5, 2, 4))
    lengths = jnp.array([5, 3, 1])
    maps = attention_weights(
        query, key, query_seq_lengths=lengths, key_value_seq_lengths=lengths, is_causal=True
    )
    tokens = jnp.arange(5)[None, :] < lengths[:, None]
    everywhere = analysis.attention_share(maps, jnp.ones((5, 5), bool), tokens)
    close(everywhere.mean(), np.ones((3, 2)))
    close(analysis.confidence(maps, tokens).mean()[2], [1, 1])


BAD = [
    ("weights", analysis.confidence, np.ones((2, 3, 4))),
    ("weights", analysis.attention_entropy, np.ones((2, 3, 3), int)),
    ("weights", analysis.head_distances, np.ones((2, 2, 3, 3))),
    ("weights", analysis.attention_shares, np.float32(1)),
    ("weights", analysis.previous_token_score, np.float32(1)),
    ("weights", analysis.sink_score, np.float32(1)),
    ("weights", analysis.sink_score, np.ones((3, 3))),
    ("tokens", analysis.confidence, MAPS, np.ones(3, bool)),
    ("tokens", analysis.confidence, MAPS, np.ones(4)),
    ("tokens", analysis.confidence, MAPS, np.ones((2, 4), bool)),
    ("selector", analysis.attention_share, MAPS, np.ones((3, 4), bool)),
    ("keys", analysis.key_selector, np.ones(4)),
    ("num_tokens", analysis.offset_selector, -1, 0),
    ("words", analysis.word_maps, MAPS, np.zeros(3, int), 2),
    ("maps", analysis.attended_word, np.ones((2, 3))),
    ("real", analysis.attended_word, np.ones((3, 3)), np.ones(2, bool)),
    ("weights", analysis.word_maps, np.ones((3, 3), int), np.zeros(3, int), 2),
    ("words", analysis.word_maps, MAPS, np.full(4, 2), 2),
    ("num_words", analysis.word_maps, MAPS, np.zeros(4, int), -1),
    ("maps", analysis.attended_word, np.ones((3, 3), int)),
    ("real", analysis.attended_word, np.ones((3, 3)), np.array([1, 0, 2])),
    ("predicted", analysis.dependency_hits, np.zeros(3), np.zeros(3, int), np.zeros(3, int), 1),
    ("heads", analysis.dependency_hits, np.zeros(3, int), np.full(3, 3), np.zeros(3, int), 1),
    ("heads", analysis.dependency_hits, np.zeros(3, int), np.zeros(3), np.zeros(3, int), 1),
    ("relations", analysis.dependency_hits, np.zeros(3, int), np.zeros(3, int), np.ones(3, int), 1),
    ("relations", analysis.dependency_hits, np.zeros(3, int), np.zeros(3, int), np.full(3, -2), 1),
    ("num_relations", analysis.dependency_hits, np.zeros(3, int), np.zeros(3, int), np.zeros(3, int), -1),
    ("offsets", analysis.offset_hits, np.zeros(3, int), np.zeros(3, int), 1, (0.5,)),
    ("offsets", analysis.offset_hits, np.zeros(3, int), np.zeros(3, int), 1, ()),
    ("heads", analysis.dependency_hits, np.zeros(3, int), np.zeros(2, int), np.zeros(3, int), 1),
    ("token_ids", analysis.induction_selector, np.ones(3)),
    ("token_ids", analysis.induction_score, MAPS, np.ones(3, int)),
    ("heads", analysis.offset_hits, np.zeros((2, 3), int), np.zeros(3, int), 1),
]


@pytest.mark.parametrize(("name", "function", "arguments"), [(n, f, a) for n, f, *a in BAD])
def test_errors_name_the_argument(name, function, arguments):
    # Without the checks of annotations, which come first in tests and are not there for a user.
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        inspect.unwrap(function)(*arguments)


def test_errors_name_options():
    with pytest.raises(ValueError, match=r"^queries: expected"):
        analysis.confidence(MAPS, queries=np.ones(5, bool))
    with pytest.raises(ValueError, match=r"^smoothing: expected"):
        analysis.attention_entropy(MAPS, smoothing=1.0)
