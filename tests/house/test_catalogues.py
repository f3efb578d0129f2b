"""Every sentence has its translation in every catalogue, and what is compiled is what stands there."""

from __future__ import annotations

import pickle
import re
from string import Formatter

import catalogues
import orjson
import pytest
from catalogues import FOLDER, is_translated, languages, mo_bytes, po_bytes, read, sentences, updated

from attncli.draw.view import View
from attncli.language import choice, contextual, listing, message, plural, say, translate


def places(text: str) -> list[str]:
    """The places of a sentence, each as often as it stands there; a sentence without them may hold braces."""
    try:
        return sorted(f"{name}:{spec}" for _, name, spec, _ in Formatter().parse(text) if (name or "").isidentifier())
    except ValueError:
        return []


@pytest.mark.parametrize("lang", languages())
def test_a_catalogue_has_every_sentence_and_no_other(lang: str) -> None:
    catalogue = updated(lang, sentences())
    assert [entry.id for entry in catalogue if entry.id and not is_translated(entry.string)] == []
    assert (FOLDER / f"{lang}.po").read_bytes() == po_bytes(catalogue), "python tests/catalogues.py"
    assert (FOLDER / f"{lang}.mo").read_bytes() == mo_bytes(catalogue), "python tests/catalogues.py"


@pytest.mark.parametrize("lang", languages())
def test_a_translation_has_the_places_of_its_sentence(lang: str) -> None:
    for entry in read(lang):
        if entry.id:
            english = {*places(entry.id if isinstance(entry.id, str) else entry.id[1])}
            for text in [entry.string] if isinstance(entry.string, str) else entry.string:
                assert {*places(text)} == english, entry.id


def test_literals_are_read_in_calls_inside_calls_and_in_alternatives() -> None:
    source = b'message("a {b}", b=plural("c", "ds", count=n))\nsay(view, "e" if x else "f")\nmessage(g)'
    from io import BytesIO

    calls = [(name, texts) for _, name, texts, _ in catalogues.literals(BytesIO(source), catalogues.KEYWORDS, (), {})]
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
    assert (copied[0].template, copied[0].values["what"].plurals) == ("{what} of {name}", "{count:,} heads")


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
