"""A decoder of one layer whose heads are known by construction: one rests on the first token
whatever it is, one looks for the letter b, one looks at the token before. It counts as trained."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attncli.arrays.backend import choose
from attncli.inputs.token import Token
from attncli.mechanism.mask import Causal, Mask
from attncli.mechanism.spec import Attention, Block, Head, Spec
from attncli.models.model import Identity, Model
from attncli.models.run import EmbeddingVectors

LETTERS = "abcdef\n|x"
"""The vocabulary; x is every other character."""
PLACES = 32
WIDTH = len(LETTERS) + PLACES
DIM = PLACES
RESTS, SEEKS, PREVIOUS = range(3)
SHARP = 5.0


def _reads(letters: np.ndarray | None = None, places: np.ndarray | None = None) -> np.ndarray:
    """A matrix [dim, width] from the letters and the places of the stream."""
    matrix = np.zeros((DIM, WIDTH))
    if letters is not None:
        matrix[: letters.shape[0], : len(LETTERS)] = letters
    if places is not None:
        matrix[: places.shape[0], len(LETTERS) :] = places
    return matrix


class Store:
    """The weights, made above."""

    row_by_row = True

    def __init__(self) -> None:
        always = _reads(places=np.full((1, PLACES), SHARP))
        first = _reads(places=np.eye(1, PLACES))
        seen = _reads(letters=np.eye(1, len(LETTERS), LETTERS.index("b")))
        here = _reads(places=SHARP * np.eye(PLACES, k=1))
        value = _reads(letters=np.eye(len(LETTERS)))
        back = np.zeros((WIDTH, 3 * DIM))
        for head in range(3):
            back[: len(LETTERS), head * DIM : head * DIM + len(LETTERS)] = np.eye(len(LETTERS))
        self.roles = {
            "attn.q.weight": np.concatenate([always, always, here]),
            "attn.k.weight": np.concatenate([first, seen, _reads(places=np.eye(PLACES))]),
            "attn.v.weight": np.concatenate([value] * 3),
            "attn.o.weight": back,
        }
        head = np.zeros((len(LETTERS), WIDTH))
        head[:, : len(LETTERS)] = np.eye(len(LETTERS))
        self.outside = {"head.weight": head}

    def embed(self, backend, tokens):
        x = np.zeros((len(tokens), WIDTH))
        for row, token in enumerate(tokens):
            x[row, token.id] = 1.0
            x[row, len(LETTERS) + token.index] = 1.0
        return backend.array(x)

    def embed_parts(self, backend, tokens):
        whole = self.embed(backend, tokens)
        letters = whole * backend.array((np.arange(WIDTH) < len(LETTERS)).astype(float))
        return [EmbeddingVectors("token", letters), EmbeddingVectors("position", whole - letters)]

    def expect(self, layers) -> None:
        return

    def layer(self, backend, index):
        return lambda role: backend.array(self.roles[role]) if role in self.roles else None

    def outer(self, backend):
        return lambda role: backend.array(self.outside[role]) if role in self.outside else None

    def bytes_read(self) -> int:
        return 0


class Characters:
    """Each character is a token."""

    name = "char"

    def encode(self, text: str, pair: str | None = None) -> list[Token]:
        return [
            Token(place, letter, _id(letter), place, place + 1) for place, letter in enumerate(text)
        ]

    def ids_to_tokens(self, ids: Sequence[int]) -> list[Token]:
        return [Token(place, LETTERS[code], code, None, None) for place, code in enumerate(ids)]

    def text_of(self, ids: Sequence[int]) -> str:
        return "".join(LETTERS[code] for code in ids)


def _id(letter: str) -> int:
    """The id of a character: that of x where it is none of the others."""
    return LETTERS.index(letter if letter in LETTERS else "x")


def model(mask: Mask | None = None, source: str = "checkpoint") -> Model:
    """The model. mask: in place of the causal one. source: what it says of where it comes from."""
    attention = Attention(3, 3, DIM, DIM, scale=1.0, mask=mask or Causal())
    spec = Spec(
        family="resting",
        d_model=WIDTH,
        vocabulary=len(LETTERS),
        blocks=(Block(attention),),
        head=Head(tied=False),
    )
    backend = choose("numpy", device=None, dtype="float64")
    return Model(spec, Store(), Characters(), backend, Identity(source))
