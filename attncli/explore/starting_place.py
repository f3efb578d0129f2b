"""The beginning: a place of a run that has something to see."""

from __future__ import annotations

from dataclasses import replace

from attncli.explore.held import LoadedRun
from attncli.explore.state import State
from attncli.inputs.token import Token


def strongest_place(state: State, loaded_run: LoadedRun, about: int | None) -> State:
    """Where the strongest link is between two words that do not stand side by side: a place with something to see.

    about: the word that looks, None for any.
    """
    if about is not None:
        weights = loaded_run.strongest(about, is_turned=False)
        if not weights:
            return state
        layer, head = min(weights, key=lambda place: (-weights[place], place))
        row = loaded_run.row((layer, head), about)
        assert row is not None
        open_keys = [
            -1.0 if out or value != value else float(value)
            for out, value in zip(loaded_run.left_out_keys(about), row, strict=True)
        ]
        return replace(state, layer=layer, head=head, query=about, key=open_keys.index(max(open_keys)))
    every = [
        (_are_words(loaded_run, query, key) and abs(query - key) > 1, weight, -layer, -head, query, key)
        for (layer, head), record in loaded_run.heads.items()
        for query, key, weight in record.links[:3]
    ]
    if not every:
        return state
    _, _, layer, head, query, key = max(every)
    return replace(state, layer=-layer, head=-head, query=query, key=key)


def pair_in_head(state: State, loaded_run: LoadedRun) -> State:
    """The same head at its own strongest link; a head that there is not, or without links, as `strongest_place`."""
    head = loaded_run.heads.get((state.layer, state.head))
    if head is None or not head.links:
        return strongest_place(state, loaded_run, None)
    query, key, _ = head.links[0]
    return replace(state, query=query, key=key)


def same_words(state: State, before: LoadedRun, loaded_run: LoadedRun) -> State:
    """The words that stand where the chosen ones stood in the text, as pieces or merged."""
    query, key = (
        next((index for index, token in enumerate(tokens) if _covers(token, old)), None)
        for tokens, old in (
            (loaded_run.queries, before.queries[state.query]),
            (loaded_run.keys, before.keys[state.key]),
        )
    )
    return state if query is None or key is None else replace(state, query=query, key=key)


def _covers(token: Token, earlier: Token) -> bool:
    """Whether a token holds the beginning of another one; one that is not of the text is known by its name."""
    if token.start is None or token.end is None or earlier.start is None:
        return token.start == earlier.start and token.text == earlier.text
    return token.start <= earlier.start < token.end


def _are_words(loaded_run: LoadedRun, query: int, key: int) -> bool:
    """Whether both are words, and neither a sign nor a single letter."""
    texts = (loaded_run.queries[query].text.strip(), loaded_run.keys[key].text.strip())
    return all(text.isalpha() and (len(text) > 1 or not text.isascii()) for text in texts)
