"""The answers of the screens that are not about one sentence: what was compared, counted or captured, in words."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING

from attncli.render.headings import remark
from attncli.render.lines import Lines, stack
from attncli.render.numbers import size_words
from attncli.render.phrases import say
from attncli.render.safe import label, safe
from attncli.render.screens.answer import not_learned
from attncli.render.view import View

if TYPE_CHECKING:
    from attncli.analysis.documents.compare import CompareDocument
    from attncli.analysis.documents.cost import CostDocument
    from attncli.analysis.documents.cross import CrossDocument
    from attncli.analysis.documents.generate import GenerateDocument
    from attncli.analysis.documents.mask import MaskDocument
    from attncli.analysis.documents.model import ModelDocument
    from attncli.analysis.documents.parts import TokenRow
    from attncli.analysis.documents.run import RunDocument
    from attncli.analysis.documents.tensors import TensorsDocument


SAME = 1e-6
"""Differences up to this are called none: float32 rounds weights by less."""


def cross_answer(document: CrossDocument, view: View) -> Lines:
    """The answer of an `attn.cross/1` document: the strongest link."""
    heads = sum(len(layer.heads) for layer in document.layers)
    told = []
    if document.links:
        link = document.links[0]
        ends = [_word(side, at, view) for side, at in ((document.queries, link.query), (document.keys, link.key))]
        place = (link.layer, link.head) if heads > 1 else ()
        told.append(say(view, f"answer.link.{'heads' if heads > 1 else 'one'}", *ends, _share(link.weight), *place))
    return _said([*told, not_learned(document.model, view)], view)


def tensors_answer(document: TensorsDocument, view: View) -> Lines:
    """The answer of an `attn.tensors/1` document: the strongest link, by positions."""
    if not document.links:
        return Lines()
    link = document.links[0]
    several = document.model.heads > 1
    name = "answer.tensors.heads" if several else "answer.tensors"
    place = (link.head,) if several else ()
    return _said([say(view, name, link.query, link.key, _share(link.weight), *place)], view)


def compare_answer(document: CompareDocument, view: View) -> Lines:
    """The answer of an `attn.compare/1` document: whether the weights differ, and which one most."""
    most = document.summary.max_difference
    heads = document.heads
    if not heads or most is None or abs(most) <= SAME:
        return _said([say(view, "answer.compare.same") if heads else ""], view)
    head = max(heads, key=lambda each: abs(each.max_difference.value))
    found = head.max_difference
    ends = [_word(document.a.tokens, getattr(found, end), view) for end in ("query", "key")]
    sides = [f"{value:.{view.precision}f}" for value in (abs(found.value),)]
    name = "answer.compare.more" if found.value > 0 else "answer.compare.less"
    place = (head.a.layer, head.a.head)
    kept = [say(view, "answer.compare.kept", _share(head.kept))] if head.kept not in (None, 1) else []
    return _said([say(view, name, *ends, *sides, *place), *kept], view)


def mask_answer(document: MaskDocument, view: View) -> Lines:
    """The answer of an `attn.mask/1` document: what each mask shows and what is left of all together; nothing for the
    gallery."""
    part = document.combined or (document.masks[0] if document.masks and not document.gallery else None)
    if part is None:
        return Lines()
    told = [
        say(
            view,
            "answer.mask",
            safe(part.spec, ascii=view.ascii),
            f"{part.pairs:,}",
            f"{document.n**2:,}",
            _share(part.share),
        )
    ]
    told += [say(view, "answer.mask.empty", len(part.empty_rows))] if part.empty_rows else []
    return _said(told, view)


def cost_answer(document: CostDocument, view: View) -> Lines:
    """The answer of an `attn.cost/1` document: the pairs of full attention, and what the cheapest variant takes of
    it."""
    full, *others = document.variants
    told = [say(view, "answer.cost", f"{document.n:,}", f"{full.pairs:,}")]
    sparse = [one for one in others if one.pairs and one.multiply_adds < full.multiply_adds]
    if sparse:
        least = min(sparse, key=lambda one: one.multiply_adds)
        share = least.multiply_adds / full.multiply_adds
        told.append(
            say(
                view,
                "answer.cost.least",
                safe(str(least.spec or least.name), ascii=view.ascii),
                f"{share:.1%}".replace("%", " %"),
            )
        )
    return _said(told, view)


def run_hint(document: RunDocument, view: View) -> Lines:
    """The command that tells whether what a trained model's query looks at matters; not in a brief answer."""
    if view.brief or not document.queries or document.model.source != "checkpoint":
        return Lines()
    name = quote(safe(document.tokens[document.queries[0]].text.strip(), ascii=view.ascii))
    return remark(say(view, "answer.hint", name), view)


def model_answer(document: ModelDocument, view: View) -> Lines:
    """How large a model is, and what the text asked about would take."""
    spec = document.spec
    heads = {group.attention.heads for group in spec.groups if group.attention is not None}
    said = say(
        view,
        "answer.model" if len(heads) == 1 else "answer.model.various",
        safe(document.name, ascii=view.ascii),
        spec.layers,
        f"{document.parameters:,}",
        *heads,
    )
    told = [said]
    if document.estimate is not None:
        found = document.estimate
        took = (f"{found.seconds:.1f}", size_words(found.peak_memory))
        told.append(say(view, "answer.model.takes", found.tokens, *took))
    return _said(told, view)


def generate_answer(document: GenerateDocument, view: View) -> Lines:
    """How much of their weight the new words have on the prompt, on average over words and heads."""
    if not document.steps:
        return _said([say(view, "answer.generate.none")], view)
    mean = sum(step.lookback for step in document.steps) / len(document.steps)
    return _said([say(view, "answer.generate", len(document.steps), _share(mean))], view)


def _said(told: list[str], view: View) -> Lines:
    return stack(remark(each, view, style="") for each in told)


def _word(tokens: Sequence[TokenRow], index: int, view: View) -> str:
    return say(view, "quoted", label(tokens[index].text, ascii=view.ascii) if index < len(tokens) else "bias_k")


def _share(value: float) -> str:
    return f"{value:.0%}".replace("%", " %")
