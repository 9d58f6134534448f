"""Tokenisers of all kinds: joined passages and words have the pieces that the whole text has."""

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from experiments.pretrained import TextTokenizer

TEXTS = (
    "the cat sat on the mat.",
    "the dog, a cat and the mat (the red one) sat at 1% there. one, two; the cat did not.",
    "a b c d e f g h i j k l m n o p q r s t u v w x y z . , ; ' % ( ) 1 2 3",
)
WORDS = ("the", "cat", ",", "red", "did", "n't", "sat", "(", "on", "é", ")", ".")
SPACES = (True, True, False, True, True, False, True, True, False, True, False, False)
SENTENCE = "the cat, red didn't sat (on é)."


def _trained(kind):
    """A tokeniser of each kind, trained on a few sentences."""
    special = {"special_tokens": ["<s>", "<unk>"], "vocab_size": 400, "show_progress": False}
    if kind == "WordPiece":
        own = Tokenizer(models.WordPiece(unk_token="<unk>"))
        own.normalizer = normalizers.BertNormalizer()  # type: ignore[assignment]
        own.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # type: ignore[assignment]
        trainer = trainers.WordPieceTrainer(**special)
    elif kind == "Unigram, Metaspace":
        own = Tokenizer(models.Unigram())
        own.pre_tokenizer = pre_tokenizers.Metaspace()  # type: ignore[assignment]
        trainer = trainers.UnigramTrainer(unk_token="<unk>", **special)
    else:
        own = Tokenizer(models.BPE(unk_token="<unk>"))
        if kind == "BPE, prepended":  # as in Llama 2; trained on words, used on whole texts
            marked = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
            own.normalizer = normalizers.Sequence(marked)  # type: ignore[assignment]
            own.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")  # type: ignore[assignment]
        else:
            with_space = kind == "BPE of bytes, with a space"
            own.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=with_space)  # type: ignore[assignment]
            special["initial_alphabet"] = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(**special)
    own.train_from_iterator(TEXTS, trainer)
    if kind == "BPE, prepended":
        own.pre_tokenizer = None  # type: ignore[assignment]
    own.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
        single="<s> $A", special_tokens=[("<s>", own.token_to_id("<s>"))]
    )
    return own


ALONE = ("WordPiece", "BPE of bytes")
WITH_SPACE = ("BPE, prepended", "Unigram, Metaspace", "BPE of bytes, with a space")


@pytest.fixture(scope="module", params=[*ALONE, *WITH_SPACE])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def both(kind):
    own = _trained(kind)
    return own, TextTokenizer(own)


def test_it_is_seen_whether_a_space_is_put_before_a_text(kind, both):
    assert both[1].adds_space == (kind in WITH_SPACE)


def test_joined_passages_are_those_of_the_whole_text(both):
    theirs, ours = both
    whole = theirs.encode(" ".join(TEXTS), add_special_tokens=False).ids
    assert ours.encode_joined(TEXTS) == whole
    some = ours.encode_joined(TEXTS, len(ours.encode(TEXTS[0])) + 1)
    assert some == theirs.encode(" ".join(TEXTS[:2]), add_special_tokens=False).ids


def test_every_piece_knows_its_word(kind, both):
    theirs, ours = both
    ids, owners = ours.encode_words(WORDS, SPACES)
    assert (ids[0], owners[0]) == (theirs.token_to_id("<s>"), -1)
    if kind in WITH_SPACE:
        assert ids == theirs.encode(SENTENCE).ids
    own = {i: [] for i in range(len(WORDS))}
    for id, owner in zip(ids[1:], owners[1:], strict=True):
        own[owner].append(id)
    assert owners[1:] == sorted(owners[1:])
    names = {i: "".join(ours.pieces(found)).replace("##", "").strip() for i, found in own.items()}
    for i, (word, space) in enumerate(zip(WORDS, SPACES, strict=True)):
        if word == "é" or i in (4, 5):
            continue  # unknown, or bytes; or a piece may hold some of both
        assert names[i] == word
        if kind in WITH_SPACE and not space:  # as it stands in the text, not as it would by itself
            assert own[i] != ours.encode(word)
        if kind in ALONE:
            assert own[i] == ours.encode(f" {word}" if space and i else word)
    assert own[9]
    assert names[4] + names[5] == "didn't"


def test_punctuation_that_is_attached_to_a_word_is_marked(both):
    theirs, ours = both
    ids = theirs.encode(SENTENCE, add_special_tokens=False).ids
    marked = [id in ours.punctuation for id in ids]
    assert sum(marked) == 2
    assert marked[-1]


def test_pieces_that_depend_on_what_is_before_a_space_are_refused():
    own = Tokenizer(models.WordLevel({"a": 0, "a b": 1, "b": 2, "?": 3}, unk_token="?"))
    with pytest.raises(ValueError, match=r"tokenizer: expected the pieces of 'a' and of 'b' in 'a b', got"):
        TextTokenizer(own)
