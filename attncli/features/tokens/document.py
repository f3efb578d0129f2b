"""`attn.tokens/1`: how a text is cut."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from attncli.documents.declaration import Document, axes, describe
from attncli.documents.parts import TokenRow


class TokenBytes(TokenRow, frozen=True, kw_only=True):
    """A token with its bytes."""

    bytes: (
        Annotated[list[Annotated[int, Meta(ge=0, le=255)]], describe("The UTF-8 bytes of the token.")] | UnsetType
    ) = UNSET


class TokensDocument(Document, tag="attn.tokens/1", frozen=True, kw_only=True):
    """The tokens of one text. Positions count characters from 0."""

    text: str
    tokenizer: str
    tokens: Annotated[list[TokenBytes], axes("token", meaning="the tokens in order.")]
    warnings: list[str]
