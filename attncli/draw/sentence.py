"""The sentence, each word tinted by how much it is looked at, and what that says in one or two
sentences.

Each sentence has its rule; none says more than the numbers of the document hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from msgspec import Struct, UnsetType
from msgspec.structs import replace

from attncli.draw.lines import FAINT, Line, Lines, Piece, fit_to_view, remark, stack
from attncli.draw.numbers import LEAST_SHARE, percent, softmax_percent
from attncli.draw.safe import cells, cut, label, safe, spell
from attncli.draw.shaded_matrix import as_matrix, tint
from attncli.draw.tables import PlacedLink
from attncli.draw.token_names import MARK, claim_link, rest_names
from attncli.draw.view import View
from attncli.language import Message, listing, message, say

if TYPE_CHECKING:
    from attncli.documents import ModelPart, Numbers, TokenRow
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
    """One word of a sentence.

    text: as it is to be read, with its blanks gone.
    apart: whether a blank precedes it.
    share: what is looked at it, 0 to 1, None if unknown.
    is_chosen: whether it is the one that looks.
    quiet: a token that is not part of the text, such as [CLS].
    is_joined: whether it stands for the same character as the word before.
    leads: whether it is a blank that a vocabulary puts before the next word, and that stands in no
        text.
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
    have positions in it.

    text: None where only the tokens are known.
    shares: what is looked at each token, 0 to 1; None where that is not known.
    chosen_indices: the positions of the tokens that look.
    """
    # `apart`, `is_joined` and `leads` are explained at `Word`
    words_of_text: list[Word] = []
    end = 0  # of the part of the text that the tokens so far cover
    has_blank_before = True  # whether the next word stands apart whatever its position
    for token, share in zip(tokens, shares, strict=True):
        start = token.start
        stop = token.end
        word_text = token.text.strip() or token.text  # a token of blanks stays as it is
        apart = True
        is_joined = False
        if (
            text is not None
            and start is not None
            and stop is not None
            and start < stop
            and not token.special
        ):
            # a token inside what is covered already is a further byte of the same character, but
            # behind a special token, say, it begins anew
            is_joined = start < end and stop <= end and not has_blank_before
            if end <= start:  # it covers new letters alone, which are told as in the text
                word_text = text[start:stop].strip() or text[start:stop]
                apart = has_blank_before or start > end or text[start].isspace()
                end = stop
                # a full stop and the line break behind it may be one token
                has_blank_before = bool(text[start:stop].strip()) and text[stop - 1].isspace()
            elif not is_joined:  # it overlaps the tokens before in some other way
                has_blank_before = True
        else:
            has_blank_before = True
        if token.unknown:
            word_text = word_text.removesuffix(MARK) + MARK
        words_of_text.append(
            Word(
                word_text or '""',  # an empty token is shown all the same
                share,
                is_chosen=token.index in chosen_indices,
                apart=apart,
                quiet=bool(token.special),
                is_joined=is_joined,
                leads=start is not None and start == stop and not word_text.strip(),
            )
        )
    return words_of_text


def _larger_share(a: Word, b: Word) -> float | None:
    """The larger share of two words, None where neither has one."""
    return max((value for value in (a.share, b.share) if value is not None), default=None)


def _merge_words(words: Sequence[Word]) -> list[Word]:
    """The words as they are read. Tokens that are bytes of one character become one word, and a
    blank that stands in no text joins the word that follows; the larger share counts. A blank without
    a share, or with one below `LEAST`, becomes a gap between words."""
    whole_words: list[Word] = []
    gap = False  # whether a blank was left out before the next word
    lead: Word | None = None  # a blank to join with the next word
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
        # it joins no token such as [SEP], which is not of the text
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
    before = -1  # the place of the word shown before
    gap_mark = spell(" … ", ascii=view.ascii)
    places = _places_to_show(words, view)
    chosen = frozenset(place for place in places if words[place].is_chosen)
    for place in places:
        # the word, with brackets around a run of chosen ones, and … where words are left out
        word = words[place]
        has_gap = place != before + 1
        opens = place in chosen and (has_gap or place - 1 not in chosen)
        closes = place in chosen and place + 1 not in chosen
        pieces = _word_pieces(word, view, opens=opens, closes=closes)
        if has_gap:
            if before < 0:
                pieces.insert(0, (gap_mark.lstrip(" "), FAINT))
            else:
                pieces.insert(0, (gap_mark, FAINT))
        before = place

        # onto this line, with a blank before it where it stands apart, or onto the next one
        gap = 0
        if row and word.apart and not has_gap:
            gap = 1
        size = sum(cells(text) for text, _ in pieces)
        if row and row_width + gap + size > view.width:
            rows.append(tuple(row))
            row = []
            row_width = 0
            gap = 0
        if gap:
            row.append((" ", ""))
        row += pieces
        row_width += gap + size

    # … at the end, too, where the last words are left out
    if places and before + 1 < len(words):
        end_mark = gap_mark.rstrip(" ")
        if row_width + cells(end_mark) <= view.width:
            row.append((end_mark, FAINT))
        else:
            rows.append(tuple(row))
            row = [(end_mark.lstrip(" "), FAINT)]
    if row:
        rows.append(tuple(row))
    return fit_to_view(Lines(tuple(rows)), view)


def _places_to_show(words: Sequence[Word], view: View) -> list[int]:
    """The indices of the words to show: all of a short text or in a full view, else those around the
    chosen words and the ones with the largest shares.
    """
    if view.full or len(words) <= WINDOW:
        return list(range(len(words)))
    # chosen words first, then the others from the largest share down
    order = sorted(
        range(len(words)),
        key=lambda place: (not words[place].is_chosen, -(words[place].share or 0.0), place),
    )
    # each with its neighbours, up to half a window: a text that is shortened is then much shorter
    places: set[int] = set()
    for place in order:
        near = set(range(max(place - AROUND, 0), min(place + AROUND + 1, len(words))))
        if len(places | near) > WINDOW // 2:
            break
        places |= near
    return sorted(places)


def _word_pieces(word: Word, view: View, *, opens: bool, closes: bool) -> list[Piece]:
    """A word as styled pieces of text; a chosen one in bold.

    opens, closes: whether it begins or ends a run of chosen words, and so gets a bracket.
    """
    # no wider than a line, with 4 cells for brackets and marks on both sides
    text = cut(safe(word.text, ascii=view.ascii), max(view.width - 4, 1), ascii=view.ascii)
    if not word.is_chosen:
        return [_tint_word(text, word.share, view, FAINT if word.quiet else "")]
    pieces = [_tint_word(text, word.share, view, "bold")]
    if opens:
        pieces.insert(0, ("[", "bold"))
    if closes:
        pieces.append(("]", "bold"))
    return pieces


def _tint_word(text: str, share: float | None, view: View, style: str) -> Piece:
    """A word in the tint of its share, added to its own style; where there is no colour, between two
    of `MARKS`. As it is for a share below `LEAST`.
    """
    if share is None or share < LEAST:
        return text, style
    if view.color:  # a tint has its own colour of letters, in place of the faint one
        return text, f"{style.replace(FAINT, '')} {tint(share, view)}".strip()
    marks = MARKS_ASCII if view.ascii else MARKS
    # a mark for each quarter of 1; a saved document may hold a share beyond all bounds
    mark = marks[min(int(min(share, 1.0) * 4), 3)]
    return f"{mark}{text}{mark}", style


def scale(view: View) -> Lines:
    """The legend of a tinted sentence: its tints, or its `MARKS` where there is no colour, between
    the smallest share that is tinted and 1."""
    if view.color:
        tints = [tint(step, view) for step in (0.25, 0.5, 0.75, 1.0)]
        ramp: list[Piece] = [("  ", style) for style in ("", *tints)]  # the first is no tint
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
    """The text's words, tinted by their shares, the queries in brackets, and below them a sentence
    on what the tint means.

    shares: 0 to 1, one a token; those past the tokens (learned keys) are left out, and tokens
        without one stay untinted. None where there are none.
    query: the index of the query, or of several; None for none.
    tint: the sentence, written only where a word is tinted.
    """
    token_shares: list[float] = []
    if shares is not None:  # NaN stands for a key that the mask hides
        token_shares = np.nan_to_num(list(shares)).tolist()[: len(tokens)]
    all_shares = [*token_shares, *[None] * (len(tokens) - len(token_shares))]
    if query is None:
        chosen_indices: frozenset[int] = frozenset()
    elif isinstance(query, int):
        chosen_indices = frozenset({query})
    else:
        chosen_indices = frozenset(query)
    tint_note = ""
    if any(share >= LEAST for share in token_shares):
        tint_note = say(view, tint)
    sentence_words = words(text, tokens, all_shares, chosen_indices)
    return stack(sentence(sentence_words, view), remark(tint_note, view))


SMALLEST_SHARE = 0.005
"""A share below this is written as 0%."""
SECOND = 0.5
"""A second key is named where its weight is at least this share of the first one's."""
EVEN = 1.5
"""A row whose largest weight is below this many even shares (1 / visible keys) may be called even."""
EVEN_MARGIN = 0.1
"""How far above an even share its largest weight may be: of two keys with 0.70 and 0.30 the first is
chosen, though 0.70 is less than 1.5 times 0.50."""


