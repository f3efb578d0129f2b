"""The screen of `attn.tokens/1`: one row per token."""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence

from attncli.draw.lines import Lines, fit_to_view, line, remark, sentences, stack, stack_spaced
from attncli.draw.safe import label, safe
from attncli.draw.screen_header import count_phrase, title, warning
from attncli.draw.tables import table
from attncli.draw.token_names import quote_text
from attncli.draw.view import View
from attncli.features.tokens.compute import TokenBytes, TokensDocument
from attncli.inputs.tokenize import words
from attncli.language import Message, listing, message, plural, say

SHOWN = 200
"""Tokens that are listed unless the view is full."""
COLUMNS = ("index", "token", "id", "span", "bytes")


def tokens_screen(document: TokensDocument, view: View) -> Lines:
    """The text, and its first tokens with id, span (characters, end exclusive) and UTF-8 bytes; of
    a full view all.
    """
    if view.brief:
        return fit_to_view(tokens_answer(document, view), view)
    text = title(document, view)
    if view.full:
        tokens_shown = document.tokens
    else:
        tokens_shown = document.tokens[:SHOWN]
    rows = []
    for token in tokens_shown:
        number = "-"
        if token.id is not None:
            number = str(token.id)
        # a token that stands for no text, such as one that ends it, has no bytes
        hexadecimal = bytes(token.bytes or ()).hex(" ") or "-"
        if token.start is None:
            span = "-"
        else:
            span = f"{token.start}-{token.end}"
        rows.append([str(token.index), _token_name(token, view), number, span, hexadecimal])
    tokens = count_phrase(len(document.tokens), "token")
    tokenizer = safe(document.tokenizer, ascii=view.ascii)
    count = message("{tokens}, tokenizer {tokenizer}", tokens=tokens, tokenizer=tokenizer)
    body = table(
        list(COLUMNS), rows, view, align=["right", "left", "right", "right", "left"], title=count
    )
    more = ""
    counts = {"tokens_shown": len(tokens_shown), "tokens": len(document.tokens)}
    if len(tokens_shown) < len(document.tokens):
        more = message(
            "first {tokens_shown} of {tokens:,} tokens shown; --full shows all", **counts
        )
    notes = stack(*(warning(warning_text, view) for warning_text in document.warnings))
    token_lines = stack(body, remark(more, view))
    return fit_to_view(
        stack_spaced(line((text, "bold")), token_lines, notes, tokens_answer(document, view)), view
    )


def tokens_rows(document: TokensDocument) -> Iterator[Sequence[object]]:
    """The tokens as a table for `--plain`, its first row the names of the columns."""
    # columns that are there only where some token has the fact
    facts = [
        name
        for name in ("unknown", "added", "typed")
        if any(getattr(token, name) for token in document.tokens)
    ]
    yield (
        "index",
        "text",
        "id",
        "start",
        "end",
        "special",
        "bytes",
        *facts,
    )
    for token in document.tokens:
        yield (
            *(getattr(token, name) for name in ("index", "text", "id", "start", "end", "special")),
            bytes(token.bytes or ()).hex(" "),
            *(bool(getattr(token, name)) for name in facts),
        )


def _token_name(token: TokenBytes, view: View) -> str:
    """A token's text as a label, with a note where it is special, is a special token that the text
    itself spells out, or is unknown to the model.
    """
    name = label(token.text, ascii=view.ascii)
    if token.typed:
        return say(view, "{name} (special, in the text)", name=name)
    if token.special:
        return say(view, "{name} (special)", name=name)
    if token.unknown:
        return say(view, "{name} (unknown)", name=name)
    return name


def tokens_answer(document: TokensDocument, view: View) -> Lines:
    """The answer of an `attn.tokens/1` document, as lines: how many words are cut into several
    tokens, and which special tokens were added or stand in the text.

    A word is what the tokenizer `word` makes one token of.
    """
    typed = [token for token in document.tokens if token.typed]
    added_count = sum(bool(token.added) for token in document.tokens)
    added = plural(
        "The tokenizer adds {count} special token.",
        "The tokenizer adds {count} special tokens.",
        count=added_count,
    )
    brought = plural(
        "{count} special token stands in the text itself: {names}.",
        "{count} special tokens stand in the text itself: {names}.",
        count=len(typed),
        names=listing(dict.fromkeys(quote_text(token.text, view) for token in typed)),
    )
    answers = [_words_answer(document, typed, view)]
    if added_count:
        answers.append(say(view, added))
    if typed:
        answers.append(say(view, brought))
    return sentences(answers, view)


