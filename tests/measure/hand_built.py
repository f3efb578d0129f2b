"""A two-layer model whose heads are known by construction, for tests of labels.

Layer 0: head 0 looks at the previous token, head 1 at the same token earlier, head 2 at the first
token, head 3 at all. Layer 1: head 0 does induction: its keys hold what the previous-token head of
layer 0 wrote, the identity of the token before; head 1 looks three tokens back; head 2 at itself;
head 3 at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

import attncli
from attncli.inputs.token import Token

SHARP = 60.0


def run(tokens: Sequence[Token]) -> Iterator[tuple[int, np.ndarray]]:
    """Each layer's weights [head, query, key], causal."""
    names = sorted({token.text for token in tokens})
    identity = np.eye(len(names))[[names.index(token.text) for token in tokens]]
    place = np.eye(len(tokens))
    nothing = np.zeros_like(place)
    before = _weights(
        [
            _at(place, 1),
            (SHARP * _wide(identity, place), _wide(identity, -place / 2)),
            _first(place),
            (nothing, nothing),
        ]
    )
    yield 0, before
    written = before[0] @ identity  # what layer 0 head 0 adds to the residual stream
    yield (
        1,
        _weights([(SHARP * identity, written), _at(place, 3), _at(place, 0), (nothing, nothing)]),
    )


def _wide(identity: np.ndarray, place: np.ndarray) -> np.ndarray:
    return np.concatenate([identity, place], -1)


def _at(place: np.ndarray, back: int) -> tuple[np.ndarray, np.ndarray]:
    return SHARP * np.roll(place, -back, axis=1), place


def _first(place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.full_like(place, SHARP), place * (np.arange(len(place)) == 0)


def _weights(heads: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    rows = [
        attncli.attention(q[None], k[None], k[None], scale=1.0, causal=True).weights[0]
        for q, k in heads
    ]
    return np.stack(rows)
