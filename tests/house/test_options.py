"""An option is declared once: its spelling and its sentence stand in one place of the command line."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import attncli

DECLARES = {"option", "number", "Option", "Argument"}
MEANS_TWO = {
    "--batch": "all texts at once, or not; how many texts a step of training has",
    "--head": "heads to show; the one head whose bias is drawn",
    "--layer": "layers to show; the one layer of a file",
    "--measure": "effects have several measures; a cost is timed or not",
    "--rows": "query rows at a time; a table with a row for every text",
    "--save": "a file of stages; a folder for a model",
    "--seed": "of weights, where `random` is one, too; of anything else, a number",
    "--target": "the token that is measured; the other text of an encoder-decoder",
    "--temperature": "divides scores that are given; draws tokens, where 0 is allowed",
}
"""Spellings that are two options, of two types, in different commands."""

CALLS = [
    node
    for path in sorted(Path(attncli.__path__[0]).rglob("*.py"))
    if path.parent.name == "cli" or path.stem == "command"
    for node in ast.walk(ast.parse(path.read_text("utf-8")))
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in DECLARES
]


def repeated(values: list[str]) -> dict[str, int]:
    return {value: times for value, times in Counter(values).items() if times > 1}


def test_a_spelling_is_declared_once():
    spelled = [
        part.value
        for node in CALLS
        for part in node.args
        if isinstance(part, ast.Constant) and str(part.value).startswith("--")
    ]
    assert len(spelled) > 100
    assert repeated(spelled) == dict.fromkeys(MEANS_TWO, 2)


def test_a_sentence_is_written_once():
    said = [
        word.value.value
        for node in CALLS
        for word in node.keywords
        if word.arg == "help" and isinstance(word.value, ast.Constant)
    ]
    assert len(said) > 100
    assert repeated(said) == {}
