"""The answers of the screens that are not about one sentence: what was compared, counted or captured, in words."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from shlex import quote
from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET

from attncli.draw.headings import remark, sentences
from attncli.draw.lines import Lines, stack
from attncli.draw.numbers import percent, size_words
from attncli.draw.safe import safe
from attncli.draw.sentence import shaded_cross_texts
from attncli.draw.sentence_answer import not_learned_note
from attncli.draw.shaded_matrix import as_matrix
from attncli.draw.token_names import quote_text, quoted_ends
from attncli.draw.view import View
from attncli.inputs.word_breaks import words
from attncli.language import say

if TYPE_CHECKING:
    from attncli.features.cross.document import CrossDocument
    from attncli.features.generate.document import GenerateDocument
    from attncli.features.mask.document import MaskDocument
    from attncli.features.models.document import ModelDocument, ModelsDocument
    from attncli.features.run.document import RunDocument
    from attncli.features.tensors.document import CapturedLink, TensorsDocument
    from attncli.features.tokens.document import TokensDocument
    from attncli.features.weights.document import WeightsDocument


MOST_NAMES = 5
"""Aliases that are named in a sentence."""


def cross_answer(document: CrossDocument, view: View) -> Lines:
    """The answer of an `attn.cross/1` document: the strongest link."""
    heads = sum(len(layer.heads) for layer in document.layers)
    answer_sentences = []
    if document.links:
        link = document.links[0]
        ends = quoted_ends(document.queries, document.keys, link, view)
        place = (link.layer, link.head) if heads > 1 else ()
        answer_sentences.append(
            say(view, f"answer.link.{'heads' if heads > 1 else 'one'}", *ends, percent(link.weight), *place)
        )
    text_lines = sentences([*answer_sentences, not_learned_note(document.model, view)], view)
    return stack((shaded_cross_texts(document, view), text_lines)) if document.links else text_lines


def tensors_answer(document: TensorsDocument, view: View) -> Lines:
    """The answer of an `attn.tensors/1` document: the strongest link, by positions; of a query that sees several keys
    where there is one."""
    if not document.links:
        return Lines()
    link = next((link for link in document.links if _has_choice(document, link)), document.links[0])
    several = document.model.heads > 1
    name = "answer.tensors.heads" if several else "answer.tensors"
    place: tuple[object, ...] = (link.head,) if several else ()
    if len(document.batch) > 1:
        name, place = "answer.tensors.batch", (link.head, ", ".join(map(str, link.index)))
    answer_sentences = [say(view, name, link.query, link.key, percent(link.weight), *place)]
    answer_sentences += [say(view, "answer.link.choice")] if link.weight < document.links[0].weight else []
    return sentences(answer_sentences, view)


def _has_choice(document: TensorsDocument, link: CapturedLink) -> bool:
    """Whether the link's query sees more than one key; so, where no scores tell it."""
    heads = next((entry.heads for entry in document.batch if entry.index == link.index), [])
    scores = next((head.scores for head in heads if head.head == link.head), UNSET)
    return scores is UNSET or int(np.isfinite(as_matrix(scores)[link.query]).sum()) > 1


def mask_answer(document: MaskDocument, view: View) -> Lines:
    """The answer of an `attn.mask/1` document: what each mask shows, and what is left of all together; nothing for the
    gallery."""
    if document.gallery or not document.masks:
        return Lines()
    combined, count = document.combined, f"{document.n**2:,}"
    answer_sentences = []
    for part in document.masks if combined is None or len(document.masks) <= MOST_NAMES else ():
        spec = safe(part.spec, ascii=view.ascii)
        answer_sentences.append(say(view, "answer.mask", spec, f"{part.pairs:,}", count, percent(part.share, 1)))
    if combined is not None:
        answer_sentences.append(
            say(view, "answer.mask.together", f"{combined.pairs:,}", count, percent(combined.share, 1))
        )
        # what all show together lies within each, so that as many pairs are the same pairs
        same = next((part for part in document.masks if part.pairs == combined.pairs), None)
        answer_sentences += [say(view, "answer.mask.alone", safe(same.spec, ascii=view.ascii))] if same else []
    empty = (combined or document.masks[0]).empty_rows
    answer_sentences += [say(view, "answer.mask.empty", len(empty))] if empty else []
    return sentences(answer_sentences, view)


