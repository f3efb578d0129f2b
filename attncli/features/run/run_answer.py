"""The answer of a run: the sentence, each word tinted by how much it is looked at, and what that
says in one or two sentences.

Each sentence has its rule; none says more than the numbers of the document hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET, Struct

from attncli.documents.parts import RunHead
from attncli.draw.lines import Lines, remark, sentences, stack
from attncli.draw.numbers import LEAST_SHARE, percent
from attncli.draw.sentence import (
    MOST_OF_IT,
    SECOND,
    SMALLEST_SHARE,
    format_number,
    is_nearly_even,
    largest_weight,
    looks_most_sentence,
    no_link_sentence,
    not_learned_note,
    resting_head_sentence,
    sentence,
    strongest_link_sentence,
    words,
)
from attncli.draw.shaded_matrix import as_matrix
from attncli.draw.token_names import claim_link, not_counted, quoted_ends, quoted_token, rest_names
from attncli.draw.view import View
from attncli.features.run.document import RunDocument
from attncli.language import Message, listing, message, say
from attncli.measure.rest import mean_received, rest_kinds, resting_keys

if TYPE_CHECKING:
    from attncli.measure.row_facts import Bools

FEW_KEYS = 4
"""Keys that a sentence names one by one."""


TINY = 1e-12
"""A sum below this counts as this, so that nothing is divided by 0."""


class LayerHeadLink(Struct, frozen=True):
    """One head's link from a query to a key: positions, weight, and which head."""

    query: int
    key: int
    weight: float
    layer: int
    head: int


def run_answer(document: RunDocument, view: View) -> Lines:
    """The answer of an `attn.run/1` document: the sentence, tinted by what its query looks at, or
    by what all look at, and the answer in words."""
    queries = document.queries  # a document is about one query, or about all
    head_links = strongest(document)
    if queries:
        shares = _shares_from_query(document, queries[0], head_links)
        chosen_indices = frozenset(queries)
    else:
        link = _link_of_choice(document, head_links)
        shares = _received_shares(document, head_links)
        chosen_indices = frozenset(() if link is None else (link.query,))
    tinted_sentence = sentence(words(document.text, document.tokens, shares, chosen_indices), view)
    if any(shares):
        tint = remark(say(view, _tint_sentence(document)), view)
    else:
        tint = Lines()
    return stack(tinted_sentence, tint, sentences(run_sentences(document, view), view))


def run_sentences(document: RunDocument, view: View) -> list[str]:
    """The answer in words: about its query, or the strongest link of all, and what that leaves out;
    then whether the weights are learned.
    """
    tokens = document.tokens
    head_links = strongest(document)
    answer_sentences: list[str] = []
    if document.queries:  # the one query that is asked about
        answer_sentences += _query_sentences(document, document.queries[0], head_links, view)
    else:
        answer_sentences += _strongest_link_sentences(document, head_links, view)
    if tokens and not answer_sentences and document.links_leave_out:
        no_link = message("No link is left to name; --all-links counts all.")
        answer_sentences.append(say(view, no_link))
        answer_sentences.append(not_counted(document.links_leave_out, tokens, view))
    return [*answer_sentences, not_learned_note(document.model, view)]


def _strongest_link_sentences(
    document: RunDocument, head_links: Sequence[LayerHeadLink], view: View
) -> list[str]:
    """Sentences on the strongest link of all and on what is not counted; empty without links."""
    tokens = document.tokens
    answer_sentences: list[str] = []
    link = _link_of_choice(document, head_links)
    if link is not None:
        has_several_heads = len(document.overview or _heads(document)) > 1
        ends = quoted_ends(tokens, tokens, link, view)
        counted = _beyond_rest(head_links, _tokens_at_rest(document))
        sentence = strongest_link_sentence(
            link, ends, view, several=has_several_heads, others=counted
        )
        if link.weight < LEAST_SHARE:
            answer_sentences.append(_resting_head(document, view))
            sentence = no_link_sentence(view)
        answer_sentences.append(sentence)
        answer_sentences.append(not_counted(_kinds_left_out(document), tokens, view))
        if link.weight < _strongest_beyond_rest(document, head_links):
            note = message(
                "Queries that see a single key are not counted: all of their weight is there."
            )
            answer_sentences.append(say(view, note))
    return answer_sentences


