"""Every sentence has its translation in every catalogue, and what is compiled is what stands there."""

from __future__ import annotations

import ast
import pickle
import re
from collections.abc import Iterator
from io import BytesIO
from string import Formatter
from warnings import warn

import catalogues
import orjson
import pytest
import syntax
from catalogues import (
    ARGUMENTS,
    FOLDER,
    KEYWORDS,
    PACKAGE,
    alternatives,
    argument,
    is_translated,
    languages,
    mo_bytes,
    po_bytes,
    read,
    sentences,
    updated,
)
from prose import Told, told

from attncli.cli.help_page import TAIL
from attncli.draw.view import View
from attncli.language import choice, contextual, listing, message, plural, say, translate


def places(text: str) -> list[str]:
    """The places of a sentence, each as often as it stands there; a sentence without them may hold
    braces.
    """
    try:
        return sorted(
            f"{name}:{spec}"
            for _, name, spec, _ in Formatter().parse(text)
            if (name or "").isidentifier()
        )
    except ValueError:
        return []


def untranslated(lang: str) -> list[str]:
    """The sentences of a catalogue that are shown in English yet."""
    entries = [entry for entry in read(lang) if entry.id and not is_translated(entry.string)]
    return [entry.id if isinstance(entry.id, str) else entry.id[0] for entry in entries]


@pytest.mark.parametrize("lang", languages())
def test_a_catalogue_has_every_sentence_and_no_other(lang: str) -> None:
    """A sentence without a translation is shown in English, and a warning here; a release has none."""
    for sentence in untranslated(lang):
        warn(f"attncli/language/{lang}.po has no translation of: {sentence}", stacklevel=1)
    catalogue = updated(lang, sentences())
    files = {".po": po_bytes(catalogue), ".mo": mo_bytes(catalogue)}
    stale = [
        f"attncli/language/{lang}{ending}"
        for ending, content in files.items()
        if (FOLDER / f"{lang}{ending}").read_bytes() != content
    ]
    assert stale == [], "PYTHONPATH=tests python tests/catalogues.py writes them anew"


@pytest.mark.thorough
@pytest.mark.parametrize("lang", languages())
def test_a_release_has_every_translation(lang: str) -> None:
    assert untranslated(lang) == []


@pytest.mark.parametrize("lang", languages())
def test_a_translation_has_the_places_of_its_sentence(lang: str) -> None:
    for entry in read(lang):
        if entry.id and is_translated(entry.string):
            english = {*places(entry.id if isinstance(entry.id, str) else entry.id[1])}
            for text in [entry.string] if isinstance(entry.string, str) else entry.string:
                assert {*places(text)} == english, entry.id


def test_literals_are_read_in_calls_inside_calls_and_in_alternatives() -> None:
    source = (
        b'message("a {b}", b=plural("c", "ds", count=n))\nsay(view, "e" if x else "f")\nmessage(g)'
    )
    calls = [
        (name, texts)
        for _, name, texts, _ in catalogues.literals(BytesIO(source), catalogues.KEYWORDS, (), {})
    ]
    assert ("plural", ["c", "ds"]) in calls
    assert ("say", [None, "e"]) in calls
    assert ("say", [None, "f"]) in calls
    assert ("message", [None]) in calls


def test_a_message_is_its_english_and_remembers_what_it_was_made_of() -> None:
    heads = plural("{count:,} head", "{count:,} heads", count=1200)
    sentence = message("{what} of {name}", what=heads, name="{x}")
    assert sentence == "1,200 heads of {x}"
    assert plural("{count} head", "{count} heads", count=1) == "1 head"
    assert contextual("column", "rank") == "rank"
    assert message("braces {stay}") == "braces {stay}"
    assert orjson.dumps([sentence]) == b'["1,200 heads of {x}"]'
    copied = pickle.loads(pickle.dumps([sentence, choice(["a", heads])]))
    assert copied == [sentence, "a or 1,200 heads"]
    assert (copied[0].template, copied[0].values["what"].plurals) == (
        "{what} of {name}",
        "{count:,} heads",
    )


def test_a_list_is_joined_as_the_language_joins_it() -> None:
    assert listing(["a", "b", "c"]) == "a, b, c"
    assert choice(["a", "b", "c"]) == "a, b or c"
    assert choice(["a"]) == "a"
    assert choice([]) == ""
    assert translate(listing(["a", "b", "c"]), "zh") == "a、b、c"
    assert translate(choice(["a", "b", "c"]), "zh") == "a、b 或 c"


