"""`attncli.find_pairs`: which heads send one token to another over pairs of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from attncli.arrays.backend import EVERY, Selection
from attncli.documents.header import header, notes
from attncli.errors import InputError
from attncli.features.effects.ablation import Removal, RemovalResult, refuse_foreign, remove
from attncli.features.effects.document import Difference
from attncli.features.effects.measures import MeasureRequest
from attncli.features.effects.pair_effects import mean_differences, pairs_summary
from attncli.features.effects.places import places
from attncli.features.effects.sweep import CutLink, SweepSize, pass_cost
from attncli.features.find.document import FindDocument, PairLink
from attncli.inputs.token import Token, choose_span, ignore
from attncli.language import message
from attncli.measure.mean_intervals import mean_intervals
from attncli.measure.pair_measure import (
    FittedPairs,
    TokenPair,
    fitting_pairs,
    measured_differences,
    progress_of_pair,
)
from attncli.measure.row_facts import Floats
from attncli.mechanism.attend import RowBlock
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.spec import HeadSelection
from attncli.models.estimate import CostEstimate, free_memory, with_held_weights, with_runs
from attncli.models.model import Model
from attncli.models.passes import decoding_seconds
from attncli.models.run import rows_for

RUNS = 3
"""Runs of a text that one pair takes: both texts for their weights, and the clean one once more for
its logits."""


class PairEnds(Struct, frozen=True):
    """The positions of a link in both texts of a pair.

    queries: the tokens that look.
    keys: the tokens that are looked at.
    others: the places of the other answer (versus) up to the query; empty without any.
    """

    queries: tuple[int, ...]
    keys: tuple[int, ...]
    others: tuple[int, ...]


def pair_ends(pair: TokenPair, start: str | None, end: str | None) -> PairEnds:
    """Find the positions of a link in the clean text of a pair, and where the other answer stands
    up to its query.

    start: the name of the token that looks; None for the last.
    end: the name of the token looked at; None for every place where the answer stands.

    Raises InputError where a token is not there.
    """

    def positions_of(name: str) -> tuple[int, ...]:
        """The positions of the tokens of a name."""
        first, stop = choose_span(pair.clean, name, ignore)
        return tuple(range(first, stop))

    queries: tuple[int, ...] = (len(pair.clean) - 1,)
    if start is not None:
        queries = positions_of(start)
    up_to_query = pair.clean[: queries[-1] + 1]
    others = tuple(place for place, token in enumerate(up_to_query) if token.id == pair.versus)
    if end is not None:
        return PairEnds(queries=queries, keys=positions_of(end), others=others)
    keys = tuple(place for place, token in enumerate(up_to_query) if token.id == pair.answer)
    if not keys:
        what = message(
            "the answer {answer} does not stand in {text}",
            answer=repr(pair.pair.answer),
            text=repr(pair.pair.clean),
        )
        raise InputError(what, expected="--to TOK: the token that is looked at, in each clean text")
    return PairEnds(queries, keys, others)


class _LinkRows:
    """Collects how much weight some queries give to some sets of keys, mean over the queries and sum
    over the keys of a set.

    queries: the positions of the queries.
    keys: by set, the positions of its keys.
    weights: by (layer, head), one number for each set, [set].
    """

    def __init__(self, model: Model, queries: Sequence[int], keys: Sequence[Sequence[int]]) -> None:
        self._model = model
        self._queries = queries
        self._keys = keys
        self.weights: dict[tuple[int, int], Floats] = {}

    def on_block(self, layer: int, kind: str, block: RowBlock) -> None:
        """Called with each block of query rows: add what the queries in it give to the keys.

        kind: "self", or "cross" for attention to another text, which is passed over.
        block: the queries start..stop−1 over the keys low..high−1; its weights are
            [head, query, key].
        """
        if kind != "self":
            return
        weights = np.asarray(self._model.backend.numpy(block.stages["weights"]), np.float64)
        for query in self._queries:
            if not block.start <= query < block.stop:
                continue
            for number, keys in enumerate(self._keys):
                # a block of keys may hold some of the set, or none: then 0 is added
                columns = [key - block.low for key in keys if block.low <= key < block.high]
                sums = weights[..., query - block.start, columns].sum(-1) / len(self._queries)
                for head, value in enumerate(sums.tolist(), block.first_head):
                    row = self.weights.setdefault((layer, head), np.zeros(len(self._keys)))
                    row[number] += value


def link_weights(
    model: Model, tokens: Sequence[Token], ends: PairEnds, selection: HeadSelection
) -> Floats:
    """What the queries of a link give its keys and those of the other answer in each chosen head of
    self-attention, [head, 2], float64."""
    chosen = own_places(model, selection)
    # the rows are collected block by block as the text runs; the traces themselves are not needed
    rows = _LinkRows(model, ends.queries, (ends.keys, ends.others))
    for _ in model.trace(
        list(tokens),
        layers=sorted({layer for layer, _ in chosen}),
        keep=("weights",),
        rows=rows_for(model.spec, len(tokens)),
        on_block=rows.on_block,
    ):
        pass
    return np.stack([rows.weights[place] for place in chosen])


def own_places(model: Model, selection: HeadSelection) -> list[tuple[int, int]]:
    """The chosen heads of self-attention, (layer, head), in the order of layers. Raises InputError
    for none."""
    chosen = [
        (place.layer, place.head) for place in places(model.spec, selection) if place.kind == "self"
    ]
    if not chosen:
        raise InputError(
            "no chosen head has such a link", expected="heads of the attention that the link is in"
        )
    return chosen


@checked
def find_pairs(
    model: Model,
    file: str | Path,
    *,
    query: str | None = None,
    key: str | None = None,
    effect: bool = False,
    count: int | None = None,
    layers: Selection = EVERY,
    heads: Selection | HeadSelection = EVERY,
    memory: int | None = None,
    on_cost: Callable[[CostEstimate, int], None] = ignore,
    progress: Callable[[float], None] = ignore,
) -> FindDocument:
    """Find the heads that send one token to another in the clean texts of pairs. Each head is
    returned with the mean weight of the link in the clean texts, and in the corrupt texts at the
    same positions.

    Args:
        model: A decoder with an output head, as `attncli.load` returns it.
        file: A file of pairs, or the name of a task of the package; pairs that do not fit the model
            are left out and counted.
        query: The token of each clean text that looks; None for the last.
        key: The token that is looked at; None for the answer, wherever it stands.
        effect: Whether it is also measured what m = logit(answer) − logit(versus) loses where the
            link is cut in one head.
        count: How many pairs; None for all of a file, and for what a template says.
        layers: Which layers: a number, several, or a text such as "0,2-5"; see `HeadSelection`.
        heads: Which heads of each: 11, [0, 3], "2-5"; or any with their layers, "L5H11" or
            (5, 11), as a `HeadSelection` too, which then counts alone.
        memory: Bytes there may be; None for what is free.
        on_cost: Called before the work starts, with its estimated cost and the number of tokens.
        progress: Called with the share done, 0 to 1.

    Returns:
        What `attn find --pairs --json` writes; its text and its two ends are those of the first
        pair.

    Raises:
        InputError: For a file that cannot be read, without a pair that fits the model, and for
            tokens that a clean text does not have.
        UnsupportedError: For a model that predicts no token, or runs through transformers.
        LimitError: For what memory does not hold.
    """
    fitted = fitting_pairs(model, file, count)
    refuse_foreign(model)
    if isinstance(heads, HeadSelection):
        selection = heads
    else:
        selection = HeadSelection(layers, heads)
    ends = located_ends(fitted, query, key)
    chosen = own_places(model, selection)
    first_query = min(link.queries[0] for link in ends)
    _tell_cost(model, fitted, selection, first_query if effect else None, memory, on_cost)

    # the link's weights in both texts of each pair; where it is cut, too, that is half of the work
    share = 0.5 if effect else 1.0
    weights: list[Floats] = []
    for number, (pair, link) in enumerate(zip(fitted.pairs, ends, strict=True)):
        clean_weights = link_weights(model, pair.clean, link, selection)
        corrupt_weights = link_weights(model, pair.corrupt, link, selection)
        weights.append(np.stack([clean_weights, corrupt_weights]))
        progress(share * (number + 1) / len(fitted.pairs))

    # the link cut
    removals: list[RemovalResult] = []
    if effect:
        for number, (pair, link) in enumerate(zip(fitted.pairs, ends, strict=True)):
            on_progress = partial(_progress_of_cuts, progress, number, len(fitted.pairs))
            removals.append(_cut_link(model, pair, link, selection, memory, on_progress))
    return _document(model, fitted, ends, chosen, np.stack(weights), removals)


def located_ends(fitted: FittedPairs, start: str | None, end: str | None) -> list[PairEnds]:
    """The positions of the link in each pair. Errors name the pair.

    start: the name of the token that looks; None for the last.
    end: the name of the token looked at; None for every place where the answer stands.
    """
    ends = []
    for number, pair in enumerate(fitted.pairs, 1):
        with located_in_pair(fitted, number):
            ends.append(pair_ends(pair, start, end))
    return ends


@contextmanager
def located_in_pair(fitted: FittedPairs, number: int) -> Iterator[None]:
    """A context in which an InputError that names no place gets the pair's number, counted from 1,
    and its file."""
    try:
        yield
    except InputError as error:
        error.where = error.where or message(
            "{name}, pair {number}", name=fitted.name, number=number
        )
        raise


def _progress_of_cuts(
    progress: Callable[[float], None], number: int, count: int, share: float
) -> None:
    """Call `progress` with the share of the whole work, of which cutting links is the second half.

    number, count: which pair is at work, of how many.
    share: how much of it is done.
    """

    def second_half(done: float) -> None:
        """Call `progress` with a share of the second half."""
        progress(0.5 + 0.5 * done)

    progress_of_pair(second_half, number, count, share)


def _cut_link(
    model: Model,
    pair: TokenPair,
    link: PairEnds,
    selection: HeadSelection,
    memory: int | None,
    progress: Callable[[float], None],
) -> RemovalResult:
    """Measure what m = logit(answer) − logit(versus), read after the last token, loses where the
    link of a pair's clean text is cut in one head at a time, and in all at once.

    memory: bytes there may be; None for what is free.
    progress: called with the share of the cuts in this pair that is done.
    """
    last = len(pair.clean) - 1
    cut = CutLink(link.queries, link.keys)
    request = MeasureRequest(
        ("difference",),
        positions=(last,),
        position=last,
        target=pair.answer,
        versus=pair.versus,
    )
    return remove(
        model,
        pair.clean,
        Removal(selection, link=cut, baseline="none"),
        request,
        memory=memory,
        progress=progress,
    )


def _tell_cost(
    model: Model,
    fitted: FittedPairs,
    selection: HeadSelection,
    cut_from: int | None,
    memory: int | None,
    on_cost: Callable[[CostEstimate, int], None],
) -> None:
    """Call `on_cost` with the estimated cost of all pairs, each counted as long as the longest, and
    with the number of its tokens.

    cut_from: the query of the link that is cut in one head after the other, which is the first
        token to change (over all pairs, the first); None where no link is cut.
    memory: bytes that cutting may take; None for what is free.
    """
    count = max(len(pair.clean) for pair in fitted.pairs)
    heads = places(model.spec, selection)

    # without cuts each pair is `RUNS` plain runs, which need the memory of one
    one_run = pass_cost(model, count)
    seconds = with_runs(one_run, RUNS * len(fitted.pairs)).seconds
    largest = one_run

    # with cuts each pair also runs once for each head, and these runs take most memory
    if cut_from is not None:
        if memory is None:
            free = free_memory().bytes
        else:
            free = memory
        size = SweepSize(model.spec, count, model.backend.dtype, predicts=True)
        cuts = size.sweep_cost(heads, free, start=cut_from)
        seconds += (cuts.seconds + decoding_seconds(model, count)) * len(fitted.pairs)
        largest = cuts
    all_pairs = replace(largest, seconds=seconds, branches=len(heads))
    on_cost(with_held_weights(all_pairs, model.weights_in_memory), count)


def _document(
    model: Model,
    fitted: FittedPairs,
    ends: Sequence[PairEnds],
    chosen: Sequence[tuple[int, int]],
    weights: Floats,
    removals: Sequence[RemovalResult],
) -> FindDocument:
    """The means over pairs as an `attn.find/1` document, the largest change first.

    ends: the link's positions in each pair.
    chosen: the heads, (layer, head).
    weights: [pair, text, head, set of keys]: of the clean and the corrupt text, to the link's keys
        and to the other answer.
    removals: what cutting the link changes, of each pair; empty where it is not cut.
    """
    texts = [(pair.clean, pair.answer, pair.versus) for pair in fitted.pairs]
    measured = measured_differences(model, texts)
    clean_means, corrupt_means = weights.mean(0)  # each [head, set of keys]
    # a mean over pairs of which some lack the other answer would say nothing
    has_other = all(link.others for link in ends)

    # what m loses where the link is cut; not measured, which `None` says: the same with all other
    # heads held at the weights of the unchanged run
    differences: list[Difference | UnsetType] = [UNSET] * len(chosen)
    together: Difference | UnsetType = UNSET
    if removals:
        # every head's effect, then that of all heads at once
        costs = mean_differences(
            [[effect.readings for effect in result.effects] for result in removals],
            [[None] * len(result.effects) for result in removals],
        )
        by_place = {
            (effect.place.layer, effect.place.head): difference
            for effect, difference in zip(removals[0].effects, costs, strict=True)
        }
        differences = [by_place[place] for place in chosen]
        (together,) = mean_differences([[result.together] for result in removals], [[None]])

    # how much more weight the link has in the clean text, [pair, head]; of the sets of keys 0 is the
    # link's, 1 the other answer's
    clean_links = weights[:, 0, :, 0]
    corrupt_links = weights[:, 1, :, 0]
    changes = mean_intervals(clean_links - corrupt_links)
    rows = [
        PairLink(
            layer=layer,
            head=head,
            weight=float(clean_means[number, 0]),
            corrupt=float(corrupt_means[number, 0]),
            versus=float(clean_means[number, 1]) if has_other else UNSET,
            change=interval.mean,
            low=interval.low,
            high=interval.high,
            sign_share=interval.same_sign,
            difference=differences[number],
        )
        for number, ((layer, head), interval) in enumerate(zip(chosen, changes, strict=True))
    ]
    first = fitted.pairs[0]
    return FindDocument(
        **header(model, first.pair.clean, first.clean),
        query=ends[0].queries[-1],
        key=ends[0].keys[0],
        words=False,
        heads=[],
        pairs=pairs_summary(fitted, measured),
        pair_links=sorted(rows, key=lambda row: (-abs(row.change), row.layer, row.head)),
        difference_together=together,
        warnings=notes(model, first.pair.clean, first.clean),
    )
