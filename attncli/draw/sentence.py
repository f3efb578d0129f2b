"""The sentence, each word tinted by how much it is looked at, and what that says in one or two
sentences.

Each sentence has its rule; none says more than the numbers of the document hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET, Struct
from msgspec.structs import replace

from attncli.documents.parts import RunHead
from attncli.draw.lines import FAINT, Line, Lines, Piece, fit_to_view, remark, sentences, stack
from attncli.draw.numbers import percent
from attncli.draw.rest_names import not_counted, rest_names
from attncli.draw.safe import cells, cut, label, safe, spell
from attncli.draw.shaded_matrix import as_matrix, tint
from attncli.draw.tables import PlacedLink
from attncli.draw.token_names import MARK, claim_link, quoted_ends, quoted_token
from attncli.draw.view import View
from attncli.features.run.document import RunDocument
from attncli.language import Message, listing, message, say
from attncli.measure.rest import rest_kinds, resting_keys

if TYPE_CHECKING:
    from attncli.documents import ModelPart, Numbers, TokenRow
    from attncli.features.compare.document import ComparedHead, CompareDocument
    from attncli.features.cross.document import CrossDocument
    from attncli.inputs.token import Token
    from attncli.measure.row_facts import Bools

LEAST = 0.05
"""The smallest share that is tinted; below it a word is left as it is."""
MARKS, MARKS_ASCII = "░▒▓█", ".:*#"
"""What stands on both sides of a word where there is no colour, for shares from `LEAST`, 0.25, 0.5,
0.75.
"""
WINDOW = 120
"""Words that are shown unless the view is full; of a longer text, those around what matters."""
AROUND = 6
"""Words kept on either side of one that matters."""


class Word(Struct, frozen=True):
    """One word of a sentence. text: as it is to be read, with its blanks gone. apart: whether a
    blank precedes it.

    share: what is looked at it, 0 to 1, None if unknown. is_chosen: whether it is the one that
    looks. quiet: a token that is not part of the text, such as [CLS]. is_joined: whether it stands
    for the same character as the word before. leads: whether it is a blank that a vocabulary puts
    before the next word, and that stands in no text.
    """

    text: str
    share: float | None = None
    is_chosen: bool = False
    apart: bool = True
    quiet: bool = False
    is_joined: bool = False
    leads: bool = False


def words(
    text: str | None,
    tokens: Sequence[TokenRow | Token],
    shares: Sequence[float | None],
    chosen_indices: frozenset[int],
) -> list[Word]:
    """The tokens as words of a sentence with their shares, spelled as in the text where the tokens
    have positions in it; the tokens at `chosen_indices` are the queries."""
    words_of_text: list[Word] = []
    end = 0
    after = True
    for token, share in zip(tokens, shares, strict=True):
        start = token.start
        stop = token.end
        word_text = token.text.strip() or token.text
        apart = True
        is_joined = False
        if (
            text is not None
            and start is not None
            and stop is not None
            and start < stop
            and not token.special
        ):
            is_joined = start < end and stop <= end and not after
            if end <= start:
                word_text = text[start:stop].strip() or text[start:stop]
                apart = after or start > end or text[start].isspace()
                end = stop
                after = False
            elif not is_joined:
                after = True
        else:
            after = True
        if token.unknown:
            word_text = word_text.removesuffix(MARK) + MARK
        words_of_text.append(
            Word(
                word_text or '""',
                share,
                token.index in chosen_indices,
                apart,
                bool(token.special),
                is_joined,
                start is not None and start == stop and not word_text.strip(),
            )
        )
    return words_of_text


def _larger_share(a: Word, b: Word) -> float | None:
    """The larger share of two words, None where neither has one."""
    return max((value for value in (a.share, b.share) if value is not None), default=None)


def _merge_words(words: Sequence[Word]) -> list[Word]:
    """The words with those of single bytes merged to characters (the largest share counts), with
    blanks of no text merged to what they lead, and with blanks that get less than `LEAST` turned
    into gaps between words."""
    whole_words: list[Word] = []
    gap = False
    lead: Word | None = None
    for number, token_word in enumerate(words):
        word = token_word
        if lead is not None:
            word = replace(
                word,
                share=_larger_share(lead, word),
                is_chosen=lead.is_chosen or word.is_chosen,
                apart=lead.apart,
            )
            lead = None
        if word.leads and number + 1 < len(words) and not words[number + 1].quiet:
            lead = word
            continue
        if word.is_joined and whole_words:
            before = whole_words[-1]
            whole_words[-1] = replace(
                before,
                share=_larger_share(before, word),
                is_chosen=before.is_chosen or word.is_chosen,
            )
        elif word.text.isspace() and not word.is_chosen and (word.share or 0.0) < LEAST:
            gap = True
        else:
            if word.text.isspace():
                word_text = label(word.text)
            else:
                word_text = word.text
            whole_words.append(replace(word, text=word_text, apart=word.apart or gap))
            gap = False
    return whole_words


def sentence(words: Sequence[Word], view: View) -> Lines:
    """The words one after the other, broken to the view's width, tinted by their share; the chosen
    ones in brackets.

    Without colour, `MARKS` stand on both sides of a word in place of its tint. A text of more than
    `WINDOW` words is shortened to those around the chosen ones and the strongest. No words: no
    lines.
    """
    words = _merge_words(words)
    rows: list[Line] = []
    row: list[Piece] = []
    row_width = 0
    before = -1
    gap_mark = spell(" … ", ascii=view.ascii)
    places = _places_to_show(words, view)
    place_set = frozenset(places)
    for place in places:
        word = words[place]
        has_gap = place != before + 1
        first = before < 0
        before = place
        opens = word.is_chosen and (has_gap or not (place and words[place - 1].is_chosen))
        closes = word.is_chosen and (place + 1 not in place_set or not words[place + 1].is_chosen)
        pieces = [
            *([(gap_mark[first:], FAINT)] if has_gap else []),
            *_word_pieces(word, view, opens, closes),
        ]
        gap = 1 if row and word.apart and not has_gap else 0
        size = sum(cells(text) for text, _ in pieces)
        if row and row_width + gap + size > view.width:
            rows.append(tuple(row))
            row = []
            row_width = 0
            gap = 0
        row += [*([(" ", "")] if gap else []), *pieces]
        row_width += gap + size
    if places and before + 1 < len(words) and row_width + cells(gap_mark) - 1 <= view.width:
        row.append((gap_mark[:-1], FAINT))
    elif places and before + 1 < len(words):
        rows = [*rows, tuple(row)]
        row = [(gap_mark.strip(), FAINT)]
    return fit_to_view(Lines((*rows, tuple(row)) if row else tuple(rows)), view)


def _places_to_show(words: Sequence[Word], view: View) -> list[int]:
    """The places of the words to show: of a long text those around the chosen and the strongest
    ones.
    """
    if view.full or len(words) <= WINDOW:
        return list(range(len(words)))
    order = sorted(
        range(len(words)),
        key=lambda place: (not words[place].is_chosen, -(words[place].share or 0.0), place),
    )
    places: set[int] = set()
    for place in order:
        near = set(range(max(place - AROUND, 0), min(place + AROUND + 1, len(words))))
        if len(places | near) > WINDOW // 2:
            break
        places |= near
    return sorted(places)


def _word_pieces(word: Word, view: View, opens: bool, closes: bool) -> list[Piece]:
    """A word's pieces; a bracket before the first of chosen words in a row, and one after the last."""
    # no wider than a line, with room for what stands around it
    text = cut(safe(word.text, ascii=view.ascii), max(view.width - 4, 1), ascii=view.ascii)
    if not word.is_chosen:
        return [_tint_word(text, word.share, view, FAINT if word.quiet else "")]
    inner = _tint_word(text, word.share, view, "bold")
    return [*([("[", "bold")] if opens else []), inner, *([("]", "bold")] if closes else [])]


