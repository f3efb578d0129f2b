"""What a model says of pairs: their tokens, their answers as entries of its vocabulary, and the
measure m = logit(answer) − logit(versus) at the last position.

Source: Wang et al., Interpretability in the wild, 2022, for the measure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import Array, Backend
from attncli.errors import InputError
from attncli.inputs.pairs import Pair, PairFile, read_pairs
from attncli.inputs.script_words import is_unspaced
from attncli.inputs.token import Token, Tokenizer, bytes_name, ignore
from attncli.language import listing, message
from attncli.mechanism.context import Weights
from attncli.models.model import Model
from attncli.models.run import logits, no_output_head

Floats = np.ndarray[Any, np.dtype[Any]]


class TokenPair(Struct, frozen=True):
    """A pair as a model reads it: both texts as as many tokens, both answers as ids of the
    vocabulary.

    first_difference: the first position where the texts differ.
    """

    pair: Pair
    clean: tuple[Token, ...]
    corrupt: tuple[Token, ...]
    answer: int
    versus: int
    first_difference: int


class FittedPairs(Struct, frozen=True):
    """The pairs of a file that fit a model, in order, and what is wrong with the others: the place
    of each in the file's list, and the error."""

    name: str
    pairs: tuple[TokenPair, ...]
    faults: tuple[tuple[int, InputError], ...]


def fit_pairs(model: Model, file: PairFile) -> FittedPairs:
    """The pairs of a file as tokens of the model; those that do not fit it come as faults, each with
    its error.

    Raises UnsupportedError for a model that predicts no token.
    """
    if model.spec.head is None:
        raise no_output_head(model.spec)
    pairs: list[TokenPair] = []
    faults: list[tuple[int, InputError]] = []
    for number, (pair, place) in enumerate(zip(file.pairs, file.places, strict=True)):
        try:
            pairs.append(fit_pair(model, pair))
        except InputError as error:
            error.where = error.where or place  # where the file has the pair, unless it says so
            faults.append((number, error))
    return FittedPairs(file.name, tuple(pairs), tuple(faults))


def fitting_pairs(model: Model, file: str | Path, count: int | None) -> FittedPairs:
    """The pairs of a file that fit a model. Raises InputError where none does, with what is wrong
    with the first.

    count: how many pairs of the file are read; None for all.
    """
    fitted = fit_pairs(model, read_pairs(file, count=count))
    if fitted.pairs:
        return fitted
    _, error = fitted.faults[0]
    what = message(
        "none of the {count} pairs fits this model: {fault}",
        count=len(fitted.faults),
        fault=error.what,
    )
    hint = "attn pairs check FILE --model MODEL"
    raise InputError(what, where=error.where, expected=error.expected, hint=hint)


def progress_of_pair(
    progress: Callable[[float], None], number: int, count: int, share: float
) -> None:
    """Call `progress` with the share of all pairs that is done.

    number: of the pair at work, from 0.
    share: how much of that pair is done.
    count: all pairs.
    """
    progress((number + share) / count)


def fit_pair(model: Model, pair: Pair) -> TokenPair:
    """The tokens of a pair's two texts and the vocabulary ids of its two answers, as a model has
    them.

    Raises InputError for texts of different length in tokens or that are the same to the model,
    for words that it does not know, and for answers that are no single entry of its vocabulary.
    """
    clean = tuple(model.encode(pair.clean))
    corrupt = tuple(model.encode(pair.corrupt))
    for tokens in (clean, corrupt):
        unknown = [token.text for token in tokens if token.unknown]
        if unknown:
            what = message("the model does not know {words}", words=listing(map(repr, unknown)))
            raise InputError(what, expected="words that the model has tokens for")
    if len(clean) != len(corrupt):
        raise InputError(
            "the clean text has {clean} tokens, the corrupt one {corrupt}",
            expected="as many tokens in both: they stand for each other one by one",
            clean=len(clean),
            corrupt=len(corrupt),
        )
    token_pairs = zip(clean, corrupt, strict=True)
    different = [place for place, (a, b) in enumerate(token_pairs) if a.id != b.id]
    if not different:
        raise InputError("both texts are the same to this model", expected="texts that differ")
    answer, versus = answer_ids(model.tokenizer, pair.clean, pair.answer, pair.versus)
    if answer == versus:
        what = message("answer and versus are the same entry of the vocabulary, {id}", id=answer)
        raise InputError(what, expected="two answers that differ")
    return TokenPair(pair, clean, corrupt, answer, versus, first_difference=different[0])


def answer_ids(tokenizer: Tokenizer, text: str, answer: str, versus: str) -> tuple[int, int]:
    """The vocabulary ids of two answers as they follow a text, both written in the same way where
    that is possible: with a blank before them, or without.

    versus: the other answer.

    Raises InputError for an answer that is several tokens, however it is written.
    """
    # two ways to write an answer, or one where it begins with a blank: where one answer has one way
    # only, the second way of the other has no partner
    for spelling, versus_spelling in zip(_spellings(answer), _spellings(versus), strict=False):
        first = _entry(tokenizer, text, spelling)
        second = _entry(tokenizer, text, versus_spelling)
        if first is not None and second is not None:
            return first, second
    return answer_id(tokenizer, text, answer), answer_id(tokenizer, text, versus)


