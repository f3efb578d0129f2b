"""What the keys where heads rest are called: in an answer, in a note below a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attncli.documents import TokenRow
from attncli.draw.token_names import quoted_row
from attncli.draw.view import View
from attncli.language import Message, listing, message, say
from attncli.measure.rest import KeyToken, RestKind, is_separator, rest_kinds

REST_NAMES = {
    "first": message("the first token"),
    "special": message("special tokens"),
    "separators": message("line breaks and separators"),
}


def rest_names(tokens: Sequence[KeyToken]) -> Message:
    """The kinds of keys of a text where heads rest: "the first token, special tokens"."""
    return listing(REST_NAMES[kind] for kind in rest_kinds(tokens))


def rest_names_among(tokens: Sequence[KeyToken], places: Iterable[int]) -> Message:
    """The kinds of those keys among some tokens of a text where heads rest, as `rest_names`; "" for
    none of them."""
    chosen = [(place, tokens[place]) for place in places]
    kinds: list[RestKind] = []
    if any(place == 0 and not token.special for place, token in chosen):
        kinds.append("first")
    if any(token.special for _, token in chosen):
        kinds.append("special")
    if any(place and is_separator(token) for place, token in chosen):
        kinds.append("separators")
    return listing(REST_NAMES[kind] for kind in kinds)


def resting_key(tokens: Sequence[TokenRow], index: int, view: View) -> str:
    """A sentence that says why a key's weight says little: heads rest there whatever it is.

    Args:
        tokens: Those of the text.
        index: Of the key.
        view: For the language.
    """
    return resting_reason(tokens[index], index, quoted_row(tokens[index], view), view)


def resting_reason(token: KeyToken, index: int, name: str, view: View) -> str:
    """The same of a token that is named already.

    Args:
        token: The key.
        index: Where it stands.
        name: What it is called, in quotes.
        view: For the language.
    """
    if token.special:
        return say(view, "{key} is a special token: heads rest there whatever the text.", key=name)
    if index and is_separator(token):
        template = message("{key} separates parts of the text: heads rest there whatever it is.")
        return say(view, template, key=name)
    return say(view, "{key} is the first token: heads rest there whatever it is.", key=name)


def not_counted(kinds: Sequence[str], tokens: Sequence[KeyToken], view: View) -> str:
    """A sentence that names what a superlative leaves out; "" where that is nothing.

    Args:
        kinds: Kinds of links that are left out, as documents name them.
        tokens: Those of the text: only what it has is named.
        view: For the language.
    """
    names: list[Message] = []
    if {"first", "special", "separators"}.intersection(kinds):
        names.append(message("{rest}, where heads rest", rest=rest_names(tokens)))
    if "self" in kinds:
        names.append(message("the word itself"))
    if "neighbours" in kinds:
        names.append(message("its neighbours"))
    if "unknown" in kinds:
        names.append(message("words that the model does not know"))
    if not names:
        return ""
    return say(view, "Not counted: {names}.", names=listing(names, "; "))
