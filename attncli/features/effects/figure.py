"""Figures of effects: what heads change, what they bring back, what they add to a logit."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from attncli.draw.figures.charts import (
    RANKED,
    bar_of,
    draw_bars,
    draw_title,
    write_shown_count,
)
from attncli.draw.figures.drawing import Drawing
from attncli.draw.figures.head_ranking import draw_grid, draw_ranking
from attncli.draw.names import link_title
from attncli.draw.page.page_words import PAGE_WORDS
from attncli.draw.safe import label
from attncli.draw.token_names import quote_text
from attncli.draw.view import View
from attncli.features.effects.document import (
    LENS_STAGES,
    AblateDocument,
    LensRow,
    LogitsDocument,
    PatchDocument,
    logit_part_name,
    reading_of,
    readings_of,
)
from attncli.language import contextual, say


def ablate_figure(document: AblateDocument, drawing: Drawing, view: View, scale: str) -> None:
    """Draw what removing each head changes in the first measure: a map of layers × heads, and the
    heads of the largest change, with a line where a random change of the same size lies."""
    name = readings_of(document.measures)[0]
    # (layer, head, change, change by a random direction), as a ranking is drawn from
    rows = [
        (
            row.layer,
            row.head,
            reading_of(row, name),
            None if row.random is None else reading_of(row.random, name),
        )
        for row in document.effects
        if row.attention == "self"
    ]
    by = _words_of("by", document.by, view)
    measure = measure_of_target(name, document, view)
    template = contextual("figure", "what changes when one head is taken away ({by}): {measure}")
    top = draw_title(drawing, document.text, say(view, template, by=by, measure=measure))
    draw_ranking(drawing, rows, top, view)


def _words_of(group: str, name: str, view: View) -> str:
    """The words in the view's language for a name that a document uses, such as a measure (group
    "measure"); the name itself where there are none."""
    words = PAGE_WORDS.get(f"{group}.{name}")
    if words is None:
        return name
    return say(view, words)


def measure_of_target(name: str, document: AblateDocument | PatchDocument, view: View) -> str:
    """The name of a measure in words, with the vocabulary entries that it is about: the target, or
    the target and the entry subtracted from it."""
    target = document.target
    if document.pairs is not UNSET or target is None:
        return _words_of("measure", name, view)
    word = quote_text(target.text, view)
    versus = document.versus
    if name in ("difference", "logit difference") and versus is not None and versus is not UNSET:
        versus_word = quote_text(versus.text, view)
        return say(
            view, "the logit of {target} less that of {versus}", target=word, versus=versus_word
        )
    if name in ("logprob", "log probability"):
        return say(view, "the log-probability of {target}", target=word)
    return _words_of("measure", name, view)


def patch_figure(document: PatchDocument, drawing: Drawing, view: View, scale: str) -> None:
    """Draw how much of the clean text's result each head restores when it is patched into the
    corrupt text: a map of layers × heads, and the largest."""
    if document.measure == "cosine":
        measure = _words_of("patch", document.measure, view)
    else:
        measure = measure_of_target(document.measure, document, view)
    subtitle = say(
        view,
        "clean into corrupt, one head at a time: what it brings back of {measure}",
        measure=measure,
    )
    top = draw_title(drawing, link_title(document.clean, document.corrupt), subtitle)
    # (layer, head, share, None: there is no random change to compare with)
    rows = [
        (row.layer, row.head, row.recovered, None)
        for row in document.effects
        if row.attention == "self"
    ]
    draw_ranking(drawing, rows, top, view)


def logits_figure(document: LogitsDocument, drawing: Drawing, view: View, scale: str) -> None:
    """Draw what each head adds to the target's logit as a map of layers × heads, then all parts of
    the model ranked by it, then the logit lens if there is one."""
    # (layer, head, what it adds, None: there is no random change to compare with)
    heads = [
        (part.layer, part.head, part.value, None)
        for part in document.parts
        if part.attention == "self" and part.layer is not None and part.head is not None
    ]
    target = quote_text(document.target_name(), view)
    versus = document.versus_name()
    if versus is not None:
        target = f"{target} − {quote_text(versus, view)}"
    subtitle = say(
        view,
        "what adds to the logit of {target} at {place}: {logit}",
        target=target,
        place=quote_text(document.tokens[document.position].text, view),
        logit=f"{document.logit:.3f}",
    )
    top = draw_title(drawing, document.text, subtitle)
    top = draw_grid(drawing, heads, top, view)
    if not drawing.shows("bars"):
        return
    parts = sorted(document.parts, key=lambda part: -abs(part.value))[:RANKED]
    counts = len(parts), len(document.parts)
    top = write_shown_count(drawing, counts, top, view, heads=False)
    bars = [bar_of(say(view, logit_part_name(part)), part.value, signed=True) for part in parts]
    top = draw_bars(drawing, bars, top + 16)  # points below the line on how many are shown
    if document.lens is not UNSET:
        _draw_lens(drawing, document.lens, quote_text(document.target.text, view), top + 22, view)


def _draw_lens(
    drawing: Drawing, rows: Sequence[LensRow], target: str, top: float, view: View
) -> None:
    """Draw the logit lens: the target's probability and rank after each part of each layer, and the
    likeliest token there.

    top: where the drawing is free, in points from above.
    """
    title = say(
        view, "what each layer would say next, and how likely {target} is there", target=target
    )
    drawing.text(0, top, title, size=9, bold=True)
    bars = []
    for row in rows:
        stage = say(view, LENS_STAGES[row.stage])
        if row.layer is None:
            name = stage
        else:
            name = say(view, "layer {layer} {stage}", layer=row.layer, stage=stage)
        if row.top:
            first = label(row.top[0].token.text)
        else:
            first = ""
        bars.append(
            bar_of(
                name, row.probability, more=say(view, "rank {rank}", rank=row.rank) + f" · {first}"
            )
        )
    draw_bars(drawing, bars, top + 8)
