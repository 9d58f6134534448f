"""The translation experiment: text and rows, the model, beam search, training; the whole of it on lines to copy."""

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import checkpoints, verses
from experiments.translation.data import COPY, Corpus, copy_corpus, file_corpus, verse_corpus
from experiments.translation.model import (
    ModelShape,
    Translator,
    apply,
    inputs_of,
    num_parameters,
    parameters_of,
)
from experiments.translation.plan import TranslationPoint, shape_of
from experiments.translation.rows import OPEN_ROWS, Rows, TrainingRows, packed, single
from experiments.translation.scoring import bleu, perplexity
from experiments.translation.search import beam_search, penalty, translate
from experiments.translation.subwords import BEGIN, END, PAD, SPECIAL, Subwords, TokenPairs, encode, encoded
from experiments.translation.training import Recipe, loss, losses, schedule
from experiments.translation.units import checkpoint_of, train, watched
from experiments.verses import Verse
from theory.problems import seeded_rng

SHAPE = ModelShape(vocab_size=13, d_model=6, d_ff=7, num_layers=1, num_heads=3, head_dim=5, value_head_dim=2)
PAIRS = [((3, 4, 5), (6, 7)), ((8,), (9, 10, 11)), ((3, 3, 12, 4), (5,)), ((7, 8, 9, 10, 11, 12, 3, 4), (3,))]


@pytest.fixture(scope="module")
def parameters():
    return jax.jit(parameters_of, static_argnums=0)(SHAPE, jax.random.key(0))


@jax.jit
def logits_of(parameters, rows):
    inputs = inputs_of(rows.target, rows.target_segments)
    return apply(SHAPE, parameters)(rows.source, inputs, rows.source_segments, rows.target_segments)


def arrays(rows):
    return Rows(*map(jnp.asarray, rows))


def test_whole_books_are_held_out(monkeypatch):
    made = tuple(
        Verse(f"B{book}", 1, n, f"en {book} {n}", f"es {book}") for book in range(1, 67) for n in (1, 2)
    )
    monkeypatch.setattr(verses, "read_verses", lambda: made)
    corpus = verse_corpus()
    books = [{source.split()[1] for source, _ in part} for part in (corpus.train, corpus.dev, corpus.test)]
    assert books[1:] == [{"18", "38", "58"}, {"8", "28", "48"}]
    assert not books[0] & (books[1] | books[2])
    assert sum(map(len, books)) == 66


def test_a_file_is_held_out_by_its_tenths(tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"a {n}\tb {n} é\n" for n in range(40)), encoding="utf-8")
    corpus = file_corpus(str(file))
    assert tuple(map(len, (corpus.train, corpus.dev, corpus.test))) == (32, 4, 4)
    assert corpus.test[-1] == ("a 39", "b 39 é")
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())  # a byte order mark is no text
    assert file_corpus(str(file)) == corpus
    for content, message in (
        ("a\tb\n" * 29, "thirty lines"),
        ("a\tb\n" * 30 + "a\n", "two fields, .* in line 31"),
    ):
        file.write_text(content)
        with pytest.raises(ValueError, match=f"pairs: expected .*{message}"):
            file_corpus(str(file))
    file.write_bytes(b"\xff\t\xff\n" * 30)
    with pytest.raises(ValueError, match="pairs: expected a UTF-8 file"):
        file_corpus(str(file))


def test_lines_end_at_newlines_alone(tmp_path):
    """Not at the line separator, the next line, the form feed or a carriage return within a line."""
    lines = [f"a {n}\u2028x\x0c{n}\tb\x85{n}\ry {n}" for n in range(30)]
    file = tmp_path / "pairs.tsv"
    for end in ("\n", "\r\n"):
        file.write_bytes((end.join(lines) + end).encode())
        corpus = file_corpus(str(file))
        found = [*corpus.train, *corpus.dev, *corpus.test]
        assert found == [tuple(line.split("\t")) for line in lines]


def test_held_out_pairs_of_a_file_are_not_trained_on_where_they_come_again(tmp_path):
    lines = [f"a {n}\tb {n}" for n in range(40)]
    lines[3] = lines[5] = lines[38]  # of the last tenth
    lines[7] = lines[33]  # of the tenth before it
    lines[34] = lines[39]
    lines[9] = "a 38\tanother translation"
    lines[11] = lines[12]
    file = tmp_path / "pairs.tsv"
    file.write_text("\n".join(lines) + "\n")
    corpus = file_corpus(str(file))
    assert tuple(map(len, (corpus.train, corpus.dev, corpus.test))) == (29, 3, 4)
    assert not set(corpus.train) & {*corpus.dev, *corpus.test}
    assert not set(corpus.dev) & set(corpus.test)
    assert ("a 38", "another translation") in corpus.train
    assert corpus.train.count(("a 12", "b 12")) == 2
    assert corpus.test == tuple((f"a {n}", f"b {n}") for n in range(36, 40))


