import shutil

import pytest

from experiments.ledger import ENTRIES, Books, Entry, Part, judge_all
from experiments.ledger.books import ROOT, committed, interval, ranges, share, small
from experiments.ledger.checks import heads
from experiments.ledger.command import write_claims
from experiments.ledger.entry import FAILS, HOLDS, HOLDS_WHERE, NOT_TESTED, UNDECIDED, judge_entry, verdict
from experiments.ledger.markdown import figure_of
from tests.experiments.ledger_doctored import FLIPS, MADE_UP, OPEN, doctored, only

BY_NAME = {entry.name: entry for entry in ENTRIES}


@pytest.fixture(scope="module")
def books():
    return committed()


@pytest.fixture(scope="module")
def all_books(books):
    """The committed records, and made-up ones under the names of those that are still to come."""
    for name, data in MADE_UP.items():
        books = books.replaced(name, data)
    return books


def test_every_claim_of_the_article_has_one_row_and_each_row_a_source_and_a_rule():
    numbers = [entry.article for entry in ENTRIES if entry.article is not None]
    assert numbers == list(range(1, 23))
    assert len(BY_NAME) == len(ENTRIES)
    for entry in ENTRIES:
        assert entry.said
        assert entry.counts
        assert entry.needs
        assert entry.untested or entry.name in FLIPS


def test_the_command_writes_agrees_and_sees_an_edit(tmp_path, capsys):
    (tmp_path / "figures" / "rank").mkdir(parents=True)
    shutil.copy(ROOT / "figures" / "rank" / "quick.json", tmp_path / "figures" / "rank")
    assert write_claims(tmp_path, check=True) == 1
    assert not (tmp_path / "CLAIMS.md").exists()
    assert write_claims(tmp_path) == 0
    text = (tmp_path / "CLAIMS.md").read_text("utf-8")
    assert write_claims(tmp_path, check=True) == 0
    (tmp_path / "CLAIMS.md").write_text(text.replace("**fails**", "**holds**"), encoding="utf-8")
    capsys.readouterr()
    assert write_claims(tmp_path, check=True) == 1
    assert "make readme" in capsys.readouterr().err
    assert write_claims(tmp_path) == 0
    assert (tmp_path / "CLAIMS.md").read_text("utf-8") == text


def test_without_records_nothing_is_tested_and_the_row_says_what_would(books):
    for row in judge_all(Books({})):
        assert row.verdict == NOT_TESTED
        assert row.entry.untested or all(f"`{command}`" in row.measured for command in row.commands)
    [row] = [r for r in judge_all(books.replaced("rank/quick", None)) if r.entry.name == "softmax-rank"]
    assert (row.verdict, row.measured) == (
        NOT_TESTED,
        "would tell: `python -m experiments run rank --preset quick`",
    )


def test_a_run_that_lacks_what_is_asked_for_gives_no_verdict(books):
    rows = books.replaced("pruning/minilm", None).replaced("pruning/smollm", None)
    found = judge_entry(BY_NAME["alone"], rows)
    assert found.verdict == NOT_TESTED
    command = "python -m experiments run pruning --preset"
    assert found.measured == f"would tell: `{command} minilm` and `{command} smollm`"


@pytest.mark.parametrize("name", FLIPS)
def test_every_rule_can_hold_and_fail(all_books, name):
    entry = BY_NAME[name]
    base = all_books.replaced("translation/quick", MADE_UP["translation/quick"])
    holds, fails = FLIPS[name]
    assert judge_entry(entry, doctored(base, holds)).verdict == HOLDS
    assert judge_entry(entry, doctored(base, fails)).verdict == FAILS


MIXED = {
    "split": FAILS,  # few items: one head holds all
    "threshold": FAILS,  # not all head counts above the edge
    "traded": HOLDS_WHERE,  # the permutation wants some heads
    "subspaces": HOLDS_WHERE,  # scores of other heads: by definition
    "compressed": HOLDS_WHERE,  # at m = d
    "most-go": HOLDS_WHERE,  # one head left in a layer of SmolLM2
    "equal-cost": HOLDS_WHERE,  # products
    "balance": HOLDS_WHERE,  # bytes
}
"""Rules with parts that compare nothing, and the verdict of these alone."""