def _resting_head(document: RunDocument, view: View) -> str:
    """The sentence that the only head rests; "" for several heads, without weights, and where it
    does not."""
    heads = _heads(document)
    if len(heads) != 1:
        return ""
    weights = np.nan_to_num(as_matrix(heads[0].weights))[:, : len(document.tokens)]
    means = mean_received(weights[None])
    if not means.size:
        return ""
    share = float(means[0, _tokens_at_rest(document)].sum())
    return resting_head_sentence(share, document.tokens, view)


def _tint_sentence(document: RunDocument) -> Message:
    """The remark that explains the tint of the words, which depends on what the document holds: the
    query's weights in the only head, the weights of all queries, or links alone."""
    heads = _heads(document)
    has_resting_keys = bool(_tokens_at_rest(document).any())
    # as `_shares_from_query` has it for one head
    if document.queries and len(heads) == 1:
        if has_resting_keys:
            return message("tint: the weight that the word gets, left out where heads rest")
        return message("tint: the weight that the word gets")
    # as `_received_shares` has it where weights are known
    if heads and not document.queries:
        if has_resting_keys:
            return message(
                "tint: words that get more weight than the average word; where heads rest is left"
                " out"
            )
        return message("tint: words that get more weight than the average word")
    # from the strongest link to each word
    if _kinds_left_out(document):
        return message(
            "tint: the strongest weight that a word gets in any head, without what is not counted"
        )
    return message("tint: the strongest weight that a word gets in any head")


def _tokens_at_rest(document: RunDocument) -> Bools:
    """Which tokens of a document are resting keys, booleans [key]: the first token and special
    tokens, on which trained heads put weight when they look for nothing; none for random weights.
    """
    return resting_keys(document.tokens, document.model.source)


def _kinds_left_out(document: RunDocument) -> Sequence[str]:
    """Kinds of links that the answer does not count when it says which link is strongest: those that
    the list of links leaves out; where the list counts every link, those to resting keys.
    """
    if document.links_leave_out:
        return document.links_leave_out
    if _tokens_at_rest(document).any():
        return rest_kinds(document.tokens)
    return ()


def strongest(document: RunDocument) -> list[LayerHeadLink]:
    """The strongest link of every head, strongest first: from the overview, or from the links."""
    entries = [(entry, entry.link) for entry in document.overview or () if entry.link is not None]
    head_links = [
        LayerHeadLink(link.query, link.key, link.weight, entry.layer, entry.head)
        for entry, link in entries
    ]
    head_links += [
        LayerHeadLink(link.query, link.key, link.weight, link.layer, link.head)
        for link in document.links
    ]
    return sorted(
        set(head_links),
        key=lambda link: (-link.weight, link.layer, link.head, link.query, link.key),
    )


def _link_of_choice(
    document: RunDocument, head_links: Sequence[LayerHeadLink]
) -> LayerHeadLink | None:
    """The strongest link to a key that is no resting key (the first token, a special one), of a
    query that sees several keys (a single key gets all the weight, whatever a head does). If there
    is none, the strongest link of all; None without links.

    head_links: strongest first.
    """
    links = _beyond_rest(head_links, _tokens_at_rest(document))
    if not links:
        return None
    # one head's scores tell which queries see several keys, as most masks are those of all heads:
    # scores of hidden keys are not finite
    scores = next((head.scores for head in _heads(document) if head.scores is not UNSET), None)
    if scores is None:
        return links[0]

    # among the links of the document
    has_choice = np.isfinite(as_matrix(scores)).sum(axis=1) > 1  # of each query, [query]
    for link in links:
        if has_choice[link.query]:
            return link
    if not has_choice.any():
        return links[0]

    # none of these is of such a query: among all weights, of each head (query, key, weight)
    largest_links = [
        LayerHeadLink(*largest_weight(head.weights, has_choice), layer.layer, head.head)
        for layer in document.layers
        for head in layer.heads
        if head.weights is not UNSET
    ]
    return max(largest_links, key=lambda link: link.weight, default=links[0])


