"""The beginning: a place of a run that has something to see."""

from __future__ import annotations

from dataclasses import replace

from attncli.explore.held import Held
from attncli.explore.state import State
from attncli.inputs.token import Token


def strongest_place(state: State, held: Held, about: int | None) -> State:
    """Where the strongest link is between two words that do not stand side by side: a place with something to see.

    about: the word that looks, None for any.
    """
    if about is not None:
        found = held.strongest(about, turned=False)
        if not found:
            return state
        layer, head = min(found, key=lambda place: (-found[place], place))
        row = held.row((layer, head), about)
        assert row is not None
        open_keys = [
            -1.0 if out or value != value else float(value) for out, value in zip(held.told(about), row, strict=True)
        ]
        return replace(state, layer=layer, head=head, query=about, key=open_keys.index(max(open_keys)))
    every = [
        (_spoken(held, query, key) and abs(query - key) > 1, weight, -layer, -head, query, key)
        for (layer, head), one in held.heads.items()
        for query, key, weight in one.links[:3]
    ]
    if not every:
        return state
    _, _, layer, head, query, key = max(every)
    return replace(state, layer=-layer, head=-head, query=query, key=key)


def pair_in_head(state: State, held: Held) -> State:
    """The same head at its own strongest link; a head that there is not, or without links, as `strongest_place`."""
    head = held.heads.get((state.layer, state.head))
    if head is None or not head.links:
        return strongest_place(state, held, None)
    query, key, _ = head.links[0]
    return replace(state, query=query, key=key)


def same_words(state: State, before: Held, held: Held) -> State:
    """The words that stand where the chosen ones stood in the text, as pieces or merged."""
    query, key = (
        next((at for at, token in enumerate(tokens) if _covers(token, old)), None)
        for tokens, old in ((held.queries, before.queries[state.query]), (held.keys, before.keys[state.key]))
    )
    return state if query is None or key is None else replace(state, query=query, key=key)


def _covers(token: Token, other: Token) -> bool:
    """Whether a token holds the beginning of another one; one that is not of the text is known by its name."""
    if token.start is None or token.end is None or other.start is None:
        return token.start == other.start and token.text == other.text
    return token.start <= other.start < token.end


def _spoken(held: Held, query: int, key: int) -> bool:
    """Whether both are words, and neither a sign nor a single letter."""
    texts = (held.queries[query].text.strip(), held.keys[key].text.strip())
    return all(text.isalpha() and (len(text) > 1 or not text.isascii()) for text in texts)
