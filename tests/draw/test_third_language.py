"""A third language, made of the template of catalogues: what still reads as English on a screen, a
page of help, in an error, a page, a figure or the explorer has gone through no catalogue."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from asking import Answer, ask
from catalogues import PlainCatalog, mo_bytes, sentences
from cli.test_saved_views import MADE_OF, PAGED, SAVED, SHOWN, folder, page_meta, saved
from commands import commands
from walking import SENTENCE, decoder, pressed

from attncli import language
from attncli.cli import declarations
from attncli.draw.view import View
from attncli.features.explain.rule_topic import EXAMPLE
from attncli.features.learn.document import SCORE_NAMES
from attncli.features.learn.tasks import task_class, task_names

__all__ = ["folder"]

LETTERS = str.maketrans(
    {chr(first + at): chr(0x561 + at) for first in (ord("a"), ord("A")) for at in range(26)}
)
"""Armenian for Latin: as wide, and, unlike brackets around it, whole wherever a screen breaks or
cuts a sentence.
"""
ENGLISH = re.compile(r"(?<![\w.\-/'{#&])[A-Za-z][a-z]+(?:'[a-z]+)?(?![\w=\-/(|.:]*[\w=\-/(|])")
"""A word; no formula, path, option, file name or sign."""
NAMES = frozenset((
    "embed", "mlp", "logits",  # parts of a circuit by their ids
    "ablate", "alibi", "attn", "broad", "causal", "confidence", "cosine", "distance", "Enter", "entropy", "Esc",
    "exp", "full", "gelu", "gpt", "induction", "knockout", "learned", "lookup", "max", "mean", "none", "numpy",
    "offset", "random", "rope", "sentence", "sink", "sinks", "sinusoidal", "snapkv", "softmax", "Tab", "text",
    "tokenizer", "tokens", "torch", "tova", "var", "window", "zero",
))  # fmt: skip
"""Names that are typed, and signs: the same in every language."""
TEXT = "the cat sat"
TOKENS = ("The animal didn't cross the street because it was too tired", "he be thebe word")
"""The sample, what a small model says, and the kind of tokens."""
SLOW = {"verify"}
"""What imports transformers."""


def foreign(sentence: str) -> str:
    """A sentence in the third language; its places stay."""
    parts = re.split(r"(\{[^{}]*\})", sentence)
    return "".join(part if part.startswith("{") else part.translate(LETTERS) for part in parts)


@pytest.fixture(scope="module", autouse=True)
def _third_language(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The third language is one of those that there are."""
    compiled = PlainCatalog(fuzzy=False)
    for entry in sentences():
        if entry.id:
            strings = (
                foreign(entry.id) if isinstance(entry.id, str) else tuple(map(foreign, entry.id))
            )
            compiled.add(entry.id, strings, context=entry.context)
    path = tmp_path_factory.mktemp("language")
    (path / "xx.mo").write_bytes(mo_bytes(compiled))
    language.FOLDERS.append(str(path))
    declarations.LANGUAGES.append("xx")
    language.catalogue_of.cache_clear()
    yield
    language.FOLDERS.remove(str(path))
    declarations.LANGUAGES.remove("xx")
    language.catalogue_of.cache_clear()


def english(text: str, *known: str) -> set[str]:
    """The English words in a text, but for those that the user wrote."""
    written = {
        part
        for text in known
        for word in re.findall(r"[A-Za-z']+", text)
        for part in (word, word.lower())
    }
    return set(ENGLISH.findall(re.sub(r"\x1b\[[0-9;]*m", "", text))) - written - NAMES


def foreign_answer(*arguments: str, **options: Any) -> Answer:
    """What a command line answers in the third language."""
    return ask(*arguments, ATTN_LANG="xx", width=120, **options)


def line_of(name: str, folder: Path) -> tuple[str, ...]:
    """A command line of those that save a document."""
    if name in MADE_OF:
        saved(folder, MADE_OF[name])
    return tuple(part.replace("{t}", str(folder)) for part in SAVED[name])


