"""The screens of `attn.explain/1`: one per topic."""

from __future__ import annotations

from collections.abc import Iterable

from attncli.analysis.documents.derivation import AttentionTopic, Products, Scores, SoftmaxRow
from attncli.analysis.documents.explain import ExplainDocument
from attncli.render.headings import remark
from attncli.render.lines import Lines, clipped, spaced, stack
from attncli.render.phrases import say
from attncli.render.screen_parts import PARTS_OF
from attncli.render.screens import derivation
from attncli.render.screens.header import header, shown_tokens
from attncli.render.screens.run import shapes_part
from attncli.render.screens.stages import PROJECTIONS, SHOWN, WHY, projection_table
from attncli.render.view import View

PARTS = PARTS_OF["explain"]
"""Every part of a derivation, in the order of the screen."""


def explain_screen(document: ExplainDocument, view: View) -> Lines:
    """The whole screen of an `attn.explain/1` document, of whichever topic."""
    return spaced(explain_blocks(document, view))


def explain_blocks(document: ExplainDocument, view: View) -> list[Lines]:
    """The steps of the screen, one after the other; of a brief one, the answer alone."""
    match document:
        case AttentionTopic():
            blocks = _derivation(document, view)
        case _:
            from attncli.render.screens.topic_screens import topic_blocks

            blocks = [block for block in topic_blocks(document, view) if block.rows]
            blocks = blocks[-1:] if view.brief else blocks
    return [clipped(block, view.width, ascii=view.ascii) for block in blocks]


def _derivation(document: AttentionTopic, view: View) -> list[Lines]:
    worked = derivation.Derivation(document, view)
    blocks: list[Lines] = []
    for part in PARTS:
        if (view.show is not None and part not in view.show) or (view.brief and part != "answer"):
            continue
        match part:
            case _ if part in PROJECTIONS:
                blocks.append(_projection(part, document, view) if view.show is not None else Lines())
            case "header":
                kept = remark(say(view, "kept", view.precision), view)
                blocks.append(spaced((header(document, view), worked.place(), kept)))
            case "tokens":
                blocks.append(shown_tokens(document, view))
            case "shapes":
                blocks.append(shapes_part(document.shapes, view))
            case "answer":
                blocks.append(worked.answer())
            case _:
                told = getattr(worked, part)()
                lead = remark(say(view, f"lead.{part}", say(view, "quoted", worked.query)), view, style="")
                blocks += [stack((lead, told))] if told.rows else []
    return blocks


def _projection(part: str, document: AttentionTopic, view: View) -> Lines:
    """One of the head's matrices of weights; that there is none, where there is none."""
    held = document.projections or {}
    if part not in held:
        return remark(WHY.get(part, f"this run has no {part}"), view)
    return projection_table(part, held[part], SHOWN[part].note, view)


def explain_rows(document: ExplainDocument) -> Iterable[list[object]]:
    """The worked numbers as a table with a header line, for `--plain`."""
    if not isinstance(document, AttentionTopic):
        from attncli.render.screens.topic_screens import topic_rows

        yield from topic_rows(document)
        return
    scores, softmax = document.step(Scores), document.step(SoftmaxRow)
    texts = [token.text for token in document.tokens]
    yield ["key", "text", "raw", "scaled", "score", "shifted", "exponential", "weight"]
    for at, raw in enumerate(document.step(Products).raw):
        yield [
            at,
            texts[at] if at < len(texts) else None,
            float(raw),
            float(scores.scaled[at]),
            scores.scores[at],
            softmax.shifted[at],
            softmax.exponentials[at],
            float(softmax.weights[at]),
        ]
