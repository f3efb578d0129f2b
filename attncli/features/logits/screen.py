"""The screen of `attn.logits/1`: what each part adds to a token's logit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET

from attncli.draw.headings import sentences
from attncli.draw.lines import Lines, stack
from attncli.draw.numbers import writer
from attncli.draw.plot import bar
from attncli.draw.safe import cells
from attncli.draw.screen_header import header, shown_tokens
from attncli.draw.sentence import shaded_sentence
from attncli.draw.sentence_answer import not_learned_note
from attncli.draw.text_tables import GAP, table
from attncli.draw.token_names import quoted_word
from attncli.draw.view import PARTS_OF, View
from attncli.features.effects.effect_answer import capitalize, draw_parts, grids, head_phrase
from attncli.language import say

if TYPE_CHECKING:
    from attncli.features.logits.document import LogitPart, LogitsDocument


PARTS = PARTS_OF["logits"]
"""Every part, in the order of the screen."""
LONGEST, SHORTEST = 24, 4
"""Cells of the longest and shortest bar."""


def logits_screen(document: LogitsDocument, view: View) -> Lines:
    """The whole screen of an `attn.logits/1` document: the `view.top` parts that add or take away most."""
    draw_by_part = dict(zip(PARTS, (header, shown_tokens, _grid, _parts, logits_answer), strict=True))
    return draw_parts(draw_by_part, document, view, hidden=("tokens",))


def logits_rows(document: LogitsDocument) -> Iterator[Sequence[object]]:
    """All parts as a table for `--plain`, its first row the names of the columns."""
    yield ("part", "attention", "layer", "head", "value")
    for part in document.parts:
        yield (part.part, part.attention, part.layer, part.head, part.value)


def _grid(document: LogitsDocument, view: View) -> Lines:
    heads = [part for part in document.parts if part.part == "head"]
    values = {
        kind: [
            (part.layer, part.head, part.value)
            for part in heads
            if part.attention == kind and part.layer is not None and part.head is not None
        ]
        for kind in ("self", "cross")
    }
    return grids(values, view, _title(document, view), signed=True)


def _title(document: LogitsDocument, view: View) -> str:
    names = [quoted_word(document.target.text, view), quoted_word(document.tokens[document.position].text, view)]
    if document.versus is None:
        return say(view, "logits.title", *names)
    return say(view, "logits.title.versus", *names, quoted_word(document.versus.text, view))


def _parts(document: LogitsDocument, view: View) -> Lines:
    """The parts that add or take away most, the rest as one, and their sum: the column adds up."""
    parts = sorted(document.parts, key=lambda part: -abs(part.value))
    parts_shown = parts if view.full else parts[: view.top]
    rest = parts[len(parts_shown) :]
    rows = [(_name(part, view), part.value) for part in parts_shown]
    if rest:
        rows.append((say(view, "logits.rest", len(rest)), sum(part.value for part in rest)))
    write = writer([value for _, value in rows], max(view.precision, 2))
    largest = max((abs(part.value) for part in parts_shown), default=0.0)
    names = [name for name, _ in rows] + [say(view, "logits.sum")]
    numbers = [write(value) for _, value in rows] + [write(document.sum)]
    room = view.width - max(map(cells, names)) - max(map(cells, numbers)) - 2 * GAP
    length = min(max(room, SHORTEST), LONGEST)
    bars = [bar(abs(part.value) / largest if largest else 0.0, length, ascii=view.ascii) for part in parts_shown]
    bars += [""] * (len(numbers) - len(bars))
    return table(
        [say(view, "logits.part"), say(view, "logits.value"), ""],
        [list(row) for row in zip(names, numbers, bars, strict=True)],
        view,
        align=["left", "right", "left"],
        title=_title(document, view),
        bars=2,
        strong=len(rows),
    )


def _name(part: LogitPart, view: View) -> str:
    match part.part:
        case "head":
            return say(view, "logits.head.cross" if part.attention == "cross" else "logits.head", part.layer, part.head)
        case "mlp":
            return say(view, "logits.mlp", part.layer)
        case "bias":
            return say(view, "logits.bias.last") if part.layer is None else say(view, "logits.bias", part.layer)
        case _:
            return say(view, "logits.embedding")


def logit_sentences(document: LogitsDocument, view: View) -> list[str]:
    """The sentences: the head that adds most, the one that takes away most, and the sum."""
    heads = sorted((part for part in document.parts if part.part == "head"), key=lambda part: -part.value)
    target = quoted_word(document.target.text, view)
    answer_sentences = []
    if heads and heads[0].value > 0:
        values = (target, f"{heads[0].value:+.2f}", f"{document.logit:.2f}")
        answer_sentences.append(say(view, "logits.answer", head_phrase(heads[0], view), *values))
    if heads and heads[-1].value < 0:
        name, whom = ("logits.answer.against", ()) if answer_sentences else ("logits.answer.against.alone", (target,))
        answer_sentences.append(say(view, name, head_phrase(heads[-1], view), f"{heads[-1].value:+.2f}", *whom))
    sums = [
        sum(part.value for part in document.parts if part.part in kinds)
        for kinds in (("head",), ("mlp",), ("embedding", "bias"))
    ]
    answer_sentences.append(
        say(view, "logits.answer.sum", *(f"{value:+.2f}" for value in sums), f"{document.logit:.2f}")
    )
    return [capitalize(text) for text in (*answer_sentences, say(view, "logits.frozen"))]


def logits_answer(document: LogitsDocument, view: View) -> Lines:
    """The sentence, tinted by what the token after which it is measured looks at most in the head that adds most, and
    what the numbers say."""
    shares = [0.0] * len(document.tokens)
    first = max((part for part in document.parts if part.part == "head"), key=lambda part: part.value, default=None)
    if first is not None and first.looks is not UNSET and first.attention == "self" and first.value > 0:
        shares[first.looks.key] = first.looks.weight
    head = () if first is None else (head_phrase(first, view),)
    tinted_sentence = shaded_sentence(
        document.text, document.tokens, shares, view, query=document.position, tint="answer.tint.head", values=head
    )
    answer_sentences = (*logit_sentences(document, view), not_learned_note(document.model, view))
    return stack((tinted_sentence, sentences(answer_sentences, view)))
