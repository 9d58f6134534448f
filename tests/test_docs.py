"""The documentation does what it says: code runs, examples print what stands beside them, nothing is left out."""

import contextlib
import doctest
import importlib
import io
import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mha_jax
import theory
from experiments import cli
from experiments.engine import EXPERIMENTS
from theory.bounds import convex_success_probability

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "```pycon" in path.read_text("utf-8"))
TEXTS = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
FLAGS = doctest.NORMALIZE_WHITESPACE


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def failures(text: str, names: dict[str, Any], name: str) -> str:
    """What `doctest` says of the examples in a text; nothing where all of them are right."""
    said = io.StringIO()
    test = doctest.DocTestParser().get_doctest(text, names, name, name, 0)
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.write)
    return said.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_examples_of_the_pages_print_what_stands_there(page):
    examples = "\n".join(blocks(page.read_text("utf-8"), "pycon"))
    assert not failures(examples, {}, page.name)


def test_an_example_that_is_wrong_is_found():
    assert "Expected:\n    3" in failures(">>> 1 + 1\n3\n", {}, "wrong")


@pytest.mark.parametrize("package", [mha_jax, theory], ids=lambda package: package.__name__)
def test_examples_of_docstrings_print_what_stands_there(package):
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(found.name)
        for test in doctest.DocTestFinder(exclude_empty=True).find(module):
            if test.examples:
                assert not failures(test.docstring or "", test.globs, test.name)


def test_the_tutorial_prints_what_stands_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "tutorial.md").read_text("utf-8")
    code, files = blocks(text, "python")
    [printed] = blocks(text, "text")
    assert len(code.splitlines()) <= 30
    names: dict[str, Any] = {"__name__": "tutorial"}
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "tutorial", "exec"), names)
    assert said.getvalue() == printed
    exec(compile(files, "tutorial", "exec"), names)
    assert (tmp_path / "edges.csv").read_text().startswith("source,target\n0,1\n0,20\n")


@pytest.mark.slow
def test_the_files_of_the_tutorial_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "tutorial.md").read_text("utf-8")
    names: dict[str, Any] = {"__name__": "tutorial"}
    for code in blocks(text, "python"):
        exec(compile(code, "tutorial", "exec"), names)
    [command] = blocks(text, "sh")
    words = [sys.executable, *command.split()[1:], "--preset", "smoke", "--quiet"]
    subprocess.run(words, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL)
    rows = json.loads((tmp_path / "mine" / "smoke.json").read_text())["records"]["transitions"]
    best = {row["num_heads"]: row["status"] for row in rows if row["trainer"] == "best"}
    assert best[1] == "not_reached"
    assert best[4] == "reached"


def test_the_example_experiment_runs_through_the_engine(tmp_path):
    name = "docs.examples.one_head:EXPERIMENT"
    options = ["--preset", "smoke", "--out", str(tmp_path)]
    assert cli.main(["run", name, *options, "--quiet", "--workers", "0"]) == 0
    curve = json.loads((tmp_path / "smoke.json").read_text())["records"]["curve"]
    assert [(row["num_items"], row["held"], row["runs"]) for row in curve] == [(12, 4, 4), (28, 0, 4)]
    assert curve[0]["predicted"] == pytest.approx(convex_success_probability(12, 12, 8))
    assert {"smoke-ceiling.svg", "smoke-ceiling.png"} <= {path.name for path in tmp_path.iterdir()}
    code = [line for line in (DOCS / "examples" / "one_head.py").read_text("utf-8").splitlines() if line]
    assert len(code) <= 65


def test_every_experiment_is_in_the_cookbook_with_a_figure_that_exists():
    text = (DOCS / "experiments.md").read_text("utf-8")
    sections = dict(re.findall(r"^## ([a-z]+)\n(.*?)(?=^## )", text, re.DOTALL | re.MULTILINE))
    assert set(sections) == set(EXPERIMENTS)
    for name, section in sections.items():
        assert f"`make {name}`" in section
        [figure] = re.findall(r"\]\((\.\./figures/[^)]+)\)", section)
        assert (DOCS / figure).exists()


def test_the_reference_has_every_module_of_theory():
    page = (DOCS / "api" / "theory.md").read_text("utf-8")
    listed = set(re.findall(r"^\.\. automodule:: (\S+)$", page, re.MULTILINE))
    public = [found.name for found in pkgutil.iter_modules(theory.__path__) if not found.name.startswith("_")]
    assert listed == {f"theory.{name}" for name in public}


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text("utf-8")):
        assert "://" in target or (path.parent / target).exists(), target
