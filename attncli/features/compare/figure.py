"""The figure of `attn compare`: the head that differs most, and how much every head does."""

from __future__ import annotations

from msgspec import UNSET

from attncli.draw.figures.charts import (
    RANKED,
    FigureMap,
    bar_of,
    draw_bars,
    draw_maps,
    draw_title,
    model_note,
    names_of,
    write_shown_count,
)
from attncli.draw.figures.drawing import Drawing
from attncli.draw.figures.head_maps import attention_axes
from attncli.draw.shaded_matrix import as_matrix
from attncli.draw.token_names import region_name
from attncli.draw.view import View
from attncli.features.compare.document import ComparedHead, CompareDocument
from attncli.language import say
from attncli.mechanism.spec import ARROW, spoken_head


def compare_figure(document: CompareDocument, drawing: Drawing, view: View, scale: str) -> None:
    """Draw a comparison of runs A and B: for the head that differs most the weights of either and B
    − A, then the change of each region, then the largest change of a weight in each head."""

    def size(head: ComparedHead) -> float:
        """The size of a head's largest change of a weight; 0 where no link counts."""
        if head.change:
            return abs(head.change.value)
        return 0.0

    # the title: both sides, and which head differs most
    most_changed = max(document.heads, key=size)
    names = names_of(document.a.tokens)
    words = [names[place] for place, _ in document.aligned]  # of A
    subtitle = say(
        view,
        "{head}, which differs most",
        head=say(view, spoken_head(most_changed.a.layer, most_changed.a.head)),
    )
    texts = [
        side.text if "text" in document.differs else side.name for side in (document.a, document.b)
    ]
    titles = [f"{name}: {text}" for name, text in zip("AB", texts, strict=True)]
    top = draw_title(
        drawing, f"  {ARROW}  ".join(titles), f"{subtitle}; {model_note(document.a, view)}"
    )

    # the maps of that head
    axes = attention_axes(view)
    weight = say(view, "attention weight")
    difference = FigureMap(
        "B − A",
        as_matrix(most_changed.difference),
        words,
        words,
        signed=True,
        axes=axes,
        meaning=say(view, "difference of the weights"),
    )
    maps = [
        FigureMap("A", as_matrix(most_changed.weights_a), words, words, axes=axes, meaning=weight),
        FigureMap("B", as_matrix(most_changed.weights_b), words, words, axes=axes, meaning=weight),
        difference,
    ]
    top = draw_maps(drawing, maps, top, view, scale=scale)

    # a bar for each region, and one for the tokens on which heads put weight when they look for
    # nothing; distances are in points
    if document.region_changes is not UNSET and drawing.shows("bars"):
        changes = [
            (region_name(region.name, view), region.change.difference)
            for region in document.region_changes
        ]
        if document.region_rest is not UNSET:
            changes.append((say(view, "rest"), document.region_rest.difference))
        bars = [
            bar_of(name, difference, signed=True)
            for name, difference in changes
            if difference is not None
        ]
        drawing.text(
            0, top + 20, say(view, "what goes to each region: B − A"), size=8.5, quiet=True
        )
        top = draw_bars(drawing, bars, top + 30)

    # a bar for each head
    if len(document.heads) > 1:
        heads = sorted(document.heads, key=size, reverse=True)[:RANKED]
        changes_of = [
            (say(view, spoken_head(head.a.layer, head.a.head)), head.change) for head in heads
        ]
        bars = [
            bar_of(name, change.value if change else 0.0, signed=True)
            for name, change in changes_of
        ]
        top = write_shown_count(drawing, (len(heads), len(document.heads)), top, view)
        draw_bars(drawing, bars, top + 16)
