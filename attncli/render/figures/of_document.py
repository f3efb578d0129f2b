"""The figure of a document: maps, rankings and curves of what it holds."""

from __future__ import annotations

from functools import partial

from attncli.analysis.documents.declaration import Document
from attncli.features.ablate.document import AblateDocument
from attncli.features.compare.document import ComparedHead, CompareDocument
from attncli.features.cost.document import CostDocument
from attncli.features.cross.document import CrossDocument
from attncli.features.find.document import FindDocument
from attncli.features.heads.document import HeadsDocument
from attncli.features.logits.document import LogitsDocument
from attncli.features.mask.document import MaskDocument
from attncli.features.patch.document import PatchDocument
from attncli.features.run.document import RunDocument
from attncli.features.tensors.document import TensorsDocument
from attncli.render.figures.charts import Bar, draw_bars, draw_curves
from attncli.render.figures.drawing import LIGHT, Drawing, Theme
from attncli.render.figures.maps import FigureMap, draw_maps
from attncli.render.figures.of_effects import draw_ablation, draw_logits, draw_patching
from attncli.render.figures.of_heads import draw_heads
from attncli.render.figures.titles import RANKED, Say, bar_of, draw_title, model_note, names_of
from attncli.render.matrix import as_matrix
from attncli.render.numbers import percent
from attncli.render.phrases.figures import figure_phrase
from attncli.render.unknown_words import mark_unknown_words


def figure(document: Document, *, scale: str = "linear", theme: Theme = LIGHT, lang: str = "en") -> Drawing | None:
    """What a document shows, drawn; None for one whose shape is its text. Raises InputError where it holds nothing to
    draw. scale: as for maps on a screen."""
    drawing, say, document = Drawing(theme), partial(figure_phrase, lang), mark_unknown_words(document)
    match document:
        case RunDocument() | HeadsDocument() | CrossDocument() | TensorsDocument():
            draw_heads(drawing, document, scale, say)
        case CompareDocument():
            _compare(drawing, document, scale, say)
        case FindDocument():
            _find(drawing, document, say)
        case AblateDocument():
            draw_ablation(drawing, document, say)
        case PatchDocument():
            draw_patching(drawing, document, say)
        case LogitsDocument():
            draw_logits(drawing, document, say)
        case MaskDocument():
            _masks(drawing, document, say)
        case CostDocument():
            _cost(drawing, document, say)
        case _:
            return None
    return drawing


def _compare(drawing: Drawing, document: CompareDocument, scale: str, say: Say) -> None:
    """The head that differs most: either side and their signed difference; then the largest difference of each head."""

    def size(head: ComparedHead) -> float:
        return abs(head.change.value) if head.change else 0.0

    most_changed = max(document.heads, key=size)
    names = names_of(document.a.tokens)
    words = [names[pair[0]] for pair in document.aligned]
    subtitle = say("differs", say("head", most_changed.a.layer, most_changed.a.head))
    top = draw_title(drawing, f"{document.a.name}  →  {document.b.name}", subtitle)
    maps = [
        FigureMap(name, as_matrix(weights), words, words)
        for name, weights in (("A", most_changed.weights_a), ("B", most_changed.weights_b))
    ]
    maps.append(FigureMap("B − A", as_matrix(most_changed.difference), words, words, signed=True))
    top = draw_maps(drawing, maps, top, say, scale=scale)
    if len(document.heads) > 1:
        bars = [
            bar_of(say("head", head.a.layer, head.a.head), head.change.value if head.change else 0.0, signed=True)
            for head in sorted(document.heads, key=size, reverse=True)[:RANKED]
        ]
        draw_bars(drawing, bars, top + 16)


def _find(drawing: Drawing, document: FindDocument, say: Say) -> None:
    names = names_of(document.tokens)
    top = draw_title(drawing, f"{names[document.query]}  →  {names[document.key]}", model_note(document, say))
    bars = [
        bar_of(say("head", row.layer, row.head), row.weight, more="" if row.rank is None else say("rank", row.rank))
        for row in document.heads[:RANKED]
    ]
    draw_bars(drawing, bars, top)


def _masks(drawing: Drawing, document: MaskDocument, say: Say) -> None:
    masks = [*document.masks, *([document.combined] if document.combined else [])]
    top = draw_title(drawing, say("masks") if len(masks) > 1 else masks[0].spec, say("visible"))
    maps = []
    for mask in masks:
        values = as_matrix(mask.map.share)
        rows, columns = ([str(index) for index in range(count)] for count in values.shape)
        maps.append(FigureMap(f"{mask.spec or say('together')} · {percent(mask.share, 1)}", values, rows, columns))
    draw_maps(drawing, maps, top, say, scale="linear")


def _cost(drawing: Drawing, document: CostDocument, say: Say) -> None:
    top = draw_title(drawing, say("cost", f"{document.n:,}"), say("sizes", document.d_model, document.heads))
    series = [
        (name, [(row.n, row.multiply_adds[name]) for row in document.growth if name in row.multiply_adds])
        for name in (variant.name for variant in document.variants)
    ]
    top = draw_curves(drawing, series, top, say("tokens"), say("operations"))
    bars = [Bar(row.name, row.multiply_adds, f"{row.multiply_adds:.3g} · {row.grows}") for row in document.variants]
    draw_bars(drawing, bars, top + 16)
