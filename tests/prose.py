"""What attn says to people, read from its source: every text literal with words in it, and where it
stands.

What no person is told is left out: docstrings that no help page shows, meanings in schemas (JSON
speaks English), checks for programmers (assertions, ValueError and the like), patterns.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import syntax

PACKAGE = Path(__file__).parent.parent / "attncli"
UNTOLD = frozenset(
    {"describe", "axes", "index_of", "Meta", "compile", "ValueError", "TypeError", "RuntimeError", "KeyError",
    "AssertionError", "NotImplementedError", "OSError", "IndexError", "get"}
)  # fmt: skip
"""Calls whose texts no person is told."""
SENTENCES = frozenset({"message", "plural", "contextual", "say", "say_each"})
"""Calls whose texts are extracted into the catalogues."""
ELSEWHERE = ("language",)
"""The folder of the translations themselves."""
WORDS = re.compile(r"(?<![\w-])[A-Za-z]?[a-z']{1,} [a-z][a-z']*(?![\w-])")


@dataclass(frozen=True)
class Told:
    """A text with its places as {0}, {1} …, and where it is written."""

    text: str
    where: str


def told() -> list[Told]:
    """Every text of the package that has two English words in a row."""
    found: dict[str, Told] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name.startswith(ELSEWHERE):
            continue
        tree = syntax.tree(path.read_text("utf-8"))
        for node in _literals(tree):
            for text in templates(node):
                if WORDS.search(re.sub(r"\{\d\}", "#", text)):
                    found.setdefault(text, Told(text, f"{name}:{node.lineno}"))
    return list(found.values())


def templates(node: ast.AST) -> list[str]:
    """The texts that an expression may give, its places numbered from 0."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=values):
            text, places = "", 0
            for part in values:
                if isinstance(part, ast.Constant):
                    text += str(part.value)
                else:
                    text, places = text + f"{{{places}}}", places + 1
            return [text]
        case _:
            return []


def _beside_sentences(call: ast.Call) -> Iterator[ast.expr]:
    """The arguments of a call of `SENTENCES` that are no sentences themselves."""
    for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
        if isinstance(argument, ast.IfExp):
            yield from (
                part
                for part in (argument.body, argument.orelse)
                if not isinstance(part, ast.Constant)
            )
        elif not isinstance(argument, ast.Constant):
            yield argument


def _literals(node: ast.AST) -> Iterator[ast.expr]:
    """The literals below a node that a person may be told."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue  # a docstring
        if isinstance(child, ast.Assert):
            continue
        if isinstance(child, ast.Call):
            name = getattr(child.func, "id", getattr(child.func, "attr", ""))
            if name in UNTOLD:
                continue
            if name in SENTENCES:  # their own test holds them to the catalogues
                yield from _literals(
                    ast.Module([ast.Expr(part) for part in _beside_sentences(child)], [])
                )
                continue
        if isinstance(child, ast.JoinedStr | ast.Constant):
            yield child
            if isinstance(child, ast.JoinedStr):
                for part in child.values:
                    if isinstance(part, ast.FormattedValue):
                        yield from _literals(part)
            continue
        yield from _literals(child)
