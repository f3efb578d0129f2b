"""A two-layer model that does induction by construction: what each head is for is known, since its
weights are.

The residual stream has five parts: the token's identity, its place, what layer 0 writes for layer
1, what the output head reads, and a part that nothing reads. Layer 0 head 0 writes the identity of
the token before; layer 1 head 0 looks for the place after an earlier same token and writes what
stands there where the output head reads. All other heads look at all tokens alike and write where
nothing reads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attncli.arrays.backend import choose
from attncli.inputs.token import Token
from attncli.mechanism.mask import Causal
from attncli.mechanism.spec import Attention, Block, Head, Spec
from attncli.models.model import Identity, Model
from attncli.models.run import EmbeddingVectors

LETTERS, PLACES, HEADS, SHARP = 5, 12, 3, 60.0
DIM = PLACES
PARTS = {"identity": (0, LETTERS), "place": (LETTERS, LETTERS + PLACES)}
for number, name in enumerate(("written", "read", "idle")):
    PARTS[name] = (LETTERS + PLACES + number * LETTERS, LETTERS + PLACES + (number + 1) * LETTERS)
WIDTH = PARTS["idle"][1]


def _from(part: str, matrix: np.ndarray) -> np.ndarray:
    """[out, WIDTH] that reads one part of the stream through a matrix [out, part]."""
    found = np.zeros((DIM, WIDTH))
    low, high = PARTS[part]
    found[: matrix.shape[0], low:high] = matrix
    return found


def _to(part: str) -> np.ndarray:
    """[WIDTH, DIM] that writes a value into one part of the stream."""
    found = np.zeros((WIDTH, DIM))
    low, high = PARTS[part]
    found[low:high, : high - low] = np.eye(high - low)
    return found


def _layer(q: np.ndarray, k: np.ndarray, writes: str) -> dict[str, np.ndarray]:
    nothing, identity = np.zeros_like(q), _from("identity", np.eye(LETTERS))
    others = HEADS - 1
    return {
        "attn.q.weight": np.concatenate([q, *[nothing] * others]),
        "attn.k.weight": np.concatenate([k, *[nothing] * others]),
        "attn.v.weight": np.concatenate([identity] * HEADS),
        "attn.o.weight": np.concatenate([_to(writes), *[_to("idle")] * others], 1),
    }


class Store:
    """The weights, made above."""

    def __init__(self) -> None:
        back = np.eye(PLACES, k=-1)
        self.layers = [
            _layer(_from("place", SHARP * back.T), _from("place", np.eye(PLACES)), "written"),
            _layer(
                _from("identity", SHARP * np.eye(LETTERS)),
                _from("written", np.eye(LETTERS)),
                "read",
            ),
        ]
        head = np.zeros((LETTERS, WIDTH))
        head[:, PARTS["read"][0] : PARTS["read"][1]] = 10 * np.eye(LETTERS)
        self.outside = {"head.weight": head}

    row_by_row = True

    def embed(self, backend, tokens):
        x = np.zeros((len(tokens), WIDTH))
        for row, token in enumerate(tokens):
            x[row, token.id] = 1.0
            x[row, LETTERS + token.index] = 1.0
        return backend.array(x)

    def embed_parts(self, backend, tokens):
        whole = self.embed(backend, tokens)
        identity = whole * backend.array((np.arange(WIDTH) < LETTERS).astype(float))
        return [EmbeddingVectors("token", identity), EmbeddingVectors("position", whole - identity)]

    def expect(self, layers) -> None:
        return

    def layer(self, backend, index):
        return lambda role: (
            backend.array(self.layers[index][role]) if role in self.layers[index] else None
        )

    def outer(self, backend):
        return lambda role: backend.array(self.outside[role]) if role in self.outside else None

    def bytes_read(self) -> int:
        return 0


class Letters:
    """Tokens by their ids."""

    def encode(self, text: str) -> list[Token]:
        return self.ids_to_tokens(["abcde".index(letter) for letter in text if letter in "abcde"])

    def ids_to_tokens(self, ids: Sequence[int]) -> list[Token]:
        return [
            Token(place, "abcde"[code], code, place, place + 1) for place, code in enumerate(ids)
        ]

    def text_of(self, ids: Sequence[int]) -> str:
        return "".join("abcde"[code] for code in ids)


def model(library: str = "numpy") -> Model:
    attention = Attention(HEADS, HEADS, DIM, DIM, scale=1.0, mask=Causal())
    spec = Spec(
        family="induction",
        d_model=WIDTH,
        vocabulary=LETTERS,
        blocks=(Block(attention), Block(attention)),
        head=Head(tied=False),
    )
    return Model(
        spec, Store(), Letters(), choose(library, device=None, dtype="float64"), Identity("file")
    )