def test_subwords_come_from_the_training_part_alone_and_give_text_back():
    train = (("In the beginning", "En el principio"),) * 5
    a, b = (
        encode(Corpus("", train, train[:1], ((word, word),)), 275).subwords
        for word in ("zzzzzz", "¿qué, Señor?")
    )
    for line in ("In the beginning", "zzzzzz", "¿qué, Señor?"):
        [tokens] = a.encode([line])
        assert (tokens,) == tuple(b.encode([line]))
        assert a.decode((*tokens, END, 5, PAD)) == line
        assert min(tokens) > END
    assert a.vocab_size == 275
    with pytest.raises(ValueError, match="vocab_size: expected at least 259"):
        Subwords(["a"], 258)


@pytest.mark.parametrize("name", SPECIAL)
@pytest.mark.parametrize("line", ["press {} now", "{}", "a{}b", "{} {}"])
def test_what_a_line_says_is_text_and_no_token_of_ours(name, line):
    """Neither where subwords are learned on such lines nor where they are not."""
    line = line.format(name, name)
    for learned in ([line] * 20, ["press now"] * 20):
        subwords = Subwords(learned, 280)
        [tokens] = subwords.encode([line])
        assert min(tokens) > END
        assert subwords.decode((*tokens, END)) == line


def test_rows_hold_every_pair_that_fits_once():
    rows = packed(PAIRS, 8, [2, 3, 1, 0])
    found = []
    for source, target, s, t in zip(*rows, strict=True):
        assert s.max() == t.max()
        for segment in range(1, s.max() + 1):
            a, b = source[s == segment].tolist(), target[t == segment].tolist()
            assert (a[-1], b[-1]) == (END, END)
            found.append((tuple(a[:-1]), tuple(b[:-1])))
        assert (source[s == 0] == PAD).all()
    assert sorted(found) == sorted(PAIRS[:3])
    assert len(rows.source) < 3
    inputs = np.asarray(inputs_of(jnp.asarray(rows.target), jnp.asarray(rows.target_segments)))
    for row, segments, target in zip(inputs, rows.target_segments, rows.target, strict=True):
        for segment in range(1, segments.max() + 1):
            own = segments == segment
            assert row[own].tolist() == [BEGIN, *target[own][:-1].tolist()]


def test_training_rows_go_round_and_differ_by_seed():
    rows = [TrainingRows(PAIRS, 8, seed).take(12) for seed in (0, 0, 1)]
    assert rows[0].source.shape == (12, 8)
    assert all((a == b).all() for a, b in zip(rows[0], rows[1], strict=True))
    assert any((a != b).any() for a, b in zip(rows[0], rows[2], strict=True))
    with pytest.raises(ValueError, match="length: expected one that some pair fits into, got 2"):
        TrainingRows(PAIRS, 2, 0).take(1)


def _rounds_at_once(pairs, length, num_rows, seed):
    """Training rows as they are defined, all of them in memory: round after round, each packed and in a new order."""
    rng = seeded_rng(seed, "translation, order of the pairs")
    parts: list[Rows] = []
    while sum(len(part.source) for part in parts) < num_rows:
        rows = packed(pairs, length, rng.permutation(len(pairs)).tolist())
        order = rng.permutation(len(rows.source))
        parts.append(Rows(*(array[order] for array in rows)))
    return Rows(*(np.concatenate(arrays)[:num_rows] for arrays in zip(*parts, strict=True)))


@pytest.mark.parametrize("seed", [0, 1000])
def test_training_rows_that_are_made_when_asked_for_are_those_of_all_rounds_at_once(seed):
    text = encode(copy_corpus(600), 275)
    expected = _rounds_at_once(text.train, 24, 700, seed)
    one_round = len(packed(text.train, 24, range(len(text.train))).source)
    assert OPEN_ROWS < one_round < 350  # so that it goes round, and rows are closed
    stream, made = TrainingRows(text.train, 24, seed), []
    for count in (1, 49, 250, 400):
        made.append(stream.take(count))
    later = TrainingRows(text.train, 24, seed)
    later.skip(300)
    for name in Rows._fields:
        whole = getattr(expected, name)
        assert np.array_equal(np.concatenate([getattr(rows, name) for rows in made]), whole)
        assert np.array_equal(getattr(later.take(0), name), whole[:0])
    assert all(np.array_equal(a, b[300:]) for a, b in zip(later.take(400), expected, strict=True))


