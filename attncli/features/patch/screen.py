"""The screen of `attn.patch/1`: which heads carry the difference between two texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from attncli.draw.headings import remark, sentences
from attncli.draw.lines import Lines, stack
from attncli.draw.numbers import percent, writer
from attncli.draw.plot import bar
from attncli.draw.safe import cells, label
from attncli.draw.screen_header import header, shown_tokens
from attncli.draw.sentence import sentence, words
from attncli.draw.sentence_answer import not_learned_note
from attncli.draw.text_tables import GAP, table
from attncli.draw.token_names import quoted_word
from attncli.draw.view import PARTS_OF, View
from attncli.features.effects.effect_answer import (
    capitalize,
    draw_parts,
    grids,
    head_phrase,
    more_heads_note,
    short_name,
)
from attncli.language import say

if TYPE_CHECKING:
    from attncli.features.patch.document import PatchDocument


PARTS = PARTS_OF["patch"]
"""Every part, in the order of the screen."""
LONGEST, SHORTEST = 30, 4
"""Cells of the longest and shortest bar."""
DIFFERS = 0.6
"""The tint of words that differ."""
DIGITS = 3
"""Digits after the point of a share."""
LITTLE = 0.1
"""A head that recovers no more than this share carries little of the difference."""


def patch_screen(document: PatchDocument, view: View) -> Lines:
    """The whole screen of an `attn.patch/1` document: `view.top` heads."""
    draw_by_part = dict(zip(PARTS, (header, shown_tokens, _grid, _heads, patch_answer), strict=True))
    return draw_parts(draw_by_part, document, view, hidden=("tokens",))


def patch_rows(document: PatchDocument) -> Iterator[Sequence[object]]:
    """All heads as a table for `--plain`, its first row the names of the columns."""
    yield ("attention", "layer", "head", "recovered")
    for effect in document.effects:
        yield (effect.attention, effect.layer, effect.head, effect.recovered)


def _grid(document: PatchDocument, view: View) -> Lines:
    effects_by_kind = {
        kind: [(row.layer, row.head, row.recovered) for row in document.effects if row.attention == kind]
        for kind in ("self", "cross")
    }
    return grids(effects_by_kind, view, say(view, "patch.grid"), signed=True)


def _heads(document: PatchDocument, view: View) -> Lines:
    effects = document.effects
    largest = sorted(range(len(effects)), key=lambda index: -abs(effects[index].recovered))
    effects_shown = [effects[index] for index in sorted(largest[: len(effects) if view.full else view.top])]
    largest_size = max((abs(effect.recovered) for effect in effects_shown), default=0.0)
    names = [short_name(effect) for effect in effects_shown]
    write = writer([effect.recovered for effect in effects_shown], DIGITS)
    values = [write(effect.recovered) for effect in effects_shown]
    room = view.width - sum(max(map(cells, column), default=0) + GAP for column in (names, [*values, "recovered"]))
    length = min(max(room, SHORTEST), LONGEST)
    bars = [
        bar(abs(effect.recovered) / largest_size if largest_size else 0.0, length, ascii=view.ascii)
        for effect in effects_shown
    ]
    body = table(
        [say(view, "effect.column.head"), say(view, "patch.column"), ""],
        [list(row) for row in zip(names, values, bars, strict=True)],
        view,
        align=["left", "right", "left"],
        title=say(view, "patch.title"),
        bars=2,
    )
    return stack((body, more_heads_note(effects, effects_shown, view)))


def patch_sentences(document: PatchDocument, view: View) -> list[str]:
    """The sentences: where it was put in and what was measured, and which head carries most."""
    names = [quoted_word(token.text, view) for token in (document.target, document.versus) if token]
    measure_phrase = say(view, f"patch.measure.{document.measure}", *names)
    is_everywhere = len(document.places) == len(document.tokens)
    place_names = say(view, "list").join(
        label(document.tokens[index].text, ascii=view.ascii) for index in document.places
    )
    answer_sentences = [say(view, "patch.at.all" if is_everywhere else "patch.at", place_names, measure_phrase)]
    if document.effects:
        first = document.effects[0]
        name = "patch.answer" if first.recovered > LITTLE else "patch.answer.little"
        ends = [f"{value:.3g}" for value in (document.m_clean, document.m_corrupt)]
        answer_sentences.append(say(view, name, head_phrase(first, view), percent(first.recovered), *ends))
        last = min(document.effects, key=lambda row: row.recovered)
        if last.recovered < -LITTLE:
            answer_sentences.append(say(view, "patch.answer.against", head_phrase(last, view), percent(last.recovered)))
    if len(document.effects) > 1:
        answer_sentences.append(say(view, "effect.sum.patch"))
    return [capitalize(text) for text in answer_sentences]


def patch_answer(document: PatchDocument, view: View) -> Lines:
    """Both sentences, tinted where their words differ, and what the numbers say."""
    query_indices = frozenset(document.query) if len(document.query) < len(document.tokens) else frozenset()
    texts = [(document.clean, document.tokens), (document.corrupt, document.corrupt_tokens)]
    differ = [
        DIFFERS if left.text != right.text else 0.0
        for left, right in zip(document.tokens, document.corrupt_tokens, strict=False)
    ]
    differ += [0.0] * (max(len(tokens) for _, tokens in texts) - len(differ))
    answer_sentences = (*patch_sentences(document, view), not_learned_note(document.model, view))
    return stack(
        (
            *(sentence(words(text, tokens, differ[: len(tokens)], query_indices), view) for text, tokens in texts),
            remark(say(view, "answer.tint.differs") if any(differ) else "", view),
            sentences(answer_sentences, view),
        )
    )
