"""The document of `attn tokens`: how a text is cut."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from attncli import __version__
from attncli.features.tokens.document import TokenBytes, TokensDocument
from attncli.inputs.token import Token


def tokens_document(tokenizer: str, text: str, tokens: Sequence[Token]) -> TokensDocument:
    """The document of `attn tokens`; `bytes` are the UTF-8 bytes of the span, none without a span; a byte's own."""
    rows = []
    for token in tokens:
        token_text = "" if token.start is None else text[token.start : token.end]
        # the span of a byte is the character that it is part of
        rows.append(
            TokenBytes(
                index=token.index,
                text=token.text,
                id=token.id,
                start=token.start,
                end=token.end,
                special=token.special,
                unknown=token.unknown or UNSET,
                bytes=[token.id]
                if tokenizer == "byte" and token.id is not None
                else list(token_text.encode("utf-8", "surrogatepass")),
            )
        )
    warnings: list[str] = []
    if any(token.unknown for token in tokens):
        from attncli.inputs.word_groups import unknown_notes  # counting words needs NumPy

        warnings = unknown_notes(text, tokens)
    return TokensDocument(version=__version__, text=text, tokenizer=tokenizer, tokens=rows, warnings=warnings)
