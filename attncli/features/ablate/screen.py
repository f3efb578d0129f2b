"""The screen of `attn.ablate/1`: what changes when a head is taken away, the largest change first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET

from attncli.draw.lines import Lines, stack
from attncli.draw.plot import bar
from attncli.draw.safe import cells, label, spell
from attncli.draw.screen_header import header, shown_tokens
from attncli.draw.text_tables import GAP, table
from attncli.draw.token_names import short
from attncli.draw.view import PARTS_OF, View
from attncli.features.ablate.document import reading_of
from attncli.features.effects.document import readings_of
from attncli.features.effects.effect_answer import (
    ablate_answer,
    draw_parts,
    grid,
    more_heads_note,
    short_name,
    size,
    subject,
    table_number,
)
from attncli.language import say

if TYPE_CHECKING:
    from attncli.features.ablate.document import AblateDocument, EffectRow


PARTS = PARTS_OF["ablate"]
"""Every part, in the order of the screen."""
LONGEST, SHORTEST, NAME = 20, 4, 12
"""Cells of the longest and shortest bar, and of the text of a key."""


def ablate_screen(document: AblateDocument, view: View) -> Lines:
    """The whole screen of an `attn.ablate/1` document: `view.top` heads."""
    draw_by_part = dict(zip(PARTS, (header, shown_tokens, effect_grid, _heads, ablate_answer), strict=True))
    return draw_parts(draw_by_part, document, view, hidden=("tokens",))


def ablate_rows(document: AblateDocument) -> Iterator[Sequence[object]]:
    """All heads as a table for `--plain`, its first row the names of the columns; the last row is all at once."""
    names = readings_of(document.measures)
    yield (
        "attention",
        "layer",
        "head",
        *names,
        *(f"random_{name}" for name in names),
        "weight",
        "looks_at",
        "looks_weight",
    )
    for effect in document.effects:
        looks = effect.looks
        yield (
            effect.attention, effect.layer, effect.head, *(reading_of(effect, name) for name in names),
            *(None if effect.random is None else reading_of(effect.random, name) for name in names), effect.weight,
            None if looks is None else looks.key, None if looks is None else looks.weight,
        )  # fmt: skip
    together = (reading_of(document.together, name) for name in names)
    yield ("together", None, None, *together, *(None for _ in names), None, None, None)


def effect_grid(document: AblateDocument, view: View) -> Lines:
    """The first measure of every layer and head; nothing for one layer, or where not all heads are there."""
    signed = document.measures[0] == "logprob"
    first = f"effect.grid.{document.measures[0]}"
    has_self_attention = any(effect.attention == "self" for effect in document.effects)
    titles = {"self": first, "cross": "effect.grid.cross" if has_self_attention else first}
    return stack(
        grid(
            [
                (effect.layer, effect.head, size(effect, document))
                for effect in document.effects
                if effect.attention == kind
            ],
            view,
            say(view, title),
            signed=signed,
        )
        for kind, title in titles.items()
    )


def _heads(document: AblateDocument, view: View) -> Lines:
    effects = document.effects
    if not effects:
        return Lines()
    effects_shown = effects if view.full else effects[: view.top]
    sizes = [abs(size(effect, document) or 0.0) for effect in effects_shown]
    largest = max(sizes, default=0.0)
    numbers: dict[str, list[str]] = {
        say(view, "effect.column.head"): [short_name(effect) for effect in effects_shown],
        say(view, f"effect.column.{document.measures[0]}"): [
            table_number(size(effect, document)) for effect in effects_shown
        ],
        "": [""] * len(effects_shown),
        say(view, "effect.column.random"): [
            "-" if effect.random is None else table_number(size(effect.random, document)) for effect in effects_shown
        ],
    }
    further_measures = list(document.measures[1:])
    for name in further_measures:
        numbers[say(view, f"effect.column.{name}")] = [
            table_number(reading_of(effect, readings_of([name])[0])) for effect in effects_shown
        ]
    if document.link is not None:
        numbers[say(view, "effect.column.weight")] = [f"{effect.weight:.2f}" for effect in effects_shown]
    elif any(effect.looks is not None for effect in effects_shown):
        numbers[say(view, "effect.column.looks")] = [_looks(document, effect, view) for effect in effects_shown]
    room = view.width - sum(max(map(cells, (name, *column))) + GAP for name, column in numbers.items())
    length = min(max(room, SHORTEST), LONGEST)
    numbers[""] = [bar(effect_size / largest if largest else 0.0, length, ascii=view.ascii) for effect_size in sizes]
    right = {say(view, f"effect.column.{name}") for name in ("random", "weight", *document.measures)}
    body = table(
        list(numbers),
        [list(row) for row in zip(*numbers.values(), strict=True)],
        view,
        align=["right" if name in right else "left" for name in numbers],
        title=_title(document, view),
        bars=2,
    )
    return stack((body, more_heads_note(effects, effects_shown, view)))


def _title(document: AblateDocument, view: View) -> str:
    if document.link is None:
        return say(view, f"effect.title.{document.by}", subject(document, view))
    link = document.link
    ends = [_place_words(document, link.query, view)]
    if link.attention != "cross":
        ends.append(_place_words(document, link.key, view))
        if ends[0] == ends[1] and link.query != link.key:  # two of one word, told apart by their positions
            places = [position[0] if isinstance(position, list) else position for position in (link.query, link.key)]
            ends = [say(view, "quoted.at", name, position) for name, position in zip(ends, places, strict=True)]
    elif link.text is not UNSET:
        ends.append(label(link.text, ascii=view.ascii))
    else:
        ends.append(", ".join(f"s{key}" for key in (link.key if isinstance(link.key, list) else [link.key])))
    return say(view, "effect.title.link", *ends, subject(document, view))


def _place_words(document: AblateDocument, places: int | list[int], view: View) -> str:
    positions = [places] if isinstance(places, int) else places
    return " ".join(label(document.tokens[place].text, ascii=view.ascii) for place in positions)


def _looks(document: AblateDocument, effect: EffectRow, view: View) -> str:
    if effect.looks is None:
        return "-"
    if effect.attention == "cross":
        return f"{spell('#', ascii=view.ascii)}{effect.looks.key} {effect.looks.weight:.2f}"
    return f"{short(document.tokens[effect.looks.key].text, NAME, view)} {effect.looks.weight:.2f}"
