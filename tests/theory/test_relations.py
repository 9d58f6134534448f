from collections import Counter

import pytest

from theory.embeddings import minilm_available, minilm_word_rows
from theory.relations import KINDS, WordRelations, load_word_relations


def test_table_has_every_kind():
    counts = Counter(load_word_relations().kinds)
    assert set(counts) == set(KINDS)
    assert min(counts.values()) >= 60
    assert len(load_word_relations()) == 532


def test_whole_table_is_a_matching():
    # Every word occurs once, so that no pair excludes another: the largest matching is the table itself.
    relations = load_word_relations()
    words = relations.sources + relations.targets
    assert len(set(words)) == len(words) == 2 * len(relations)
    assert all(word.isascii() and word.isalpha() and word.islower() for word in words)


@pytest.mark.skipif(not minilm_available(), reason="MiniLM's wheel is not installed; `make models` does")
def test_every_word_is_whole_in_the_vocabulary():
    relations = load_word_relations()
    assert set(relations.sources + relations.targets) <= set(minilm_word_rows())


@pytest.mark.parametrize(
    ("kind", "source", "target"),
    [
        ("country-capital", "france", "paris"),
        ("singular-plural", "mouse", "mice"),
        ("verb-past", "go", "went"),
        ("antonym", "hot", "cold"),
    ],
)
def test_direction(kind, source, target):
    relations = load_word_relations()
    assert (source, target, kind) in zip(relations.sources, relations.targets, relations.kinds, strict=True)


def test_refuses():
    with pytest.raises(ValueError, match="expected every word once, got 'hot' twice"):
        WordRelations(("hot", "cold"), ("cool", "hot"), ("antonym", "antonym"))
    with pytest.raises(ValueError, match="expected every word once, got 'hot' twice"):
        WordRelations(("hot",), ("hot",), ("antonym",))
    with pytest.raises(ValueError, match=r"kinds: expected one of .*, got 'synonym'"):
        WordRelations(("hot",), ("warm",), ("synonym",))
    with pytest.raises(ValueError, match="expected equal lengths, got 1, 0, 1"):
        WordRelations(("hot",), (), ("antonym",))
