"""The screen of topic "qkv" of `attn.explain/1`: a search over the words of a text, and what is lost
where two of the three matrices are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from msgspec import UNSET

from attncli.draw.lines import Lines, remark, stack, stack_spaced
from attncli.draw.names import arrow
from attncli.draw.numbers import bar, format_fixed, percent, softmax_percent
from attncli.draw.safe import label
from attncli.draw.screen_header import header
from attncli.draw.sentence import MOST_ALIKE, not_learned_note, same_weights
from attncli.draw.tables import table, vectors
from attncli.draw.token_names import position_and_text, quoted_token, rest_names_among
from attncli.draw.view import View
from attncli.features.explain.derivation_screen import others_text, weights_as_tints
from attncli.features.explain.document import QkvTopic, SharedKeyValue, SharedQueryKey
from attncli.features.explain.softmax_screens import lead, tinted_answer
from attncli.language import Message, listing, message, plural, say, say_each
from attncli.measure.rest import Bools, resting_keys

RESULTS = 10
"""Words of the search that have a line of their own."""
NAME = 14
"""Cells of a word in a table."""
BAR = 18
"""Cells of a weight's bar at most."""
NEARER = 0.1
"""By how much a cosine with the query must be larger, than another and than 0, to be told as nearer
to it."""
NARROW = 56
"""In fewer columns the views of a word are named by their formulas alone."""
VIEWS = {
    "x": message("as it comes in: {formula}"),
    "q": message("as it asks: {formula}"),
    "k": message("as it is found: {formula}"),
    "v": message("as it is handed over: {formula}"),
}
"""What each matrix makes of a word."""
NORMS = {"layer": message("layer norm"), "rms": message("RMS norm")}
"""Norms of queries and keys, by their kind."""


def qkv_blocks(document: QkvTopic, view: View) -> Sequence[Lines]:
    """The screen of topic "qkv" as blocks: why three matrices, one word in its views, the search,
    and what becomes of it with two."""
    what = lead(
        "why three matrices: query, key, value",
        "Attention is a search. The query is what a word asks, the key is what other words are "
        "found by, the value is what they hand over once they are found. One matrix each lets "
        "the three differ.",
        view,
    )
    # values of another width than queries and keys do not stand in one table with them
    names = [name for name in ("q", "k", "v") if name != "v" or len(document.v) == len(document.q)]
    word = label(document.tokens[document.query].text, ascii=view.ascii)
    three_vectors = vectors(
        [getattr(document, name) for name in names],
        names,
        view,
        title=say(view, "one word, three vectors: {query}", query=word),
        note="   ".join(_formula(document, name) for name in ("q", "k", "v")),
    )
    rotation_note = ""
    if document.rotated:
        rotation_note = say(view, "q and k are shown after rotation by position.")
    norm_note = ""
    if document.normed is not UNSET:
        norm_note = say(
            view,
            "q and k pass a norm of their own here ({norm}), and are shown after it.",
            norm=NORMS[document.normed],
        )
    return (
        header(document, view),
        what,
        stack(three_vectors, remark(norm_note, view), remark(rotation_note, view)),
        _nearest_words(document, view),
        _search(document, view),
        _with_one_matrix(document, view),
        _qkv_answer(document, view),
    )


def _formula(document: QkvTopic, name: str) -> str:
    """The formula of one of a word's vectors, such as "q = x·W_Q + b_Q", or with norm(…) around it
    where queries and keys are normed.

    name: "x", "q", "k" or "v".
    """
    if name == "x":
        return "x"
    if document.latent is not UNSET:
        # the formulas of q, k and v, in this order
        return document.latent["qkv".index(name)]
    product = f"x·W_{name.upper()}"
    if document.biased is not UNSET and name in document.biased:
        product += f" + b_{name.upper()}"
    if document.normed is not UNSET and name != "v":
        product = f"norm({product})"
    return f"{name} = {product}"


def _view_name(document: QkvTopic, name: str, view: View) -> str:
    """The name of one view of a word for the table: "as it asks: q = x·W_Q" or the like, and on a
    narrow screen the formula alone.

    name: "x", "q", "k" or "v".
    """
    formula = _formula(document, name)
    if view.width < NARROW:
        return formula
    return say(view, VIEWS[name], formula=formula)


