"""`attncli.next_word`: what a decoder would say next, from which layer on, and without some heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from attncli.arrays.backend import Backend
from attncli.documents import PlacedHead
from attncli.documents.header import header, notes
from attncli.documents.parts import NextToken
from attncli.errors import UnsupportedError
from attncli.features.effects.measures import VECTORS_AT_ONCE, log_softmax
from attncli.features.effects.targets import (
    choose_target,
    has_entry,
    likeliest,
    masked_target,
    small_note,
    target_token,
)
from attncli.features.effects.weighing import Weighing, find_weighing
from attncli.features.next.document import (
    FollowingToken,
    LayerChoice,
    NextDocument,
    NextTarget,
    WithoutHeads,
)
from attncli.features.next.doses import DRAWS, AnswerPlace, dose_passes, doses
from attncli.features.next.masked_word import (
    answers_masks,
    masked_position,
    refuse_next_options,
    token_logits,
)
from attncli.features.run.compute import RunRequest, cost
from attncli.inputs.regions import Region
from attncli.inputs.token import Token, choose_last_token, ignore
from attncli.language import message
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.context import Interventions, Zero
from attncli.mechanism.head_choice import NamedHeads, pairs_of, pairs_or_all
from attncli.models.estimate import CostEstimate, with_predictions
from attncli.models.model import Model
from attncli.models.passes import PassCount, decoding_seconds, seconds_of_passes
from attncli.models.run import LONG, rows_for

Floats = np.ndarray[Any, np.dtype[Any]]


LOGITS_TOGETHER = 2**25
"""Logits that are in memory at once where every position is told: 128 MiB of float32. Each portion
reads the output head's matrix again, Gemma's 262,144 rows for 128 positions."""


class _TextRun(Struct, frozen=True, eq=False):
    """What a run leaves: the vectors of the token measured after each layer, [layer, width], and
    those of all tokens after the last, [token, width], where they are asked for."""

    by_layer: Any
    last: Any
    backend: Backend


@checked
def next_word(
    model: Model,
    text: str,
    *,
    top: int = 5,
    target: str | None = None,
    query: str | None = None,
    each_token: bool = False,
    without: NamedHeads = (),
    weigh: str | None = None,
    weigh_in: NamedHeads | None = None,
    regions: Sequence[Region] = (),
    tokens: Sequence[Token] | None = None,
    note: Callable[[str], None] = ignore,
    on_cost: Callable[[CostEstimate, int], None] = ignore,
    progress: Callable[[float], None] = ignore,
) -> NextDocument:
    """Tell what a decoder would say next, or what an encoder would put behind a mask, with
    probabilities, and from which layer on.

    Args:
        model: A decoder with an output head, or an encoder with one for masked words, as
            `attncli.load` returns it.
        text: What runs.
        top: How many of the likeliest tokens.
        target: A vocabulary entry, or "id:N", whose probability and rank are told; None is the
            likeliest.
        query: After which token; None is the last. Of an encoder which mask; None is the first.
        each_token: Whether it is also told of every token how likely it was after those before it.
        without: Heads that are taken away in a second run, with their layers: "L5H11" or (5, 11),
            several as "L5H11,L3H1" or in a list.
        weigh: A region or word and a factor, such as "document=×4": its attention weights are
            multiplied by each of `FACTORS` and by that one, beside those of random tokens.
        weigh_in: The heads in which that is done, with their layers: "L5H11" or (5, 11), several
            as "L5H11,L3H1" or in a list; None for all.
        regions: Named sets of tokens, as `attncli.inputs.regions.find_regions` returns them.
        tokens: Those of the text; None to let the model's tokenizer find them.
        note: Called with a sentence that says what an ambiguous name was read as.
        on_cost: Called before the work starts, with its estimated cost and the number of tokens.
        progress: Called with the share of the doses that is done, 0 to 1.

    Returns:
        What `attn next --json` writes.

    Raises:
        InputError: For tokens or heads that are not there.
        UnsupportedError: For a model that predicts no token.
        UsageError: For `each_token` of an encoder.
    """
    # which token is measured
    masked = answers_masks(model)
    if masked:
        refuse_next_options(each_token=each_token)
    if tokens is None:
        tokens = model.encode(text)
    if masked:
        position = masked_position(model, tokens, query, note)
    elif query is None:
        position = len(tokens) - 1
    else:
        position = choose_last_token(tokens, query, note)

    # what else runs: without heads, and with attention weighed
    query_rows = None  # at a time; all at once
    if len(tokens) > LONG:
        query_rows = rows_for(model.spec, len(tokens))
    weighing: Weighing | None = None
    taken_away = pairs_of(model.spec, without)
    runs_without_heads = 1 if taken_away else 0
    further_passes = [PassCount(runs_without_heads, len(tokens))]
    if weigh is not None:
        if not model.own_layers:  # a model that runs through transformers
            what = message("--weigh needs layers that run one by one")
            raise UnsupportedError(what, expected="a family that runs natively")
        weighed_heads = pairs_or_all(model.spec, weigh_in)
        weighing = find_weighing(weigh, tokens, regions, heads=weighed_heads, note=note)
        further_passes += dose_passes(model, tokens, weighing, position, masked=masked)

    # report the cost before anything runs
    own_run = _cost_of_own_run(model, len(tokens), query_rows, each_token=each_token)
    further = seconds_of_passes(model, further_passes)
    on_cost(replace(own_run, seconds=own_run.seconds + further), len(tokens))

    # run the text, and find the token asked about
    run = _run(model, tokens, position, query_rows, each_token=each_token, interventions={})
    logits = token_logits(model, run.by_layer, masked=masked)  # [layer, vocabulary]
    row = log_softmax(logits[-1])  # of what leaves the last layer
    choice = None
    if target is not None and masked:
        choice = masked_target(model, target, row, note)
    elif target is not None:
        choice = choose_target(
            model, tokens, target, position=position, several=False, row=row, note=note
        )
    if choice is None:
        entry = int(row.argmax())
    else:
        entry = choice.ids[0]
    return NextDocument(
        **header(model, text, tokens),
        position=position,
        masked=masked or UNSET,
        top=_likeliest(model, logits[-1], top),
        entropy=_entropy(logits[-1]),
        target=_target(model, logits[-1], entry, None if choice is None else choice.word),
        layers=_choices(model, logits),
        following=_score_tokens(model, run, tokens) if each_token else UNSET,
        without=_prediction_without(
            model, tokens, position, query_rows, taken_away, top, entry, masked=masked
        ),
        **_dose_members(
            model, tokens, weighing, entry, position, query_rows, progress, masked=masked
        ),
        warnings=[*notes(model, text, tokens), *small_note(model, choice)],
    )


def _cost_of_own_run(
    model: Model, count: int, rows: int | None, *, each_token: bool
) -> CostEstimate:
    """The cost of running a text of `count` tokens once, unchanged, with the logits after each layer.

    rows: query rows at a time, None for all.
    each_token: whether the last layer's logits of all tokens are computed, too.
    """
    one_run = cost(model, count, RunRequest(matrices=False), is_saved=False, rows=rows)
    layer_count = len(model.spec.blocks)
    # logits of the measured token after each layer, and of every token, or one, after the last
    predicted_rows = layer_count + (count if each_token else 1)
    # those after the layers are computed in one go
    at_once = max(layer_count, _rows_at_once(model))
    own_run = with_predictions(
        one_run, model.spec, predicted_rows, model.backend.dtype, rows_at_once=at_once
    )
    decoding = decoding_seconds(model, count)  # of weights that are stored quantised
    return replace(own_run, seconds=own_run.seconds + decoding)


def _dose_members(
    model: Model,
    tokens: Sequence[Token],
    weighing: Weighing | None,
    entry: int,
    position: int,
    rows: int | None,
    progress: Callable[[float], None],
    *,
    masked: bool,
) -> dict[str, Any]:
    """The document's members about weighed attention, by name; {} where none is weighed.

    weighing: which keys are weighed, and by which factor; None for none.
    entry: the vocabulary entry whose probability is measured.
    position: of the token measured.
    rows: query rows at a time, None for all.
    progress: called with the share of the doses that is done.
    masked: whether it is a mask.
    """
    if weighing is None:
        return {}
    place = AnswerPlace(position, entry, masked)
    curve = doses(model, tokens, weighing, place, rows, progress)
    if any(dose.random is not None for dose in curve):
        draws = DRAWS
    else:
        draws = 0
    return {"weighed": weighing.part(), "doses": curve, "draws": draws}


def _run(
    model: Model,
    tokens: Sequence[Token],
    position: int,
    rows: int | None,
    *,
    each_token: bool,
    interventions: Interventions,
) -> _TextRun:
    """Run a text, and keep the vectors after each layer of the token at `position`.

    rows: query rows at a time, None for all.
    each_token: whether the last layer's vectors of all tokens are kept, too.
    interventions: what is changed in the run; {} for nothing.
    """
    by_layer = []
    last = None
    # `idle` yields layers without attention, too
    traces = model.trace(list(tokens), keep=(), rows=rows, interventions=interventions, idle=True)
    for trace in traces:
        by_layer.append(trace.after[position : position + 1])
        if each_token and trace.layer == len(model.spec.blocks) - 1:
            last = trace.after
    return _TextRun(model.backend.concat(by_layer, 0), last, model.backend)


def _likeliest(model: Model, logits: Floats, count: int) -> list[NextToken]:
    """The likeliest tokens with their probabilities; entries that the tokenizer does not have are
    passed over, as padded vocabularies hold some.

    logits: of each entry of the vocabulary, [vocabulary].
    count: how many tokens.
    """
    shares = np.exp(log_softmax(logits))
    result: list[NextToken] = []
    # more than are asked for, since some may be passed over: those are seldom among the likeliest
    for number in likeliest(logits, 2 * count + 8):
        if len(result) == count:
            break
        if has_entry(model, number):
            token = target_token(model, number)
            result.append(NextToken(token=token, probability=float(shares[number])))
    return result


def _entropy(logits: Floats) -> float:
    """The entropy of the next token in nats."""
    logs = log_softmax(logits)
    return float(max(-(np.exp(logs) * logs).sum(), 0.0))  # rounding may leave it below 0


def _target(model: Model, logits: Floats, entry: int, word: str | None = None) -> NextTarget:
    """The document's part about a vocabulary entry: its probability and its rank among all.

    word: the word that it is the first piece of, None where it is no piece.
    """
    return NextTarget(
        token=target_token(model, entry, word),
        probability=float(np.exp(log_softmax(logits))[entry]),
        rank=int((logits > logits[entry]).sum()) + 1,
    )


def _choices(model: Model, logits: Floats) -> list[LayerChoice]:
    """The layers after which another token comes first, from logits by layer, [layer,
    vocabulary]. A layer whose first entry the tokenizer does not have is passed over."""
    result: list[LayerChoice] = []
    for layer, row in enumerate(logits):
        entry = int(row.argmax())
        if result and result[-1].token.id == entry:
            continue  # the same token still comes first
        if has_entry(model, entry):
            share = float(np.exp(log_softmax(row))[entry])
            token = target_token(model, entry)
            result.append(LayerChoice(layer=layer, token=token, probability=share))
    return result


def _rows_at_once(model: Model) -> int:
    """How many positions' logits are computed at once, so that they take `LOGITS_TOGETHER` numbers
    at most."""
    return min(max(LOGITS_TOGETHER // model.spec.vocabulary, 1), VECTORS_AT_ONCE)


def _score_tokens(model: Model, run: _TextRun, tokens: Sequence[Token]) -> list[FollowingToken]:
    """How likely each token was after those before it, computed for a portion of the positions at a
    time.
    """
    result: list[FollowingToken] = []
    step = _rows_at_once(model)
    for first in range(0, len(tokens) - 1, step):
        stop = min(first + step, len(tokens) - 1)
        logits = model.backend.numpy(model.logits(run.last[first:stop]))
        for place, narrow_row in enumerate(logits, first):
            entry = tokens[place + 1].id
            assert entry is not None  # a model that predicts tokens numbers all of them
            row = np.asarray(narrow_row, np.float64)  # one at a time: all are twice as large
            result.append(
                FollowingToken(
                    token=place + 1,
                    probability=float(np.exp(log_softmax(row)[entry])),
                    rank=int((row > row[entry]).sum()) + 1,
                )
            )
    return result


def _prediction_without(
    model: Model,
    tokens: Sequence[Token],
    position: int,
    rows: int | None,
    heads: Sequence[tuple[int, int]],
    top: int,
    entry: int,
    *,
    masked: bool,
) -> WithoutHeads | UnsetType:
    """The document's part about what would come next if these heads wrote nothing; UNSET without
    heads.

    position: of the token measured.
    rows: query rows at a time, None for all.
    top: how many of the likeliest tokens.
    entry: the vocabulary entry asked about.
    masked: whether the token measured is a mask.
    """
    if not heads:
        return UNSET
    heads_by_layer: dict[int, list[int]] = {}
    for layer, head in heads:
        heads_by_layer.setdefault(layer, []).append(head)
    # what these heads mix in self-attention becomes 0
    changes: Interventions = {
        (layer, "self"): (Zero(tuple(numbers)),) for layer, numbers in heads_by_layer.items()
    }
    run = _run(model, tokens, position, rows, each_token=False, interventions=changes)
    (logits,) = token_logits(model, run.by_layer[-1:], masked=masked)
    return WithoutHeads(
        heads=[PlacedHead(layer=layer, head=head) for layer, head in heads],
        top=_likeliest(model, logits, top),
        entropy=_entropy(logits),
        target=_target(model, logits, entry),
    )
