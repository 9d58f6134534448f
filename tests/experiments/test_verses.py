"""Verses: marks removed, packages unpacked and refused, books held out, text of the user's own."""

import io
import tarfile

import pytest

from experiments import verses, verses_fetch
from experiments.verses import Verse, format_verses, load_text, parse, read_verses, split
from experiments.verses_fetch import CannotFetch, download, fetch, plain, unpack

MADE = tuple(
    Verse(f"B{book}", chapter, number, f"en {book} {chapter} {number}", f"es {book}")
    for book in range(1, 21)
    for chapter in (1, 2)
    for number in (1, 2, 3)
)


def test_marks_and_notes_are_removed():
    marked = (
        '<div sID="a"/><title type="x">No part</title><w lemma="H1">In</w> <w>the beginning</w>,\n God<note n="1">a '
        "<i>word</i>\nof notes</note><w>created</w> wo<seg>nder</seg>s &amp; <l/>&lt;light&gt;<note>b</note>. "
    )
    assert plain(marked) == "In the beginning, God created wonders & <light>."
    assert (
        plain('<title canonical="true" type="psalm">A Psalm.</title> Yahweh<rdg>or not</rdg>!')
        == "A Psalm. Yahweh!"
    )
    assert plain(" <chapter/> ") == ""


def test_lines_come_back():
    assert parse(format_verses(MADE)) == MADE
    with pytest.raises(ValueError, match="line 2: expected 5 fields, got 4"):
        parse("Gen\t1\t1\ta\tb\nGen\t1\t2\ta\n")


def test_whole_books_are_held_out():
    train, held = split(MADE)
    assert {verse.book for verse in held} == {"B8", "B18"}
    assert len(held) == 12
    assert sorted([*train, *held]) == sorted(MADE)
    with pytest.raises(ValueError, match=r"rule: expected one of every-tenth, got 'x'"):
        split(MADE, "x")


def test_text_is_chapters_of_verses_or_lines_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(verses, "read_verses", lambda: MADE)
    text = load_text()
    assert text.held_out[0] == "en 8 1 1 en 8 1 2 en 8 1 3"
    assert (len(text.train), len(text.held_out)) == (36, 4)
    assert text.held_out_sentences[:2] == ("en 8 1 1", "en 8 1 2")
    file = tmp_path / "own.txt"
    file.write_text("".join(f"line {n} é\n\n" for n in range(21)), encoding="utf-8")
    own = load_text(str(file))
    assert own.held_out == ("line 19 é", "line 20 é")
    assert own.held_out_sentences == own.held_out
    assert own.train[0] == "line 0 é"
    file.write_text("".join(f"line {n}\n" for n in range(20)), encoding="utf-8-sig")
    assert load_text(str(file)).train[0] == "line 0"  # without the byte order mark
    file.write_bytes(b"\xff\xfe" * 20)
    with pytest.raises(ValueError, match="text: expected a UTF-8 file"):
        load_text(str(file))
    file.write_text("one\n", encoding="utf-8")
    with pytest.raises(ValueError, match="text: expected a file of at least ten lines of text, got 1"):
        load_text(str(file))


def test_missing_or_altered_verses_say_what_to_run(tmp_path):
    with pytest.raises(FileNotFoundError, match="make text"):
        read_verses(tmp_path / "verses.tsv")
    (tmp_path / "verses.tsv").write_text(format_verses(MADE))
    with pytest.raises(ValueError, match=r"expected SHA-256 .* got .*; make text"):
        read_verses(tmp_path / "verses.tsv")


@pytest.mark.skipif(not verses.PATH.exists(), reason="needs the verses: make text")
def test_the_verses_are_aligned_and_clean():
    found = read_verses()
    assert len(found) > 31_000
    first = found[0]
    assert (first.book, first.chapter, first.verse) == ("Gen", 1, 1)
    assert first.english.startswith("In the beginning, God created")
    assert first.spanish.startswith("EN el principio crió Dios")
    assert max(len(verse.english) for verse in found) < 1000  # the glossary is gone
    assert not any(mark in verse.english + verse.spanish for verse in found for mark in "<>&")
    assert {verse.book for verse in split(found)[1]} == {"Ruth", "Job", "Hos", "Zech", "Gal", "Heb"}


def _package(name="data.tar.xz", files=(("./usr/share/a.txt", b"text"),)):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:xz") as archive:
        for path, content in files:
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    members = [("debian-binary", b"2.0\n"), ("control.tar.xz", b"odd"), (name, data.getvalue())]
    out = b"!<arch>\n"
    for member, content in members:
        out += f"{member:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode() + content
        out += b"\n" * (len(content) % 2)
    return out


def test_packages_are_unpacked_without_dpkg(tmp_path):
    unpack(_package(), tmp_path)
    assert (tmp_path / "usr/share/a.txt").read_bytes() == b"text"
    with pytest.raises(CannotFetch, match=r"expected a \.deb file, got something else"):
        unpack(b"<html>", tmp_path)
    with pytest.raises(CannotFetch, match=r"with data\.tar in it"):
        unpack(_package(name="other.tar.xz"), tmp_path)
    with pytest.raises(tarfile.FilterError):
        unpack(_package(files=(("../out.txt", b"x"),)), tmp_path)


def test_another_package_or_none_is_refused(tmp_path, monkeypatch):
    with pytest.raises(CannotFetch, match=r"packages: expected sword-text-web_.*\.deb in "):
        fetch(tmp_path)
    for package in (verses_fetch.ENGLISH, verses_fetch.SPANISH):
        (tmp_path / package.file).write_bytes(_package())
    with pytest.raises(CannotFetch, match="expected SHA-256"):
        fetch(tmp_path)
    monkeypatch.setattr(verses_fetch.shutil, "which", lambda name: None)
    with pytest.raises(CannotFetch, match="no apt-get here; download sword-text-web_"):
        download(verses_fetch.ENGLISH, tmp_path)


def test_what_apt_says_is_told(tmp_path, monkeypatch):
    calls = []

    def refuse(folder, settings, *arguments):
        calls.append(arguments[0])
        return f"E: cannot {arguments[0]}\n"

    monkeypatch.setattr(verses_fetch.shutil, "which", lambda name: name)
    monkeypatch.setattr(verses_fetch, "_apt", refuse)
    with pytest.raises(CannotFetch, match=r"(?s)cannot download.*cannot update.*--packages FOLDER"):
        download(verses_fetch.ENGLISH, tmp_path)
    assert calls == ["download", "update", "download"]


def test_lines_end_at_newlines_alone():
    assert verses.lines_of("a\u2028b\r\nc\x0bd\n\ne") == ["a\u2028b", "c\x0bd", "", "e"]
    assert verses.lines_of("a\n") == ["a"]
    assert verses.lines_of("") == []
