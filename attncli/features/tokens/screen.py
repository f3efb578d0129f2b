"""The screen of `attn.tokens/1`: one row per token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attncli.draw.conclusion import tokens_answer
from attncli.draw.headings import localize, remark
from attncli.draw.lines import Lines, fit_to_view, line, stack, stack_spaced
from attncli.draw.safe import label, safe
from attncli.draw.screen_header import count_phrase, title, warning
from attncli.draw.text_tables import table
from attncli.draw.view import View
from attncli.features.tokens.document import TokenBytes, TokensDocument
from attncli.language import say

SHOWN = 200
"""Tokens that are listed unless the view is full."""
COLUMNS = ("index", "token", "id", "span", "bytes")


def tokens_screen(document: TokensDocument, view: View) -> Lines:
    """The text, and its first tokens with id, span (characters, end exclusive) and UTF-8 bytes; of a full view all."""
    if view.brief:
        return fit_to_view(tokens_answer(document, view), view)
    text = title(document, view)
    tokens_shown = document.tokens if view.full else document.tokens[:SHOWN]
    rows = [
        [
            str(token.index),
            _token_name(token, view),
            _number(token.id),
            _span(token),
            bytes(token.bytes or ()).hex(" ") or "-",
        ]
        for token in tokens_shown
    ]
    count = f"{count_phrase(len(document.tokens), 'token')}, tokenizer {safe(document.tokenizer, ascii=view.ascii)}"
    body = table(list(COLUMNS), rows, view, align=["right", "left", "right", "right", "left"], title=count)
    more = (
        f"first {len(tokens_shown)} of {len(document.tokens):,} tokens shown; --full shows all"
        if len(tokens_shown) < len(document.tokens)
        else ""
    )
    notes = stack(warning(warning_text, view) for warning_text in document.warnings)
    token_lines = stack((body, remark(more, view)))
    return fit_to_view(stack_spaced((line((text, "bold")), token_lines, notes, tokens_answer(document, view))), view)


def tokens_rows(document: TokensDocument) -> Iterator[Sequence[object]]:
    """The tokens as a table for `--plain`, its first row the names of the columns."""
    has_unknown = any(token.unknown for token in document.tokens)
    yield ("index", "text", "id", "start", "end", "special", "bytes", *(("unknown",) if has_unknown else ()))
    for token in document.tokens:
        yield (
            *(getattr(token, name) for name in ("index", "text", "id", "start", "end", "special")),
            bytes(token.bytes or ()).hex(" "),
            *((bool(token.unknown),) if has_unknown else ()),
        )


def _token_name(token: TokenBytes, view: View) -> str:
    name = label(token.text, ascii=view.ascii) + (f" ({localize('special', view)})" if token.special else "")
    return say(view, "quoted.unknown", name) if token.unknown else name


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _span(token: TokenBytes) -> str:
    return "-" if token.start is None else f"{token.start}-{token.end}"
