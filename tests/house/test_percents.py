"""Percents are written in one way, in every language."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "attncli"
SOURCES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_a_percent_sign_stands_at_its_number() -> None:
    """`89%` in every language: no blank before the sign, and one function that writes it."""
    apart = re.compile("(?<=[0-9}])[ \u00a0\u202f][%％](?! ?[{0-9(])|％")
    pages = [
        *SOURCES,
        *sorted(PACKAGE.rglob("*.js")),
        *sorted(PACKAGE.rglob("*.md")),
        ROOT / "README.md",
    ]
    wrong = [
        f"{name_of(path)}: {line}"
        for path in pages
        for line in path.read_text("utf-8").splitlines()
        if apart.search(line)
    ]
    assert wrong == []
    assert apart.search("占 89 %。")
    assert apart.search("{0} % of")
    assert not apart.search("{0} % {1} is not 0")
    formats = {
        name_of(path) for path in SOURCES if re.search(r":[.{}\w \-]*%}", path.read_text("utf-8"))
    }
    assert formats == {"attncli/draw/numbers.py"}
