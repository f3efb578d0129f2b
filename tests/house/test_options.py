"""An option is declared once: its spelling and its sentence stand in one place of the command line."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import Annotated, Any

import pytest
import syntax
import typer
from asking import ask

import attncli
from attncli.cli.app import command
from attncli.cli.grouped_command import command_app
from attncli.cli.option import DOCUMENT, DRAWING, OUTPUT, RUN, SCREEN, About, flat, number, option
from attncli.features.run import command as run_command

DECLARES = {"option", "number", "argument"}
MEANS_TWO = (
    "--head", "--layer", "--seed", "--temperature", "--labels/--no-labels", "--measure", "--output",
    "--batch", "--save", "--by", "--effect", "--why", "--verify", "--steps", "--workers", "--tokens",
)  # fmt: skip
"""Spellings that are declared twice, once for commands that take less of it: one head, a seed that
is a number; or that mean two things: steps of training, and inputs at which gradients are taken;
processes, and threads; tokens of a random sequence, and of an answer.
"""


def declared_name(node: ast.AST) -> str:
    """The name of a parameter, of a field or of a constant that an option is declared for; "" for
    other nodes.
    """
    match node:
        case (
            ast.Assign(targets=[ast.Name(id=name)])
            | ast.AnnAssign(target=ast.Name(id=name))
            | ast.arg(arg=name)
        ):
            return name.lower()
    return ""


CALLS = [
    (node, declared_name(parent))
    for path in sorted(Path(attncli.__path__[0]).rglob("*.py"))
    if path.parent.name == "cli" or path.stem == "command"
    for parent in ast.walk(ast.parse(path.read_text("utf-8")))
    if declared_name(parent)
    for node in ast.walk(parent)
    if isinstance(node, ast.Call) and re.split("[._]", ast.unparse(node.func))[-1] in DECLARES
]
"""The calls that declare options and arguments, each with the name of what it is declared for."""


def repeated(values: list[str]) -> dict[str, int]:
    return {value: times for value, times in Counter(values).items() if times > 1}


def test_a_spelling_is_declared_once():
    spelled = []
    for node, name in CALLS:
        flags = [
            part.value
            for part in node.args
            if isinstance(part, ast.Constant) and str(part.value).startswith("--")
        ]
        if any(word.arg == "help" for word in node.keywords):
            spelled += flags or [f"--{name.replace('_', '-')}"]
    assert len(spelled) > 100
    assert repeated(spelled) == dict.fromkeys(MEANS_TWO, 2)


def test_a_sentence_is_written_once():
    said = [
        sentence.value
        for node, _ in CALLS
        for sentence in [*node.args, *(word.value for word in node.keywords if word.arg == "help")]
        if isinstance(sentence, ast.Constant) and " " in str(sentence.value)
    ]
    assert len(said) > 100
    assert repeated(said) == {}


def test_an_option_that_does_not_say_what_it_is_about_does_not_start():
    with pytest.raises(TypeError, match="about"):
        option("--round", help="Digits.", panel=OUTPUT)  # type: ignore[call-arg]

    def rounds(digits: Annotated[int, typer.Option("--round")] = 0) -> None:
        del digits

    with pytest.raises(TypeError, match="digits does not declare what it is about"):
        flat(rounds)


def is_typer_option(function: ast.expr) -> bool:
    match function:
        case ast.Attribute(ast.Name("typer"), "Option"):
            return True
        case _:
            return False


def test_every_option_is_declared_by_the_one_who_checks_it():
    raw = [
        f"{path.name}:{node.lineno}"
        for path in sorted(Path(attncli.__path__[0]).rglob("*.py"))
        if path.name != "app.py"  # --version, which is of no command
        if path.name != "option.py"
        for node in syntax.nodes(path.read_text("utf-8"))
        if isinstance(node, ast.Call) and is_typer_option(node.func)
    ]
    assert raw == []


def an_option_more(about: About, function: Callable[..., None]) -> Callable[..., None]:
    """A command with an option `--round N` besides its own, declared to be about this."""
    declared = number(
        "--round", help="Round to so many digits.", panel=OUTPUT, about=about, least=0
    )
    signature = inspect.signature(function)
    more = inspect.Parameter("digits", inspect.Parameter.KEYWORD_ONLY, default=None)

    @wraps(function)
    def with_more(*arguments: Any, digits: int | None = None, **options: Any) -> None:
        del digits
        function(*arguments, **options)

    with_more.__signature__ = signature.replace(parameters=[*signature.parameters.values(), more])  # type: ignore[attr-defined]
    with_more.__annotations__ = {
        **function.__annotations__,
        "digits": Annotated[int | None, declared],
    }
    return with_more


@pytest.mark.parametrize(
    ("about", "refused"),
    [
        (SCREEN, ["--json", "--plain", "--brief", "--generate"]),
        (DRAWING, ["--json", "--plain", "--generate"]),
        (DOCUMENT, ["--brief", "--generate"]),
        (RUN, ["--generate"]),
    ],
)
def test_what_an_option_goes_with_follows_from_what_it_is_about(about, refused, monkeypatch):
    """So a new option of `attn run` is nowhere taken and ignored, though nobody wrote a guard for
    it.
    """
    app = command_app(an_option_more(about, run_command.run))
    monkeypatch.setattr(run_command, "run_app", app)
    monkeypatch.setattr("asking.kept", cache(command))
    for option_beside in ("--json", "--plain", "--brief", "--generate"):
        beside = [option_beside, *(["2"] if option_beside == "--generate" else [])]
        answer = ask("run", "a b", "--round", "2", *beside)
        assert ("--round" in answer.err) == (option_beside in refused), (about, option_beside)
        if option_beside in refused:
            assert (answer.code, answer.out) == (2, "")
