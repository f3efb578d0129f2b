"""The document of `attn ablate --each-region`: the log probability of an answer without the links
to each region.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from attncli.documents import RegionRow
from attncli.documents.header import header, notes
from attncli.documents.parts import NextToken
from attncli.errors import InputError, LimitError
from attncli.features.effects.ablation import refuse_foreign
from attncli.features.effects.measures import log_softmax, next_logits
from attncli.features.effects.predictions import LIKELIEST
from attncli.features.effects.targets import (
    choose_target,
    following_tokens,
    has_entry,
    likeliest_tokens,
    target_tokens,
)
from attncli.features.regions.document import RegionEffect, RegionsDocument
from attncli.features.run.compute import RunRequest, cost
from attncli.inputs.regions import LeafRegion, Region, leaf_regions
from attncli.inputs.token import Token, ignore
from attncli.language import message
from attncli.measure.kept_results import KeptResults, fingerprint
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.context import (
    NO_INTERVENTIONS,
    Interventions,
    Kind,
    KnockOut,
    Weights,
)
from attncli.mechanism.trace import LayerTrace
from attncli.models.estimate import CostEstimate, with_predictions, with_runs
from attncli.models.model import Model
from attncli.models.run import (
    LONG,
    LeavingBranches,
    ProgressStore,
    Trunk,
    no_output_head,
    rows_for,
    run_branches,
)

Floats = np.ndarray[Any, np.dtype[np.float64]]


class RegionResults(Struct, frozen=True):
    """The log probabilities of the answer that are known: of the whole text, and without the links
    to a region, by the region's number; more are added as they come.

    answer: the entries whose log probabilities are summed.
    holding: by region, without the links to it while every head attends as in the own run; empty
        where that is not measured.
    top: by region, the likeliest tokens after the text without the links to it.
    """

    answer: list[int] = []
    logprob: float | None = None
    regions: dict[int, float] = {}
    holding: dict[int, float] = {}
    top: dict[int, list[NextToken]] = {}


@checked
def each_region(
    model: Model,
    text: str,
    regions: Sequence[Region],
    *,
    target: str | None = None,
    hold: Literal["attention"] | None = None,
    tokens: Sequence[Token] | None = None,
    kept: Path | None = None,
    note: Callable[[str], None] = ignore,
    on_cost: Callable[[CostEstimate, int], None] = ignore,
    on_result: Callable[[int, int], None] = ignore,
    on_interruption: Callable[[RegionsDocument], None] = ignore,
    progress: Callable[[float], None] = ignore,
) -> RegionsDocument:
    """Cut the links to each region (a named set of tokens) in turn, in all heads, and measure how
    the answer's log probability changes. A region that holds others is cut without these.

    A cut takes away what tokens outside the region read of it; within it they go on reading each
    other. The text runs once for each region, and once as it is.

    Args:
        model: As `attncli.load` returns it, with an output head.
        text: What runs.
        regions: As `attncli.inputs.regions.find_regions` returns them.
        target: The answer: one entry, "id:N", or several tokens, whose log probabilities are
            summed; None is the model's own first choice.
        hold: "attention" to measure each cut a second time while every head attends as in the
            text's own run: the rest of a row whose links are cut grows, all else stays.
        tokens: Those of the text; None to let the model's tokenizer find them.
        kept: A folder where results are kept until all are known, so that the same call goes on
            after an interruption.
        note: Called with a sentence that says which spelling of the target is taken.
        on_cost: Called before the work starts, with its estimated cost and the number of tokens.
        on_result: Called with the number of runs that are done, and of all.
        on_interruption: Called with what is known where Ctrl-C ends the work after a region or more.
        progress: Called with the share done, 0 to 1.

    Returns:
        What `attn ablate --each-region --json` writes.

    Raises:
        InputError: For a target that is no text of the vocabulary, and without regions.
        KeyboardInterrupt: On Ctrl-C, after `on_interruption`.
        UnsupportedError: For a model that predicts no token.
    """
    if tokens is None:
        tokens = model.encode(text)
    if not regions:
        raise InputError(
            "there are no regions to cut off",
            expected="--region NAME=SPEC, or --chat",
            hint="attn guide long",
        )
    if model.spec.head is None:
        raise no_output_head(model.spec)
    leaves = leaf_regions(regions)
    answer: list[int] = []  # empty for the model's first choice, which its own run gives
    if target is not None:
        answer = list(choose_target(model, tokens, target, note=note).ids)
    # what runs: the text, and the answer's tokens but the last, which is predicted and not read
    following = [*tokens, *following_tokens(model, tokens, answer[:-1])]
    model.encode(following)  # raises where the model has fewer positions
    rows = None  # query rows at a time; None for all
    if len(tokens) > LONG:
        rows = rows_for(model.spec, len(tokens))

    # report the cost before anything runs
    runs = len(leaves) + 1  # that are reported: one for each region, and the text's own
    if hold is not None:
        _refuse_hold(model, len(tokens))
    # with --hold, the text's own run goes along with each cut one: together they take as long as
    # two, which was measured
    passes = runs + (len(leaves) if hold is not None else 0)
    estimate = cost(model, len(tokens), RunRequest(matrices=False), is_saved=False, rows=rows)
    predicted = max(len(answer), 1)  # tokens: the model's first choice is one
    estimate = with_predictions(estimate, model.spec, predicted, model.backend.dtype)
    on_cost(with_runs(estimate, passes), len(tokens))

    # results of an interrupted call with the same model, text, regions and target
    cut_regions = [(region.name, region.tokens) for region in leaves]
    path = None
    if kept is not None:
        # without --hold as before there was that option, so that older results stay of use
        request = target if hold is None else (target, hold)
        path = kept / f"{fingerprint(model, tokens, cut_regions, request)}.json"
    file = KeptResults[RegionResults](path, RegionResults)
    results = file.read() or RegionResults()

    def progress_of_run(done: int) -> Callable[[float], None]:
        """The function to call with the share of a run that is done, where `done` runs have ended
        before it: it calls `progress` with the share of all runs.
        """
        return lambda share: progress((done + share) / runs)

    def document_so_far(more: Sequence[str] = ()) -> RegionsDocument:
        """The document of the regions that are measured so far.

        more: warnings to add to those about the text.
        """
        effects = [
            _region_effect(leaves, index, logprob, results)
            for index, logprob in results.regions.items()
        ]
        # the largest loss first; `or 0.0` is for the type checker: every change is known here
        effects.sort(key=lambda effect: (effect.change or 0.0, effect.region))
        return RegionsDocument(
            **header(model, text, tokens),
            regions=[RegionRow(name=region.name, tokens=list(region.tokens)) for region in leaves],
            target=target_tokens(model, results.answer),
            logprob=results.logprob,
            effects=effects,
            warnings=[*notes(model, text, tokens), *more],
        )

    try:
        if results.logprob is None:
            scores = _last_logits(
                model, following, predicted, rows, NO_INTERVENTIONS, progress_of_run(0)
            )
            answer = answer or [first_choice(model, scores)]  # where no target is named
            results = replace(results, answer=answer, logprob=sum_logprob(scores, answer))
            file.keep(results)
        on_result(len(results.regions) + 1, runs)
        for index, region in enumerate(leaves):
            if index in results.regions:  # of an interrupted call
                continue
            cut = _cut_links(model, region, len(following))
            scores = _last_logits(
                model, following, len(results.answer), rows, cut, progress_of_run(index + 1)
            )
            logprob = sum_logprob(scores, results.answer)
            if hold is not None:
                results.holding[index] = _held_logprob(model, following, cut, results.answer)
            # the first of the scores is read after the text, the others after the answer's tokens
            after_text = np.exp(log_softmax(scores[:1]))[0]
            results.top[index] = likeliest_tokens(model, after_text, LIKELIEST)
            # last, since a region that stands here counts as measured
            results.regions[index] = logprob
            file.keep(results)
            on_result(len(results.regions) + 1, runs)
    except KeyboardInterrupt:  # it may have come before the last result was kept, or told of
        if results.logprob is not None:
            file.keep(results)
            on_result(len(results.regions) + 1, runs)
        if results.regions:
            on_interruption(document_so_far([interruption_note(len(results.regions) + 1, runs)]))
        raise
    file.drop()
    return document_so_far()


def _region_effect(
    leaves: Sequence[LeafRegion], index: int, logprob: float, results: RegionResults
) -> RegionEffect:
    """The document's entry on what cutting the links to one region changes.

    leaves: all regions.
    index: of the region, among them.
    logprob: of the answer without the links to it.
    results: those so far, the run with all links among them.
    """
    own = results.logprob or 0.0  # never None: the run with all links comes before any other
    change = logprob - own
    inside: list[str] | UnsetType = list(leaves[index].without) or UNSET
    top = results.top.get(index, UNSET)
    if index not in results.holding:
        return RegionEffect(region=index, without=inside, logprob=logprob, change=change, top=top)
    # with the attention held, what is lost is what the region writes; the rest is what heads look at
    # instead
    writes = results.holding[index] - own
    return RegionEffect(
        region=index,
        without=inside,
        logprob=logprob,
        change=change,
        top=top,
        writes=writes,
        moved=change - writes,
    )


def _refuse_hold(model: Model, count: int) -> None:
    """Raise UnsupportedError for a model whose layers cannot be run one by one, and LimitError for
    a text so long that the weights of a layer are not held whole; `--hold attention` needs both.

    count: tokens of the text.
    """
    refuse_foreign(model)
    if count > LONG:
        raise LimitError(
            "--hold attention keeps the weights of a layer whole, and the text has {count:,} tokens",
            expected="at most {most:,}",
            hint="no --hold",
            count=count,
            most=LONG,
        )


def _held_logprob(
    model: Model, tokens: Sequence[Token], cut: Interventions, answer: Sequence[int]
) -> float:
    """The log probability of the answer with links cut while every head attends as in the text's
    own run, which runs along layer by layer: the cut is made in the held weights.

    tokens: of the text, followed by those of the answer but its last.
    cut: the links, by layer.
    answer: the ids of the answer's tokens.
    """
    backend = model.compute_backend(len(tokens))

    def changes(trace: LayerTrace) -> Interventions:
        """The links that are cut in the layer of this trace; {} where none are."""
        key: tuple[int, Kind] = (trace.layer, "self")
        if key in cut:
            return {key: cut[key]}
        return {}

    def no_branches(trace: LayerTrace, weights: Weights) -> Iterator[LeavingBranches]:
        """Yield no branches with single changes: all cuts are made together, in one run."""
        yield from ()

    trunk = Trunk(
        model.spec,
        model.store,
        backend,
        model.context(tokens, backend, ("weights",)),
        joint=changes,
        hold=True,
    )
    hidden = model.store.embed(backend, tokens)
    # vectors after the last layer of the run in which all cuts are made
    joint = run_branches(trunk, hidden, no_branches).joint
    assert joint is not None  # since `joint=changes` is given
    scores = next_logits(model, backend, joint[-len(answer) :])  # before each token of the answer
    return sum_logprob(scores, answer)


def interruption_note(count: int, runs: int) -> str:
    """The warning that work was interrupted after `count` of its `runs`."""
    return message("interrupted: {count} of {runs} runs are told of", count=count, runs=runs)


def first_choice(model: Model, scores: Floats) -> int:
    """The id of the token that is likeliest after the last one.

    scores: logits [token, vocabulary].

    Raises InputError for one that the tokenizer does not have: a vocabulary may be padded.
    """
    number = int(np.argmax(scores[-1]))
    if not has_entry(model, number):
        what = message(
            "the model's first choice is entry {number:,}, which its tokenizer does not have",
            number=number,
        )
        raise InputError(what, expected="--target with the answer that is meant")
    return number


def _cut_links(model: Model, region: LeafRegion, count: int) -> Interventions:
    """Interventions that cut the links to a region from the tokens outside it, in all heads of all
    layers.

    count: tokens of the text.
    """
    inside = set(region.tokens)
    outside = tuple(index for index in range(count) if index not in inside)
    return {
        (layer, "self"): [
            KnockOut(tuple(range(model.spec.blocks[layer].attention.heads)), outside, region.tokens)
        ]
        for layer in model.spec.attending()
    }


def _last_logits(
    model: Model,
    tokens: Sequence[Token],
    count: int,
    rows: int | None,
    interventions: Interventions,
    progress: Callable[[float], None],
) -> Floats:
    """The logits after the last `count` tokens, [token, vocabulary], float64.

    rows: query rows at a time, None for all.
    progress: called with the share of the layers that have run.
    """
    last = len(model.spec.blocks) - 1
    # the model with weights that report each layer whose turn it is
    watched = replace(model, store=ProgressStore(model.store, progress))
    (trace,) = watched.trace(
        list(tokens), layers=[last], keep=(), rows=rows, interventions=interventions, idle=True
    )
    return np.asarray(model.backend.numpy(model.logits(trace.after[-count:])), np.float64)


def sum_logprob(scores: Floats, answer: Sequence[int]) -> float:
    """The log probability of all tokens of an answer.

    scores: the logits before each, [token, vocabulary].
    """
    return float(log_softmax(scores)[np.arange(len(answer)), list(answer)].sum())