def _nearest_words(document: QkvTopic, view: View) -> Lines:
    """A table of the word that is nearest to the query's in each view; empty where the text has no
    other word."""
    if not document.views:
        return Lines()
    rows = [
        [
            _view_name(document, row.view, view),
            position_and_text(row.nearest, document.tokens[row.nearest].text, NAME, view),
            format_fixed(row.cosine, 2),
        ]
        for row in document.views
    ]
    note = message("which word is nearest depends on what is looked at")
    if len({row.nearest for row in document.views}) == 1:
        note = message("here the same word is nearest in each, nearer in some")
    return table(
        say_each(view, "the word", "nearest other word", "cosine"),
        rows,
        view,
        align=["left", "left", "right"],
        title="each matrix is another view of the same words",
        note=note,
    )


def _search(document: QkvTopic, view: View) -> Lines:
    """The words as results of a search, the best first: score, weight, and what each hands over."""
    # the visible keys, which have scores, those with the largest weights first
    weights = np.asarray(document.weights)
    places = [place for place, score in enumerate(document.scores) if score is not None]
    places.sort(key=lambda place: -weights[place])
    results_shown = places
    if not view.full:
        results_shown = places[:RESULTS]
    room = max(min(view.width - 60, BAR), 0)  # cells of the bars, of what the other columns leave
    rows = []
    for rank, place in enumerate(results_shown, 1):
        # no score is None among visible keys, which a type checker does not see
        score, weight, length, brought = (
            format_fixed(float(values[place] or 0.0), view.precision)
            for values in (
                document.scores,
                document.weights,
                document.value_lengths,
                document.brought,
            )
        )
        strip = bar(float(weights[place]), room, ascii=view.ascii)
        name = position_and_text(place, _name_of(document, place), NAME, view)
        rows.append([str(rank), name, score, weight, strip, length, brought])
    word = label(document.tokens[document.query].text, ascii=view.ascii)
    columns = ["", *say_each(view, "found by its key", "score", "weight"), "", "|v|", "|w·v|"]
    results = table(
        columns,
        rows,
        view,
        align=["right", "left", "right", "right", "left", "right", "right"],
        bars=4,  # the column of the bars
        title=say(view, "what the query of {query} finds", query=word),
        note="score: q·k after scaling · |v|: length of the value · |w·v|: what is handed over",
    )

    # what is not in the table
    notes = []
    if len(results_shown) < len(places):
        others = others_text(len(places) - len(results_shown), view)
        notes.append(say(view, "{others}; --full shows all", others=others))
    hidden = len(document.scores) - len(places)
    if hidden:
        notes.append(
            say(
                view,
                plural(
                    "{count} token is hidden by the mask: no search finds it.",
                    "{count} tokens are hidden by the mask: no search finds them.",
                    count=hidden,
                ),
            )
        )
    return stack(results, *(remark(note, view) for note in notes))


def _name_of(document: QkvTopic, place: int) -> str:
    """The text of the key at a place; a learned key, which stands behind the tokens, is called
    bias_k."""
    if place < len(document.tokens):
        return document.tokens[place].text
    return "bias_k"


UNTOLD = message(
    "What one matrix for two of the three would do is not told: keys have a norm of their own, which"
    " queries and values do not share."
)
"""What is said in place of a comparison where queries and keys are normed."""


def _with_one_matrix(document: QkvTopic, view: View) -> Lines:
    """Tables of what becomes of the scores with W_Q = W_K, and of the output with W_V = W_K; or
    remarks on why the model allows no such comparison."""
    if document.normed is not UNSET:
        return remark(say(view, UNTOLD), view)
    parts = []
    if document.shared_query_key is not UNSET:
        parts.append(_shared_scores(document, document.shared_query_key, view))
    if document.shared_key_value is not UNSET:
        parts.append(_shared_outputs(document.shared_key_value, view))
    else:
        none = message(
            "Keys are {d_k} wide and values {d_v}: the one cannot stand in for the other.",
            d_k=len(document.q),
            d_v=len(document.v),
        )
        parts.append(remark(say(view, none), view))
    return stack_spaced(*parts)


