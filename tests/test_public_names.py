"""Every public name has a docstring: modules, functions, classes and their methods."""

import ast
import importlib
import inspect
import pkgutil
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import experiments
import mha_jax
import theory

PACKAGES = (mha_jax, theory, experiments)


def modules(package: types.ModuleType) -> Iterator[types.ModuleType]:
    """A package and its public modules; ``__main__`` runs when it is imported."""
    yield package
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not any(part.startswith("_") for part in found.name.split(".")):
            yield importlib.import_module(found.name)


def undocumented(module: types.ModuleType) -> list[str]:
    """Public names of a module without a docstring, and names in ``__all__`` that it does not have.

    Public is what is defined here without an underscore in front, and whatever ``__all__`` names. Methods count where
    the class itself defines them and no base class documents them. Constants have no docstring.
    """
    found = [] if inspect.getdoc(module) else [module.__name__]
    named = list(getattr(module, "__all__", []))
    found += [f"{module.__name__}.{name}" for name in named if not hasattr(module, name)]
    own = [
        name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__
    ]
    for name in dict.fromkeys([*named, *own]):
        thing = getattr(module, name, None)
        if (name.startswith("_") and name not in named) or not (
            inspect.isroutine(thing) or inspect.isclass(thing)
        ):
            continue
        if not _has_docstring(thing):
            found.append(f"{module.__name__}.{name}")
        if inspect.isclass(thing):
            found += [f"{module.__name__}.{name}.{method}" for method in _bare_methods(thing)]
    return found


def _has_docstring(thing: object) -> bool:
    text = inspect.getdoc(thing) or ""
    generated = inspect.isclass(thing) and text.startswith(
        f"{thing.__name__}("
    )  # of dataclasses and named tuples
    return bool(text.strip()) and not generated


def _bare_methods(cls: type) -> Iterator[str]:
    for name, thing in vars(cls).items():
        thing = thing.__func__ if isinstance(thing, classmethod | staticmethod) else thing
        code = thing.fget if isinstance(thing, property) else thing
        if name.startswith("_") or not inspect.isfunction(inspect.unwrap(code) if callable(code) else code):
            continue
        if code.__module__ != cls.__module__:  # made by a decorator
            continue
        if not inspect.getdoc(getattr(cls, name)) and not inspect.getdoc(code):
            yield name


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_every_public_name_has_a_docstring(package):
    assert [name for module in modules(package) for name in undocumented(module)] == []


def test_what_lacks_a_docstring_is_found(tmp_path, monkeypatch):
    (tmp_path / "made_up.py").write_text(
        """
from dataclasses import dataclass
from math import tau  # of another module
__all__ = ["gone"]

def bare(): pass
def documented(): "Documented."
def _private(): pass

@dataclass
class Bare:
    x: int = 0

class Documented:
    "Documented."
    def bare(self): pass
    @property
    def value(self): pass
    @classmethod
    def make(cls): pass
    def documented(self): "Documented."
    def _private(self): pass
"""
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert undocumented(importlib.import_module("made_up")) == [
        "made_up",
        "made_up.gone",
        "made_up.bare",
        "made_up.Bare",
        "made_up.Documented.bare",
        "made_up.Documented.value",
        "made_up.Documented.make",
    ]


@pytest.mark.parametrize("package", PACKAGES[:2], ids=lambda package: package.__name__)
def test_public_functions_say_what_their_arguments_are(package):
    """A docstring that has a section of arguments names all of them, in their order."""
    sources = {module.__name__: Path(str(module.__file__)).read_text("utf-8") for module in modules(package)}
    assert {name: found for name, source in sources.items() if (found := misnamed(source))} == {}


def test_arguments_under_other_names_are_found():
    source = """
def right(a, *, b): 'Text.\\n\\nArgs:\\n    a: one,\\n        as: said.\\n    b: other.\\n\\nReturns:\\n    c: no.'
def without_a_section(a, b): 'Text.'
def lacks(a, b): 'Text.\\n\\nArgs:\\n    a: one.'
def renamed(a): 'Text.\\n\\nArgs:\\n    b: one.'
"""
    assert misnamed(source) == ["lacks", "renamed"]


def misnamed(source: str) -> list[str]:
    """Public functions whose section of arguments does not name their arguments, all of them, in their order."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    said = {node: _said(ast.get_docstring(node) or "") for node in functions if not node.name.startswith("_")}
    return [node.name for node, names in said.items() if names and names != _arguments(node)]


def _arguments(node: ast.FunctionDef) -> list[str]:
    every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    names = [argument.arg for argument in every if argument.arg not in ("self", "cls")]
    starred = [f"*{node.args.vararg.arg}"] if node.args.vararg else []
    return names + starred + ([f"**{node.args.kwarg.arg}"] if node.args.kwarg else [])


def _said(text: str) -> list[str]:
    names, inside = [], False
    for line in text.splitlines():
        if line == "Args:":
            inside = True
        elif inside and line and not line.startswith(" "):
            inside = False
        elif inside and line.startswith("    ") and line[4:5].strip():
            names += [name.strip() for name in line.strip().partition(":")[0].split(",")]
    return names