def is_nearly_even(largest: float, count: int) -> bool:
    """Whether a row of weights over `count` visible keys is spread almost evenly, by its largest
    weight; never with a single key, which leaves nothing to spread."""
    if count < 2:
        return False
    share = 1 / count
    return largest < EVEN * share and largest - share < EVEN_MARGIN


def largest_weight(weights: Numbers, free: Bools) -> tuple[int, int, float]:
    """The query, the key and the value of a head's largest weight.

    weights: [query, key], NaN where masked.
    free: [query], whether the row counts: one that sees a single key has no choice.
    """
    free_weights = np.where(free[:, None], np.nan_to_num(as_matrix(weights)), 0.0)
    query, key = np.unravel_index(int(free_weights.argmax()), free_weights.shape)
    return int(query), int(key), float(free_weights.max())


def looks_most_sentence(
    query: str, keys: Sequence[tuple[str, float]], view: View, *, itself: bool = False
) -> str:
    """A sentence that says at which key the query looks most in one head, and at which second.

    keys: one or two, each with its weight; the largest weight first.
    itself: whether the one key is the query's own, which is then called itself; of two, both are
        named.
    """
    key, share = keys[0]
    if len(keys) == 1:
        template = message("{query} looks most at {key}: {share} of its weight.")
        if itself:
            template = message("{query} looks most at itself: {share} of its weight.")
        return say(view, template, query=query, key=key, share=percent(share))
    second_key, second_share = keys[1]
    return say(
        view,
        "{query} looks most at {key} ({share} of its weight), then at {second_key}"
        " ({second_share}).",
        query=query,
        key=key,
        share=percent(share),
        second_key=second_key,
        second_share=percent(second_share),
    )


