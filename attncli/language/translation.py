"""Our own sentences in another language, found by their English: titles, notes, errors, help, names of columns.

A catalogue maps English with places {0}, {1} … to the same in the other language. What stands in a place (a token, a
file's name, a number) is left as it is, unless it is a phrase of ours. A sentence that no catalogue knows stays
English, and a test that reads the source finds it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import import_module

PLACE = re.compile(r"\\\{(\d)\\\}")
COUNTED = re.compile(r"\{0\} [a-z]+|\{0\} of \{1\}|(layer|layers|head|token|query) \{0\}( head \{1\})?")
"""Sentences so short that a number alone may stand in their place: "layer {0}" is not "layer norm"."""
PARTS = (" · ", "; ", ", ")
"""What joins sentences that are known one by one."""
CATALOGUES = (
    ("zh_errors", "ERRORS"), ("zh_screens", "SCREENS"), ("zh_analysis", "ANALYSIS"), ("zh_commands", "COMMANDS"),
    ("zh_inputs", "INPUTS"), ("zh_mechanism", "MECHANISM"), ("zh_models", "MODELS"), ("zh_scan", "SCAN"),
    ("zh_options", "OPTIONS"), ("zh_help", "HELP"),
)  # fmt: skip
"""The modules beside this one, and what each calls its sentences."""
LIST = re.compile(r"[\w.:#–-]+(, [\w.:#–-]+)+")
"""Names or numbers one after the other."""
CHOICE = re.compile(r"\S+( or \S+)+")
"""Names to choose from."""
DEEPEST = 3
"""How deep phrases of ours may stand in places of others."""
REMEMBERED = 1024


@lru_cache(REMEMBERED)
def translate(text: str, lang: str) -> str:
    """The sentence in this language; English, and what no catalogue knows, as it is."""
    if lang != "zh" or not text.strip() or not any(char.isalpha() for char in text):
        return text
    return _translation_of(text) or _translate_parts(text) or text


def has(template: str) -> bool:
    """Whether the catalogue has exactly this sentence with its places, or all of its parts that have words."""
    catalogue = _ordered_templates()
    if _in_order(template) in catalogue:
        return True
    for sign in PARTS:
        parts = template.split(sign)
        if len(parts) > 1 and all(_in_order(part) in catalogue or not _speaks(part) for part in parts):
            return True
    return False


def _translation_of(text: str, depth: int = 0) -> str | None:
    catalogue = catalogues()
    if text in catalogue:
        return catalogue[text]
    for beginning, longest, english, phrase in _patterns():
        if text.startswith(beginning) and longest in text and (match := _template_pattern(english).fullmatch(text)):
            return phrase.format(*(_in_place(place, depth + 1) for place in match.groups()))
    return None


def _in_place(text: str, depth: int) -> str:
    """What stands in a place: a phrase of ours in the other language, all else as it is."""
    if depth > DEEPEST or (text[:1] in "'\"" and text[:1] == text[-1:]):
        return text
    if LIST.fullmatch(text):
        return text.replace(", ", "、")
    if CHOICE.fullmatch(text):
        return text.replace(" or ", " 或 ")
    if _speaks(text) or text.strip() in catalogues() or re.match(r"\d[\d,]* [a-z]", text):
        return _translation_of(text, depth) or catalogues().get(text.strip()) or _translate_parts(text, depth) or text
    return text


def _translate_parts(text: str, depth: int = 0) -> str | None:
    for sign in PARTS:
        parts = text.split(sign)
        if len(parts) > 1:
            translations = [_translation_of(part, depth) or (part if not _speaks(part) else None) for part in parts]
            if any(part is None for part in translations) or (translations == parts and not LIST.fullmatch(text)):
                continue  # what has no words of ours stays as it is, formulas above all
            between = {"; ": "；", ", ": "、"}.get(sign, sign)
            return between.join(part for part in translations if part is not None)
    return None


def _speaks(part: str) -> bool:
    """Whether a part has words to translate, and is no name, number or option."""
    return bool(re.search(r"[A-Za-z]{2,} [A-Za-z]{2,}", part))


@cache
def catalogues() -> Mapping[str, str]:
    """Every sentence, by its English."""
    sentences: dict[str, str] = {}
    for module, name in reversed(CATALOGUES):
        sentences |= getattr(import_module(f"attncli.language.{module}"), name)
    return sentences


@cache
def _ordered_templates() -> frozenset[str]:
    return frozenset(map(_in_order, catalogues()))


@cache
def _patterns() -> list[tuple[str, str, str, str]]:
    """The sentences with places, those with the most words of their own first: how each begins, its longest piece, its
    English, its phrase."""
    phrases = [(text, phrase) for text, phrase in catalogues().items() if "{0}" in text]
    phrases.sort(key=lambda pair: -len(re.sub(r"\{\d\}", "", pair[0])))
    rows = []
    for text, phrase in phrases:
        pieces = re.split(r"\{\d\}", text)
        rows.append((pieces[0], max(pieces, key=len), text, _renumber_places(text, phrase)))
    return rows


@cache
def _template_pattern(english: str) -> re.Pattern[str]:
    place = r"([\d.,–-]+)" if COUNTED.fullmatch(english) else "(.+?)"
    return re.compile(PLACE.sub(lambda _: place, re.escape(english)), re.DOTALL)


def _in_order(text: str) -> str:
    """The text with its places numbered as they come."""
    places = iter(range(10))
    return re.sub(r"\{\d\}", lambda _: f"{{{next(places)}}}", text)


def _renumber_places(text: str, phrase: str) -> str:
    """The phrase with its places counted as they come in the English."""
    order = {number: str(position) for position, number in enumerate(re.findall(r"\{(\d)\}", text))}
    return re.sub(r"\{(\d)\}", lambda place: "{" + order[place[1]] + "}", phrase)