def _shared_scores(document: QkvTopic, shared: SharedQueryKey, view: View) -> Lines:
    """A table of the scores of one pair of words in both directions, with W_Q and W_K and with one
    matrix for both, and of how many words then look most at themselves."""
    query, key = (
        position_and_text(place, document.tokens[place].text, NAME, view)
        for place in (document.query, shared.key)
    )
    link = arrow(view)
    columns = [
        "",
        f"{query}{link}{key}",
        f"{key}{link}{query}",
        say(view, "look most at themselves"),
    ]

    def row(name: str, forward: float, backward: float, self_first: int) -> list[str]:
        """A row of the table: the pair's score in each direction, and how many words look most at
        themselves."""
        numbers = [format_fixed(score, view.precision) for score in (forward, backward)]
        of_words = say(view, "{count} of {words}", count=self_first, words=shared.words)
        return [name, *numbers, of_words]

    # k·k is the same in both directions
    one_matrix = (shared.shared, shared.shared, shared.shared_self_first)
    rows = [
        row("W_Q, W_K", shared.forward, shared.backward, shared.self_first),
        row(say(view, "W_K for both"), *one_matrix),
    ]
    return table(
        columns,
        rows,
        view,
        align=["left", "right", "right", "right"],
        title="with one matrix for queries and keys",
        note="q·k × scale, before bias and mask",
    )


def _shared_outputs(shared: SharedKeyValue, view: View) -> Lines:
    """The query's output as it is and with keys in place of values, entry by entry, and how the two
    point to each other and to q."""
    body = vectors(
        [shared.output, shared.shared],
        ["o = A·V", "A·K"],
        view,
        title="with one matrix for keys and values (K = V)",
        note="the weights stay, the output changes",
    )
    cosines = say(
        view,
        "cosine of A·V with A·K {cosine} · of q with A·V {own}, with A·K {shared}",
        cosine=format_fixed(shared.cosine, 2),
        own=format_fixed(shared.query_cosine, 2),
        shared=format_fixed(shared.shared_query_cosine, 2),
    )
    return stack(body, remark(cosines, view))


def _qkv_answer(document: QkvTopic, view: View) -> Lines:
    """The text tinted by the weights, and sentences on what is found and what each matrix is for."""
    texts = [
        *_search_sentences(document, view),
        *_matrix_sentences(document, view),
        not_learned_note(document.model, view),
    ]
    shares, tint = weights_as_tints(document, document.weights)
    return tinted_answer(document, shares, texts, view, query=document.query, tint=tint)


def _search_sentences(document: QkvTopic, view: View) -> Iterator[str]:
    """Yield sentences on the key that answers the query best, leaving out keys on which heads rest
    (put weight when they look for nothing); on the weight that rests on these, where it is larger;
    and on the word that hands over most, where that is another."""
    query = quoted_token(document.tokens, document.query, view)
    weights = np.asarray(document.weights)[: len(document.tokens)]
    rest = resting_keys(document.tokens, document.model.source)
    no_choice = _one_key_sentence(document, rest, view)
    if no_choice:
        yield no_choice
        return
    word_weights = np.where(rest, 0.0, weights)
    if not word_weights.any():  # all of its weight is where heads rest, or on learned keys
        return
    best = int(word_weights.argmax())
    alike = same_weights(word_weights, float(word_weights[best]))  # the keys with this weight
    if len(alike) > 1:
        yield _answered_alike(document, alike, float(weights[best]), view)
    else:
        template = message("What {query} asks is answered best by {key}: {share} of its weight.")
        if best == document.query:
            template = message(
                "What {query} asks is answered best by itself: {share} of its weight."
            )
        yield say(
            view,
            template,
            query=query,
            key=quoted_token(document.tokens, best, view),
            share=percent(float(weights[best])),
        )
    rest_weight = float(weights[rest].sum())
    if rest_weight > float(weights[best]):
        yield say(
            view,
            "More of it, {share}, rests on {names}, where heads rest whatever stands there.",
            share=softmax_percent(rest_weight, int(np.count_nonzero(weights))),
            names=rest_names_among(document.tokens, np.flatnonzero(rest & (weights > 0))),
        )
    # the size of what each word hands over, w·|v|
    sizes = np.where(rest, 0.0, np.asarray(document.brought)[: len(document.tokens)])
    largest = int(sizes.argmax())
    if largest not in alike:
        yield say(
            view,
            "Found first is not handed over most: with its longer value {other} brings {other_size}, "
            "{key} {size}.",
            other=quoted_token(document.tokens, largest, view),
            other_size=format_fixed(float(sizes[largest]), 2),
            key=quoted_token(document.tokens, best, view),
            size=format_fixed(float(sizes[best]), 2),
        )


