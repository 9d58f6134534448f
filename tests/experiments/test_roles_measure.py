"""Scores, dependency counts and maps of heads against loops over hand-held arrays."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.pretrained import forward, load, random_weights
from experiments.roles import dependency, mds, measure, text, treebank
from experiments.roles.units import near_and_far, pack, unpack
from mha_jax.analysis import OFFSETS
from tests.experiments import small_models

TREEBANK = """\
# text = w3 w4w5 w6.
1\tw3\t_\t_\t_\t_\t2\tnsubj\t_\t_
2-3\tw4w5\t_\t_\t_\t_\t_\t_\t_\t_
2\tw4\t_\t_\t_\t_\t0\troot\t_\t_
3\tw5\t_\t_\t_\t_\t4\tdet\t_\t_
3.1\tnobody\t_\t_\t_\t_\t_\t_\t_\t_
4\tw6\t_\t_\t_\t_\t2\tobj\t_\tSpaceAfter=No|Other=1
5\tw7\t_\t_\t_\t_\t2\tpunct\t_\t_

1\tw8 w9\t_\t_\t_\t_\t2\tdet\t_\t_
2\tw10\t_\t_\t_\t_\t3\tnsubj:pass\t_\t_
3\tw11\t_\t_\t_\t_\t0\troot\t_\t_

1\tw12\t_\t_\t_\t_\t3\tnsubj\t_\t_
2\tw13\t_\t_\t_\t_\t1\tdet\t_\t_
3\tw14\t_\t_\t_\t_\t0\troot\t_\t_
4\tw15 w16 w17\t_\t_\t_\t_\t3\tobj\t_\t_

