"""The vocabulary entry that a word names: what a prediction is measured of."""

from __future__ import annotations

from attncli.analysis.documents.effects import TargetToken
from attncli.errors import InputError, UnsupportedError, UsageError
from attncli.models.model import Model

BY_ID = "id:"
LONGEST_ID = 12
"""Digits of an id; no vocabulary needs more."""


def target_id(model: Model, name: str) -> int:
    """The id of the one entry that a name stands for: `id:N`, or a word, as it stands after a blank before as it
    stands at the start of a text.

    Raises InputError where it is several pieces, naming them, or no entry; UsageError for a malformed id;
    UnsupportedError for a model that predicts no token.
    """
    if model.spec.head is None:
        raise UnsupportedError(
            f"this {model.spec.family} model predicts no next token: it has no output head",
            expected="a decoder checkpoint saved with its language-model head",
            hint="attn ablate --measure vector needs none",
        )
    if name.startswith(BY_ID):
        number = name.removeprefix(BY_ID)
        if not (number.isascii() and number.isdecimal() and len(number) <= LONGEST_ID):
            raise UsageError(f"{name!r} names no entry", expected="id: and a whole number, such as id:42")
        if int(number) >= model.spec.vocabulary:
            raise InputError(
                f"there is no entry {int(number):,}",
                expected=f"0 to {model.spec.vocabulary - 1:,}, the model's vocabulary",
            )
        return int(number)
    spellings = (f" {name}", name)
    encodings = [[token for token in model.tokenizer.encode(text) if not token.special] for text in spellings]
    for pieces in encodings:
        if len(pieces) == 1 and pieces[0].id is not None and not pieces[0].unknown:
            return pieces[0].id
    if any(token.unknown for token in encodings[-1]):
        raise InputError(
            f"{name!r} is unknown to this model: its vocabulary has no entry for it",
            expected="a word that is one entry",
            hint="id:N names an entry",
        )
    pieces_text = " ".join(f"{token.text} (id:{token.id})" for token in encodings[-1])
    raise InputError(
        f"{name!r} is {len(encodings[-1])} entries of the vocabulary: {pieces_text}"
        if pieces_text
        else f"{name!r} is no entry",
        expected="a word that is one entry",
        hint="one of these, as id:N" if pieces_text else "id:N names an entry",
    )


def target_token(model: Model, number: int) -> TargetToken:
    """An entry as documents tell it."""
    (token,) = model.tokenizer.ids_to_tokens([number])
    return TargetToken(id=number, text=token.text)