def test_pairs_of_tokens_are_those_of_the_subwords(monkeypatch):
    monkeypatch.setattr("experiments.translation.subwords.AT_A_TIME", 3)
    subwords = Subwords(["some text", "y más"], 280)
    pairs = [("some text", "y"), ("", "más text"), ("a", "<end>"), ("¿b?", "c c"), ("d", "e")]
    expected = list(zip(*(subwords.encode([pair[side] for pair in pairs]) for side in (0, 1)), strict=True))
    found = TokenPairs(subwords, pairs)
    assert list(found) == expected
    assert found[1:4] == expected[1:4]
    assert found[-1] == expected[-1]
    assert found.lengths.tolist() == [[len(a), len(b)] for a, b in expected]
    with pytest.raises(IndexError):
        found[5]


def test_three_files_are_to_train_on_to_choose_by_and_to_test_on(tmp_path):
    parts = {"train": [1, 2, 3, 4, 7], "dev": [4, 5, 9], "test": [7, 8, 9]}
    for name, numbers in parts.items():
        (tmp_path / name).write_text("".join(f"a {n}\tb {n}\n" for n in numbers))
    corpus = file_corpus(",".join(str(tmp_path / name) for name in parts))
    found = [[int(source[2:]) for source, _ in part] for part in (corpus.train, corpus.dev, corpus.test)]
    assert found == [[1, 2, 3], [4, 5], [7, 8, 9]]
    assert corpus.repeated == (2, 1)
    with pytest.raises(ValueError, match="pairs: expected one file, or three between commas"):
        file_corpus(f"{tmp_path / 'train'},{tmp_path / 'dev'}")
    (tmp_path / "test").write_text("")
    with pytest.raises(ValueError, match="pairs: expected lines to test on"):
        file_corpus(",".join(str(tmp_path / name) for name in parts))


@pytest.mark.float64
def test_pairs_of_a_row_and_empty_places_see_nothing_of_each_other(parameters):
    together = arrays(packed(PAIRS[:2], 8, [0, 1]))
    assert len(together.source) == 1
    logits = logits_of(parameters, together)[0]
    for index, segment in ((0, 1), (1, 2)):
        alone = logits_of(parameters, arrays(single([PAIRS[index]], 8)))[0]
        own = together.target_segments[0] == segment
        # products of the same numbers, summed in another order at most
        np.testing.assert_allclose(logits[own], alone[: own.sum()], atol=2e-5)
    empty = [part == 0 for part in (together.source_segments, together.target_segments)]
    assert empty[0].any()
    assert empty[1].any()
    other = together._replace(
        source=jnp.where(empty[0], 7, together.source), target=jnp.where(empty[1], 7, together.target)
    )
    changed = logits_of(parameters, other)[0]
    full = ~empty[1][0]
    assert (changed[full] == logits[full]).all()
    gradient = jax.jit(jax.grad(lambda parameters, rows: loss(SHAPE, parameters, rows)))
    gradients = [gradient(parameters, rows) for rows in (together, other)]
    for a, b in zip(*map(jax.tree.leaves, gradients), strict=True):
        assert (a == b).all()


@pytest.mark.float64
def test_no_position_sees_what_it_is_to_predict(parameters):
    rows = arrays(single([PAIRS[1]], 8))
    inputs = inputs_of(rows.target, rows.target_segments)

    @jax.jit
    def reached(parameters, inputs):
        """Absolute gradients of the output at position 2 for what is read at every position."""
        model = apply(SHAPE, parameters)
        encoded = model.encode(rows.source, rows.source_segments)
        embed = model.embed

        def output(shift):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(
                    Translator,
                    "embed",
                    lambda self, *arguments, **options: embed(*arguments, **options) + shift,
                )
                hidden = model.decode(encoded, rows.source_segments, inputs, rows.target_segments)
            return (hidden[0, 2] * jnp.arange(1.0, SHAPE.d_model + 1)).sum()

        return jnp.abs(jax.grad(output)(jnp.zeros((1, 8, SHAPE.d_model)))[0]).max(-1)

    found = np.asarray(reached(parameters, inputs))
    assert (found[:3] > 0).all()
    assert (found[3:] == 0).all()