def _tint_word(text: str, share: float | None, view: View, style: str) -> Piece:
    """A word in its tint over its own style, or between `MARKS` where there is no colour; as it is
    below `LEAST`.
    """
    if share is None or share < LEAST:
        return text, style
    if view.color:
        return text, f"{style.replace(FAINT, '')} {tint(share, view)}".strip()
    mark = (MARKS_ASCII if view.ascii else MARKS)[min(int(min(share, 1.0) * 4), 3)]
    return f"{mark}{text}{mark}", style


def scale(view: View) -> Lines:
    """The tints from 0 to 1, for a legend."""
    steps = (0.0, 0.25, 0.5, 0.75, 1.0)
    if view.color:
        ramp: list[Piece] = [("  ", tint(step, view) if step else "") for step in steps]
    else:
        ramp = [(mark, "") for mark in (MARKS_ASCII if view.ascii else MARKS)]
    return fit_to_view(Lines((((f"{LEAST:.2f} ", FAINT), *ramp, (" 1", FAINT)),)), view)


# The sentence above an answer, its words tinted by numbers of the document: by a query's weights,
# or by what moved.


def shaded_sentence(
    text: str | None,
    tokens: Sequence[TokenRow],
    shares: Iterable[float] | None,
    view: View,
    *,
    query: int | Iterable[int] | None,
    tint: str,
) -> Lines:
    """The text's words, tinted by their shares, the queries in brackets, and what the tint says.
    tint: its sentence. Shares past the tokens (learned keys) are left out; words without a share
        stay as
    they are. shares: None where nothing tells any; then no tint is explained either."""
    known_shares = [
        float(share) for share in np.nan_to_num([] if shares is None else list(shares))
    ][: len(tokens)]
    all_shares = [*known_shares, *[None] * (len(tokens) - len(known_shares))]
    chosen_indices = (
        frozenset() if query is None else frozenset({query} if isinstance(query, int) else query)
    )
    if any(share >= LEAST for share in known_shares):
        tint_note = say(view, tint)
    else:
        tint_note = ""
    return stack(
        sentence(words(text, tokens, all_shares, chosen_indices), view), remark(tint_note, view)
    )


