"""Moves: what the keys that need no work do to what is looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from attncli.explore.grid import next_measure
from attncli.explore.state import Extent, State, at_pair, by_head, by_word, next_scale

Move = Callable[[State, Extent], State]
PAGE = 8
"""How far a page is."""


def _arrow(layers: int, heads: int) -> Move:
    """An arrow: a head on, or a word on; in a long part, a line on."""

    def move(state: State, extent: Extent) -> State:
        if state.focus == "heads":
            return by_head(state, extent, layers, heads)
        if state.sight in ("search", "effects"):
            return replace(state, row=max(state.row + layers + heads, 0))
        if state.sight == "links":
            return by_word(state, extent, layers + heads)
        if state.sight == "why":
            if heads:
                return replace(state, step=max(state.step + heads, 0), top=0)
            return replace(state, top=max(state.top + layers, 0))
        return at_pair(state, extent, state.query + layers, state.key + heads)

    return move


def _ends(sign: int) -> Move:
    """To the first or the last: head of the layer, word of the row."""

    def move(state: State, extent: Extent) -> State:
        far = sign * 1_000_000
        if state.focus == "heads":
            return by_head(state, extent, 0, far)
        if state.sight == "why":
            return replace(state, top=max(far, 0))
        return at_pair(state, extent, state.query, far)

    return move


MOVES: Mapping[str, Move] = {
    "left": _arrow(0, -1),
    "right": _arrow(0, 1),
    "up": _arrow(-1, 0),
    "down": _arrow(1, 0),
    "pageup": _arrow(-PAGE, 0),
    "pagedown": _arrow(PAGE, 0),
    "home": _ends(-1),
    "end": _ends(1),
    "focus": lambda state, extent: replace(state, focus="words" if state.focus == "heads" else "heads"),
    "layer_before": lambda state, extent: by_head(state, extent, -1, 0),
    "layer_after": lambda state, extent: by_head(state, extent, 1, 0),
    "head_before": lambda state, extent: by_head(state, extent, 0, -1),
    "head_after": lambda state, extent: by_head(state, extent, 0, 1),
    "word_before": lambda state, extent: by_word(state, extent, -1),
    "word_after": lambda state, extent: by_word(state, extent, 1),
    "turn": lambda state, extent: replace(state, is_turned=not state.is_turned),
    "scale": lambda state, extent: next_scale(state),
    "measure": lambda state, extent: next_measure(state),
    "near": lambda state, extent: replace(state, near=not state.near),
    "matrix": lambda state, extent: state.sees("matrix"),
    "links": lambda state, extent: state.sees("links"),
}
"""By action."""