def data_of(value: Any) -> Iterator[str]:
    """Every text in what was read from JSON."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from data_of(part)
    elif isinstance(value, str):
        yield value


def words_of(name: str, line: tuple[str, ...], folder: Path) -> list[str]:
    """What may be read in any language: what the user wrote, tokens, and what tells of names alone."""
    data = (
        data_of(json.loads(saved(folder, name).read_text()))
        if name in ("models", "weights", "explain rule", "answer")
        else ()
    )
    pairs = [Path(part).read_text() for part in line if part.endswith(".jsonl")]
    tasks = task_names() if name == "tasks" else ()
    example = [EXAMPLE] if name == "explain rule" else []
    shell = ["echo", "sat"] if name == "check" else []  # of the command that is told
    return [*line, str(folder), *TOKENS, *data, *pairs, *tasks, *example, *shell]


@pytest.mark.thorough
def test_the_third_language_shows_what_is_left_of_english() -> None:
    assert english(foreign("the {head} looks") + " at cat", "cat") == {"at"}
    assert english("W_Q = softmax(QKᵀ) --top 3 sample_inputs/a.npz") == set()
    assert ENGLISH.findall("left of it") == ["left", "of", "it"]
    assert ENGLISH.findall(foreign("left of it")) == []


@pytest.mark.many
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.thorough] if name in SLOW else []) for name in SAVED],
)
def test_a_screen_has_no_english(folder: Path, name: str) -> None:
    line = line_of(name, folder)
    answer = foreign_answer(*line)
    assert english(answer.out + answer.err, *words_of(name, line, folder)) == set()


@pytest.mark.many
@pytest.mark.parametrize("name", [name for name in SHOWN if name not in SLOW])
def test_a_figure_has_no_english(folder: Path, name: str) -> None:
    line, file = line_of(name, folder), folder / "figure.svg"
    answer = foreign_answer(*line, "--figure", str(file))
    if answer.code == 2:  # the command has no figure of its own
        answer = foreign_answer("view", str(saved(folder, name)), "--figure", str(file))
    assert answer.code == 0, answer.err
    texts = unescape("\n".join(re.findall(r">([^<]+)</t", file.read_text("utf-8"))))
    assert english(texts + answer.err, *words_of(name, line, folder)) == set()


@pytest.mark.many
@pytest.mark.parametrize("name", sorted(PAGED))
def test_a_page_has_no_english(folder: Path, name: str) -> None:
    line, file = line_of(name, folder), folder / "page.html"
    answer = foreign_answer(*line, "--html", str(file))
    if answer.code == 2:  # the command has no page of its own
        answer = foreign_answer("view", str(saved(folder, name)), "--html", str(file))
    assert answer.code == 0, answer.err
    assert english(page_texts(file), *words_of(name, line, folder)) == set()


@pytest.mark.parametrize("name", ["learn", "series", "scan"])
def test_a_page_of_what_is_trained_or_counted_has_no_english(folder: Path, name: str) -> None:
    line, file = line_of(name, folder), folder / "page.html"
    answer = foreign_answer(*line, "--html", str(file))
    assert answer.code == 0, answer.err
    assert english(page_texts(file), *words_of(name, line, folder)) == set()


def page_texts(file: Path) -> str:
    """What a page says in the third language: its elements, its script's phrases, its notes; not
    its table, whose words are those of the file that it is kept as."""
    others = r'<section (?:class="reading" )?lang="(?:en|zh)".*?</section>|<details id="table">.*?</details>'
    page = re.sub(others, "", file.read_text("utf-8"), flags=re.S)
    elements = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.S)
    texts = [*re.findall(r">([^<]+)<", elements)]
    texts += re.findall(r'(?:title|aria-label|alt|placeholder)="([^"]*)"', elements)
    return unescape("\n".join([*texts, *spoken(page_meta(file))]))


def spoken(value: Any) -> Iterator[str]:
    """Every text in the third language of what a page's script is told."""
    if isinstance(value, dict):
        if "xx" in value:
            yield from data_of(value["xx"])
        for part in value.values():
            yield from spoken(part)
    elif isinstance(value, list):
        for part in value:
            yield from spoken(part)


@pytest.mark.parametrize("command", ["", *(name for name, _ in commands())])
def test_help_has_no_english(command: str) -> None:
    if command == "scan start":
        command = "scan"
    for option in ("-h", "--help"):
        page = foreign_answer(*command.split(), option).out
        # commands to type, what options take, and their values behind each sentence
        page = re.sub(r"\[[^\]]*\]|attn [^\n]*|-[\w-]+ [\w|:,.-]+", "", page)
        examples = "Mary it the cat sat tired"  # the second lines of commands to type
        assert english(page, examples, *(name for name, _ in commands())) == set()