def shaded_cross_texts(document: CrossDocument, view: View) -> Lines:
    """Both texts: the query of the strongest link in brackets, the keys tinted by that head's
    weights.
    """
    link = document.links[0]
    layer = next(entry for entry in document.layers if entry.layer == link.layer)
    head = next(entry for entry in layer.heads if entry.head == link.head)
    no_shares: list[float | None] = [None] * len(document.queries)
    query_sentence = sentence(
        words(document.query_text, document.queries, no_shares, frozenset({link.query})), view
    )
    row = as_matrix(head.weights)[link.query]
    tint = message("tint: the weight that the word gets")
    keys = shaded_sentence(document.key_text, document.keys, row, view, query=None, tint=tint)
    return stack(query_sentence, keys)


def shaded_comparison(
    document: CompareDocument, head: ComparedHead, query: int, view: View
) -> Lines:
    """The text of A: the query of the weight that moved most in brackets, each word tinted by how
    far its own moved, without those where heads rest."""
    places = [index_a for index_a, _ in document.aligned]
    differences = np.zeros(len(document.a.tokens))
    differences[places] = np.abs(np.nan_to_num(as_matrix(head.difference)[places.index(query)]))[
        : len(places)
    ]
    tint = message("tint: by how much the word's weight differs")
    rest = resting_keys(document.a.tokens, document.a.model.source)
    if document.links_leave_out and rest.any():
        differences[rest] = 0.0
        tint = message("tint: by how much the word's weight differs; where heads rest is left out")
    return shaded_sentence(
        document.a.text, document.a.tokens, differences, view, query=query, tint=tint
    )


FEW_KEYS = 4
"""Keys that a sentence names one by one."""
TINY = 1e-12
SMALLEST_SHARE = 0.005
"""A share below this is written as 0%."""
SECOND = 0.5
"""A second key is named where its weight is at least this share of the first one's."""
EVEN = 1.5
"""A row whose largest weight is below this many even shares (1 / visible keys) is called even."""


class HeadLink(Struct, frozen=True):
    """One head's link from a query to a key: positions, weight, and which head."""

    query: int
    key: int
    weight: float
    layer: int
    head: int


