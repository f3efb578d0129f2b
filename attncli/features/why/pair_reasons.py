"""`attncli.why_pairs`: why a head looks there, over pairs of texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import EVERY, Selection
from attncli.documents.header import header, notes
from attncli.errors import InputError
from attncli.features.effects.ablation import refuse_foreign, text_for_sweep
from attncli.features.effects.contributions import Contributions, Link, LinkPart, contributions
from attncli.features.effects.pair_effects import pairs_summary
from attncli.features.effects.sweep import pass_cost
from attncli.features.find.pair_links import (
    PairEnds,
    link_weights,
    located_ends,
    located_in_pair,
    own_places,
)
from attncli.features.why.compute import needs_layer_parts, part_row, refuse_hashing
from attncli.features.why.document import (
    PairMean,
    PairReasons,
    ThanKey,
    WhyDocument,
    WhyLink,
    WhyPart,
)
from attncli.inputs.token import choose_span, ignore
from attncli.measure.mean_intervals import MeanInterval, mean_intervals
from attncli.measure.pair_measure import (
    FittedPairs,
    TokenPair,
    fitting_pairs,
    measured_differences,
)
from attncli.measure.row_facts import Floats
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.spec import HeadSelection
from attncli.models.estimate import CostEstimate, with_runs
from attncli.models.model import Model

READ_BY_PARTS = 1.5
"""As long as so many runs takes one that is read part by part, measured on SmolLM2 and Gemma."""
Side = Literal["query", "key", "all_keys"]


class _PairParts(Struct, frozen=True, eq=False):
    """The parts of a link's score in the clean text of one pair.

    total: the advantage, the score above what the row expects or above another key's.
    difference: how far the sum of all parts is from the score.
    query_sides, key_sides: what each part adds to the advantage, [part].
    weights: the link's weight with each part as in the corrupt text, by side, [part].
    rival: the weight of the other key, None without one.
    """

    parts: tuple[LinkPart, ...]
    score: float
    weight: float
    corrupt_weight: float
    total: float
    difference: float
    query_sides: Floats
    key_sides: Floats
    weights: dict[Side, Floats]
    rival: float | None
    softcap: float | None


@checked
def why_pairs(
    model: Model,
    file: str | Path,
    *,
    query: str | None = None,
    key: str | None = None,
    than: str | None = None,
    count: int | None = None,
    layers: Selection = EVERY,
    heads: Selection | HeadSelection = EVERY,
    memory: int | None = None,
    on_cost: Callable[[CostEstimate, int], None] = ignore,
    progress: Callable[[float], None] = ignore,
) -> WhyDocument:
    """Explain why a head attends from one token to another in the clean texts of pairs: what each
    part of the residual stream adds to the score, mean over pairs.

    Args:
        model: A decoder with an output head, as `attncli.load` returns it.
        file: A file of pairs, or the name of a task of the package; pairs that do not fit the model
            are left out and counted.
        query: The token of each clean text that looks; None for the last.
        key: The token that is looked at; None for the answer, where it stands first.
        than: Another key, over which the score's advantage is taken; None for what the row expects.
        count: How many pairs; None for all of a file, and for what a template says.
        layers: Which layers: a number, several, or a text such as "0,2-5"; see `HeadSelection`.
        heads: Which heads of each: 11, [0, 3], "2-5"; or any with their layers, "L5H11" or
            (5, 11), as a `HeadSelection` too; the one whose weight differs most
            between the clean and the corrupt texts is explained.
        memory: Bytes that the work may take; where all parts need more, the heads of a layer are
            one part. None for no limit.
        on_cost: Called before the work starts with its estimated cost and the number of tokens.
        progress: Called with the share of the work that is done, 0 to 1.

    Returns:
        What `attn why --pairs --json` writes. In it, the weight "without" a part is the weight with
        the part as in the corrupt text, at the same place.

    Raises:
        InputError: For a file that cannot be read, without a pair that fits the model, and for
            tokens that a clean text does not have.
        UnsupportedError: For a model that predicts no token, or whose layers do not run one by one.
    """
    fitted = fitting_pairs(model, file, count)
    refuse_foreign(model)
    refuse_hashing(model.spec)
    if isinstance(heads, HeadSelection):
        selection = heads
    else:
        selection = HeadSelection(layers, heads)
    ends = located_ends(fitted, query, key)
    rivals = _other_keys(fitted, than)

    # what it costs; the head to explain is one of these, each (layer, head)
    longest = max(len(pair.clean) for pair in fitted.pairs)
    chosen = own_places(model, selection)
    runs = runs_of_pair(len(chosen)) * len(fitted.pairs)
    expected = with_runs(pass_cost(model, longest), runs)
    on_cost(replace(expected, branches=len(chosen)), longest)

    layer, head = _head_of_largest_change(model, fitted, ends, selection)
    parts = []
    for number, (pair, link, rival) in enumerate(zip(fitted.pairs, ends, rivals, strict=True)):
        # of several tokens that look the last, of those that are looked at the first
        address = Link(layer, "self", head, link.queries[-1], link.keys[0])
        parts.append(_parts_of_pair(model, pair, address, rival, memory))
        progress((number + 1) / len(fitted.pairs))
    return _document(model, fitted, ends, parts, (layer, head), (query, key, than), memory)


def _other_keys(fitted: FittedPairs, than: str | None) -> list[int | None]:
    """The position of the token `than`, which the link's key is compared with, in each clean text;
    None for each text without `than`. Errors name the pair."""
    if than is None:
        return [None] * len(fitted.pairs)
    keys: list[int | None] = []
    for number, pair in enumerate(fitted.pairs, 1):
        with located_in_pair(fitted, number):
            first, _ = choose_span(pair.clean, than, ignore)
            keys.append(first)
    return keys


def runs_of_pair(heads: int) -> float:
    """About how many runs one pair takes as long as: both texts are read part by part, and the logit
    difference is measured; of several heads, the weights of both texts first choose one.

    heads: how many there are to choose from.
    """
    choosing = 0
    if heads > 1:
        choosing = 2
    return choosing + 2 * READ_BY_PARTS + 1


def _head_of_largest_change(
    model: Model, fitted: FittedPairs, ends: Sequence[PairEnds], selection: HeadSelection
) -> tuple[int, int]:
    """The (layer, head) among those of `selection` whose weight on the link differs most between
    clean and corrupt texts, summed over pairs.

    fitted: the pairs that fit the model.
    ends: the link's positions in each pair.
    """
    chosen = own_places(model, selection)
    if len(chosen) == 1:
        return chosen[0]
    total = np.zeros(len(chosen))
    for pair, link in zip(fitted.pairs, ends, strict=True):
        # the weight on the link's own keys, [head]; the second column is of the other answer
        clean, corrupt = (
            link_weights(model, text, link, selection)[:, 0] for text in (pair.clean, pair.corrupt)
        )
        total += clean - corrupt
    return chosen[int(np.abs(total).argmax())]


def _parts_of_pair(
    model: Model, pair: TokenPair, link: Link, than: int | None, memory: int | None
) -> _PairParts:
    """Split the link's score in a pair's clean text into parts, and compute its weight with each part
    as in the corrupt text.

    than: the position of the key that it is compared with; None for its row's mean.
    memory: bytes that the work may take; None for no limit.
    """
    texts = [text_for_sweep(model, tokens, branches=[]) for tokens in (pair.clean, pair.corrupt)]
    by_layer = needs_layer_parts(texts[0], link, memory)
    clean, corrupt = (contributions(text, link, by_layer=by_layer) for text in texts)
    rival = None
    if than is not None:
        rival = clean.weight_of(than)
    return _PairParts(
        parts=clean.parts,
        score=clean.score,
        weight=clean.weight,
        corrupt_weight=corrupt.weight,
        total=clean.total(than),
        difference=float(clean.query_sums[:, clean.place].sum() - clean.score),
        query_sides=np.asarray(clean.centre(clean.query_sums, than)),
        key_sides=np.asarray(clean.centre(clean.key_sums, than)),
        weights=interchanged_weights(clean, corrupt),
        rival=rival,
        softcap=clean.row.softcap,
    )


def interchanged_weights(clean: Contributions, corrupt: Contributions) -> dict[Side, Floats]:
    """The link's weight in the clean text with each part as it is in the corrupt one, [part]: on
    the query's side, at the link's key alone, and at all keys; NaN where a part has no such side.

    Exact, as scores are linear in what parts make in the head's space; every part with the norms
    and rotations of its own run.
    """
    # how each part's change moves the scores of the row, [part, key]; keys are [part, key, dim],
    # queries [part, dim]
    key_total = clean.keys.sum(0, dtype=np.float64)
    query_total = clean.queries.sum(0, dtype=np.float64)
    of_query = clean.scale * (clean.queries - corrupt.queries) @ key_total.T
    of_keys = clean.scale * ((clean.keys - corrupt.keys) @ query_total)
    at_key = np.zeros_like(of_keys)
    at_key[:, clean.place] = of_keys[:, clean.place]
    changes: tuple[tuple[Side, Floats], ...] = (
        ("query", of_query),
        ("key", at_key),
        ("all_keys", of_keys),
    )
    # the change taken away from the clean scores leaves the part as it is in the corrupt text
    weights = {
        side: clean.row.weights_without(removed)[:, clean.place] for side, removed in changes
    }
    # what the position adds is a part of the score itself, and has neither a query nor a key
    for index, part in enumerate(clean.parts):
        if part.kind in ("score_bias", "relative"):
            for values in weights.values():
                values[index] = np.nan
    return weights


def _document(
    model: Model,
    fitted: FittedPairs,
    ends: Sequence[PairEnds],
    parts: Sequence[_PairParts],
    place: tuple[int, int],
    names: tuple[str | None, str | None, str | None],
    memory: int | None,
) -> WhyDocument:
    """The means over pairs as an `attn.why/1` document. Its header and link are those of the first
    pair.

    parts: of each pair.
    place: the head, (layer, head).
    names: the link's query, its key and the other key as they were given.
    fitted: the pairs that fit the model.
    ends: the link's positions in each pair.
    memory: bytes that the work may take; None for no limit.
    """
    layer, head = place
    start, end, than = names
    first = fitted.pairs[0]
    # all pairs have the same parts, so those of the first name all
    if any(row.parts != parts[0].parts for row in parts):
        raise InputError("the pairs have other parts", expected="texts of one kind")
    running = text_for_sweep(model, first.clean, branches=[])
    # of several tokens that look the last, of those that are looked at the first
    link = Link(layer, "self", head, ends[0].queries[-1], ends[0].keys[0])
    texts = [(pair.clean, pair.answer, pair.versus) for pair in fitted.pairs]
    # means over pairs with their intervals, of each part and of the whole link
    query_sides = mean_intervals(np.stack([row.query_sides for row in parts]))
    key_sides = mean_intervals(np.stack([row.key_sides for row in parts]))
    weight, corrupt, total = mean_intervals(
        np.array([[row.weight, row.corrupt_weight, row.total] for row in parts])
    )
    centred: Literal["row"] | ThanKey = "row"
    if than is not None:
        rivals = [row.rival for row in parts if row.rival is not None]
        key, _ = choose_span(first.clean, than, ignore)  # its first token
        centred = ThanKey(key=key, weight=float(np.mean(rivals)))
    return WhyDocument(
        **header(model, first.pair.clean, first.clean, computing=running.backend),
        link=WhyLink(
            layer=link.layer, head=link.head, query=link.query, key=link.key, attention="self"
        ),
        by="part",
        score=float(np.mean([row.score for row in parts])),
        softcap=parts[0].softcap,
        weight=weight.mean,
        centred=centred,
        total=total.mean,
        difference=float(np.mean([row.difference for row in parts])),
        row=[],  # other keys, pairs of parts and entries are told of a single text alone
        by_layer=needs_layer_parts(running, link, memory),
        parts=[
            _part_over_pairs(part, index, parts, query_sides[index], key_sides[index])
            for index, part in enumerate(parts[0].parts)
        ],
        pairs=[],
        pair_count=0,
        dimensions=[],
        over_pairs=PairReasons(
            measured=pairs_summary(fitted, measured_differences(model, texts)),
            query=start,
            key=end,
            weight=_pair_mean(weight),
            corrupt=_pair_mean(corrupt),
            total=_pair_mean(total),
        ),
        warnings=notes(model, first.pair.clean, first.clean),
    )


def _part_over_pairs(
    part: LinkPart,
    index: int,
    parts: Sequence[_PairParts],
    query_side: MeanInterval,
    key_side: MeanInterval,
) -> WhyPart:
    """The document's row of one part: what it adds on either side, as means with intervals, and the
    mean weight of the link with the part as in the corrupt texts.

    index: of the part.
    parts: of each pair.
    query_side, key_side: what it adds there, a mean over pairs.
    """
    sides: tuple[Side, ...] = ("query", "key", "all_keys")
    weights: dict[str, float] = {
        side: float(np.mean([row.weights[side][index] for row in parts])) for side in sides
    }
    row = part_row(part, query_side.mean, key_side.mean, weights)
    # a part of one side alone has no interval on the other
    query_spread = None
    if row.query_side is not None:
        query_spread = _pair_mean(query_side)
    key_spread = None
    if row.key_side is not None:
        key_spread = _pair_mean(key_side)
    return replace(row, query_spread=query_spread, key_spread=key_spread)


def _pair_mean(interval: MeanInterval) -> PairMean:
    """A mean over pairs as documents hold it."""
    return PairMean(
        mean=interval.mean,
        low=interval.low,
        high=interval.high,
        sign_share=interval.same_sign,
    )
