"""Choosing a tokenizer by name or file; the names of this part of the room in one place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from attncli.errors import InputError, UsageError
from attncli.inputs.builtin import ByteTokenizer, CharTokenizer, WhitespaceTokenizer, WordTokenizer
from attncli.inputs.token import Token as Token
from attncli.inputs.token import Tokenizer as Tokenizer
from attncli.inputs.token_name import TokenMatch as TokenMatch
from attncli.inputs.token_name import find_token as find_token

if TYPE_CHECKING:
    pass

BUILTIN: dict[str, type[WordTokenizer | WhitespaceTokenizer | CharTokenizer | ByteTokenizer]] = {
    "word": WordTokenizer,
    "whitespace": WhitespaceTokenizer,
    "char": CharTokenizer,
    "byte": ByteTokenizer,
}


def tokenizer(spec: str) -> Tokenizer:
    """The tokenizer that `--tokenizer` names: word, whitespace, char, byte, or a tokenizer.json or the folder that
    holds one.

    Raises UsageError for a name that is neither, InputError for a file that cannot be used.
    """
    if spec in BUILTIN:
        return BUILTIN[spec]()
    path = Path(spec)
    if _names_a_file(spec, path):
        from attncli.inputs.vocabulary_tokenizer import read_tokenizer

        return read_tokenizer(path)
    from difflib import get_close_matches

    close = get_close_matches(spec.lower(), BUILTIN, n=1)
    raise UsageError(
        f"unknown tokenizer {spec!r}",
        where="--tokenizer",
        expected=f"{', '.join(BUILTIN)}, or a tokenizer.json or a folder that holds one",
        hint=f"did you mean --tokenizer {close[0]}?" if close else "",
    )


def _names_a_file(spec: str, path: Path) -> bool:
    try:
        return bool(spec) and (path.exists() or "/" in spec or "\\" in spec or spec.endswith(".json"))
    except (OSError, ValueError) as error:  # a name too long, or holding a NUL
        raise InputError("this is no usable file name", where=spec, expected=", ".join(BUILTIN)) from error