def _strongest_beyond_rest(document: RunDocument, head_links: Sequence[LayerHeadLink]) -> float:
    """The weight of the strongest link to a key that is no resting key; 0 without one.

    head_links: strongest first.
    """
    links = _beyond_rest(head_links, _tokens_at_rest(document))
    return links[0].weight if links else 0.0


def _beyond_rest(head_links: Sequence[LayerHeadLink], rest: Bools) -> list[LayerHeadLink]:
    """The links to keys that are no resting keys; learned keys come after those of the tokens.

    rest: which tokens are resting keys, [key].
    """
    return [link for link in head_links if link.key >= rest.size or not rest[link.key]]


def _heads(document: RunDocument) -> list[RunHead]:
    """The heads whose weights the document holds."""
    return [head for layer in document.layers for head in layer.heads if head.weights is not UNSET]


def _shares_from_query(
    document: RunDocument, query: int, head_links: Sequence[LayerHeadLink]
) -> list[float | None]:
    """The tint of each token by what it gets from the query: the weights of the only head, or the
    strongest link to it of any head; 0 for resting keys (the first token and special tokens).
    """
    count = len(document.tokens)
    rest = _tokens_at_rest(document)
    head_rows = []
    for head in _heads(document):
        rows = as_matrix(head.weights)  # of the query alone
        if len(rows):
            head_rows.append(rows[0, :count])
    if len(head_rows) == 1:
        shares = np.where(rest, 0.0, np.nan_to_num(head_rows[0]))
        return [float(value) for value in shares]
    return _largest_shares(_links_beyond_rest(query, head_links, rest), count)


def _received_shares(
    document: RunDocument, head_links: Sequence[LayerHeadLink]
) -> list[float | None]:
    """The tint of each token by how much attention it receives beyond an even share, scaled so that
    the largest is 1. Of each key, the head counts in which it receives most; weight on resting keys
    (the first token and special tokens) is left out, and so are rows that see a single key, unless
    there are only such rows."""
    count = len(document.tokens)
    heads = [np.nan_to_num(as_matrix(head.weights))[:, :count] for head in _heads(document)]
    rest = _tokens_at_rest(document)
    if not heads:
        return _largest_shares(_beyond_rest(head_links, rest), count)
    mean_weights = []
    for weights in heads:
        # a row that sees one key gives it all of its weight, whatever the head does
        has_choice = (weights > 0).sum(axis=1) > 1
        if has_choice.any():
            weights = weights[has_choice]
        rows = np.where(rest, 0.0, weights)
        # as shares of the weight that does not rest; of a head that only rests they stay 0
        mean_weights.append(rows.mean(axis=0) / max(rows.sum(axis=1).mean(), TINY))
    even = 1 / max(count - rest.sum(), 1)  # a text may be resting keys alone
    shares = np.where(rest, 0.0, np.max(mean_weights, axis=0) - even)
    greatest = float(shares.max(initial=0.0))
    if greatest <= 0:
        return [0.0] * count
    return [float(value) / greatest for value in shares]


def _largest_shares(head_links: Sequence[LayerHeadLink], count: int) -> list[float | None]:
    """The weight of the strongest link to each of `count` keys, 0 without one.

    head_links: strongest first.
    """
    shares: list[float | None] = [0.0] * count
    for link in reversed(head_links):  # the strongest is written last
        if link.key < count:
            shares[link.key] = link.weight
    return shares