def test_a_sentence_that_no_catalogue_has_stays_english() -> None:
    unknown = message("nobody has {what} this", what=listing(["translated", "read"]))
    assert translate(unknown, "zh") == "nobody has translated、read this"
    assert translate(unknown, "en") == "nobody has translated, read this"
    assert say(View(lang="zh", ascii=True), "a {noun}", noun="b") == "a b"
    assert not re.search("[a-z]{3}", say(View(lang="zh"), listing(["1", "2"], "; ")))


AS_THEY_ARE = re.compile(
    r"<.*|\(\(\)=>.*|\(\(\) => .*|#set .*|bold .*|(pip|uv pip|pipx) in.*|(python|iconv|ray) -.*|"
    r"attn( [a-z]+){0,3}( [A-Z…{\d\u201c\"-].*)?|attn scan minilm .*|attn scan · \{0\}|measure\.log.*|"
    r"([\w.]+\.[\w.]+ ?)+(, \[out, in\])?|.*(blues| on light)|An explanation with its numbers.*|at line \(.*|"
    r"auto numpy torch|The animal didn't cross .*|Numbers, or lists of lists .*|Known families, .*|Write, list and .*|"
    r"humpty dumpty sat on|le chat noir dort|the black cat sleeps|\n:root .*|echo '.*|"
    r"Pairs of texts that .*|The cat \(a cat\) saw .*|if a:\n.*|a b\nc d.*|a cat \[SEP\] .*|x_1 = .*|"
    r"kv head|both ways|\{0\} is not a valid \{1\}\.|attention of \{0\} queries and .*|module 'attncli' has .*",
    re.DOTALL,
)
"""Texts that are the same in every language, or that no person is told: drawings, styles, commands
to type, names of tensors, the sample, examples of rules, a schema's own words, names of things in the code."""


def unknown_texts(texts: list[Told]) -> list[str]:
    """Those that no catalogue has; what help says in brackets behind a sentence is looked up apart."""
    english = {
        text
        for entry in read("zh")
        for text in ([entry.id] if isinstance(entry.id, str) else entry.id)
    }
    return [
        f"{one.where}: {one.text!r}"
        for one in texts
        if not {one.text, TAIL.sub("", one.text)} & english and not AS_THEY_ARE.fullmatch(one.text)
    ]


def test_every_text_of_the_source_is_a_sentence_of_the_catalogues() -> None:
    assert unknown_texts(told()) == [], "PYTHONPATH=tests python tests/catalogues.py adds them"
    assert unknown_texts([Told("a sentence that nobody {0} has written down", "here")]) != []


ERRORS = frozenset(name for name in ARGUMENTS if name.endswith("Error"))
WORDS = re.compile(r"[a-z]{2,} [a-z]{2,}")


def words_of(node: ast.expr | None) -> Iterator[str]:
    """What an f-string, or a sum of texts, says in words; one that is a command to type says
    nothing.
    """
    if isinstance(node, ast.JoinedStr) and ast.unparse(node)[2:].startswith(("attn ", "pip ")):
        return
    for part in ast.walk(node) if isinstance(node, ast.JoinedStr | ast.BinOp) else ():
        if (
            isinstance(part, ast.Constant)
            and isinstance(part.value, str)
            and WORDS.search(part.value)
        ):
            yield part.value


def misspoken(source: str) -> list[int]:
    """Lines where an error or another place for a sentence is given a text that was put together,
    or where a function that makes sentences is given no literal."""
    found = []
    for node in syntax.nodes(source):
        if not isinstance(node, ast.Call):
            continue
        name = (
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        )
        places = (
            ARGUMENTS.get(name, ())
            if name in ERRORS
            else (*ARGUMENTS.get(name, ()), *([0] if name == "note" else ()))
        )
        if any(list(words_of(argument(node, place))) for place in places):
            found.append(node.lineno)
        if name in ("message", "plural", "contextual") and None in alternatives(
            argument(node, len(KEYWORDS[name]) - 1)
        ):
            found.append(node.lineno)
    return found


def test_no_sentence_is_put_together_before_it_can_be_translated() -> None:
    assert misspoken('raise InputError(f"no layer {layer} here")') == [1]
    assert misspoken('raise InputError("a", expected=f"at most {most}")') == [1]
    assert misspoken("message(text)") == [1]
    assert (
        misspoken('raise InputError("no layer {layer} here", layer=layer, hint=f"--layer {near}")')
        == []
    )
    for path in sorted(PACKAGE.rglob("*.py")):
        lines = misspoken(path.read_text("utf-8"))
        assert lines == [], f"{path.relative_to(PACKAGE)}: {lines}"
