"""`attncli.ablate_pairs`, `patch_pairs`, `logits_pairs`: what heads do to a difference of two logits,
over pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from attncli.arrays.backend import EVERY, Selection
from attncli.documents.header import header, notes, token_rows
from attncli.errors import InputError
from attncli.features.effects.ablation import (
    Removal,
    RemovalResult,
    refuse_foreign,
    remove,
    text_for_sweep,
    token_place,
)
from attncli.features.effects.document import (
    AblateDocument,
    Difference,
    EffectRow,
    LogitsDocument,
    Measures,
    PairsSummary,
    PatchDocument,
    PatchRow,
    ToldHead,
)
from attncli.features.effects.logit_parts import Attribution, attribute, part_row
from attncli.features.effects.measures import MeasureRequest
from attncli.features.effects.patching import (
    LEAST,
    PatchRequest,
    PatchResult,
    PathReceiver,
    parse_receivers,
    patch,
)
from attncli.features.effects.places import may_start_late, places
from attncli.features.effects.sweep import (
    By,
    ByMean,
    ByZero,
    SweepSize,
    pass_cost,
    resample_from,
)
from attncli.features.effects.targets import target_token
from attncli.inputs.token import ignore
from attncli.language import message
from attncli.measure.mean_intervals import mean_intervals, ratio_intervals
from attncli.measure.pair_measure import (
    FittedPairs,
    TokenPair,
    fitting_pairs,
    progress_of_pair,
)
from attncli.measure.row_facts import Floats
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.spec import HeadSelection
from attncli.models.estimate import CostEstimate, free_memory, with_held_weights, with_runs
from attncli.models.model import Model
from attncli.models.passes import decoding_seconds

BESIDES = 2
"""Whole runs that a pair takes besides those of single heads, measured on SmolLM2 in one layer."""
PairBaseline = Literal["corrupt", "zero", "mean"]
"""What stands for a head in the clean text: its values in the corrupt one, nothing, its mean."""


@checked
def ablate_pairs(
    model: Model,
    file: str | Path,
    *,
    count: int | None = None,
    by: PairBaseline = "corrupt",
    layers: Selection = EVERY,
    heads: Selection | HeadSelection = EVERY,
    together: bool = False,
    hold: Literal["attention"] | None = None,
    memory: int | None = None,
    on_cost: Callable[[CostEstimate, int], None] = ignore,
    progress: Callable[[float], None] = ignore,
) -> AblateDocument:
    """Ablate heads one at a time and all at once in the clean text of each pair, and return what
    m = logit(answer) − logit(versus) loses: means over the pairs with their intervals.

    Args:
        model: A decoder with an output head, as `attncli.load` returns it.
        file: A file of pairs, or the name of a task of the package; pairs that do not fit the model
            are left out and counted.
        count: How many pairs; None for all of a file, and for as many as a template gives.
        by: What stands for a head: its values in the corrupt text, token by token; nothing; or its
            mean over the clean text.
        layers: Which layers: a number, several, or a text such as "0,2-5"; see `HeadSelection`.
        heads: Which heads of each: 11, [0, 3], "2-5"; or any with their layers, "L5H11" or
            (5, 11), as a `HeadSelection` too, which then counts alone.
        together: Whether only what taking all of them away at once does is measured.
        hold: "attention" to measure it a second time while every head attends as in the clean
            text's own run.
        memory: Bytes there may be; None for what is free.
        on_cost: Called before the work starts, with its estimated cost and the number of tokens.
        progress: Called with the share done, 0 to 1.

    Returns:
        What `attn ablate --pairs --json` writes; its text is the first clean one.

    Raises:
        InputError: For a file that cannot be read, or without a pair that fits the model.
        UnsupportedError: For a model that predicts no token.
        LimitError: For what memory does not hold.
    """
    fitted = fitting_pairs(model, file, count)
    if isinstance(heads, HeadSelection):
        selection = heads
    else:
        selection = HeadSelection(layers, heads)
    _tell_cost(
        model,
        fitted,
        selection,
        memory,
        on_cost,
        passes=2 if hold else 1,
        late=by == "corrupt",
    )
    results: list[RemovalResult] = []
    for number, pair in enumerate(fitted.pairs):
        on_progress = partial(progress_of_pair, progress, number, len(fitted.pairs))
        # where no token sees later ones, both texts are the same before they first differ
        if by == "corrupt" and may_start_late(model.spec):
            start = pair.first_difference
        else:
            start = 0
        removal = Removal(
            selection,
            _baseline(model, pair, by),
            together=together,
            baseline="none",
            hold=hold is not None,
            start=start,
        )
        last = len(pair.clean) - 1
        request = MeasureRequest(
            ("difference",),
            positions=(last,),
            position=last,
            target=pair.answer,
            versus=pair.versus,
        )
        results.append(
            remove(model, pair.clean, removal, request, memory=memory, progress=on_progress)
        )
    return _document(model, fitted, results, by)


@checked
def patch_pairs(
    model: Model,
    file: str | Path,
    *,
    count: int | None = None,
    into: Sequence[str] = (),
    layers: Selection = EVERY,
    heads: Selection | HeadSelection = EVERY,
    memory: int | None = None,
    on_cost: Callable[[CostEstimate, int], None] = ignore,
    progress: Callable[[float], None] = ignore,
) -> PatchDocument:
    """Put each head's output in the clean text of each pair into a run of the corrupt text, and
    return the share of the difference between the two that this brings back, over all pairs
    together.

    Args:
        model: A decoder with an output head, as `attncli.load` returns it.
        file: A file of pairs, or the name of a task of the package; pairs that do not fit the model
            are left out and counted.
        count: How many pairs; None for all of a file, and for as many as a template gives.
        into: The only heads that read the clean text's output, each with the projection that reads
            it, such as "L5H11:q"; empty for all that comes after.
        layers: Which layers: a number, several, or a text such as "0,2-5"; see `HeadSelection`.
        heads: Which heads of each: 11, [0, 3], "2-5"; or any with their layers, "L5H11" or
            (5, 11), as a `HeadSelection` too, which then counts alone.
        memory: Bytes there may be; None for what is free.
        on_cost: Called before the work starts, with its estimated cost and the number of tokens.
        progress: Called with the share done, 0 to 1.

    Returns:
        What `attn patch --pairs --json` writes; a share is Σ of what pairs bring back over Σ of what
        their texts differ by.

    Raises:
        InputError: For a file that cannot be read, without a pair that fits the model, and for
            texts that differ in nothing on average.
        UnsupportedError: For a model that predicts no token.
        LimitError: For what memory does not hold.
    """
    fitted = fitting_pairs(model, file, count)
    if isinstance(heads, HeadSelection):
        selection = heads
    else:
        selection = HeadSelection(layers, heads)
    _tell_cost(model, fitted, selection, memory, on_cost, late=True)
    results: list[PatchResult] = []
    receivers = tuple(parse_receivers(into, model.spec))
    for number, pair in enumerate(fitted.pairs):
        on_progress = partial(progress_of_pair, progress, number, len(fitted.pairs))
        last = len(pair.clean) - 1
        patching = PatchRequest(
            selection=selection,
            positions=tuple(range(pair.first_difference, last + 1)),
            query=(last,),
            measure="logit difference",
            target=pair.answer,
            versus=pair.versus,
            into=receivers,
            least=0.0,  # a single pair may differ in nothing: all pairs together must not
            predict=False,
        )
        results.append(
            patch(
                model,
                pair.clean,
                pair.corrupt,
                patching,
                memory=memory,
                progress=on_progress,
            )
        )
    return _patch_document(model, fitted, results, receivers)


def _patch_document(
    model: Model,
    fitted: FittedPairs,
    results: Sequence[PatchResult],
    receivers: Sequence[PathReceiver],
) -> PatchDocument:
    """The shares of all pairs together as an `attn.patch/1` document, the largest first: of each head
    Σ of what it brings back in each pair over Σ of what the pair's texts differ by.

    results: of each pair, in the order of `fitted`.
    receivers: the only heads that read the clean output; empty for all.

    Raises InputError where the texts do not differ on average.
    """
    clean = np.asarray([result.clean for result in results])
    corrupt = np.asarray([result.corrupt for result in results])
    sizes = clean - corrupt
    # `not … >=`, so that NaN is refused, too
    if not abs(sizes.mean()) >= LEAST:
        what = message("clean and corrupt texts of these pairs give the same on average")
        raise InputError(what, expected="pairs whose answers differ")
    # every pair has the same heads, in the same order
    changes = np.asarray([[change for _, change in result.changes] for result in results])
    addresses = [place for place, _ in results[0].changes]
    rows = [
        PatchRow(
            attention=place.kind,
            layer=place.layer,
            head=place.head,
            recovered=interval.mean,
            low=interval.low,
            high=interval.high,
            sign_share=interval.same_sign,
        )
        for place, interval in zip(addresses, ratio_intervals(changes, sizes), strict=True)
    ]
    first = fitted.pairs[0]
    last = len(first.clean) - 1
    return PatchDocument(
        **header(model, first.pair.clean, first.clean, computing=results[0].backend),
        clean=first.pair.clean,
        corrupt=first.pair.corrupt,
        corrupt_tokens=token_rows(first.corrupt),
        places=list(range(first.first_difference, last + 1)),
        query=[last],
        measure="logit difference",
        target=None,
        versus=None,
        pairs=pairs_summary(fitted, clean),
        into=[
            ToldHead(layer=receiver.layer, head=receiver.head, side=receiver.side)
            for receiver in receivers
        ]
        or UNSET,
        m_clean=float(clean.mean()),
        m_corrupt=float(corrupt.mean()),
        effects=sorted(rows, key=lambda row: -row.recovered),
        warnings=notes(model, first.pair.clean, first.clean),
    )


@checked
def logits_pairs(
    model: Model,
    file: str | Path,
    *,
    count: int | None = None,
    on_cost: Callable[[CostEstimate, int], None] = ignore,
    progress: Callable[[float], None] = ignore,
) -> LogitsDocument:
    """Split m = logit(answer) − logit(versus) after the clean text of each pair into what each part
    adds, and return the means over pairs with their intervals.

    Args:
        model: A decoder with an output head, as `attncli.load` returns it.
        file: A file of pairs, or the name of a task of the package.
        count: How many pairs; None for all of a file, and for as many as a template gives.
        on_cost: Called before the work starts, with its estimated cost and the number of tokens.
        progress: Called with the share done, 0 to 1.

    Returns:
        What `attn logits --pairs --json` writes; its parts add up to the mean of m.

    Raises:
        InputError: For a file that cannot be read, or without a pair that fits the model.
        UnsupportedError: For a model that predicts no token.
    """
    fitted = fitting_pairs(model, file, count)
    refuse_foreign(model)
    longest = max(len(pair.clean) for pair in fitted.pairs)
    on_cost(with_runs(pass_cost(model, longest), len(fitted.pairs)), longest)
    attributions: list[Attribution] = []
    for number, pair in enumerate(fitted.pairs):
        text = text_for_sweep(model, pair.clean, [])
        attribution = attribute(text, len(pair.clean) - 1, pair.answer, pair.versus)
        attributions.append(attribution)
        progress((number + 1) / len(fitted.pairs))
    # every pair has the same parts, in the same order: [pair, part]
    values = np.asarray([[value for _, value in row.parts] for row in attributions])
    terms = [term for term, _ in attributions[0].parts]
    logits = np.asarray([row.logit for row in attributions])
    first = fitted.pairs[0]
    backend = text_for_sweep(model, first.clean, []).backend  # of the text that the document names
    return LogitsDocument(
        **header(model, first.pair.clean, first.clean, computing=backend),
        position=len(first.clean) - 1,
        target=target_token(model, first.answer),
        versus=target_token(model, first.versus),
        pairs=pairs_summary(fitted, logits),
        softcap=attributions[0].softcap,
        logit=float(logits.mean()),
        sum=float(values.sum(1).mean()),
        parts=[
            replace(
                part_row(term, interval.mean),
                low=interval.low,
                high=interval.high,
                sign_share=interval.same_sign,
            )
            for term, interval in zip(terms, mean_intervals(values), strict=True)
        ],
        warnings=notes(model, first.pair.clean, first.clean),
    )


def _baseline(model: Model, pair: TokenPair, by: PairBaseline) -> By:
    """What replaces a head's output in the clean text of a pair; with "corrupt", that text is run
    here."""
    if by == "zero":
        return ByZero()
    if by == "mean":
        return ByMean()
    corrupt_text = text_for_sweep(model, pair.corrupt, branches=[])
    return resample_from(corrupt_text)


def _tell_cost(
    model: Model,
    fitted: FittedPairs,
    selection: HeadSelection,
    memory: int | None,
    on_cost: Callable[[CostEstimate, int], None],
    *,
    passes: int = 1,
    late: bool,
) -> None:
    """Call `on_cost` with the estimated cost of all pairs, of which the longest counts for each.

    memory: bytes there may be; None for what is free.
    passes: how often each change runs.
    late: whether changed runs begin where the texts differ.
    """
    if not model.own_layers:
        return
    count = max(len(pair.clean) for pair in fitted.pairs)
    if memory is None:
        free = free_memory().bytes
    else:
        free = memory
    size = SweepSize(model.spec, count, model.backend.dtype, predicts=True)
    start = 0
    if late:
        start = min(pair.first_difference for pair in fitted.pairs)
    estimate = size.sweep_cost(places(model.spec, selection), free, start=start, passes=passes)
    # besides, both texts run once, and the clean one with every change
    besides = with_runs(pass_cost(model, count), BESIDES * len(fitted.pairs)).seconds
    swept = estimate.seconds + passes * decoding_seconds(model, count)
    estimate = replace(estimate, seconds=swept * len(fitted.pairs) + besides)
    on_cost(with_held_weights(estimate, model.weights_in_memory), count)


def _document(
    model: Model, fitted: FittedPairs, results: list[RemovalResult], by: PairBaseline
) -> AblateDocument:
    """The means over pairs as an `attn.ablate/1` document, the largest first. Its text is the first
    clean one.

    results: of each pair, in the order of `fitted`; each has measured "difference" of the same
        heads in the same order.
    by: what stood for a head.
    """
    first = fitted.pairs[0]
    last = len(first.clean) - 1
    addresses = [effect.place for effect in results[0].effects]
    differences = mean_differences(
        [[effect.readings for effect in result.effects] for result in results],
        [[effect.holding for effect in result.effects] for result in results],
    )
    # `or 0.0` is for the type alone, here and below: a difference was measured in every pair
    rows = sorted(zip(addresses, differences, strict=True), key=lambda row: -abs(row[1].all or 0.0))
    (together,) = mean_differences(
        [[result.together] for result in results], [[result.holding] for result in results]
    )
    return AblateDocument(
        **header(model, first.pair.clean, first.clean, computing=results[0].backend),
        by="resample" if by == "corrupt" else by,
        measures=["difference"],
        place=token_place((last,)),
        every=False,
        position=last,
        target=None,
        pairs=pairs_summary(fitted, np.asarray([result.m_clean or 0.0 for result in results])),
        link=None,
        effects=[
            EffectRow(
                attention=place.kind,
                layer=place.layer,
                head=place.head,
                difference=difference,
                weight=None,
                looks=None,
                random=None,
            )
            for place, difference in rows
        ],
        together=Measures(difference=together),
        warnings=notes(model, first.pair.clean, first.clean),
    )


def mean_differences(
    readings: Sequence[Sequence[Mapping[str, float]]],
    holding: Sequence[Sequence[Mapping[str, float] | None]],
) -> list[Difference]:
    """What each change loses of m on average, with its interval, from the readings of each pair,
    [pair][change].

    holding: the same while every head attends as in the unchanged run, [pair][change], each None
        where that was not measured.

    Returns one `Difference` for each change; empty without any.
    """
    whole = np.asarray([[reading["difference"] for reading in row] for row in readings])
    if not whole.size:
        return []
    writes = [[reading["difference"] for reading in row if reading is not None] for row in holding]
    intervals = mean_intervals(whole)
    differences = [
        Difference(
            all=interval.mean,
            low=interval.low,
            high=interval.high,
            sign_share=interval.same_sign,
        )
        for interval in intervals
    ]
    if not all(writes):  # not measured: each pair's list is empty
        return differences
    return [
        replace(
            difference,
            writes=writing.mean,
            moved=interval.mean - writing.mean,
            writes_low=writing.low,
            writes_high=writing.high,
        )
        for difference, interval, writing in zip(
            differences, intervals, mean_intervals(np.asarray(writes)), strict=True
        )
    ]


def pairs_summary(fitted: FittedPairs, measured: Floats) -> PairsSummary:
    """The document's summary of the pairs: how many there were, the mean of m over their clean texts
    with its interval, and in what share of them the answer is ahead.

    measured: m = logit(answer) − logit(versus) after each clean text, [pair].
    """
    (interval,) = mean_intervals(measured[:, None])
    return PairsSummary(
        name=fitted.name,
        count=len(measured),
        right=float((measured > 0).mean()),
        mean=interval.mean,
        low=interval.low,
        high=interval.high,
        left_out=len(fitted.faults),
    )
