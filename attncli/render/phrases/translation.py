"""Our own sentences in another language, found by their English: titles, notes, errors, names of columns.

A catalogue maps English with places {0}, {1} … to the same in the other language. What stands in a place (a token, a
file's name, a number) is left as it is. A sentence that no catalogue knows stays English, and a test finds it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

PLACE = re.compile(r"\\\{(\d)\\\}")
PARTS = (" · ", "; ", ", ")
"""What joins sentences that are known one by one."""


def translated(text: str, lang: str) -> str:
    """The sentence in this language; English, and what no catalogue knows, as it is."""
    if lang != "zh" or not text.strip() or not any(char.isalpha() for char in text):
        return text
    return _found(text) or _joined(text) or text


def known(text: str) -> bool:
    """Whether the catalogue has this sentence, as a whole or in parts."""
    return _found(text) is not None or _joined(text) is not None


def _found(text: str) -> str | None:
    catalogue = _catalogue()
    if text in catalogue:
        return catalogue[text]
    for pattern, phrase in _patterns():
        if held := pattern.fullmatch(text):
            return phrase.format(*held.groups())
    return None


def _joined(text: str) -> str | None:
    for sign in PARTS:
        parts = text.split(sign)
        if len(parts) > 1:
            found = [_found(part) or (part if not _speaks(part) else None) for part in parts]
            if any(part is None for part in found):
                continue
            between = {"; ": "；", ", ": "、"}.get(sign, sign)
            return between.join(part for part in found if part is not None)
    return None


def _speaks(part: str) -> bool:
    """Whether a part has words to translate, and is no name, number or option."""
    return bool(re.search(r"[A-Za-z]{2,} [A-Za-z]{2,}", part))


@cache
def _catalogue() -> Mapping[str, str]:
    from attncli.render.phrases.zh_errors import ERRORS
    from attncli.render.phrases.zh_screens import SCREENS

    return {**ERRORS, **SCREENS}


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """The sentences with places, those with the most words of their own first."""
    held = [(text, phrase) for text, phrase in _catalogue().items() if "{0}" in text]
    held.sort(key=lambda each: -len(re.sub(r"\{\d\}", "", each[0])))
    return [(re.compile(_pattern(text), re.DOTALL), _renumbered(text, phrase)) for text, phrase in held]


def _pattern(text: str) -> str:
    return PLACE.sub("(.+?)", re.escape(text))


def _renumbered(text: str, phrase: str) -> str:
    """The phrase with its places counted as they come in the English."""
    order = {number: str(at) for at, number in enumerate(re.findall(r"\{(\d)\}", text))}
    return re.sub(r"\{(\d)\}", lambda place: "{" + order[place[1]] + "}", phrase)