def run_answer(document: RunDocument, view: View) -> Lines:
    """The answer of an `attn.run/1` document: the sentence, tinted by what its query looks at, or
    by what all look at, and the answer in words."""
    queries = document.queries
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
    if document.queries:
        answer_sentences += _query_sentences(document, document.queries[0], head_links, view)
    elif (link := _link_of_choice(document, head_links)) is not None:
        several = len(document.overview or _heads(document)) > 1
        ends = quoted_ends(tokens, tokens, link, view)
        answer_sentences.append(strongest_link_sentence(link, ends, view, several=several))
        answer_sentences.append(not_counted(document.links_leave_out or (), tokens, view))
        if link.weight < head_links[0].weight:
            note = message(
                "Queries that see a single key are not counted: all of their weight is there."
            )
            answer_sentences.append(say(view, note))
    if tokens and not answer_sentences and (kinds := document.links_leave_out):
        answer_sentences.append(say(view, "No link is left to name."))
        answer_sentences.append(not_counted(kinds, tokens, view))
    return [*answer_sentences, not_learned_note(document.model, view)]


def _tint_sentence(document: RunDocument) -> Message:
    """What the tint of the words shows, in a sentence."""
    heads = _heads(document)
    rests = bool(_rest(document).any())
    if document.queries and len(heads) == 1:
        if rests:
            return message("tint: the weight that the word gets, left out where heads rest")
        return message("tint: the weight that the word gets")
    if heads and not document.queries:
        if rests:
            return message(
                "tint: words that get more than an even share of the weight that does not rest"
            )
        return message("tint: words that get more than an even share of all weights")
    if document.links_leave_out:
        return message(
            "tint: the strongest weight that a word gets in any head, without what is not counted"
        )
    return message("tint: the strongest weight that a word gets in any head")


def _rest(document: RunDocument) -> Bools:
    """Which tokens of a document heads rest on, booleans [key]."""
    return resting_keys(document.tokens, document.model.source)


def strongest(document: RunDocument) -> list[HeadLink]:
    """The strongest link of every head, strongest first: from the overview, or from the links."""
    entries = [(entry, entry.link) for entry in document.overview or () if entry.link is not None]
    head_links = [
        HeadLink(link.query, link.key, link.weight, entry.layer, entry.head)
        for entry, link in entries
    ]
    head_links += [
        HeadLink(link.query, link.key, link.weight, link.layer, link.head)
        for link in document.links
    ]
    return sorted(
        set(head_links),
        key=lambda link: (-link.weight, link.layer, link.head, link.query, link.key),
    )


def _link_of_choice(document: RunDocument, head_links: Sequence[HeadLink]) -> HeadLink | None:
    """The strongest link of a query that sees several keys (one that sees a single key gives it all
    its weight); the strongest of all where there is none such; None without links. A link to a key
    where heads rest is none."""
    rest = _rest(document)
    head_links = [link for link in head_links if link.key >= rest.size or not rest[link.key]]
    scores = next((head.scores for head in _heads(document) if head.scores is not UNSET), None)
    if scores is None or not head_links:
        return next(iter(head_links), None)
    free = np.isfinite(as_matrix(scores)).sum(axis=1) > 1
    free_links = [link for link in head_links if free[link.query]][:1]
    for layer in [] if free_links else document.layers:
        for head in layer.heads:
            if head.weights is not UNSET and free.any():
                free_links.append(
                    HeadLink(*largest_weight(head.weights, free), layer.layer, head.head)
                )
    return max(free_links, key=lambda link: link.weight, default=head_links[0])


def largest_weight(weights: Numbers, free: Bools) -> tuple[int, int, float]:
    """Query, key and weight of a head's largest weight; weights: [query, key]; free: booleans
    [query], the only rows that count."""
    free_weights = np.where(free[:, None], np.nan_to_num(as_matrix(weights)), 0.0)
    query, key = np.unravel_index(int(free_weights.argmax()), free_weights.shape)
    return int(query), int(key), float(free_weights.max())


