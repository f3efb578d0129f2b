"""The name of a head and the arrow of a link are written in one place each, so that another spelling
is a change of one file."""

from __future__ import annotations

import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "attncli"
HEAD = re.compile(r"L\{[^}]*\} ?H\{")
ARROW = re.compile(r"""\} +→ +\{|["'] *→ *["']""")
MAY_SPELL = {
    "mechanism/spec.py": "the names themselves",
    "cli/completion.py": "completion must not import NumPy",
    "features/circuit/edge_graph.py": "ids of nodes in JSON",
}
MAY_DRAW = {
    "mechanism/spec.py": "the names themselves",
    "draw/safe.py": "what ASCII has for it",
    "explore/state.py": "the key with an arrow on it",
    "features/learn/figure.py": "a score before and after",
}


def places(pattern: re.Pattern[str]) -> dict[str, str]:
    sources = {
        path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8")
        for path in PACKAGE.rglob("*.py")
    }
    return {
        name: match.group() for name, text in sources.items() if (match := pattern.search(text))
    }


def test_heads_are_named_in_one_place():
    spelled = {name: text for name, text in places(HEAD).items() if name not in MAY_SPELL}
    assert not spelled, f"take head_name or head_label of attncli/mechanism/spec.py: {spelled}"


def test_the_arrow_of_a_link_is_written_in_one_place():
    drawn = {name: text for name, text in places(ARROW).items() if name not in MAY_DRAW}
    assert not drawn, (
        f"take link_label or arrow of attncli/draw/names.py, or plain_link of mechanism/spec.py: {drawn}"
    )


def test_no_exemption_is_left_over():
    assert {*MAY_SPELL} == {*places(HEAD)}
    assert {*MAY_DRAW} == {*places(ARROW)}