@pytest.mark.parametrize("name", OPEN)
def test_every_rule_that_compares_can_leave_its_claim_open(all_books, name):
    row = judge_entry(BY_NAME[name], doctored(all_books, OPEN[name]))
    assert row.undecided
    assert row.verdict == MIXED.get(name, UNDECIDED)
    before = judge_entry(BY_NAME[name], all_books)
    decided = set(row.where) | set(row.not_where)
    assert decided <= set(before.where) | set(before.not_where)


def test_one_seed_decides_no_comparison_of_trainings(all_books):
    lone = {"translation/paper:points": only(lambda row: row["seed"] == 0)}
    for name in ("table-3", "one-or-many", "split-falls", "fixed-size", "key-size", "smaller-width"):
        holds, fails = FLIPS[name]
        for changes in (holds, fails):
            row = judge_entry(BY_NAME[name], doctored(doctored(all_books, changes), lone))
            assert (row.verdict, row.where, row.not_where) == (UNDECIDED, (), ())
            assert "one seed" in row.measured


def test_verdict_of_parts_and_the_sentence(books):
    held = ([True, True], [True, False], [True, None], [False], [False, None], [None])
    words = [HOLDS, HOLDS_WHERE, HOLDS_WHERE, FAILS, FAILS, UNDECIDED]
    assert [verdict(parts) for parts in held] == words
    with pytest.raises(ValueError, match="at least one part"):
        verdict([])
    parts = (Part("big", True, "2 of 2"), Part("small", False, "0 of 2"))
    entry = Entry("name", "claim", "counts", ("rank/quick",), lambda books: parts)
    row = judge_entry(entry, books)
    assert row.sentence == "holds where: big. Not: small"
    assert row.measured == "2 of 2; 0 of 2"
    parts = (parts[1], Part("medium", None, "1 of 2"))
    row = judge_entry(entry, books)
    assert (row.verdict, row.sentence) == (FAILS, "fails. Not: small. Undecided: medium")
    parts = (parts[1],)
    assert judge_entry(entry, books).sentence == "undecided"


def test_an_unfinished_run_says_so(books):
    row = judge_entry(
        BY_NAME["law"], books.replaced("capacity/paper", books["capacity/paper"] | {"unfinished": ["x"]})
    )
    assert list(row.commands.values()) == [" (as far as it got)", ""]
    row = judge_entry(
        BY_NAME["law"], books.replaced("capacity/paper", books["capacity/paper"] | {"unfinished": []})
    )
    assert list(row.commands.values()) == ["", ""]


def test_every_tested_row_but_the_definition_links_a_figure(books):
    without = [r.entry.name for r in judge_all(books) if r.verdict != NOT_TESTED and not figure_of(r)]
    assert set(without) <= {"definition", "alone", "one-left"}


def test_numbers_as_they_are_written():
    assert interval(14.0, 12.0, 16.04) == "14.0 [12.0–16.0]"
    assert interval(14.0, None, 16.0) == "14.0 [?–16.0]"
    assert interval(14.0, None, None) == "14.0"
    assert share(8, 8) == "8 of 8 [68–100%]"
    assert [ranges(v) for v in ([8], [2, 4, 3], [2, 3, 4, 6, 12])] == ["8", "2, 3, 4", "2 to 12"]
    assert [small(v) for v in (0, 0.234, 6.54e-4)] == ["0", "0.23", "6.5e-4"]


def test_heads_of_the_kernel_are_normalised_and_apart():
    [row] = heads()["records"]["heads"]
    assert row["own_change"] > 0.01
    assert row["other_change"] == 0
    assert row["largest_sum_error"] < 1e-6