def _heads(document: RunDocument) -> list[RunHead]:
    """The heads whose weights the document holds."""
    return [head for layer in document.layers for head in layer.heads if head.weights is not UNSET]


def _shares_from_query(
    document: RunDocument, query: int, head_links: Sequence[HeadLink]
) -> list[float | None]:
    """What each key gets from the query: the weights of the only head, or the strongest link to it
    of any head.
    """
    count = len(document.tokens)
    head_rows = [
        rows[0, :count]
        for rows in (as_matrix(head.weights) for head in _heads(document))
        if len(rows)
    ]
    if len(head_rows) == 1:
        return [
            float(value) for value in np.where(_rest(document), 0.0, np.nan_to_num(head_rows[0]))
        ]
    rest = _rest(document)
    query_links = [
        link
        for link in head_links
        if link.query == query and (link.key >= count or not rest[link.key])
    ]
    return _largest_shares(query_links, count)


def _received_shares(document: RunDocument, head_links: Sequence[HeadLink]) -> list[float | None]:
    """How much attention each key receives: its part of the weight that is not on keys where heads
    rest, in the head where that is largest, less an even share, and scaled so that the largest is
    1. Rows that see a single key do not count where there are others."""
    count = len(document.tokens)
    heads = [np.nan_to_num(as_matrix(head.weights))[:, :count] for head in _heads(document)]
    if not heads:
        return _largest_shares(head_links, count)
    rest = _rest(document)
    mean_weights = []
    for weights in heads:
        # a row that sees one key gives it all of its weight, whatever the head does
        choosing = (weights > 0).sum(axis=1) > 1
        rows = np.where(rest, 0.0, weights[choosing] if choosing.any() else weights)
        mean_weights.append(rows.mean(axis=0) / max(rows.sum(axis=1).mean(), TINY))
    shares = np.where(rest, 0.0, np.max(mean_weights, axis=0) - 1 / max(count - rest.sum(), 1))
    greatest = float(shares.max(initial=0.0))
    return [float(value) / greatest if greatest > 0 else 0.0 for value in shares]


def _largest_shares(head_links: Sequence[HeadLink], count: int) -> list[float | None]:
    """The weight of the strongest link to each of `count` keys, 0 without one. head_links:
    strongest first.
    """
    shares: list[float | None] = [0.0] * count
    for link in reversed(head_links):
        if link.key < count:
            shares[link.key] = link.weight
    return shares


def _query_sentences(
    document: RunDocument, query: int, head_links: Sequence[HeadLink], view: View
) -> list[str]:
    """What the query looks at most, what that leaves out, and how much of its weight rests."""
    several = (
        len({(link.layer, link.head) for link in head_links}) > 1
        or len(document.overview or ()) > 1
    )
    rest = _rest(document)
    query_links = [
        link
        for link in head_links
        if link.query == query and (link.key >= rest.size or not rest[link.key])
    ]
    query_text = quoted_token(
        document.tokens, query, view, beside=[link.key for link in query_links[:2]]
    )
    if any(row.query == query for row in document.empty_rows) and not query_links:
        template = message("{query} can see no word: its weights and its output are 0.")
        return [say(view, template, query=query_text)]
    kinds = document.links_leave_out or ()
    answer_sentences: list[str] = []
    if document.every_link_counts:
        answer_sentences.append(_narrow_view_sentence(document, query, view))
        kinds = [*rest_kinds(document.tokens), "self"] if rest.any() else ["self"]
        query_links = [link for link in query_links if link.key != query]
    if not query_links:
        if not _sees_itself_alone(document, query):
            answer_sentences += _resting_sentences(document, query, None, view)
        if document.every_link_counts and not rest[query]:
            answer_sentences += _back_sentences(document, query_text, view)
        return answer_sentences
    first = query_links[0]
    visible_count = _visible_keys(document, query)
    if first.weight < EVEN / max(visible_count, 1) and not rest.any():
        weight = format_number(first.weight, view)
        even = format_number(1 / visible_count, view)
        template = message(
            "{query} spreads its weight almost evenly: no word gets more than {weight}, and an even"
            " share is {even}."
        )
        return [say(view, template, query=query_text, weight=weight, even=even)]
    further = (
        link
        for link in query_links
        if link.key != first.key and link.weight >= SECOND * first.weight
    )
    second = next(further, None)
    answer_sentences.append(_looks_sentence(document, query_text, first, second, several, view))
    answer_sentences.append(not_counted(kinds, document.tokens, view))
    if several:
        answer_sentences += _resting_sentences(document, query, first, view)
    if document.every_link_counts:
        answer_sentences += _back_sentences(document, query_text, view)
    return answer_sentences