def _words_answer(document: TokensDocument, typed: Sequence[TokenBytes], view: View) -> str:
    """How many words are cut into several tokens, and which word into most; where tokens do not
    tell their places, how many tokens there are.

    typed: special tokens that stand in the text.
    """
    pieces = _pieces_of_words(document, typed)
    if pieces is None:
        count = len(document.tokens)
        return say(view, plural("{count:,} token.", "{count:,} tokens.", count=count))
    counts = list(pieces.values())  # of each word
    words_text = f"{len(counts):,}"
    # Chinese words are called characters where each is one
    are_characters = _are_characters(document.text, pieces)
    if max(counts) > 1:
        (start, end), most = max(pieces.items(), key=lambda item: item[1])
        word = quote_text(document.text[start:end], view)
        cut_count = sum(count > 1 for count in counts)
        template = _cut_template(cut_count, are_characters=are_characters)
        texts = {"count": f"{cut_count:,}", "words": words_text}
        return say(view, template, word=word, pieces=most, **texts)

    # no word is cut; there may be tokens that are no word, such as blanks
    own_count = sum(not token.special for token in document.tokens)
    if own_count != len(counts):
        return say(
            view, plural("{count:,} token.", "{count:,} tokens.", count=len(document.tokens))
        )
    if own_count == 1:
        if are_characters:
            return say(view, "The character is one token.")
        return say(view, "The word is one token.")
    if are_characters:
        return say(view, "Each of the {count} characters is one token.", count=words_text)
    return say(view, "Each of the {count} words is one token.", count=words_text)


def _are_characters(text: str, word_spans: Collection[tuple[int, int]]) -> bool:
    """Whether every word is a single character and some belong to a script without capitals, as
    Chinese is written: these are called characters."""
    signs = [text[start:end] for start, end in word_spans]
    if any(len(sign) > 1 for sign in signs):
        return False
    return any(unicodedata.category(sign) == "Lo" for sign in signs)


def _cut_template(cut_count: int, *, are_characters: bool) -> Message:
    """The template of the sentence on words, or characters, that are cut into several tokens.

    cut_count: how many are cut.
    are_characters: whether they are called characters.
    """
    if are_characters and cut_count == 1:
        return message(
            "{count} of {words} characters is cut into pieces: {word} makes {pieces} tokens."
        )
    if are_characters:
        return message(
            "{count} of {words} characters are cut into pieces, {word} into the most: {pieces}"
            " tokens."
        )
    if cut_count == 1:
        return message("{count} of {words} words is cut into pieces: {word} makes {pieces} tokens.")
    return message(
        "{count} of {words} words are cut into pieces, {word} into the most: {pieces} tokens."
    )


def _pieces_of_words(
    document: TokensDocument, typed: Sequence[TokenBytes]
) -> dict[tuple[int, int], int] | None:
    """The number of tokens that each word of the text is cut into, by its characters (start, end);
    None where the tokens have no places, or do not stand in the order of the text.
    """
    spans = [(token.start, token.end) for token in document.tokens if not token.special]
    token_spans = [(start, end) for start, end in spans if start is not None and end is not None]
    # special tokens that the text spells out are no words; one without places hides none
    word_spans = [
        (start, end)
        for start, end in words(document.text)
        if not any((token.start or 0) <= start < (token.end or 0) for token in typed)
    ]
    starts = [start for start, _ in token_spans]
    ends = [end for _, end in token_spans]
    are_in_order = starts == sorted(starts) and ends == sorted(ends)
    if len(token_spans) < len(spans) or not word_spans or not are_in_order:
        return None
    # tokens that begin before a word's end, less those that end before its start
    return {
        (start, end): max(bisect_left(starts, end) - bisect_right(ends, start), 0)
        for start, end in word_spans
    }
