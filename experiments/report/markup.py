"""The little Markdown of captions and ledger as HTML."""

from __future__ import annotations

import re
from html import escape

_CODE = re.compile(r"`([^`]+)`")
_MATH = re.compile(r"\$([^$]+)\$")
_STRONG = re.compile(r"\*\*([^*]+)\*\*")
_EM = re.compile(r"(?<![\w*])\*([^*\s][^*]*)\*(?![\w*])")
_MARK = re.compile(r"\x00(\d+)\x00")
_SYMBOLS = {
    r"\top": "⊤", r"\tau": "τ", r"\times": "×", r"\cdot": "·", r"\leq": "≤", r"\le": "≤", r"\geq": "≥", r"\ge": "≥",
    r"\infty": "∞", r"\log": "log", r"\,": " ",
}  # fmt: skip


def to_html(text: str) -> str:
    """Code, emphasis and simple formulas (``$D_K$``); everything else as it stands."""
    kept: list[str] = []

    def keep(html: str) -> str:
        kept.append(html)
        return f"\x00{len(kept) - 1}\x00"

    text = _CODE.sub(lambda match: keep(f"<code>{escape(match[1])}</code>"), text)
    text = _MATH.sub(lambda match: keep(f"<i>{_formula(match[1])}</i>"), text)
    text = _STRONG.sub(r"<strong>\1</strong>", escape(text, quote=False))
    text = _EM.sub(r"<em>\1</em>", text)
    return _MARK.sub(lambda match: kept[int(match[1])], text)


def _formula(text: str) -> str:
    for name, symbol in _SYMBOLS.items():
        text = text.replace(name, symbol)
    text = escape(text, quote=False)
    for mark, tag in (("_", "sub"), ("^", "sup")):
        text = re.sub(
            rf"\{mark}(?:\{{([^}}]*)\}}|(\w|⊤))", lambda m, tag=tag: f"<{tag}>{m[1] or m[2]}</{tag}>", text
        )
    return text