def _query_sentences(
    document: RunDocument, query: int, head_links: Sequence[LayerHeadLink], view: View
) -> list[str]:
    """Sentences on the query: what it looks at most, what that ranking leaves out, and how much of
    its weight is on resting keys (the first token and special tokens).

    head_links: of all queries, strongest first.
    """
    rest = _tokens_at_rest(document)
    query_links = _links_beyond_rest(query, head_links, rest)
    query_text = quoted_token(document.tokens, query, view)
    if any(row.query == query for row in document.empty_rows) and not query_links:
        template = message("{query} can see no word: its weights and its weighted sum A·V are 0.")
        return [say(view, template, query=query_text)]
    kinds = _kinds_left_out(document)
    answer_sentences: list[str] = []

    # all of the query's links are of kinds that are left out otherwise: only itself and resting
    # keys are not counted then
    if document.every_link_counts:
        answer_sentences.append(_narrow_view_sentence(document, query, view))
        kinds = ["self"]
        if rest.any():
            kinds = [*rest_kinds(document.tokens), "self"]
        query_links = [link for link in query_links if link.key != query]
    if not query_links:
        # (that it sees itself alone was said above)
        if not _sees_itself_alone(document, query):
            answer_sentences += _resting_sentences(document, query, first=None, view=view)
        if document.every_link_counts and not rest[query]:
            answer_sentences += _back_sentences(document, view)
        return answer_sentences

    # what it looks at most, and second
    first = query_links[0]
    visible_count = _visible_keys(document, query)
    several = _tells_of_several_heads(document, head_links)
    if visible_count == 1 and not several:
        return [_alone_sentence(document, first, view)]
    # beside resting keys the others share what is left, and 1 / count is no even share
    if is_nearly_even(first.weight, visible_count) and not rest.any():
        return [_even_sentence(query_text, first.weight, visible_count, view)]
    second = _second_link(query_links)
    looks = _looks_sentence(document, query_text, first, second, several, view)
    answer_sentences.append(_resting_query(document, query_text, first, view) or looks)
    answer_sentences.append(not_counted(kinds, document.tokens, view))
    if several:
        answer_sentences += _resting_sentences(document, query, first, view)
    if document.every_link_counts:
        answer_sentences += _back_sentences(document, view)
    return answer_sentences


def _links_beyond_rest(
    query: int, head_links: Sequence[LayerHeadLink], rest: Bools
) -> list[LayerHeadLink]:
    """The links of one query to keys that are no resting keys.

    rest: which tokens are resting keys, [key].
    """
    return _beyond_rest([link for link in head_links if link.query == query], rest)


def _tells_of_several_heads(document: RunDocument, head_links: Sequence[LayerHeadLink]) -> bool:
    """Whether the answer is about more than one head."""
    if len(document.overview or ()) > 1:
        return True
    return len({(link.layer, link.head) for link in head_links}) > 1


def _second_link(links: Sequence[LayerHeadLink]) -> LayerHeadLink | None:
    """The strongest link to another key than the first one's, if it is nearly as strong.

    links: strongest first; not empty.
    """
    first = links[0]
    for link in links:
        if link.key != first.key and link.weight >= SECOND * first.weight:
            return link
    return None


def _alone_sentence(document: RunDocument, link: LayerHeadLink, view: View) -> str:
    """The sentence that the query of a link sees no other key than the link's."""
    query = quoted_token(document.tokens, link.query, view)
    share = percent(link.weight)
    if link.key == link.query:
        template = message(
            "{query} sees nothing but itself: {share} of its weight is there, whatever it asks."
        )
        return say(view, template, query=query, share=share)
    return say(
        view,
        "{query} sees {key} alone: {share} of its weight is there, whatever it asks.",
        query=query,
        key=quoted_token(document.tokens, link.key, view),
        share=share,
    )


def _even_sentence(query: str, most: float, count: int, view: View) -> str:
    """The sentence that a query spreads its weight almost evenly.

    most: its largest weight.
    count: of the keys that it sees.
    """
    template = message(
        "{query} spreads its weight almost evenly: no word gets more than {weight}, and an even"
        " share is {even}."
    )
    weight = format_number(most, view)
    even = format_number(1 / count, view)
    return say(view, template, query=query, weight=weight, even=even)