def run_hint(document: RunDocument, view: View) -> Lines:
    """The command that tells whether what a trained model's query looks at matters; not in a brief answer."""
    if view.brief or not document.queries or document.model.source != "checkpoint":
        return Lines()
    query = document.tokens[document.queries[0]]
    if query.unknown:  # attn ablate takes no such word
        return Lines()
    name = quote(safe(query.text.strip(), ascii=view.ascii))
    return remark(say(view, "answer.hint", name), view)


def model_answer(document: ModelDocument, view: View) -> Lines:
    """How large a model is, and what the text asked about would take."""
    spec = document.spec
    heads = {group.attention.heads for group in spec.groups if group.attention is not None}
    size_sentence = say(
        view,
        "answer.model" if len(heads) == 1 else "answer.model.various",
        safe(document.name, ascii=view.ascii),
        spec.layers,
        f"{document.parameters:,}",
        *heads,
    )
    answer_sentences = [size_sentence]
    if document.estimate is not None:
        estimate = document.estimate
        cost_texts = (f"{estimate.seconds:.1f}", size_words(estimate.peak_memory))
        answer_sentences.append(say(view, "answer.model.takes", estimate.tokens, *cost_texts))
    return sentences(answer_sentences, view)


def tokens_answer(document: TokensDocument, view: View) -> Lines:
    """The answer of an `attn.tokens/1` document: whether words are cut, which one most, and what was added.

    A word is what the tokenizer `word` makes a token. Of a text whose tokens do not tell their places: how many.
    """
    spans = [(token.start, token.end) for token in document.tokens if not token.special]
    added_count = len(document.tokens) - len(spans)
    token_spans = [(start, end) for start, end in spans if start is not None and end is not None]
    word_spans = list(words(document.text))
    starts, ends = [start for start, _ in token_spans], [end for _, end in token_spans]
    # the tokens of a text stand in its order
    pieces = [max(bisect_left(starts, end) - bisect_right(ends, start), 0) for start, end in word_spans]
    if len(token_spans) < len(spans) or not word_spans or starts != sorted(starts) or ends != sorted(ends):
        answer_sentences = [say(view, "answer.tokens", f"{len(document.tokens):,}")]
    elif max(pieces) > 1:
        most = max(range(len(word_spans)), key=lambda index: pieces[index])
        word = quote_text(document.text[slice(*word_spans[most])], view)
        cut_count = sum(count > 1 for count in pieces)
        answer_sentences = [
            say(view, "answer.tokens.cut", f"{cut_count:,}", f"{len(word_spans):,}", word, pieces[most])
        ]
    elif len(spans) == len(word_spans):
        answer_sentences = [say(view, "answer.tokens.whole", f"{len(word_spans):,}")]
    else:
        answer_sentences = [say(view, "answer.tokens", f"{len(document.tokens):,}")]
    return sentences(
        [*answer_sentences, *([say(view, "answer.tokens.added", added_count)] if added_count else [])], view
    )


def weights_answer(document: WeightsDocument, view: View) -> Lines:
    """The answer of an `attn.weights/1` document: what attention the file is read as."""
    sizes = document.sizes
    if sizes is not None:
        return sentences([say(view, "answer.weights", sizes.heads, sizes.d_model)], view)
    return sentences([say(view, "answer.weights.none" if document.layout is None else "answer.weights.stages")], view)


def models_answer(document: ModelsDocument, view: View) -> Lines:
    """The answer of an `attn.models/1` document: how many families run, and which aliases need no download."""
    local_names = [safe(alias.name, ascii=view.ascii) for alias in document.aliases if alias.here is not None]
    answer_sentences = [say(view, "answer.models", len(document.families))]
    alias_names = say(view, "list").join(local_names[:MOST_NAMES])
    answer_sentences.append(
        say(view, "answer.models.here", len(local_names), len(document.aliases), alias_names) if local_names else ""
    )
    return sentences(answer_sentences, view)


def generate_answer(document: GenerateDocument, view: View) -> Lines:
    """How much of their weight the new words have on the prompt, on average over words and heads."""
    if not document.steps:
        return sentences([say(view, "answer.generate.none")], view)
    mean = sum(step.lookback for step in document.steps) / len(document.steps)
    return sentences([say(view, "answer.generate", len(document.steps), percent(mean))], view)