def _sees_itself_alone(document: RunDocument, query: int) -> bool:
    """Whether a query has weight on nothing but itself, over all heads."""
    if document.average is UNSET:
        return False
    return np.flatnonzero(np.nan_to_num(np.asarray(document.average)) > 0).tolist() == [query]


def _narrow_view_sentence(document: RunDocument, query: int, view: View) -> str:
    """Why a query has no links but those that are left out otherwise: what it sees."""
    query_text = quoted_token(document.tokens, query, view)
    if document.tokens[query].special:
        return say(
            view, "{query} is a special token: all of its links count here.", query=query_text
        )
    average = np.zeros(0) if document.average is UNSET else np.asarray(document.average)
    keys = [key for key in np.flatnonzero(average > 0).tolist() if key != query]
    names = [quoted_token(document.tokens, key, view, beside=(query,)) for key in keys]
    is_causal = bool(keys) and max(keys) < query
    if not keys:
        template = message(
            "{query} sees nothing but itself: all of its weight is there, whatever a head does."
        )
    elif is_causal and len(keys) <= FEW_KEYS:
        template = message(
            "{query} is token {place} of {count} and sees only {keys} and itself, as the model reads"
            " from left to right: all of its links count here."
        )
    elif any(document.tokens[key].unknown for key in keys):
        template = message(
            "{query} sees nothing but words that the model does not know, special tokens,"
            " separators, the first token, its neighbours and itself: all of its links count here."
        )
    else:
        template = message(
            "{query} sees nothing but special tokens, separators, the first token, its neighbours"
            " and itself: all of its links count here."
        )
    return say(
        view,
        template,
        query=query_text,
        place=query + 1,
        count=len(document.tokens),
        keys=listing(names),
    )


def _back_sentences(document: RunDocument, query_text: str, view: View) -> Iterator[str]:
    """Which token looks back at the query most, if any does."""
    back = document.strongest_back
    if not back:
        return
    yield say(
        view,
        "What looks back at it: {key} with {share} of its weight, in layer {layer} head {head}.",
        query=query_text,
        key=claim_link(quoted_token(document.tokens, back.query, view), back, view),
        share=percent(back.weight),
        layer=back.layer,
        head=back.head,
    )


def _resting_sentences(
    document: RunDocument, query: int, first: HeadLink | None, view: View
) -> Iterator[str]:
    """How much of the query's weight is where heads rest, on average over all heads, and which
    other key has most; without rest, the key with the largest share. first: the link that is named
    already."""
    if document.average is UNSET:
        return
    count = len(document.tokens)
    average = np.nan_to_num(np.asarray(document.average))[:count]
    rest = _rest(document)
    beyond = np.where(rest | (np.arange(count) == query), 0.0, average)
    top = int(beyond.argmax())
    places = {
        "key": quoted_token(document.tokens, top, view, beside=(query,)),
        "weight": format_number(beyond[top], view),
    }
    is_news = (first is None or top != first.key) and not document.tokens[top].unknown
    if (
        average[rest].sum() < SMALLEST_SHARE
    ):  # nothing rests, or a window ends before the first token
        if is_news:
            template = message(
                "Over all heads {key} has the largest share of its weight ({weight})."
            )
            yield say(view, template, **places)
        return
    places |= {
        "share": percent(float(average[rest].sum())),
        "rest": rest_names(document.tokens),
    }
    if is_news and beyond[top] > 0:
        yield say(
            view,
            "Over all heads {share} of its weight rests on {rest}; of the other keys {key} has most"
            " ({weight}).",
            **places,
        )
    else:
        yield say(view, "Over all heads {share} of its weight rests on {rest}.", **places)


