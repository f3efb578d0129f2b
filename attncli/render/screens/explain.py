"""The screens of `attn.explain/1`: one per topic."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET

from attncli.analysis.documents.derivation import AttentionTopic, Products, Scores, SoftmaxRow
from attncli.analysis.documents.explain import ExplainDocument
from attncli.render.headings import remark
from attncli.render.lines import Lines, clip_lines, stack, stack_spaced
from attncli.render.phrases import say
from attncli.render.screen_parts import PARTS_OF
from attncli.render.screens import derivation
from attncli.render.screens.header import header, shown_tokens
from attncli.render.screens.run import shapes_part
from attncli.render.screens.stages import PROJECTIONS, SHOWN, WHY, projection_table
from attncli.render.screens.steps import code_lines, flow_part
from attncli.render.view import View

PARTS = PARTS_OF["explain"]
"""Every part of a derivation, in the order of the screen."""
DEFAULT = ("header", "flow", "projections", "similarity", "scaled", "masked", "softmax", "output", "answer")
"""Those that are shown where none are named: the five steps of one query."""
TWICE = {"scores": ("scaled", "masked")}
"""Names of several parts together."""
LED = ("residual", "matrices")
"""Those that follow the steps; a sentence leads to them."""


def explain_screen(document: ExplainDocument, view: View) -> Lines:
    """The whole screen of an `attn.explain/1` document, of whichever topic."""
    return stack_spaced(explain_blocks(document, view))


def explain_blocks(document: ExplainDocument, view: View) -> list[Lines]:
    """The steps of the screen, one after the other; of a brief one, the answer alone."""
    match document:
        case AttentionTopic():
            blocks = _derivation(document, view)
        case _:
            from attncli.render.screens.topic_screens import topic_blocks

            blocks = [block for block in topic_blocks(document, view) if block.rows]
            blocks = blocks[-1:] if view.brief else blocks
    return [clip_lines(block, view.width, ascii=view.ascii) for block in blocks]


def _is_part_shown(part: str, document: AttentionTopic, view: View) -> bool:
    """Whether a part is shown: those named, or of a full view all, else the five steps, and what was asked to follow
    them."""
    if view.brief:
        return part == "answer"
    if view.show is not None:
        return part in view.show or any(part in TWICE[name] for name in TWICE if name in view.show)
    # a checkpoint always has a residual; of weights of one layer somebody asked for it
    follows = part == "residual" and document.model.source != "checkpoint" and _has_residual(document)
    return view.full or part in DEFAULT or follows


def _has_residual(document: AttentionTopic) -> bool:
    """Whether the input is added to the output, or the sum is normalized."""
    after = document.after
    return after is not UNSET and not (after.sum is UNSET and after.norm is UNSET)


def _derivation(document: AttentionTopic, view: View) -> list[Lines]:
    compact = view.show is None and not view.full
    keys = derivation.SHORT if compact else derivation.ALL_KEYS
    code = code_lines(document, view.code) if view.code else {}
    derivation_parts = derivation.Derivation(document, view, keys, compact, leads=True, code=code)
    blocks: list[Lines] = []
    for part in PARTS:
        if not _is_part_shown(part, document, view):
            continue
        match part:
            case _ if part in PROJECTIONS:
                blocks.append(_projection(part, document, view) if view.show is not None else Lines())
            case "header":
                precision_note = say(view, "explain.more") if compact else say(view, "kept", view.precision)
                place = stack((derivation_parts.place(), remark(precision_note, view)))
                blocks.append(
                    stack((header(document, view), place)) if compact else stack_spaced((header(document, view), place))
                )
            case "flow":
                blocks.append(flow_part(document, view))
            case "tokens":
                blocks.append(shown_tokens(document, view))
            case "shapes":
                blocks.append(shapes_part(document.shapes, view))
            case "answer":
                blocks.append(derivation_parts.answer())
            case _ if part in TWICE:
                continue
            case _:
                part_lines = getattr(derivation_parts, part)()
                lead_sentence = (
                    say(view, f"lead.{part}", say(view, "quoted", derivation_parts.query)) if part in LED else ""
                )
                blocks += [stack((remark(lead_sentence, view, style=""), part_lines))] if part_lines.rows else []
    return blocks


def _projection(part: str, document: AttentionTopic, view: View) -> Lines:
    """One of the head's matrices of weights; that there is none, where there is none."""
    projections = document.projections or {}
    if part not in projections:
        return remark(WHY.get(part, f"this run has no {part}"), view)
    return projection_table(part, projections[part], SHOWN[part].note, view)


def explain_rows(document: ExplainDocument) -> Iterable[list[object]]:
    """The worked numbers as a table with a header line, for `--plain`."""
    if not isinstance(document, AttentionTopic):
        from attncli.render.screens.topic_screens import topic_rows

        yield from topic_rows(document)
        return
    scores, softmax = document.step(Scores), document.step(SoftmaxRow)
    texts = [token.text for token in document.tokens]
    yield ["key", "text", "raw", "scaled", "score", "shifted", "exponential", "weight"]
    for index, raw in enumerate(document.step(Products).raw):
        yield [
            index,
            texts[index] if index < len(texts) else None,
            float(raw),
            float(scores.scaled[index]),
            scores.scores[index],
            softmax.shifted[index],
            softmax.exponentials[index],
            float(softmax.weights[index]),
        ]