def _sees_itself_alone(document: RunDocument, query: int) -> bool:
    """Whether a query has weight on nothing but itself, over all heads."""
    if document.average is UNSET:
        return False
    average = np.nan_to_num(np.asarray(document.average))
    keys_with_weight = np.flatnonzero(average > 0).tolist()
    return keys_with_weight == [query]


def _narrow_view_sentence(document: RunDocument, query: int, view: View) -> str:
    """The sentence on why all links of a query are of kinds that are left out otherwise: it is a
    special token, or sees only few or only such keys."""
    query_text = quoted_token(document.tokens, query, view)
    average = np.zeros(0)
    if document.average is not UNSET:
        average = np.asarray(document.average)
    # what the query sees: a key that some head gives weight
    keys = [key for key in np.flatnonzero(average > 0).tolist() if key != query]
    if keys and document.tokens[query].special:
        return say(
            view, "{query} is a special token: all of its links are shown.", query=query_text
        )
    names = [quoted_token(document.tokens, key, view) for key in keys[:FEW_KEYS]]
    is_causal = bool(keys) and max(keys) < query
    if not keys:
        template = message(
            "{query} sees nothing but itself: all of its weight is there, whatever a head does."
        )
    elif is_causal and len(keys) <= FEW_KEYS:
        template = message(
            "{query} is token {place} of {count} and sees only {keys} and itself, as the model reads"
            " from left to right: all of its links are shown."
        )
    elif any(document.tokens[key].unknown for key in keys):
        template = message(
            "{query} sees nothing but words that the model does not know, special tokens,"
            " separators, the first token, its neighbours and itself: all of its links are shown but"
            " those to such words."
        )
    else:
        template = message(
            "{query} sees nothing but special tokens, separators, the first token, its neighbours"
            " and itself: all of its links are shown."
        )
    return say(
        view,
        template,
        query=query_text,
        place=query + 1,
        count=len(document.tokens),
        keys=listing(names),
    )


def _back_sentences(document: RunDocument, view: View) -> Iterator[str]:
    """Yield a sentence on the token that looks back at the query most, if any does."""
    back = document.strongest_back
    if not back:
        return
    # the sentence is about what the query was until now: the token that looks is called {key}
    yield say(
        view,
        "What looks back at it: {key} with {share} of its weight, in layer {layer} head {head}.",
        key=claim_link(quoted_token(document.tokens, back.query, view), back, view),
        share=percent(back.weight),
        layer=back.layer,
        head=back.head,
    )


def _resting_sentences(
    document: RunDocument, query: int, first: LayerHeadLink | None, view: View
) -> Iterator[str]:
    """Yield how much of the query's weight is on resting keys, on average over all heads, and which
    other key has most; where next to none is, only the key with the largest share.

    first: the link that the sentences before have named; None for none.
    """
    if document.average is UNSET:
        return
    count = len(document.tokens)
    average = np.nan_to_num(np.asarray(document.average))[:count]
    rest = _tokens_at_rest(document)
    beyond = np.where(rest | (np.arange(count) == query), 0.0, average)
    top = int(beyond.argmax())
    places = {
        "key": quoted_token(document.tokens, top, view),
        "weight": format_number(beyond[top], view),
    }
    is_news = (first is None or top != first.key) and not document.tokens[top].unknown
    # a word that keeps more weight for itself is not told that another has most
    keeps_most = not rest[query] and average[query] > beyond[top]
    own = format_number(average[query], view)
    # there is no resting key, or a window ends after the first token
    if average[rest].sum() < SMALLEST_SHARE:
        if is_news and keeps_most:
            template = message(
                "Over all heads it gives itself the largest share of its weight ({own}), and of the"
                " others {key} ({weight})."
            )
            yield say(view, template, **places, own=own)
        elif is_news:
            template = message(
                "Over all heads {key} has the largest share of its weight ({weight})."
            )
            yield say(view, template, **places)
        return
    places |= {
        "share": percent(float(average[rest].sum())),
        "rest": rest_names(document.tokens),
    }
    if is_news and beyond[top] > 0 and keeps_most:
        yield say(
            view,
            "Over all heads {share} of its weight rests on {rest}; of the remaining weight it"
            " gives itself most ({own}), and then {key} ({weight}).",
            **places,
            own=own,
        )
    elif is_news and beyond[top] > 0:
        yield say(
            view,
            "Over all heads {share} of its weight rests on {rest}; of the other keys {key} has most"
            " ({weight}).",
            **places,
        )
    else:
        yield say(view, "Over all heads {share} of its weight rests on {rest}.", **places)


