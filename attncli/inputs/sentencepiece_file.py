"""SentencePiece's files (tokenizer.model, spiece.model, *.spm): pieces, scores and how a text is
prepared, as the metadata of a GGUF file have them.

Source: sentencepiece_model.proto of SentencePiece; the fields are numbered as there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from attncli.errors import InputError
from attncli.inputs.string_table import StringTable
from attncli.language import message

UNIGRAM, PAIRS = 1, 2
"""`TrainerSpec.model_type`: which rule cuts a text."""
_VARINT, _EIGHT, _COUNTED, _FOUR = 0, 1, 2, 5
"""How the value of a field is stored (protocol buffers' wire types)."""
LONGEST_VARINT = 10
"""Bytes that hold 64 bits, seven in each."""


class SentencePieces(Struct, frozen=True):
    """The content of a SentencePiece file.

    pieces, scores, types: one of each for each id; the types are numbered as in GGUF files.
    rule: `UNIGRAM`, `PAIRS`, or a number of another rule.
    charsmap: the table by which characters are replaced, empty without one.
    adds_prefix: whether a blank is put before a text.
    trims: whether runs of blanks become one.
    """

    pieces: list[str]
    scores: list[float]
    types: list[int]
    rule: int
    charsmap: bytes
    adds_prefix: bool
    trims: bool

    def metadata(self) -> dict[str, Any]:
        """The vocabulary under the metadata keys of a GGUF file; those for the special tokens at
        the beginning and end of a text are missing.
        """
        # GGUF calls merging pairs by score "llama", and the unigram rule "t5"
        return {
            "general.architecture": "",  # of a model, which is not here
            "tokenizer.ggml.model": "llama" if self.rule == PAIRS else "t5",
            "tokenizer.ggml.tokens": StringTable.of(self.pieces),
            "tokenizer.ggml.scores": np.asarray(self.scores),
            "tokenizer.ggml.token_type": np.asarray(self.types),
            "tokenizer.ggml.add_space_prefix": self.adds_prefix,
            "tokenizer.ggml.remove_extra_whitespaces": self.trims,
            "tokenizer.ggml.precompiled_charsmap": np.frombuffer(self.charsmap, np.uint8),
        }


def read_pieces(raw: bytes, name: str) -> SentencePieces:
    """The content of a SentencePiece file.

    Args:
        raw: The whole file.
        name: Its path, for errors.

    Returns:
        Its pieces, and how a text is prepared and cut.

    Raises:
        InputError: For bytes that are not such a file.
    """
    pieces: list[str] = []
    scores: list[float] = []
    types: list[int] = []
    trainer: dict[int, Any] = {}
    normalizer: dict[int, Any] = {}
    try:
        # field 1 is a piece, once for each; 2 says how the vocabulary was trained, 3 how texts are
        # prepared
        for number, value in _fields(raw):
            if number == 1:  # field 1 is its text, 2 its score, 3 its type; 0 and 1 if left out
                piece = dict(_fields(value))
                pieces.append(piece[1].decode("utf-8"))
                scores.append(struct.unpack("<f", piece.get(2, b"\0\0\0\0"))[0])
                types.append(int(piece.get(3, 1)))
            elif number == 2:
                trainer = dict(_fields(value))
            elif number == 3:
                normalizer = dict(_fields(value))
        # what the numbers of these fields mean, sentencepiece_model.proto says
        rule = int(trainer.get(3, UNIGRAM))
        charsmap = bytes(normalizer.get(2, b""))
        finite = bool(np.isfinite(scores).all())
    except (KeyError, ValueError, TypeError, IndexError, AttributeError, struct.error) as error:
        raise _no_file(name) from error
    if not pieces or not finite:
        raise _no_file(name)
    adds_prefix = bool(normalizer.get(3, 1))
    trims = bool(normalizer.get(4, 1))
    return SentencePieces(pieces, scores, types, rule, charsmap, adds_prefix, trims)


def _no_file(name: str) -> InputError:
    """The error, returned and not raised, that these bytes are no SentencePiece file."""
    return InputError(
        message("this is no SentencePiece file"), where=name, expected=message("a whole file")
    )


def _fields(raw: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the number and the value of every field of a message of protocol buffers; a value is an
    int, or bytes.

    Raises ValueError or IndexError for bytes that are no such message.
    """
    place = 0
    while place < len(raw):
        # a field begins with its number and, in the lowest three bits, how its value is stored
        key, place = _varint(raw, place)
        number = key >> 3
        wire = key & 7
        if wire == _VARINT:
            value, place = _varint(raw, place)
            yield number, value
            continue
        if wire == _COUNTED:
            size, place = _varint(raw, place)
        elif wire == _EIGHT:
            size = 8
        elif wire == _FOUR:
            size = 4
        else:
            raise ValueError(wire)
        if place + size > len(raw):
            raise ValueError(size)
        yield number, raw[place : place + size]
        place += size


def _varint(raw: bytes, place: int) -> tuple[int, int]:
    """The whole number that is stored from this place on, seven bits a byte, the lowest first, and
    the place after it. The last byte is the one without the highest bit."""
    value = 0
    for count in range(LONGEST_VARINT):
        byte = raw[place + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, place + count + 1
    raise ValueError(place)