def _answered_alike(document: QkvTopic, keys: Sequence[int], weight: float, view: View) -> str:
    """The sentence that several keys answer a query best, all with the same weight; by name, or where
    they are more than `MOST_ALIKE`, how many."""
    template = message(
        "What {query} asks is answered best by {keys} alike: {share} of its weight each."
    )
    if len(keys) > MOST_ALIKE:
        template = message(
            "What {query} asks is answered best by {count} keys alike: {share} of its weight each."
        )
    names = [quoted_token(document.tokens, key, view) for key in keys[:MOST_ALIKE]]
    return say(
        view,
        template,
        query=quoted_token(document.tokens, document.query, view),
        keys=listing(names),
        count=len(keys),
        share=percent(weight),
    )


def _one_key_sentence(document: QkvTopic, rest: Bools, view: View) -> str:
    """A sentence for a query that has no choice, because it sees a single key, or a single one
    besides those where heads rest; "" for a query that has a choice.

    rest: which tokens heads rest on (put weight when they look for nothing), booleans [token].
    """
    visible_keys = [place for place, score in enumerate(document.scores) if score is not None]
    # learned keys, behind the tokens, are no keys where heads rest
    words = [place for place in visible_keys if place >= rest.size or not rest[place]]
    if len(visible_keys) == 1:
        key = visible_keys[0]
        template = message(
            "{query} sees {key} alone: {share} of its weight is there, whatever it asks."
        )
        if key == document.query:
            template = message(
                "{query} sees nothing but itself: {share} of its weight is there, whatever it asks."
            )
    elif len(words) == 1:
        key = words[0]
        template = message(
            "Apart from {rest}, where heads rest, {query} sees only {key}: {share} of its weight is"
            " there."
        )
        if key == document.query:
            template = message(
                "Apart from {rest}, where heads rest, {query} sees only itself: {share} of its weight"
                " is there."
            )
    else:
        return ""
    name = "bias_k"  # a learned key
    if key < len(document.tokens):
        name = quoted_token(document.tokens, key, view)
    return say(
        view,
        template,
        query=quoted_token(document.tokens, document.query, view),
        key=name,
        rest=rest_names_among(document.tokens, sorted(set(visible_keys) - set(words))),
        share=percent(float(document.weights[key])),
    )


def _matrix_sentences(document: QkvTopic, view: View) -> Iterator[str]:
    """Yield sentences on what one matrix for two of the three would change on this text."""
    if document.normed is not UNSET:
        yield say(view, UNTOLD)
    query = quoted_token(document.tokens, document.query, view)
    pair = document.shared_query_key
    if pair is not UNSET:
        forward = format_fixed(pair.forward, 2)
        backward = format_fixed(pair.backward, 2)
        reason = message(
            "Why W_Q is not W_K: with W_K for both {query} and {key} would ask each other alike, "
            "{shared} both ways; with two it is {there} there and {back} back.",
            query=query,
            key=quoted_token(document.tokens, pair.key, view),
            shared=format_fixed(pair.shared, 2),
            there=forward,
            back=backward,
        )
        if forward != backward:
            yield say(view, reason)
        if pair.shared_self_first != pair.self_first:
            yield say(
                view,
                "With one, {shared} of {words} tokens would look most at themselves; with "
                "two, {own}.",
                shared=pair.shared_self_first,
                words=pair.words,
                own=pair.self_first,
            )
    values = document.shared_key_value
    if values is not UNSET:
        yield say(view, _value_sentence(values, query))


def _value_sentence(values: SharedKeyValue, query: str) -> Message:
    """The sentence on how the query's output changes when keys are handed over in place of values.

    query: its name in quotes.
    """
    cosines = {
        "cosine": format_fixed(values.cosine, 2),
        "own": format_fixed(values.query_cosine, 2),
        "shared": format_fixed(values.shared_query_cosine, 2),
        "query": query,
    }
    if values.shared_query_cosine >= max(values.query_cosine, 0.0) + NEARER:
        return message(
            "Why K is not V: handing over keys gives another output (cosine {cosine}), and one "
            "nearer to what {query} asked itself: cosine {shared} with q, not {own}.",
            **cosines,
        )
    return message(
        "Why K is not V: what a word is found by need not be what it hands over; keys in place of "
        "values would give {query} another output (cosine {cosine} between the two).",
        **cosines,
    )


def qkv_rows(document: QkvTopic) -> Iterable[list[object]]:
    """Yield the table for `--plain`: the names of its columns, then a row for each key."""
    yield ["key", "text", "score", "weight", "value_length", "brought"]
    for place, score in enumerate(document.scores):
        yield [
            place,
            _name_of(document, place),
            score,
            float(document.weights[place]),
            float(document.value_lengths[place]),
            float(document.brought[place]),
        ]
