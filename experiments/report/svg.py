"""Matplotlib's svg files as parts of one page: smaller, without global styles, with names of their own."""

from __future__ import annotations

import re
from html import escape

_STYLE = re.compile(r"<style\b[^>]*>.*?</style>", re.S)
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.S)
_COMMENT = re.compile(r"<!--.*?-->", re.S)
_EMPTY = re.compile(r"<defs>\s*</defs>")
_ROOT = re.compile(r"<svg\b[^>]*>")
_VIEW = re.compile(r'viewBox="([^"]+)"')
_USED = re.compile(r'(?:url\(#|href="#)([^")]+)')
_ID = re.compile(r'\s+id="([^"]+)"')
_NUMBERS = re.compile(r'(?<= )(d|x|y|points|x1|y1|x2|y2|cx|cy)="([^"]*)"')
_LONG = re.compile(r"-?\d+\.\d{3,}")
_SPACE = re.compile(r">\s+<")


def inline(svg: str, prefix: str, title: str) -> str:
    """An svg file's content as an element of an HTML page.

    Names that something refers to get ``prefix``, others go; matplotlib's style sheet, which would hold for the whole
    page, becomes properties of the element; coordinates keep two digits (of a point, 1/72 inch).

    Args:
        svg: the file's content.
        prefix: letters that no other figure of the page begins its names with.
        title: for those who do not see the figure.

    Returns:
        The element. Its width follows the page up to the figure's own.

    Raises:
        ValueError: there is no svg element with a viewBox.
    """
    root = _ROOT.search(svg)
    view = root and _VIEW.search(root[0])
    if not root or not view:
        raise ValueError(f"svg: expected an element with a viewBox, got {svg[:80]!r}")
    width = float(view[1].split()[2])
    text = svg[root.end() :]
    for pattern in (_COMMENT, _METADATA, _STYLE, _EMPTY):
        text = pattern.sub("", text)
    used = set(_USED.findall(text))
    text = _ID.sub(lambda match: f' id="{prefix}{match[1]}"' if match[1] in used else "", text)
    text = (
        text.replace("url(#", f"url(#{prefix}")
        .replace('href="#', f'href="#{prefix}')
        .replace("xlink:href=", "href=")
    )
    text = _NUMBERS.sub(lambda match: f'{match[1]}="{_shorter(match[2])}"', text)
    text = _SPACE.sub("><", text).strip()
    size = f'viewBox="{view[1]}" style="max-width:{width * 4 / 3:.0f}px"'
    wide = " wide" if width > 400 else ""
    return f'<svg class="plot{wide}" role="img" aria-label="{escape(title)}" {size}>{text}'


def _shorter(value: str) -> str:
    value = _LONG.sub(lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), value)
    return " ".join(value.split())