ERRORS = (
    ("nothing",), ("run", TEXT, "--query", "dog"), ("run", TEXT, "--query", "#9"), ("run", TEXT, "--query", "cat:2"),
    ("run", TEXT, "--layer", "3"), ("run", TEXT, "--mask", "nothing"), ("run", TEXT, "--nonsense"),
    ("run", TEXT, "--num-heads", "7"), ("run", TEXT, "--top", "-1"), ("run", TEXT, "--top", "x"), ("run", ""),
    ("run", TEXT, "--mask", "window"), ("run", TEXT, "--seed", "x"), ("run", TEXT, "--model", "nothing-there"),
    ("run", TEXT, "--dtype", "float8"), ("run", TEXT, "--generate", "2"), ("run", TEXT, "--scale", "nan"),
    ("run", TEXT, "--csv", "a/b/c.csv"), ("run", TEXT, "--html", "a.txt"), ("run", TEXT, "--figure", "a.txt"),
    ("run", TEXT, "--file", "none.txt"), ("run", "the", "cat", "sat"), ("run", TEXT, "--weights", "none.npz"),
    ("run", TEXT, "--show", "pictures"), ("run", TEXT, "--head", "L9H9"),
    ("run", TEXT, "--tokenizer", "none.json"), ("run", TEXT, "--positions", "rope"), ("run", TEXT, "--memory", "1"),
    ("heads", TEXT, "--sort", "nothing"), ("heads", TEXT, "--across", "nothing"), ("find", TEXT),
    ("find", TEXT, "--from", "dog", "--to", "cat"), ("compare", TEXT),
    ("ablate", TEXT, "--by", "nothing"), ("ablate", TEXT, "--from", "cat"), ("logits", TEXT), ("patch", TEXT, "a cat"),
    ("why", TEXT), ("why", TEXT, "--from", "cat"), ("explain", "metric", "nothing"), ("explain", "softmax", "a"),
    ("tensors", "none.npz"), ("tensors", "sample_inputs/captured.npz", "--batch", "7"),
    ("mask", "window:x"), ("mask", "nothing"), ("cost", "-n", "0"), ("cost", "--num-heads", "7"),
    ("cross", TEXT), ("tokens", TEXT, "--tokenizer", "nothing"), ("weights", "show", "none.npz"),
    ("weights", "init", "a.npz", "--layout", "nothing"), ("models", "show", "nothing"), ("view", "none.json"),
    ("view", "sample_inputs/captured.npz", "--lines"), ("guide", "qqzx"), ("schema", "nothing"),
    ("learn", "nothing"), ("learn", "order", "--steps", "0"), ("series",), ("series", "nothing-there"),
    ("scan", "minilm"),
    ("scan", "show", "nowhere"), ("explore", TEXT),
)  # fmt: skip
"""What people run into."""


@pytest.mark.parametrize("command", ERRORS, ids=" ".join)
def test_an_error_has_no_english(command: tuple[str, ...]) -> None:
    answer = foreign_answer(*command)
    assert answer.code in (1, 2, 3, 4, 5), answer
    # what is tried next is a command, and what is expected a list of values
    text = re.sub(r"attn [^\n]*|--[\w-]+ [\w:]+|(\w[\w-]*, )+\w[\w-]*", "", answer.out + answer.err)
    assert english(text, *command) == set()


SCREENS = {
    "head": (), "help": ("question_mark",), "sentence": ("2",), "derivation": ("3", *["right"] * 3),
    "search": ("4", "=humpty → sat", "enter"), "difference": ("5", "right"), "effects": ("6", "wait", "e", "wait"),
    "text": ("slash",), "new text": ("i",), "saving": ("s",), "mask": ("m", "m"), "row": ("r", "m"),
    "tokens": ("t", "enter"), "palette": ("c", "c"), "order": ("o",), "next": ("n", "wait"), "help of search":
    ("4", "=humpty → sat", "enter", "question_mark"), "help of effects": ("6", "wait", "question_mark"),
}  # fmt: skip
"""Screens of the explorer, by the keys that lead there."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.thorough] if place % 3 else [])
        for place, name in enumerate(SCREENS)
    ],
)
def test_the_explorer_has_no_english(name: str) -> None:
    _, lines = pressed(
        SENTENCE, *SCREENS[name], size=(100, 40), view=View(width=100, color=True, lang="xx")
    )
    assert any("\u0561" <= letter <= "\u057a" for letter in "".join(lines))
    assert english("\n".join(lines), SENTENCE, "eight three heads") == set()


@pytest.mark.thorough
def test_the_explorer_has_no_english_where_a_model_continues_the_text() -> None:
    _, lines = pressed(
        decoder(), "n", "wait", size=(100, 40), view=View(width=100, color=True, lang="xx")
    )
    assert english("\n".join(lines), "abcab", "abcabc") == set()


def test_every_score_of_a_task_has_its_name() -> None:
    tasks = filter(None, map(task_class, task_names()))
    assert {score.name for task in tasks for score in task.scores} == set(SCORE_NAMES)