def _looks_sentence(
    document: RunDocument,
    query_text: str,
    first: HeadLink,
    second: HeadLink | None,
    several: bool,
    view: View,
) -> str:
    """A sentence that says at which key a query looks most, and at which second. several: whether
    it names their heads. A neighbour that is left out and gets more is named beside them."""
    links = [link for link in (first, second) if link is not None]
    beside = (first.query, *(link.key for link in links))
    keys = [
        claim_link(quoted_token(document.tokens, link.key, view, beside=beside), link, view)
        for link in links
    ]
    if not several:
        shares = [link.weight for link in links]
        return looks_most_sentence(query_text, list(zip(keys, shares, strict=True)), view)
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
        name = quoted_token(document.tokens, neighbour.key, view, beside=beside)
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


def looks_most_sentence(query: str, keys: Sequence[tuple[str, float]], view: View) -> str:
    """A sentence that says at which key the query looks most in one head, and at which second.
    keys: one or two, each with its weight."""
    (key, share), *others = keys
    places = {"query": query, "key": key, "share": percent(share)}
    if not others:
        return say(view, "{query} looks most at {key}: {share} of its weight.", **places)
    (second_key, second_share), *_ = others
    places |= {"second_key": second_key, "second_share": percent(second_share)}
    return say(
        view,
        "{query} looks most at {key} ({share} of its weight), then at {second_key}"
        " ({second_share}).",
        **places,
    )


def strongest_link_sentence(
    link: PlacedLink, ends: Sequence[str], view: View, *, several: bool
) -> str:
    """A sentence that names the strongest link. ends: its query and its key, quoted. several:
    whether it names the head."""
    if several:
        template = message(
            "The strongest link: {query} looks at {key} with {share} of its weight, in layer"
            " {layer} head {head}."
        )
    else:
        template = message("The strongest link: {query} looks at {key} with {share} of its weight.")
    query, key = ends
    key = claim_link(key, link, view)
    return say(
        view,
        template,
        query=query,
        key=key,
        share=percent(link.weight),
        layer=link.layer,
        head=link.head,
    )


def _visible_keys(document: RunDocument, query: int) -> int:
    """How many keys the query sees, by the scores of the first head that has some; all keys without
    scores.
    """
    rows = list(document.queries or range(len(document.tokens)))
    scores = next((head.scores for head in _heads(document) if head.scores is not UNSET), None)
    if scores is None or query not in rows:
        return len(document.tokens)
    return int(np.isfinite(as_matrix(scores)[rows.index(query)]).sum())


def not_learned_note(model: ModelPart, view: View) -> str:
    """The sentence that the weights are not learned, for a model whose weights are drawn from a
    seed; else "".
    """
    notes = {
        "seeded": message(
            "The weights are seeded ({seed}), not learned: the arithmetic is real, the pattern"
            " means nothing."
        ),
        "random": message(
            "The weights are drawn at random (seed {seed}), not learned: the arithmetic is real, "
            "the pattern means nothing."
        ),
    }
    if model.source in notes:
        return say(view, notes[model.source], seed=model.seed)
    return ""


def format_number(value: float, view: View) -> str:
    """A number with the view's digits."""
    return f"{value:.{view.precision}f}"


def left_out_names(document: RunDocument | CompareDocument) -> Message | None:
    """The kinds of links that a document's lists leave out, such as "special tokens, self", in
    words; None if none are."""
    names: Sequence[str] = document.links_leave_out or ()
    words = {
        "special": message("special tokens"),
        "self": message("self"),
        "neighbours": message("neighbours"),
        "first": message("the first token"),
        "unknown": message("unknown words"),
        "separators": message("line breaks and separators"),
    }
    if names:
        return listing(words[name] for name in names)
    return None


def left_out_note(document: RunDocument | CompareDocument) -> str:
    """A note with the kinds of links that a document's lists leave out, and the option that leaves
    none out; "" if none are."""
    names = left_out_names(document)
    if names:
        return message("left out: {names} (--all-links)", names=names)
    return ""
