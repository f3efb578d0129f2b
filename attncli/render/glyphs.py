"""The program's own marks (arrows, products, dashes) and how each is spelled in ASCII.

For text that we wrote; a token's text is never respelled, only escaped (`safe`).
"""

from __future__ import annotations

import re

from attncli.render.safe import safe

_PLAIN = {
    "→": "->", "←": "<-", "…": "...", "·": "*", "×": "x", "√": "sqrt", "−": "-", "–": "-", "—": "--", "∞": "inf",
    "ᵀ": "^T",
    "≤": "<=", "≥": ">=", "≈": "~", "Σ": "sum", "²": "^2", "Ã": "A~", "‖": "||", "▸": ">", "⋮": ":", "─": "-",
    "│": "|", "█": "#",
    "₀": "_0", "₁": "_1", "₂": "_2", "₃": "_3", "ₕ": "_h", "é": "e", "½": "1/2", "θ": "theta", "λ": "lambda",
    "σ": "sigma", "ε": "eps",
}  # fmt: skip
_TABLE = str.maketrans(_PLAIN)
_ROOT = re.compile(r"√([A-Za-z]\w*)")
"""A root of something with a name, which in ASCII needs brackets to be read."""


def spell(text: str, *, ascii: bool) -> str:
    """Our own text for this terminal: as written, or in ASCII. The separator ` · ` becomes ` | `. Always safe."""
    return safe(_ROOT.sub(r"√(\1)", text.replace(" · ", " | ")).translate(_TABLE), ascii=True) if ascii else safe(text)