SAME = 1e-5
"""By what part of it two weights may differ and count as the same: float32 rounds."""
WHOLE = 1 - 1e-6
"""A weight from here on is all of its row but for rounding."""
MOST_ALIKE = 4
"""Keys of the same weight that are told by name."""


def same_weights(weights: Sequence[float] | Numbers, largest: float) -> list[int]:
    """The indices of the weights that equal the largest one but for rounding.

    largest: that weight, above 0.
    """
    return np.flatnonzero(np.isclose(weights, largest, rtol=SAME, atol=0)).tolist()


def alike_sentence(query: str, keys: Sequence[str], weight: float, view: View) -> str:
    """A sentence that says that several keys get the same, the largest weight of a query.

    keys: their names in quotes; where there are more than four, only their number is said.
    """
    template = message("{query} looks most at {keys} alike: {share} of its weight each.")
    if len(keys) > MOST_ALIKE:
        template = message("{query} looks most at {count} keys alike: {share} of its weight each.")
    names = listing(keys[:MOST_ALIKE])
    return say(view, template, query=query, keys=names, count=len(keys), share=percent(weight))


def strongest_link_sentence(
    link: PlacedLink,
    ends: Sequence[str],
    view: View,
    *,
    several: bool,
    others: Sequence[PlacedLink] = (),
) -> str:
    """A sentence that names the strongest link.

    ends: its query and its key, quoted.
    several: whether there are several heads, so that the sentence names the link's.
    others: links, this one among them; where one more is as strong, the sentence says so.
    """
    if len(same_weights([candidate.weight for candidate in others], link.weight)) > 1:
        template = message(
            "Several links share the largest weight; one of them: {query} looks at {key} with"
            " {share} of its weight."
        )
        if several:
            template = message(
                "Several links share the largest weight; one of them: {query} looks at {key} with"
                " {share} of its weight, in layer {layer} head {head}."
            )
    elif several:
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


MOST_OF_IT = 0.5
"""More than this share of a head's weight where heads rest: the head is said to rest."""


def resting_head_sentence(share: float, tokens: Sequence[TokenRow], view: View) -> str:
    """The sentence that a head rests; "" where it does not.

    share: of its weight, on keys where heads rest (put weight when they look for nothing).
    """
    if share <= MOST_OF_IT:
        return ""
    return say(
        view,
        "The head rests: {share} of its weight is on {rest}.",
        share=softmax_percent(share, 2),
        rest=rest_names(tokens),
    )


def no_link_sentence(view: View) -> str:
    """The sentence in place of the strongest link where that has next to no weight."""
    return say(
        view,
        "No link that counts has as much as {least} of a word's weight.",
        least=percent(LEAST_SHARE),
    )


def not_learned_note(model: ModelPart, view: View) -> str:
    """The sentence that the weights are not learned, for a model whose weights are drawn from a
    seed; "" for any other.
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
    """A number with as many digits after the point as the view has."""
    return f"{value:.{view.precision}f}"


class LinkList(Protocol):
    """A document that lists links, without those of some kinds."""

    @property
    def links_leave_out(self) -> Sequence[str] | UnsetType:
        """The kinds that are left out."""


def left_out_names(document: LinkList) -> Message | None:
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


def left_out_note(document: LinkList) -> str:
    """A note with the kinds of links that a document's lists leave out, and the option that leaves
    none out; "" if none are."""
    names = left_out_names(document)
    if names:
        return message("left out: {names} (--all-links)", names=names)
    return ""
