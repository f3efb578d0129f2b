"""The word behind a mask: where it stands in a text, and what an encoder would put there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from attncli.arrays.backend import Array
from attncli.errors import InputError, UsageError
from attncli.features.effects.places import reads_on
from attncli.inputs.token import Token, choose_span
from attncli.language import message
from attncli.measure.row_facts import Floats
from attncli.mechanism.context import TableWeights
from attncli.models.model import Model
from attncli.models.run import no_masked_head, no_output_head

MASKS = ("[MASK]", "<mask>")
"""How vocabularies spell the token that hides a word."""


def answers_masks(model: Model) -> bool:
    """Whether a model predicts the word behind a mask, as encoders do; False for a decoder, which
    predicts the next word.

    Raises UnsupportedError for a model that predicts neither.
    """
    spec = model.spec
    if reads_on(spec):
        if spec.head is None:
            raise no_output_head(spec)
        return False
    outer = model.store.outer(model.backend)
    # only weights of a checkpoint, which are `TableWeights`, may have such a head
    has_head = isinstance(outer, TableWeights) and outer.has("masked.dense.weight")
    if not has_head:
        raise no_masked_head(spec)
    return True


def masked_position(
    model: Model, tokens: Sequence[Token], query: str | None, note: Callable[[str], None]
) -> int:
    """The position of the mask that is asked about: the one that `query` names, else the first.
    Raises InputError where the text has no mask, or `query` names a token that is none.

    note: called with a message where the text has other masks.
    """
    masks = [place for place, token in enumerate(tokens) if _is_mask(token)]
    if query is not None:
        _start, stop = choose_span(tokens, query, note)
        place = stop - 1  # of several tokens the last, as everywhere a query is named
        if place not in masks:
            what = message("{query} is not masked: the model reads it itself", query=repr(query))
            raise InputError(what, expected=_mask_example(model))
        return place
    if not masks:
        what = message("the text hides no word: it has no mask")
        raise InputError(what, expected=_mask_example(model))
    if len(masks) > 1:
        note(
            message(
                "the text has {count} masks, the first is told; --query '#{place}' tells the next",
                count=len(masks),
                place=masks[1],
            )
        )
    return masks[0]


def _is_mask(token: Token) -> bool:
    """Whether a token hides a word."""
    return token.special and token.text.strip() in MASKS


def _mask_example(model: Model) -> str:
    """The words with which an error says what it expected: a text with a mask, spelt as this
    model's vocabulary has it."""
    for mask in MASKS:
        if any(_is_mask(token) for token in model.tokenizer.encode(mask)):
            return message("a text with {mask} in place of a word", mask=mask)
    return message("a vocabulary with one of {masks}", masks=" ".join(MASKS))


def refuse_next_options(*, each_token: bool) -> None:
    """Raise UsageError for options that need a decoder; called for a model that predicts masked
    words.

    each_token: whether `--each` was given.
    """
    if each_token:
        what = message("--each tells of every token how likely it was after those before it")
        expected = message(
            "a decoder; of this encoder one word at a time, with a mask in its place"
        )
        raise UsageError(what, expected=expected)


def token_logits(model: Model, vectors: Array, *, masked: bool) -> Floats:
    """Logits of the next token, or of the word behind a mask, from vectors of layers, [vector,
    width]: [vector, vocabulary], float64."""
    if masked:
        scores = model.masked_logits(vectors)
    else:
        scores = model.logits(vectors)
    return np.asarray(model.backend.numpy(scores), np.float64)
