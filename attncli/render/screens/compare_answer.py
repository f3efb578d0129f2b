"""The answer of a comparison: the link that changed most; for two ways to attend, what they do and what they take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attncli.render.headings import sentences
from attncli.render.lines import Lines, stack
from attncli.render.numbers import format_fixed, percent
from attncli.render.phrases import say
from attncli.render.screens.shading import shaded_comparison
from attncli.render.token_names import quoted_ends
from attncli.render.view import View

if TYPE_CHECKING:
    from attncli.analysis.documents.compare import ComparedHead, CompareDocument

SAME = 1e-6
"""Differences up to this are called none: float32 rounds weights by less."""


def by_change(document: CompareDocument) -> list[ComparedHead]:
    """The pairs of heads, those whose link changed most first."""
    return sorted(document.heads, key=lambda head: -abs(head.change.value) if head.change else 0.0)


def compare_answer(document: CompareDocument, view: View) -> Lines:
    """The answer of an `attn.compare/1` document: which link changed most; for two ways to attend to one text, what
    that does to the output and to the cost."""
    if not document.heads:
        return Lines()
    link = document.moved[0] if document.moved else None
    if abs(document.summary.max_difference) <= SAME:
        has_unshared_tokens = len(document.aligned) < max(len(document.a.tokens), len(document.b.tokens))
        name = "query" if document.queries else "shared" if has_unshared_tokens else ""
        return sentences(
            [say(view, f"answer.compare.same.{name}".rstrip(".")), *_output_and_cost(document, view)], view
        )
    if link is None or abs(link.difference) <= SAME:
        none = "answer.compare.none.unknown" if "unknown" in (document.links_leave_out or ()) else "answer.compare.none"
        return sentences([say(view, none), *_output_and_cost(document, view)], view)
    head = next(head for head in document.heads if (head.a.layer, head.a.head) == (link.layer, link.head))
    ends = quoted_ends(document.a.tokens, document.a.tokens, link, view)
    values = [f"{value:.{view.precision}f}" for value in (link.a, link.b)]
    values = values if values[0] != values[1] else [f"{value:.3g}" for value in (link.a, link.b)]
    places = dict.fromkeys(((head.a.layer, head.a.head), (head.b.layer, head.b.head)))
    name = "answer.compare.moved" if len(places) == 1 else "answer.compare.moved.places"
    sentence_text = say(view, name, *ends, *values, *(number for place in places for number in place))
    tinted_sentence = shaded_comparison(document, head, link.query, view)
    return stack((tinted_sentence, sentences([sentence_text, *_output_and_cost(document, view)], view)))


WAYS = frozenset({"mask", "hashing", "scale", "softcap", "position"})
"""What makes another way to attend of the same text and weights."""


def _output_and_cost(document: CompareDocument, view: View) -> list[str]:
    """What another way to attend does: weight kept, error of the output, pairs computed. Nothing for two texts."""
    if "text" in document.differs or not WAYS.intersection(document.differs):
        return []
    answer_sentences = []
    kept_shares = [head.kept for head in document.heads if head.kept is not None]
    if kept_shares and min(kept_shares) < 1:
        answer_sentences.append(say(view, "answer.compare.kept", percent(sum(kept_shares) / len(kept_shares))))
    errors = [head.output_error for head in document.heads if head.output_error is not None]
    if errors:
        answer_sentences.append(
            say(view, "answer.compare.error", len(errors), format_fixed(sum(errors) / len(errors), view.precision))
        )
    pairs = [head.pairs for head in document.heads if head.pairs is not None]
    a, b = sum(pair_count.a for pair_count in pairs), sum(pair_count.b for pair_count in pairs)
    if a and a == b:
        answer_sentences.append(say(view, "answer.compare.cost.same", f"{a:,}"))
    elif a:
        answer_sentences.append(say(view, "answer.compare.cost", f"{a:,}", f"{b:,}", percent(b / a, 1)))
    return answer_sentences
