"""The document of `attn tokens`: tokens, ids, spans and bytes of a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from attncli.documents import Document, TokenRow, axes, describe, token_facts
from attncli.inputs.token import Token, Tokenizer
from attncli.mechanism.checked_arguments import checked
from attncli.version import __version__


class TokenBytes(TokenRow, frozen=True, kw_only=True):
    """A token with its bytes."""

    bytes: Annotated[
        list[Annotated[int, Meta(ge=0, le=255)]] | UnsetType,
        describe(
            "The token's own UTF-8 bytes: of a piece of a character those it has of it, with the"
            " blank that a token begins with, none of an added token."
        ),
    ] = UNSET


class TokensDocument(Document, tag="attn.tokens/1", frozen=True, kw_only=True):
    """The tokens of one text. Positions count characters from 0."""

    text: str
    tokenizer: str
    tokens: Annotated[list[TokenBytes], axes("token", meaning="the tokens in order.")]
    warnings: list[str]


@checked
def tokens(
    text: str,
    tokenizer: str | Tokenizer = "word",
    *,
    name: str = "",
    tokens: Sequence[Token] | None = None,
) -> TokensDocument:
    """Cut a text into tokens.

    Args:
        text: The text.
        tokenizer: "word", "whitespace", "char" or "byte", a tokenizer.json, or the tokenizer of a
            model (`attncli.load("minilm").tokenizer`).
        name: What the tokenizer is called; "" for its own name.
        tokens: Those of the text, where they are known: of ids in place of a text.

    Returns:
        What `attn tokens --json` writes. Positions count characters from 0.

    Raises:
        InputError: For an empty text, and a tokenizer file that cannot be read.
    """
    if isinstance(tokenizer, str):
        from attncli.inputs.tokenize import tokenizer as tokenizer_named

        tokenizer = tokenizer_named(tokenizer)
    if tokens is None:
        tokens = tokenizer.encode(text)
    warnings: list[str] = []
    if any(token.unknown or token.typed for token in tokens):
        from attncli.inputs.word_groups import token_notes  # counting words needs NumPy

        warnings = token_notes(text, tokens)
    return TokensDocument(
        version=__version__,
        text=text,
        tokenizer=name or tokenizer.name,
        tokens=[_token_row(token, text) for token in tokens],
        warnings=warnings,
    )


def _token_row(token: Token, text: str) -> TokenBytes:
    """A token with its bytes: the UTF-8 of the characters it covers, with a blank that it begins
    with; for a piece of a character, only its part of that character's bytes."""
    utf8 = token.utf8
    if utf8 is None and token.start is not None:
        utf8 = text[token.start : token.end].encode("utf-8", "surrogatepass")
    return TokenBytes(**token_facts(token), bytes=list(utf8 or b""))
