"""Every model and data file that the project uses or ships is in THIRD_PARTY.md, with its hash."""

import hashlib
import re
import subprocess
from pathlib import Path

import pytest

from experiments import verses, verses_fetch
from experiments.pretrained import WHEELS
from experiments.roles import treebank

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "THIRD_PARTY.md").read_text("utf-8")
CODE = {".py", ".md", ".toml", ".cff", ".js", ".css", ".html", ""}
"""Endings of what is no data."""
LISTS = {"constraints.txt", "requirements-models.txt"}


def committed() -> list[Path]:
    """Files that git knows; in a copy without git, those of the packages."""
    found = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if found.returncode == 0:
        return [ROOT / name for name in found.stdout.splitlines()]
    files = [
        path for name in ("mha_jax", "theory", "experiments", "tests") for path in (ROOT / name).rglob("*")
    ]
    return [path for path in files if path.is_file() and "__pycache__" not in path.parts]


def data_files() -> list[Path]:
    """What is committed and neither code, nor text, nor a result."""
    own = [path for path in committed() if path.relative_to(ROOT).parts[0] != "figures"]
    return [path for path in own if path.suffix not in CODE and path.name not in LISTS]


def test_every_data_file_is_listed_with_its_hash():
    found = {str(path.relative_to(ROOT)): path for path in data_files()}
    assert "theory/data/word_relations.csv" in found
    rows = dict(re.findall(r"^\| `([^`]+)` \| `([0-9a-f]{64})` \|", TEXT, re.MULTILINE))
    assert rows == {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found.items()}


def test_every_wheel_is_listed_as_it_is_installed():
    wheels = (ROOT / "requirements-models.txt").read_text()
    lines = re.findall(r"^(\S+==\S+) --hash=sha256:([0-9a-f]{64})$", wheels, re.MULTILINE)
    assert {name for name, _ in lines} == {wheel.distribution for wheel in WHEELS.values()}
    for name, digest in lines:
        assert f"| `{name}` | `{digest}` |" in TEXT


@pytest.mark.parametrize("package", [verses_fetch.ENGLISH, verses_fetch.SPANISH], ids=lambda p: p.name)
def test_every_package_of_texts_is_listed(package):
    assert f"| Debian package `{package.name}` {package.version} | `{package.sha256}` |" in TEXT


def test_files_that_are_made_or_named_are_listed():
    assert verses.SHA256 in TEXT
    assert treebank.SHA256 in TEXT


@pytest.mark.parametrize("name", ["README.md", "THIRD_PARTY.md"])
def test_where_the_treebank_is_published_is_said(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    for said in ("UniversalDependencies/UD_English-EWT", treebank.PATH.name, "15d613d8", "CC BY-SA 4.0"):
        assert said in text
        assert said in treebank.HOW_TO_GET