@pytest.mark.float64
def test_losses_of_known_logits():
    logits = jnp.zeros((1, 2, 4)).at[0, 1, 2].set(jnp.log(5.0))
    smooth, right = losses(logits, jnp.array([[0, 2]]), 0.2)
    np.testing.assert_allclose(right[0], [np.log(4), np.log(8 / 5)], rtol=1e-6)
    np.testing.assert_allclose(
        smooth[0, 1], 0.8 * np.log(8 / 5) + 0.2 * (np.log(8) - np.log(5) / 4), rtol=1e-6
    )


def test_parameters_are_as_many_as_said(parameters):
    assert sum(leaf.size for leaf in jax.tree.leaves(parameters)) == num_parameters(SHAPE)


def test_the_rate_rises_and_falls():
    recipe = Recipe(num_steps=20, warmup=5)
    shares = [float(schedule(recipe, jnp.array(step))) for step in (0, 4, 5, 19)]
    np.testing.assert_allclose(shares, [0.2, 1, 1, 1 / 15], rtol=1e-6)


def test_products_do_not_depend_on_the_heads():
    """What is left of a difference in flops is elementwise: some operations for each attention weight."""

    def flops(heads):
        shape = ModelShape(300, 16, 16, 1, heads, 16 // heads, 16 // heads)
        batch = Rows(*(jnp.ones((2, 16), jnp.int32) for _ in range(4)))
        drawn = jax.eval_shape(lambda: parameters_of(shape, jax.random.key(0)))
        analysis = jax.jit(lambda p: loss(shape, p, batch)).lower(drawn).compile().cost_analysis()
        assert analysis is not None
        return analysis["flops"]

    one, four = flops(1), flops(4)
    weights = 3 * 2 * 16 * 16  # layers of attention, rows, queries, keys
    assert 0 <= four - one <= 20 * (4 - 1) * weights
    assert four <= 1.1 * one


SMALL = ModelShape(vocab_size=5, d_model=6, d_ff=5, num_layers=2, num_heads=2, head_dim=4, value_head_dim=3)
ENDED = [(*tokens, END) for n in range(4) for tokens in product([t for t in range(5) if t != END], repeat=n)]
"""All translations of at most four tokens."""


@pytest.mark.float64
def test_beam_search_finds_the_best_of_all_translations():
    parameters = jax.jit(parameters_of, static_argnums=0)(SMALL, jax.random.key(3))
    sources = [(3, 4), (4,), (4, 4, 3)]
    rows = arrays(single([(source, ()) for source in sources], 4))
    labels, segments = np.zeros((2, len(ENDED), 4), np.int32)
    for row, tokens in enumerate(ENDED):
        labels[row, : len(tokens)], segments[row, : len(tokens)] = tokens, 1

    @jax.jit
    def log_p(source, source_segments):
        model, t, s = apply(SMALL, parameters), jnp.asarray(labels), jnp.asarray(segments)
        source, source_segments = (jnp.repeat(x[None], len(ENDED), 0) for x in (source, source_segments))
        logits = model(source, inputs_of(t, s), source_segments, s)
        return -jnp.where(s > 0, losses(logits, t, 0.0)[1], 0).sum(-1)

    @jax.jit
    def search(alpha):
        model = apply(SMALL, parameters)
        return beam_search(model, rows.source, rows.source_segments, max_length=4, beam=64, alpha=alpha)

    lengths = set()
    for alpha in (0.0, 6.0):
        found = search(alpha)
        for row in range(3):
            scores = log_p(rows.source[row], rows.source_segments[row])
            scores = np.asarray(scores) / penalty(segments.sum(-1), alpha)
            tokens = ENDED[int(scores.argmax())]
            assert found.tokens[row, 0].tolist() == [*tokens, *[PAD] * (4 - len(tokens))]
            assert float(found.scores[row, 0]) == pytest.approx(scores.max(), abs=1e-5)
            lengths.add(len(tokens))
    assert max(lengths) == 4  # caches are used to the end


@pytest.mark.float64
def test_an_empty_row_changes_nothing_and_a_beam_of_one_is_greedy(parameters):
    rows = arrays(single([*PAIRS[:3], ((), ())], 8))
    empty = rows.source_segments.at[3].set(0)

    @jax.jit
    def search(source, segments):
        model = apply(SHAPE, parameters)
        return beam_search(model, source, segments, max_length=8, beam=1, alpha=0.0).tokens[:, 0]

    found = search(rows.source, rows.source_segments)
    assert (search(rows.source, empty)[:3] == found[:3]).all()
    for row in range(3):
        tokens: list[int] = []
        one = [part[row : row + 1] for part in rows]
        while len(tokens) < 8 and END not in tokens:
            labels = jnp.array([[*tokens, *[PAD] * (8 - len(tokens))]])
            logits = logits_of(parameters, Rows(one[0], labels, one[2], jnp.ones_like(labels)))
            tokens.append(int(logits[0, len(tokens)].argmax()))
        if (
            END in tokens or END not in found[row]
        ):  # one that ended beside the greedy one comes first otherwise
            assert found[row].tolist() == [*tokens, *[PAD] * (8 - len(tokens))]


def _point(**changes):
    fields: dict[str, Any] = {
        "arm": "A",
        "pairs": COPY,
        "vocab_size": 275,
        "d_model": 32,
        "d_ff": 64,
        "num_layers": 1,
        "dropout_rate": 0.0,
        "num_heads": 4,
        "head_dim": 8,
        "value_head_dim": 8,
        "num_steps": 500,
        "rows": 16,
        "length": 16,
        "warmup": 50,
        "learning_rate": 0.01,
        "seed": 0,
    }
    return TranslationPoint(**fields | changes)


def test_a_training_that_was_killed_goes_on_bit_by_bit(tmp_path, monkeypatch):
    """With two seeds, dropout and a state at every look; the state of another text or training is not taken."""
    monkeypatch.setenv(checkpoints.VARIABLE, str(tmp_path))
    monkeypatch.setattr("experiments.translation.units.KEPT_EVERY", 0.0)
    points = [_point(num_steps=40, warmup=10, rows=4, dropout_rate=0.1, seed=seed) for seed in (0, 3)]
    text = encoded(COPY, 275)
    shape, checkpoint = shape_of(points[0], text.subwords.vocab_size), checkpoint_of(points, text)
    whole = jax.tree.leaves(train(points, shape, text).parameters)
    for done, _ in watched(points, shape, text, checkpoint):
        if done == 20:
            break  # killed after the state was kept
    assert [path.suffix for path in tmp_path.iterdir()] == [".npz"]
    looks = list(watched(points, shape, text, checkpoint))
    assert [done for done, _ in looks] == [20, 30, 40]
    assert all((a == b).all() for a, b in zip(jax.tree.leaves(looks[-1][1].parameters), whole, strict=True))
    [(done, trained)] = watched(points, shape, text, checkpoint)  # killed while it was judged
    assert done == 40
    assert all((a == b).all() for a, b in zip(jax.tree.leaves(trained.parameters), whole, strict=True))
    assert checkpoint_of(points, encode(copy_corpus(100), 275)).load() is None
    assert checkpoint_of(points[:1], text).load() is None
    checkpoint.remove()
    assert not list(tmp_path.iterdir())


def test_lines_are_copied_by_the_whole_pipeline():
    point = _point()
    text = encoded(COPY, point.vocab_size)
    shape = shape_of(point, text.subwords.vocab_size)
    trained = train([point], shape, text)
    assert trained.flops_per_step is not None
    parameters = jax.tree.map(lambda x: x[0], trained.parameters)
    targets = [target for _, target in text.corpus.test]
    assert len(targets) == 100
    assert not set(text.corpus.test) & set(text.corpus.train)
    found = translate(shape, parameters, single(text.test, point.length), rows_at_a_time=100)
    hypotheses = [text.subwords.decode(tokens) for tokens in found]
    assert np.mean([a == b for a, b in zip(hypotheses, targets, strict=True)]) > 0.99
    assert bleu(hypotheses, targets)[0] > 98
    assert perplexity(shape, trained.parameters, text.test, point.length)[0] < 1.3  # labels are smoothed

    # Of one step, not of the fifty that are compiled: two for each parameter and token forwards, twice that backwards.
    # Embeddings are multiplied for the output alone, and about half of the rest for each side. Then elementwise ones.
    tokens = point.rows * point.length
    embeddings = shape.vocab_size * shape.d_model
    products = 6 * tokens * (embeddings + (num_parameters(shape) - embeddings) / 2)
    assert products <= trained.flops_per_step <= 2 * products


def test_bleu_is_that_of_sacrebleu():
    lines = ["y aconteció en los días que gobernaban los jueces", "y el nombre de aquel varón era Elimelech"]
    score, signature = bleu(lines, lines)
    assert score == pytest.approx(100)
    assert signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2")


def test_lines_to_copy_differ():
    corpus = copy_corpus(200)
    lines = [source for part in (corpus.train, corpus.dev, corpus.test) for source, _ in part]
    assert len(set(lines)) == 200
