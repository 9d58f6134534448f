"""Fetch the verses: ``python -m experiments.verses_fetch [--packages FOLDER] [--out FILE]`` (``make text``).

The packages come by the system's own ``apt-get download`` from wherever it is configured to look, without root: if its
lists of packages are missing or old, lists of our own are fetched into a temporary folder first. On a system without
apt, download the two .deb files by hand and name their folder by ``--packages``. Versions and SHA-256 are fixed here.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from experiments.style import write
from experiments.verses import PATH, SHA256, Verse, format_verses


class Package(NamedTuple):
    """A Debian package with one text.

    Attributes:
        name: of the package.
        version: of the package.
        sha256: of its file.
        module: name of the text in it.
    """

    name: str
    version: str
    sha256: str
    module: str

    @property
    def file(self) -> str:
        """Name of its file."""
        return f"{self.name}_{self.version}_all.deb"


ENGLISH = Package(
    "sword-text-web",
    "426.0-1",
    "930b23670b352f0829a306501de4bebb5e654a2df02cde2cbe86b802177868e1",
    "engWEB2015eb",
)
SPANISH = Package(
    "sword-text-sparv",
    "2.60-1",
    "5c87f9b2bc97457e8a872f5bae7ea7ce59cb3de1dcee73e4d4740451863694cf",
    "spaRV1909eb",
)
GLOSSARY = ("Rev", 22, 21)
"""The last verse: the English text has a glossary of thousands of words in it."""
DOWNLOAD_SECONDS = 300


class CannotFetch(RuntimeError):
    """Why the verses cannot be had here, and what to do."""


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m experiments.verses_fetch", description=__doc__)
    parser.add_argument("--packages", type=Path, help="folder with the two .deb files, instead of a download")
    parser.add_argument("--out", type=Path, default=PATH, help="file to write")
    options = parser.parse_args()
    if options.out.exists() and _sha256(options.out) == SHA256:
        print(f"{options.out} is up to date.")
        return 0
    try:
        verses = fetch(options.packages)
    except CannotFetch as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    content = format_verses(verses).encode("utf-8")
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        print(f"error: expected verses of SHA-256 {SHA256}, got {found}", file=sys.stderr)
        return 1
    write(options.out, content)
    print(f"{len(verses):,} verses in English and Spanish: {options.out}")
    return 0


def fetch(folder: Path | None = None) -> list[Verse]:
    """Verses of both packages, aligned; without those that one of them lacks, and without the last.

    Args:
        folder: where the packages' files are; downloaded if None.

    Raises:
        CannotFetch: a package cannot be had or is another one, or pysword is not installed.
    """
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        files = [
            _given(folder, package) if folder is not None else download(package, place / "packages")
            for package in (ENGLISH, SPANISH)
        ]
        texts = []
        for package, file in zip((ENGLISH, SPANISH), files, strict=True):
            if (found := _sha256(file)) != package.sha256:
                raise CannotFetch(f"{file.name}: expected SHA-256 {package.sha256}, got {found}")
            unpack(file.read_bytes(), place / package.name)
            texts.append(dict(read_module(place / package.name / "usr/share/sword", package.module)))
    english, spanish = texts
    return [
        Verse(book, chapter, verse, text, spanish[book, chapter, verse])
        for (book, chapter, verse), text in english.items()
        if (book, chapter, verse) in spanish and (book, chapter, verse) != GLOSSARY
    ]


def _given(folder: Path, package: Package) -> Path:
    file = folder / package.file
    if not file.exists():
        raise CannotFetch(f"packages: expected {package.file} in {folder}")
    return file


def download(package: Package, folder: Path) -> Path:
    """The package's file, by apt; in ``folder``.

    Raises:
        CannotFetch: with what apt said.
    """
    by_hand = f"download {ENGLISH.file} and {SPANISH.file} from a Debian mirror, then run this with --packages FOLDER"
    if shutil.which("apt-get") is None:
        raise CannotFetch(f"there is no apt-get here; {by_hand}")
    folder.mkdir(exist_ok=True)
    wanted = f"{package.name}={package.version}"
    said = _apt(folder, [], "download", wanted)
    if not (folder / package.file).exists():
        own = folder / "apt"
        for part in ("lists/partial", "cache/archives/partial"):
            (own / part).mkdir(parents=True, exist_ok=True)
        places = [
            f"Dir::State::lists={own / 'lists'}",
            f"Dir::Cache={own / 'cache'}",
            "APT::Sandbox::User=",
            "Debug::NoLocking=1",
        ]
        said += _apt(folder, places, "update") + _apt(folder, places, "download", wanted)
    if not (folder / package.file).exists():
        raise CannotFetch(f"apt-get cannot download {wanted}:\n{said.strip()}\n\n{by_hand}")
    return folder / package.file


def _apt(folder: Path, settings: list[str], *arguments: str) -> str:
    options = [text for setting in settings for text in ("-o", setting)]
    try:
        done = subprocess.run(
            ["apt-get", "-q", *options, *arguments],
            cwd=folder,
            env=os.environ | {"LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"apt-get {' '.join(arguments)}: no end in {DOWNLOAD_SECONDS} s\n"
    return done.stderr


def unpack(content: bytes, folder: Path) -> None:
    """Unpack a .deb file (an ``ar`` archive with one of the files in it): no program but Python is needed.

    Raises:
        CannotFetch: if it is no such file.
    """
    if not content.startswith(b"!<arch>\n"):
        raise CannotFetch("package: expected a .deb file, got something else")
    start = 8
    while start + 60 <= len(content):
        name, size = (
            content[start : start + 16].decode().strip().rstrip("/"),
            int(content[start + 48 : start + 58]),
        )
        if name.startswith("data.tar"):
            with tarfile.open(fileobj=io.BytesIO(content[start + 60 : start + 60 + size])) as archive:
                archive.extractall(folder, filter="data")
            return
        start += 60 + size + size % 2
    raise CannotFetch("package: expected a .deb file with data.tar in it")


def read_module(folder: Path, module: str) -> Iterator[tuple[tuple[str, int, int], str]]:
    """Book, chapter and verse with the verse's plain text, for every verse that has one.

    Raises:
        CannotFetch: if pysword is not installed.
    """
    try:
        from pysword.modules import SwordModules  # pyright: ignore[reportMissingImports]  # optional
    except ImportError:
        raise CannotFetch("pysword is not installed: make text, or pip install '.[text]'") from None
    modules = SwordModules(str(folder))
    modules.parse_modules()
    bible: Any = modules.get_bible_from_module(module)
    # A book is one compressed block, which pysword would decompress for each of its verses.
    bible._decompressed_text = cache(bible._decompressed_text)
    for books in bible.get_structure().get_books().values():
        for book in books:
            for chapter, length in enumerate(book.chapter_lengths, 1):
                for verse in range(1, length + 1):
                    marked = bible.get(books=book.osis_name, chapters=chapter, verses=verse, clean=False)
                    if text := plain(marked):
                        yield (book.osis_name, chapter, verse), text


# Titles that belong to the text (of psalms) stay: in the other language they are words of the first verse.
_DROPPED = re.compile(
    r"<(note|catchWord|rdg|title(?![^>]*canonical=.true))\b[^>]*?(?:/>|>.*?</\1>)", re.DOTALL
)
_WITHIN_WORDS = re.compile(r"</?(?:w|q|seg|transChange|name)\b[^>]*>")
_TAG = re.compile(r"<[^>]*>")
_BEFORE_MARKS = re.compile(r"\s+(?=[,.;:!?’”)])")


def plain(marked: str) -> str:
    """A verse's text without marks, notes and titles; one line."""
    text = _DROPPED.sub(" ", marked)
    text = _TAG.sub(" ", _WITHIN_WORDS.sub("", text))
    return " ".join(_BEFORE_MARKS.sub("", html.unescape(text)).split())


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