1\tw18\t_\t_\t_\t_\t2\tdet\t_\t_
2\tw19\t_\t_\t_\t_\t0\troot\t_\t_
3\tw3\t_\t_\t_\t_\t2\tnsubj\t_\t_
"""
RELATIONS = ("all", "nsubj", "det", "obj", "none such")


@pytest.fixture(scope="module", params=["bert", "llama"])
def model(request, tmp_path_factory):
    return load(small_models.write(tmp_path_factory.mktemp(request.param), request.param))


@pytest.fixture(scope="module")
def sentences():
    return treebank.parse(TREEBANK)


run = jax.jit(forward, static_argnums=1, static_argnames="return_weights")


def maps_of(model, ids):
    """Attention maps ``(L, N, t, t)`` of one sequence."""
    tokens = jnp.array([ids + [0] * (12 - len(ids))])
    out = run(model.params, model.config, tokens, jnp.array([len(ids)]), return_weights=True)
    assert out.weights is not None
    return np.asarray(out.weights[:, 0, :, : len(ids), : len(ids)], np.float64)


def test_text_scores_are_those_of_loops(model):
    """Sequences of different lengths in batches that are not full, with a separator inside of one."""
    around = model.tokenizer.around
    sequences = [around(ids) for ids in ([5, 3, 28, 17, 11], [4, 4], [9, 8, 7, 2, 6, 5], [3], [21, 20])]
    got = measure.text_scores(model, model.params, iter(sequences), 12)
    suffix = set(model.tokenizer.suffix)
    assert len(suffix) == (0 if model.config.causal else 1)
    names = ("previous", "next", "self", "first", "separator", "delimiter", "entropy", "uniform_entropy")
    shape = model.config.num_layers, model.config.num_heads
    sums = {name: np.zeros(shape) for name in names}
    largest, places, sink, counted, others = 0.0, [], 0.0, 0, 0
    for ids in sequences:
        weights = maps_of(model, ids)
        for t in range(len(ids)):
            keys = list(range(t + 1 if model.config.causal else len(ids)))
            row = weights[..., t, :]
            sums["previous"] += row[..., max(t - 1, 0)] * (t > 0)
            sums["next"] += row[..., t + 1 : t + 2].sum(-1)
            sums["self"] += row[..., t]
            sums["first"] += row[..., 0]
            sums["separator"] += row[..., [s for s in keys if ids[s] in suffix]].sum(-1)
            sums["delimiter"] += row[..., [s for s in keys if ids[s] in suffix]].sum(-1)
            smooth = (1 - 1e-4) * row[..., keys] + 1e-4 / len(keys)
            sums["entropy"] += -(smooth * np.log(smooth)).sum(-1)
            sums["uniform_entropy"] += np.log(len(keys))
            if t:
                sink, others = sink + row[..., 0], others + 1
            if ids[t] not in suffix:
                allowed = [s for s in keys if ids[s] not in suffix]
                largest = largest + row[..., allowed].max(-1)
                places.append(np.array(allowed)[row[..., allowed].argmax(-1)] - t)
                counted += 1
    num_tokens = sum(map(len, sequences))
    assert got["num_tokens"] == num_tokens
    for name, total in sums.items():
        assert np.abs(got[name] - total / num_tokens).max() < 1e-5, name
    assert np.abs(got["sink"] - sink / others).max() < 1e-5
    assert np.abs(got["confidence"] - largest / counted).max() < 1e-5
    for place in np.ndindex(got["offset"].shape):
        offsets, numbers = np.unique([found[place] for found in places], return_counts=True)
        assert got["offset_share"][place] == pytest.approx(numbers.max() / counted)
        assert got["offset"][place] == offsets[numbers.argmax()]
    assert not got["punctuation"].any()


def test_repeated_tokens_are_repeated(tmp_path):
    model = load(small_models.write(tmp_path / "m", "llama"))
    got = measure.repeated_scores(model, model.params, 3, 5)
    rng = np.random.default_rng(0)
    induction, previous = 0.0, 0.0
    for _ in range(3):
        ids = rng.choice(small_models.VOCAB, 5, replace=False).tolist() * 2
        weights = maps_of(model, ids)
        induction += sum(weights[..., t, t - 4] for t in range(5, 10)) / 15
        previous += sum(weights[..., t, t - 1] for t in range(1, 10)) / 27
    assert np.abs(got["induction"] - induction).max() < 1e-5
    assert np.abs(got["previous_random"] - previous).max() < 1e-5
    with pytest.raises(ValueError, match="repeated_length: expected at most 29"):
        measure.repeated_scores(model, model.params, 1, 30)


def test_a_treebank_is_read_as_it_was_written(sentences):
    assert len(sentences) == 4
    first = sentences[0]
    assert first.words == ("w3", "w4", "w5", "w6", "w7")
    assert first.spaces == (True, True, False, True, False)
    assert first.heads == (1, treebank.ROOT, 3, 1, 1)
    assert first.relations == ("nsubj", "root", "det", "obj", "punct")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("\tw3\t", " w3\t"), "line 2: 9 fields"),
        (("\t2\tnsubj\t", "\ttwo\tnsubj\t"), "line 2: no numbers in '1', 'two'"),
        (("\t4\tdet\t", "\t6\tdet\t"), "a head 6 in sentence 1, of 5 words"),
        (("5\tw7", "6\tw7"), "line 8: word 6 after word 4"),
    ],
)
def test_what_is_no_treebank_is_named(change, said):
    old, new = change
    with pytest.raises(ValueError, match=said):
        treebank.parse(TREEBANK.replace(old, new, 1))


def word_prediction(weights, owners, num_words, word, direction):
    """The other word with the largest weight, by loops over pieces; None where all weights are 0."""

    def between(a, b):
        pieces_a = [t for t, owner in enumerate(owners) if owner == a]
        pieces_b = [t for t, owner in enumerate(owners) if owner == b]
        return np.mean([sum(weights[t, s] for s in pieces_b) for t in pieces_a])

    scores = {
        other: between(word, other) if direction == 0 else between(other, word)
        for other in range(num_words)
        if other != word
    }
    best = max(scores, key=lambda other: scores[other])
    return best if scores[best] > 0 else None


def test_dependencies_are_those_of_loops(model, sentences):
    counts = dependency.count(model, model.params, sentences, RELATIONS, 12)
    hits = np.zeros_like(counts.hits)
    words, offsets = np.zeros_like(counts.words), np.zeros_like(counts.offset_hits)
    for i, sentence in enumerate(sentences):
        ids, owners = model.tokenizer.encode_words(sentence.words, sentence.spaces)
        weights = maps_of(model, ids)
        for word, (head, relation) in enumerate(zip(sentence.heads, sentence.relations, strict=True)):
            if relation in ("root", "punct"):
                continue
            for name in {"all", relation} & set(RELATIONS):
                r, half = RELATIONS.index(name), i // 2
                words[half, r] += 1
                for o, offset in enumerate(OFFSETS):
                    offsets[half, o, r] += word + offset == head
                for layer, n, direction in np.ndindex(hits.shape[1:4]):
                    found = word_prediction(weights[layer, n], owners, len(sentence.words), word, direction)
                    hits[half, layer, n, direction, r] += found == head
    assert counts.sentences == (2, 2)
    assert (counts.words == words).all()
    assert (counts.offset_hits == offsets).all()
    assert (counts.hits == hits).all()
    assert 0 < hits.sum() < words.sum() * hits[0, ..., 0].size


def test_long_sentences_are_left_out(model, sentences):
    length = len(model.tokenizer.encode_words(sentences[1].words, sentences[1].spaces)[0])
    found = [dependency.encode(model.tokenizer, own, RELATIONS, 0, length) for own in sentences]
    assert [encoded is None for encoded in found] == [True, False, True, False]
    assert all(len(encoded.tokens) == length for encoded in found if encoded is not None)


def test_heads_are_chosen_on_one_half_and_reported_on_the_other():
    hits = np.zeros((2, 1, 2, 2, 2))
    hits[0, 0, 1, 1], hits[1, 0, 1, 1] = [8, 0], [3, 0]  # chosen, and what is reported of it
    hits[0, 0, 0, 0], hits[1, 0, 0, 0] = [5, 0], [9, 0]  # better on the half on which it is not chosen
    offsets = np.zeros((2, len(OFFSETS), 2))
    offsets[0, 1], offsets[1, 1], offsets[1, 3] = [6, 0], [2, 0], [10, 0]
    counts = dependency.Counts(hits, offsets, np.array([[10.0, 0.0], [12.0, 4.0]]), (5, 5))
    row, empty = dependency.rows("m", ("det", "obj"), counts)
    assert (row["layer"], row["head"], row["direction"]) == (0, 1, "head to dependent")
    assert (row["accuracy"], row["best_offset"], row["offset_accuracy"], row["count"]) == (
        3 / 12,
        -2,
        2 / 12,
        12,
    )
    assert row["ci_low"] == pytest.approx(0.0889, abs=1e-4)  # Wilson, 3 of 12
    assert row["ci_high"] == pytest.approx(0.5323, abs=1e-4)
    assert empty == {"model": "m", "relation": "obj", "count": 4} | dict.fromkeys(
        set(row) - {"model", "relation", "count"}
    )


def test_segments_begin_at_equal_distances_and_do_not_overlap(tmp_path):
    tokenizer = load(small_models.write(tmp_path / "m", "bert")).tokenizer
    lines = tuple(f"w{3 + i} w{4 + i}" for i in range(10))
    found = list(text.segments(tokenizer, lines, 7, 3))
    assert found == [[1, 3, 4, 4, 5, 5, 2], [1, 6, 7, 7, 8, 8, 2], [1, 9, 10, 10, 11, 11, 2]]
    assert list(text.segments(tokenizer, lines[:3], 50, 3)) == [[1, 3, 4, 2], [1, 4, 5, 2], [1, 5, 6, 2]]
    with pytest.raises(ValueError, match="num_segments: expected at most the 3 passages of the text, got 4"):
        next(text.segments(tokenizer, lines[:3], 50, 4))
    first, second = text.batches(iter(found), 2, 8)
    assert first.lengths.tolist() == [7, 7]
    assert second.lengths.tolist() == [7, 0]
    assert second.tokens[0].tolist() == [*found[2], 0]


def test_scaling_finds_points_of_the_plane():
    rng = np.random.default_rng(0)
    points = rng.standard_normal((9, 2)) * [3, 1]
    wanted = np.linalg.norm(points[:, None] - points[None, :], axis=-1)
    found, stress = mds.scale(wanted)
    assert stress < 1e-6
    assert np.abs(np.linalg.norm(found[:, None] - found[None, :], axis=-1) - wanted).max() < 1e-5
    assert np.abs(found.mean(0)).max() < 1e-9
    assert found[:, 0].var() > found[:, 1].var()


def test_scaling_lowers_the_stress_of_what_does_not_fit():
    """Four points at equal distances: no plane holds them; the square is the best, with a known stress."""
    found, stress = mds.scale(1 - np.eye(4))
    distances = np.sort(np.linalg.norm(found[:, None] - found[None, :], axis=-1)[np.triu_indices(4, 1)])
    # A square of side a: 4 (a - 1)^2 + 2 (a sqrt 2 - 1)^2 is least at a = (2 + sqrt 2) / 4, of six pairs.
    side = (2 + np.sqrt(2)) / 4
    least = (4 * (side - 1) ** 2 + 2 * (side * np.sqrt(2) - 1) ** 2) / 6
    assert stress == pytest.approx(np.sqrt(least), abs=1e-6)
    assert distances == pytest.approx([side] * 4 + [side * np.sqrt(2)] * 2, abs=1e-3)
    with pytest.raises(ValueError, match="expected a symmetric matrix"):
        mds.scale(np.array([[0.0, 1.0], [2.0, 0.0]]))
    with pytest.raises(ValueError, match=r"expected shape \(n, n\)"):
        mds.scale(np.zeros((2, 3)))


def test_distances_by_closeness_and_packed():
    number = np.arange(8)  # two layers of four heads on two key/value heads
    layer, group = number // 4, number // 2
    found = np.where(layer[:, None] == layer, 2.0, 3.0)
    found[group[:, None] == group] = 1.0
    np.fill_diagonal(found, 0)
    assert near_and_far(found, 4, 2) == {"same_group": 1.0, "same_layer": 2.0, "other_layers": 3.0}
    assert near_and_far(found, 4, 4)["same_group"] is None
    assert (unpack(pack(found)) == found).all()


def test_distances_are_means_over_tokens(model):
    sequences = [[5, 3, 28, 17], [4, 9]]
    found, num_tokens = measure.distances(model, iter(sequences), 12)
    assert num_tokens == 6
    total = 0.0
    for ids in sequences:
        weights = maps_of(model, ids)
        own = weights.reshape(-1, *weights.shape[-2:])
        for t in range(len(ids)):
            keys = range(t + 1 if model.config.causal else len(ids))
            p = 0.999 * own[:, t, list(keys)] + 0.001 / len(keys)
            m = (p[:, None] + p[None]) / 2
            total += ((p[:, None] * np.log(p[:, None] / m) + p[None] * np.log(p[None] / m)) / 2).sum(-1)
    assert np.abs(found - total / 6).max() < 1e-5
    assert found.max() > 0.01


def test_the_control_differs_in_its_layers(model):
    control = replace(model, params=random_weights(model.params, 0))
    assert np.abs(maps_of(model, [5, 3, 28, 17]) - maps_of(control, [5, 3, 28, 17])).max() > 0.01
