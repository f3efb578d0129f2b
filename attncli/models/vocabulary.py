"""Embeddings that stand in a weight file: by token text where it names them, else by token id."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from attncli.errors import InputError
from attncli.inputs.file_opening import refuse_half_characters
from attncli.inputs.token import Token

TABLE = "embedding.weight"
TOKENS = "tokens"
MOST = 2**24
"""Characters of the token list; a longer one is refused before it is parsed."""


class Vocabulary(Struct, frozen=True, eq=False):
    """rows: [entry, d_model]. places: the row of each token text, None where rows go by token id."""

    rows: np.ndarray[Any, Any]
    places: Mapping[str, int] | None

    def vector(self, token: Token) -> np.ndarray[Any, Any]:
        """The embedding of a token. Raises InputError for one that has none."""
        count = len(self.rows)
        if self.places is not None:
            if token.text not in self.places:
                raise InputError(
                    f"the weight file has no embedding for the token {token.text!r}",
                    where=TABLE,
                    expected=f"one of its {count} tokens: {_first_texts(self.places)}",
                )
            return self.rows[self.places[token.text]]
        if token.id is None:
            raise InputError(
                f"the weight file has embeddings by token id, and the token {token.text!r} has none",
                where=TABLE,
                expected="a tokenizer with ids, or token texts in the file's metadata `tokens`",
                hint="--tokenizer tokenizer.json",
            )
        if not 0 <= token.id < count:
            raise InputError(
                f"the token {token.text!r} has the id {token.id}",
                where=TABLE,
                expected=f"0 to {count - 1}: {count} rows",
            )
        return self.rows[token.id]


def vocabulary_of(rows: np.ndarray[Any, Any], metadata: Mapping[str, str], where: str) -> Vocabulary:
    """The embeddings [entry, d_model] of a file, with the token texts that its metadata entry `tokens` holds as a JSON
    list.

    Raises InputError for a list that is malformed, repeats a text or is not as long as the table.
    """
    if TOKENS not in metadata:
        return Vocabulary(rows, None)
    try:
        texts = json.loads(metadata[TOKENS]) if len(metadata[TOKENS]) <= MOST else None
    except (ValueError, RecursionError):
        texts = None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InputError("the metadata `tokens` are no JSON list of texts", where=where, expected='["the", "animal"]')
    refuse_half_characters(texts, f"{where}: {TOKENS}")
    if len(texts) != len(rows):
        raise InputError(
            f"the metadata name {len(texts)} tokens, {TABLE} has {len(rows)} rows",
            where=where,
            expected="one token per row",
        )
    places = {text: place for place, text in enumerate(texts)}
    if len(places) != len(texts):
        twice = next(text for place, text in enumerate(texts) if places[text] != place)
        raise InputError(f"the metadata name the token {twice!r} twice", where=where, expected="each token once")
    return Vocabulary(rows, places)


def tokens_text(texts: Sequence[str]) -> str:
    """Token texts as the metadata entry holds them; lone surrogates are escaped, so any text survives."""
    return json.dumps(list(texts))


def _first_texts(texts: Mapping[str, int], most: int = 12) -> str:
    first = [text for text, _ in zip(texts, range(most), strict=False)]
    return " ".join(first) + (" …" if len(texts) > most else "")