def _resting_query(document: RunDocument, query_text: str, first: LayerHeadLink, view: View) -> str:
    """The sentence on a query that gives next to nothing to keys that count, in the only head: how
    much of its weight is where heads rest; "" where that is less than half.

    first: its strongest link that counts.
    """
    heads = _heads(document)
    if len(heads) != 1 or first.weight >= LEAST_SHARE:
        return ""
    row = np.nan_to_num(as_matrix(heads[0].weights))[0, : len(document.tokens)]
    share = float(row[_tokens_at_rest(document)].sum())
    if share <= MOST_OF_IT:
        return ""
    return say(
        view,
        "{query} rests in this head: {share} of its weight is on {rest}, and no link that counts has"
        " as much as {least}.",
        query=query_text,
        share=percent(share),
        rest=rest_names(document.tokens),
        least=percent(LEAST_SHARE),
    )


def _looks_sentence(
    document: RunDocument,
    query_text: str,
    first: LayerHeadLink,
    second: LayerHeadLink | None,
    names_heads: bool,
    view: View,
) -> str:
    """A sentence that says at which key a query looks most, and at which second.

    query_text: the query, quoted.
    first: the strongest link that counts.
    second: the link to another key that is nearly as strong; None for none.
    names_heads: whether the sentence names their heads. A neighbour that is left out and gets more is
        named beside them.
    """
    links = [link for link in (first, second) if link is not None]
    keys = [claim_link(quoted_token(document.tokens, link.key, view), link, view) for link in links]
    if not names_heads:
        shares = [link.weight for link in links]
        is_own = len(links) == 1 and first.key == first.query
        keys_and_shares = list(zip(keys, shares, strict=True))
        return looks_most_sentence(query_text, keys_and_shares, view, itself=is_own)
    names = [
        message(
            "{key} ({weight}, layer {layer} head {head})",
            key=key,
            weight=format_number(link.weight, view),
            layer=link.layer,
            head=link.head,
        )
        for key, link in zip(keys, links, strict=True)
    ]
    named_keys = names[0]
    if second is not None:
        named_keys = message("{first} and at {second}", first=names[0], second=names[1])
    neighbour = document.strongest_neighbour
    if neighbour and document.links_leave_out and neighbour.weight > first.weight:
        name = quoted_token(document.tokens, neighbour.key, view)
        nearby = message(
            "{key} ({weight}, layer {layer} head {head})",
            key=claim_link(name, neighbour, view),
            weight=format_number(neighbour.weight, view),
            layer=neighbour.layer,
            head=neighbour.head,
        )
        return say(
            view,
            "Besides its neighbour {neighbour}, {query} looks most at {keys}.",
            neighbour=nearby,
            query=query_text,
            keys=named_keys,
        )
    return say(view, "{query} looks most at {keys}.", query=query_text, keys=named_keys)


def _visible_keys(document: RunDocument, query: int) -> int:
    """How many keys the query sees, by the scores of the first head that has some; all keys without
    scores.
    """
    rows = list(document.queries or range(len(document.tokens)))
    scores = next((head.scores for head in _heads(document) if head.scores is not UNSET), None)
    if scores is None or query not in rows:
        return len(document.tokens)
    return int(np.isfinite(as_matrix(scores)[rows.index(query)]).sum())