def answer_id(tokenizer: Tokenizer, text: str, answer: str) -> int:
    """The vocabulary id of an answer as it follows a text. An answer that does not begin with a
    blank is tried as its script is usually written, with a blank before it or without, and then the
    other way.

    Raises InputError where it is several tokens, naming them.
    """
    spellings = _spellings(answer)
    for spelling in spellings:
        entry = _entry(tokenizer, text, spelling)
        if entry is not None:
            return entry
    pieces = _continuation(tokenizer, text, spellings[0]) or _pieces(tokenizer, spellings[0])
    if any(token.unknown for token in pieces):
        what = message("{answer} is unknown to this model", answer=repr(answer))
    else:
        what = message(
            "{answer} is {count} tokens to this model: {pieces}",
            answer=repr(answer),
            count=len(pieces),
            pieces=listing(repr(bytes_name(token.text)) for token in pieces),
        )
    raise InputError(what, expected="an answer of one token")


def _spellings(answer: str) -> list[str]:
    """The ways to write an answer behind a text, the likelier first: with a blank before it or
    without, in scripts without blanks (Chinese) the other way; as it is if it begins with one."""
    if answer[:1].isspace():
        return [answer]
    if answer and is_unspaced(answer[0]):
        return [answer, f" {answer}"]
    return [f" {answer}", answer]


def _entry(tokenizer: Tokenizer, text: str, spelling: str) -> int | None:
    """The vocabulary id of an answer in this spelling, behind a text or alone; None if it is not a
    single token that the model knows."""
    for pieces in (_continuation(tokenizer, text, spelling), _pieces(tokenizer, spelling)):
        if len(pieces) == 1 and not pieces[0].unknown:
            return pieces[0].id
    return None


def _pieces(tokenizer: Tokenizer, text: str) -> list[Token]:
    """The tokens of a text, without those that the tokenizer adds."""
    return [token for token in tokenizer.encode(text) if not token.special]


def _continuation(tokenizer: Tokenizer, text: str, more: str) -> list[Token]:
    """The tokens that `more` adds when it is written behind a text; none where the text's own tokens
    change by it."""
    before = _pieces(tokenizer, text)
    after = _pieces(tokenizer, text + more)
    ids = [token.id for token in before]
    if [token.id for token in after[: len(ids)]] == ids:
        return after[len(ids) :]
    return []


def logit_difference(
    model: Model, backend: Backend, weights: Weights, hidden: Array, answer: int, versus: int
) -> Floats:
    """How much more a model predicts one token than another, m = logit(answer) − logit(versus) before
    a soft cap, [...], float64.

    weights: those outside the layers, by role.
    hidden: vectors that leave the last layer, [..., width].
    answer, versus: ids of the vocabulary.
    """
    head = model.spec.head
    if head is None:
        raise no_output_head(model.spec)
    spec = replace(model.spec, head=replace(head, softcap=None))

    def logit_of(entry: int) -> Floats:
        """The logit of one entry alone: the whole vocabulary costs as much as some layers."""
        scores = logits(spec, weights, backend, hidden, slice(entry, entry + 1))[..., 0]
        return np.asarray(backend.numpy(scores), np.float64)

    return logit_of(answer) - logit_of(versus)


def measured_differences(
    model: Model,
    texts: Sequence[tuple[Sequence[Token], int, int]],
    *,
    progress: Callable[[float], None] = ignore,
) -> Floats:
    """m = logit(answer) − logit(versus) after the last token of each text, [text], float64.

    texts: the tokens of each, and the ids of answer and versus; texts of about equal length run
        together.
    progress: called with the share of the texts that is done, 0 to 1.
    """
    measured = np.zeros(len(texts))
    last = len(model.spec.blocks) - 1
    if model.spec.blocks[last].instead:  # batches yield layers with attention only
        return _measure_one_by_one(model, texts, progress)
    backend = model.backend
    weights = model.store.outer(backend)
    done = 0  # texts of the groups before this one; `place` counts within a group
    for group in model.batches([tokens for tokens, _, _ in texts], layers=[last], keep=()):
        places: list[int] = []
        for batch in group:
            (trace,) = batch.layers
            for entry, place in enumerate(batch.places):
                tokens, answer, versus = texts[done + place]
                hidden = trace.after[entry, len(tokens) - 1]
                measured[done + place] = logit_difference(
                    model, backend, weights, hidden, answer, versus
                )
            places += batch.places
            progress((done + len(places)) / len(texts))
        done += len(places)
    return measured


def _measure_one_by_one(
    model: Model,
    texts: Sequence[tuple[Sequence[Token], int, int]],
    progress: Callable[[float], None],
) -> Floats:
    """m = logit(answer) − logit(versus) after the last token of each text, [text], with a run for
    each text, for models whose last layer has no attention.

    texts: the tokens of each, and the ids of answer and versus.
    progress: called with the share of the texts that is done, 0 to 1.
    """
    measured = np.zeros(len(texts))
    weights = model.store.outer(model.backend)
    for place, (tokens, answer, versus) in enumerate(texts):
        last = len(model.spec.blocks) - 1
        (trace,) = model.trace(list(tokens), layers=[last], keep=(), idle=True)
        hidden = trace.after[-1]
        measured[place] = logit_difference(model, model.backend, weights, hidden, answer, versus)
        progress((place + 1) / len(texts))
    return measured
