"""Settings of Sphinx for this folder: `make docs` writes build/docs, without a network, and any warning is an error."""

import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # theory and experiments are not installed

project = "mha-jax"
author = "The mha-jax authors"
copyright = author

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3

default_role = "py:obj"  # `name` in a docstring links to what is documented under it, else it is code
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
maximum_signature_line_length = 100
python_use_unqualified_type_names = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_math_renderer = "mathml"
html_title = "mha-jax"
napoleon_attr_annotations = False  # shapes are no RST
napoleon_use_rtype = False  # a colon in a sentence is no type
napoleon_use_ivar = True  # else fields of a NamedTuple are described twice

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s]+)\)")


def within_the_docs(folder: Path, text: str) -> str:
    """Markdown of the repository as pages can show it: a link to a folder, which is none of theirs, is its text."""
    return LINK.sub(lambda m: m[1] if (folder / m[2]).is_dir() else m[0], text)


def read_page(app: Sphinx, page: str, source: list[str]) -> None:
    """Hook: the text of a page before it is parsed."""
    source[0] = within_the_docs(Path(app.env.doc2path(page)).parent, source[0])


def read_included(app: Sphinx, path: Path, page: str, content: list[str]) -> None:
    """Hook: the text of an included file of the root, whose links begin there and not in this folder."""
    if path.suffix == ".md":
        text = within_the_docs(ROOT, content[0])
        content[0] = LINK.sub(lambda m: m[0] if "://" in m[2] else f"[{m[1]}](../{m[2]})", text)


def skip_alias(app: Sphinx, what: str, name: str, thing: object, skip: bool, options: Any) -> bool | None:
    """Hook: fields of named tuples are described with their class."""
    return True if (getattr(thing, "__doc__", None) or "").startswith("Alias for field number") else None


def visit_inline(writer: Any, node: nodes.math) -> None:
    """A formula in a line, as MathML: browsers draw it by themselves, without a script from elsewhere."""
    writer.body.append(latex2mathml.tex2mathml(node.astext()))
    raise nodes.SkipNode


def visit_block(writer: Any, node: nodes.math_block) -> None:
    """A formula of its own."""
    formula = latex2mathml.tex2mathml(node.astext().strip(), as_block=True)
    writer.body.append(f'<div class="math">{formula}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    app.connect("source-read", read_page)
    app.connect("include-read", read_included)
    app.connect("autodoc-skip-member", skip_alias)
