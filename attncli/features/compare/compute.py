"""What differs between two runs: the document of `attn compare`, made from two `attn.run/1`
documents.

Every difference is B − A, over the queries and keys that both texts have. Weight that goes to
keys without a partner is kept in one further bin, so that a row remains a distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from attncli.documents import LeftOutKind, members
from attncli.documents.header import tokens_of, warnings_of_sides
from attncli.documents.parts import RunHead
from attncli.errors import InputError, UsageError
from attncli.features.compare.alignment import TokenAlignment, align, with_substitutions
from attncli.features.compare.document import (
    BothCounts,
    BothNumbers,
    ComparedHead,
    CompareDocument,
    ComparedRegion,
    ComparedShare,
    CompareSide,
    CompareSummary,
    HeadPlace,
    MovedWeight,
    OnlyOn,
    RegionChange,
    SignedDifference,
)
from attncli.features.run.compute import run
from attncli.features.run.document import RunDocument
from attncli.inputs.regions import Region
from attncli.inputs.token import (
    bytes_name,
    choose_token,
    find_span,
    ignore,
    straight_quotes,
)
from attncli.language import message
from attncli.measure.labels import row_divergences
from attncli.measure.rest import resting_keys
from attncli.measure.row_facts import Bools, Floats, Ints, aligned_exclusion
from attncli.measure.row_stream import kinds_left_out
from attncli.mechanism.checked_arguments import checked
from attncli.models.model import Model
from attncli.version import __version__

LayerHead = tuple[int, RunHead]
"""A layer's number, and the part of one of its heads."""


def common_beginning(a: RunDocument, b: RunDocument, heads: Sequence[LayerHead]) -> int:
    """How many tokens both texts have in common at their beginning. 0 in a model in which a token
    sees later ones, because then not even their first rows are equal.

    Args:
        a: One side.
        b: The other.
        heads: All heads of both sides, with their weights.
    """
    for _, head in heads:
        # weight above the diagonal: a query sees a later key
        if np.triu(np.nan_to_num(_matrix(head.weights)), 1).any():
            return 0

    # up to the first different token, or the end of the shorter text
    texts = zip(a.tokens, b.tokens, strict=False)
    for place, (token_a, token_b) in enumerate(texts):
        if token_a.text != token_b.text:
            return place
    return min(len(a.tokens), len(b.tokens))


class MeasuredRows(Struct, frozen=True, eq=False):
    """The aligned queries that are measured: all, or those of `--query`.

    rows: their indices in `pairs`, [row].
    counts: which of their links may be the one that changed most, booleans [row, aligned key].
    """

    pairs: TokenAlignment
    rows: Ints
    counts: Bools

    def signed_difference(self, difference: Floats, place: tuple[Any, ...]) -> SignedDifference:
        """The difference at `place` of the measured part of a matrix, with its query and key as
        positions in A.

        difference: the whole matrix, [aligned query, aligned key].
        place: (index into `rows`, aligned key).
        """
        row_index, key_index = place
        row = int(self.rows[row_index])
        key = int(key_index)
        return SignedDifference(
            value=float(difference[row, key]), query=self.pairs.a[row], key=self.pairs.a[key]
        )

    def largest_counted(self, difference: Floats) -> SignedDifference | None:
        """The difference of largest size among the links that count; None where none does.

        difference: [aligned query, aligned key].
        """
        # links that do not count get a size below all others, which are 0 or more
        sizes = np.where(self.counts, np.nan_to_num(np.abs(difference[self.rows])), -1.0)
        place = np.unravel_index(int(sizes.argmax()), sizes.shape)
        if sizes[place] >= 0:
            return self.signed_difference(difference, place)
        return None


@checked
def compare(
    a: RunDocument | str,
    b: RunDocument | str,
    *,
    model: Model | None = None,
    names: tuple[str, str] = ("A", "B"),
    query: str | None = None,
    top: int = 10,
    all_links: bool = False,
    regions: tuple[Sequence[Region], Sequence[Region]] = ((), ()),
    note: Callable[[str], None] = ignore,
) -> CompareDocument:
    """What differs between two runs, B minus A: of two texts, heads, layers, masks, scales,
    positions or models.

    Args:
        a: One side: a text, or what `attncli.run` returns, with the weights of every head.
        b: The other side, with as many heads.
        model: What texts run in; None where both sides are runs.
        names: What the sides are called.
        query: The one query whose rows are compared, named as A has it: "it", "the:2", "#7" or
            several in a row; None for all that both texts have.
        top: How many of the weights that moved most are listed.
        all_links: Whether they may be those that say little: of special tokens, to oneself.
        regions: Of either side, as `attncli.inputs.regions.find_regions` returns them; those of one
            name are compared.
        note: Called with a sentence on how an ambiguous name was understood.

    Returns:
        What `attn compare --json` writes. Heads are paired in the order in which the documents hold
        them.

    Raises:
        InputError: For texts without a token in common, runs without weights or with other numbers
            of heads, and a query that one of the texts lacks.
        UsageError: For a text without a model.
    """
    a, b = _side_run(a, model), _side_run(b, model)
    if query is None:
        rows = None
    else:
        rows = _query_positions(a, b, query, note)
    document = _compared_runs(a, b, names=names, top=top, query=rows, all_links=all_links)
    # no region on a side: none was asked for, or a chat stands beside a text
    if not all(regions):
        return document
    return replace(
        document,
        region_changes=compared_regions(a, b, regions, document),
        region_rest=compared_rest(a, b, document),
    )


def _side_run(side: RunDocument | str, model: Model | None) -> RunDocument:
    """What a side of a comparison is: a run itself, or that of a text in the model. Raises UsageError
    for a text without a model."""
    if not isinstance(side, str):
        return side
    if model is None:
        raise UsageError(
            "{text} is a text, and there is no model that it runs in",
            expected="model=attncli.load(…), or what attncli.run returns",
            text=repr(side[:40]),
        )
    return run(model, side)


def compared_regions(
    a: RunDocument,
    b: RunDocument,
    regions: tuple[Sequence[Region], Sequence[Region]],
    document: CompareDocument,
) -> list[ComparedRegion]:
    """The share of weight that goes to each region (a named set of tokens) that both sides have,
    the largest difference first.

    The tokens that look are those of the document's `queries` and their partners, else the last of
    either side. Where some tokens are ones on which heads rest (put weight when they look for
    nothing), each region also has its share of the remaining weight, without these.
    """
    queries = _looking_tokens(a, b, document)
    # of A, then of B: the positions of each region's tokens, by its name
    tokens_by_name = [{region.name: list(region.tokens) for region in side} for side in regions]
    rows = _rows_compared(a, b, queries)
    resting = _tokens_at_rest(a, b)
    # of either side, the share of weight that does not rest
    left = [1 - _mean(share) for share in _shares(rows, resting)]
    compared = []
    for name in tokens_by_name[0].keys() & tokens_by_name[1].keys():
        tokens = [side[name] for side in tokens_by_name]
        beyond: ComparedShare | UnsetType = UNSET
        if any(resting):
            outside = [
                [token for token in side if token not in resting_of_side]
                for side, resting_of_side in zip(tokens, resting, strict=True)
            ]
            beyond = _compared_share(_shares(rows, outside), document, left)
        share = _compared_share(_shares(rows, tokens), document)
        compared.append(
            ComparedRegion(
                name=name,
                tokens_a=tokens[0],
                tokens_b=tokens[1],
                a=share.a,
                b=share.b,
                difference=share.difference,
                most=share.most,
                beyond_rest=beyond,
            )
        )
    # a difference that is not known counts as 0
    return sorted(
        compared,
        key=lambda region: (-abs(region.change.difference or 0.0), region.tokens_a, region.name),
    )


def compared_rest(
    a: RunDocument, b: RunDocument, document: CompareDocument
) -> ComparedShare | UnsetType:
    """The share of weight that goes to resting tokens (the first and special ones, on which heads put
    weight when they look for nothing), on either side; UNSET where neither text has any."""
    resting = _tokens_at_rest(a, b)
    if not any(resting):
        return UNSET
    rows = _rows_compared(a, b, _looking_tokens(a, b, document))
    return _compared_share(_shares(rows, resting), document)


def _looking_tokens(
    a: RunDocument, b: RunDocument, document: CompareDocument
) -> tuple[Sequence[int], Sequence[int]]:
    """The positions of the queries whose attention to regions is compared, in A and in B: those that
    the document names and their partners, else the last token of either text."""
    if document.queries is UNSET:
        return [len(a.tokens) - 1], [len(b.tokens) - 1]
    pairs = [(place, partner) for place, partner in document.aligned if place in document.queries]
    return [place for place, _ in pairs], [partner for _, partner in pairs]


def _rows_compared(
    a: RunDocument, b: RunDocument, queries: tuple[Sequence[int], Sequence[int]]
) -> list[list[Floats]]:
    """The weights [row, key] of these queries in each head, for A and for B: queries that see no key
    have no row."""
    return [
        [_rows_that_see(head, places) for _, head in _layer_heads(side)]
        for side, places in zip((a, b), queries, strict=True)
    ]


def _tokens_at_rest(a: RunDocument, b: RunDocument) -> list[list[int]]:
    """The positions of the tokens on which heads rest (put weight when they look for nothing), in A
    and in B."""
    return [
        np.flatnonzero(resting_keys(side.tokens, side.model.source)).tolist() for side in (a, b)
    ]


def _shares(rows: Sequence[Sequence[Floats]], tokens: Sequence[Sequence[int]]) -> list[Floats]:
    """The share of each head's weight that goes to some tokens, a mean over rows, [head], for A and
    for B.

    rows: for either side, the weights of each head, [row, key].
    tokens: for either side, the positions of the tokens.
    """
    return [
        np.array([_mean(weights[:, list(places)].sum(-1)) for weights in heads])
        for heads, places in zip(rows, tokens, strict=True)
    ]


def _compared_share(
    shares: Sequence[Floats], document: CompareDocument, left: Sequence[float] = (1.0, 1.0)
) -> ComparedShare:
    """The document's part on two shares: their means over heads, the difference, and the head in
    which it is largest.

    shares: of A and of B, [head].
    left: for A and B, the part of all weight of which the means are given as a share, such as what
        does not rest; the head's difference stays a share of all its weight.
    """
    changes = shares[1] - shares[0]
    most = None
    if np.isfinite(changes).any():
        place = int(np.nanargmax(np.abs(changes)))
        pair = document.heads[place]
        most = RegionChange(a=pair.a, b=pair.b, difference=float(changes[place]))
    first, second = (
        _mean(share) / part if part > 0 else np.nan
        for share, part in zip(shares, left, strict=True)
    )
    return ComparedShare(
        a=_finite(first), b=_finite(second), difference=_finite(second - first), most=most
    )


def _mean(values: Floats) -> float:
    """The mean of the finite numbers among these; NaN without any."""
    finite = values[np.isfinite(values)]
    if finite.size:
        return float(finite.mean())
    return float("nan")


def _finite(value: float) -> float | None:
    """The number as documents hold it: None for one that is not finite."""
    if np.isfinite(value):
        return value
    return None


def _query_positions(
    a: RunDocument, b: RunDocument, query: str, note: Callable[[str], None]
) -> list[int]:
    """The positions in A of the tokens that `query` names; of a word that only B has, the positions
    of its tokens' partners in A.

    note: called with a sentence where a word is several tokens, or stands more than once.

    Raises InputError for a name that neither text has, and for a word of B without partners in A.
    """
    tokens = tokens_of(a.tokens)
    others = tokens_of(b.tokens)
    try:
        span = find_span(tokens, query)
    except InputError:
        try:
            span_in_b = find_span(others, query)
        except InputError:
            pass  # in neither text: the error of A is raised below
        else:
            pairs = _pairs(a, b)
            partners = dict(zip(pairs.b, pairs.a, strict=True))
            places = range(span_in_b.first, span_in_b.stop)
            if all(place in partners for place in places):
                return [partners[place] for place in places]
            what = message(
                "{query} is only in B, so there is nothing to compare its row with",
                query=repr(query),
            )
            raise InputError(what, expected="a token that both texts have") from None
        raise
    if span.stop - span.first > 1:
        count = span.stop - span.first
        note(
            message(
                "{query} is {count} tokens, each with its own row",
                query=straight_quotes(query),
                count=count,
            )
        )
    else:
        # for its note, where the word stands more than once
        choose_token(tokens, query, note)
    return list(range(span.first, span.stop))


def _pairs(a: RunDocument, b: RunDocument) -> TokenAlignment:
    """Which tokens of the two sides correspond: equal ones, and words that stand in each other's
    place. Empty where no token is equal."""
    sides = [(tokens_of(side.tokens), side.text) for side in (a, b)]
    pairs = align([token.text for token in a.tokens], [token.text for token in b.tokens])
    if not pairs.a:
        return pairs
    return with_substitutions(pairs, sides)


def _compared_runs(
    a: RunDocument,
    b: RunDocument,
    *,
    names: tuple[str, str],
    top: int,
    query: Sequence[int] | None = None,
    all_links: bool = False,
) -> CompareDocument:
    """Compare two runs, B minus A, and build the `attn.compare/1` document, without its regions.

    query: positions in A of the queries whose rows are compared; None for all that both texts have.
    names, top, all_links: as of `compare`.

    Raises InputError where the texts have no token in common, a document holds no weights, the
    numbers of heads differ, or B lacks a query.
    """
    # the heads and the tokens that are compared
    heads_a = _layer_heads(a)
    heads_b = _layer_heads(b)
    if len(heads_a) != len(heads_b):
        raise InputError(
            "the sides have different numbers of heads: {heads_a} and {heads_b}",
            expected="as many on either side",
            hint="--layer and --head choose",
            heads_a=len(heads_a),
            heads_b=len(heads_b),
        )
    pairs = _pairs(a, b)
    if not pairs.a:
        raise InputError(
            "the two texts have no token in common, so nothing can be compared",
            expected="texts that share words",
        )
    rows = _aligned_rows(a, pairs, query)

    # which links do not count as the one that changed most: where no other changed, fewer are left
    # out, and if still none changed, the document names those that were left out at first
    is_learned = "checkpoint" in (a.model.source, b.model.source)
    leave_out: tuple[LeftOutKind, ...] = ()
    if not all_links:
        leave_out = kinds_left_out(tokens_of([*a.tokens, *b.tokens]), is_learned=is_learned)
    aligned = list(zip(pairs.a, pairs.b, strict=True))
    texts = [tokens_of(a.tokens), tokens_of(b.tokens)]
    for kinds in _narrower_exclusions(leave_out, query):
        exclusion = aligned_exclusion(kinds, texts, aligned)
        measured = MeasuredRows(pairs, rows, ~exclusion.mask()[rows])
        heads = [
            compare_heads(head_a, head_b, measured)
            for head_a, head_b in zip(heads_a, heads_b, strict=True)
        ]
        moved = largest_moves(heads, measured, top)
        if moved:
            leave_out = kinds
            break

    divergences = [head.js for head in heads if head.js is not None]
    mean_divergence = None
    if divergences:
        mean_divergence = float(np.mean(divergences))
    return CompareDocument(
        version=__version__,
        a=_compare_side(a, names[0]),
        b=_compare_side(b, names[1]),
        differs=_differs(a, b, heads_a, heads_b),
        aligned=aligned,
        only=OnlyOn(a=list(pairs.only_a), b=list(pairs.only_b)),
        queries=UNSET if query is None else list(query),
        heads=heads,
        summary=CompareSummary(
            max_difference=max((head.max_difference.value for head in heads), key=abs),
            mean_difference=float(np.mean([head.mean_difference for head in heads])),
            js=mean_divergence,
        ),
        common_beginning=common_beginning(a, b, [*heads_a, *heads_b]) or UNSET,
        links_leave_out=list(leave_out) or UNSET,
        moved=moved,
        warnings=warnings_of_sides(a.warnings, b.warnings),
    )


def _narrower_exclusions(
    leave_out: tuple[LeftOutKind, ...], query: Sequence[int] | None
) -> list[tuple[LeftOutKind, ...]]:
    """The kinds of links that do not count as the one that changed most, in the order to try them: as
    asked for; then, for a comparison of single queries, with neighbours counted, and at last with all
    but unknown words counted, which the model cannot tell apart. The first with a link that changed
    is used.

    leave_out: the kinds that are asked to be left out.
    query: positions in A; None for all queries.
    """
    if query is None or not leave_out:
        return [leave_out]
    without_neighbours = tuple(kind for kind in leave_out if kind != "neighbours")
    unknown = tuple(kind for kind in leave_out if kind == "unknown")
    return [leave_out, without_neighbours, unknown]


def _aligned_rows(a: RunDocument, pairs: TokenAlignment, query: Sequence[int] | None) -> Ints:
    """The queries to measure, as indices into the alignment, [row]: all for None. Raises InputError
    for a query that B lacks.

    query: positions in A.
    pairs: which tokens of the two texts correspond.
    """
    if query is None:
        return np.arange(len(pairs.a))
    for token in query:
        if token not in pairs.a:
            raise InputError(
                "{text} (token {token}) is only in A, so there is nothing to compare its row with",
                expected="a token that both texts have",
                text=repr(bytes_name(a.tokens[token].text)),
                token=token,
            )
    return np.asarray([pairs.a.index(token) for token in query])


def _layer_heads(document: RunDocument) -> list[LayerHead]:
    """The heads of a run, each with its layer. Raises InputError for a run that was saved without the
    weights of all queries."""
    if document.queries is not UNSET:
        raise InputError("this run holds only some queries", expected="a run without --query")
    heads = [(layer.layer, head) for layer in document.layers for head in layer.heads]
    if not heads or any(head.weights is UNSET for _, head in heads):
        raise InputError(
            "this run holds no weights", expected="a run saved with them: attn run TEXT --json"
        )
    return heads


def _compare_side(document: RunDocument, name: str) -> CompareSide:
    """The document's part about one side's run."""
    return CompareSide(
        name=name,
        text=document.text,
        tokens=document.tokens,
        model=document.model,
        attention=document.attention,
        next_tokens=document.next_tokens,
    )


def _differs(
    a: RunDocument, b: RunDocument, heads_a: Sequence[LayerHead], heads_b: Sequence[LayerHead]
) -> list[str]:
    """In what the sides differ, by name: "text", or of one text "tokens"; "weights", "layer", "head";
    and members of the documents' `attention`, such as "mask".
    """
    names = []
    if a.text != b.text:
        names.append("text")
    elif [token.text for token in a.tokens] != [token.text for token in b.tokens]:
        names.append("tokens")

    # weights: by what the documents tell of the models, and the digest of the files where both do
    identity = (
        "source",
        "seed",
        "d_model",
        "layers",
        "heads",
        "kv_heads",
        "d_k",
        "d_v",
        "quantization",
        "adapters",
    )
    digests = {side.model.digest for side in (a, b)}
    has_other_digest = len(digests) == 2 and None not in digests
    # names tell nothing: one file may have two
    if has_other_digest or any(
        getattr(a.model, name) != getattr(b.model, name) for name in identity
    ):
        names.append("weights")

    pairs = list(zip(heads_a, heads_b, strict=True))
    if any(layer_a != layer_b for (layer_a, _), (layer_b, _) in pairs):
        names.append("layer")
    if any(head_a.head != head_b.head for (_, head_a), (_, head_b) in pairs):
        names.append("head")

    attention_a = dict(members(a.attention))
    attention_b = dict(members(b.attention))
    all_members = dict.fromkeys((*attention_a, *attention_b))
    names += [name for name in all_members if attention_a.get(name) != attention_b.get(name)]
    return names


def _matrix(values: Any) -> Floats:
    """A document's numbers, [query, key], with NaN for null and for −∞."""
    matrix = np.asarray(values, np.float64)
    return np.where(np.isfinite(matrix), matrix, np.nan)


def _rows_that_see(head: RunHead, queries: Sequence[int]) -> Floats:
    """The weights [row, key] of these queries, without the queries that see no key."""
    weights = np.nan_to_num(_matrix(head.weights)[queries])
    return weights[weights.sum(-1) > 0]


def compare_heads(a: LayerHead, b: LayerHead, measured: MeasuredRows) -> ComparedHead:
    """Measure the differences between two heads, B minus A: of weights on aligned queries and keys,
    and of outputs.

    The members of the result: max_difference, the difference of largest magnitude, signed, with
    query and key as positions in A; mean_difference, the mean of |B − A|; js, the mean
    Jensen–Shannon divergence of rows in nats, 0 to ln 2, over the `js_rows` rows that see something
    on both sides, None without any; outside, the mean weight on keys without a partner; kept, the
    share of A's weight on keys that B sees too, None without scores; output_error, |O_B − O_A| /
    |O_A| over the measured queries (Frobenius), None for different widths.

    Raises InputError for weights that are no numbers.
    """
    pairs = measured.pairs
    row_indices = measured.rows
    (layer_a, part_a), (layer_b, part_b) = a, b

    # of A, then of B: the weights, the aligned tokens, the weights between these, and the rest of
    # each row
    weights = [_matrix(part.weights) for part in (part_a, part_b)]
    places = (pairs.a, pairs.b)
    common = [matrix[np.ix_(place, place)] for matrix, place in zip(weights, places, strict=True)]
    # (rounding can make such a rest a little less than 0)
    outside = [
        np.clip(matrix[list(place)].sum(axis=1) - part.sum(axis=1), 0.0, None)
        for matrix, part, place in zip(weights, common, places, strict=True)
    ]

    difference = common[1] - common[0]
    if np.isnan(difference).all():
        raise InputError(
            "layer {layer_a} head {head_a} and layer {layer_b} head {head_b} have no weights that are"
            " numbers on both sides",
            expected="numbers that their type can hold",
            layer_a=layer_a,
            head_a=part_a.head,
            layer_b=layer_b,
            head_b=part_b.head,
        )
    sizes = np.abs(difference[row_indices])
    largest = np.unravel_index(int(np.nanargmax(sizes)), sizes.shape)  # [row, key]

    # divergences of rows that see something on both sides; what lies outside counts as one key
    has_weight = [
        matrix[list(rows)].sum(axis=1) > 0 for matrix, rows in zip(weights, places, strict=True)
    ]
    rows = row_indices[(has_weight[0] & has_weight[1])[row_indices]]
    js = row_divergences(
        *(np.column_stack([part, rest])[rows] for part, rest in zip(common, outside, strict=True))
    )
    mean_js = None
    if rows.size:
        mean_js = float(js.mean())

    # the measured queries as positions in A and in B; None where all aligned ones are measured
    queries = [[side[row] for row in row_indices] for side in places]
    some_queries = None
    if len(row_indices) < len(difference):
        some_queries = queries
    return ComparedHead(
        a=HeadPlace(layer=layer_a, head=part_a.head),
        b=HeadPlace(layer=layer_b, head=part_b.head),
        max_difference=measured.signed_difference(difference, largest),
        link=measured.largest_counted(difference),
        mean_difference=float(np.nanmean(sizes)),
        js=mean_js,
        js_rows=rows.size,
        outside=BothNumbers(
            a=float(outside[0][row_indices].mean()), b=float(outside[1][row_indices].mean())
        ),
        pairs=_visible_pairs(part_a, part_b, some_queries),
        kept=_visible_share(common[0][row_indices], part_b, queries[1], pairs),
        output_error=_output_error(part_a, part_b, queries),
        weights_a=_visible_weights(common[0], part_a, pairs.a),
        weights_b=_visible_weights(common[1], part_b, pairs.b),
        difference=difference,
    )


def _visibility(part: RunHead) -> np.ndarray[Any, Any] | None:
    """Which keys each query of a head sees, booleans [query, key], from its scores; None where it
    has no scores.
    """
    if part.scores is UNSET:
        return None
    return np.isfinite(np.asarray(part.scores, np.float64))


def _visible_weights(weights: Floats, part: RunHead, tokens: Sequence[int]) -> Floats:
    """Weights [aligned query, aligned key] with NaN in place of the 0 where the mask hides the key;
    unchanged for a head without scores, whose mask is not known.

    tokens: the positions of the aligned tokens on this side.
    """
    visibility = _visibility(part)
    if visibility is None:
        return weights
    return np.where(visibility[np.ix_(tokens, tokens)], weights, np.nan)


def _visible_pairs(
    a: RunHead, b: RunHead, queries: Sequence[Sequence[int]] | None
) -> BothCounts | None:
    """How many pairs of query and key each side computes, as the mask shows both; None for heads
    without scores, whose masks are not known.

    queries: the positions of those that count, in A and in B; None for all.
    """
    first = _visibility(a)
    second = _visibility(b)
    if first is None or second is None:
        return None
    if queries is not None:
        first = first[queries[0]]
        second = second[queries[1]]
    return BothCounts(a=int(first.sum()), b=int(second.sum()))


def _visible_share(
    weights: Floats, b: RunHead, queries: Sequence[int], pairs: TokenAlignment
) -> float | None:
    """The share of A's weight that is on keys that B's queries see, too. None where B has no scores,
    so that its mask is not known, and where A has no weight.

    weights: of A, [measured query, aligned key].
    queries: the positions of the measured queries in B.
    pairs: which tokens of the two texts correspond.
    """
    visibility = _visibility(b)
    if visibility is None:
        return None
    total = np.nansum(weights)
    if total > 0:
        return float(
            np.nansum(np.where(visibility[np.ix_(queries, pairs.b)], weights, 0.0)) / total
        )
    return None


def _output_error(a: RunHead, b: RunHead, queries: Sequence[Sequence[int]]) -> float | None:
    """|O_B − O_A| / |O_A| over these queries of A and of B; None where an output is missing, of
    another shape, or A's is 0."""
    if a.output is UNSET or b.output is UNSET:
        return None
    first, second = (
        np.asarray(part.output, np.float64)[list(rows)]
        for part, rows in zip((a, b), queries, strict=True)
    )
    size = float(np.linalg.norm(first))
    if first.shape == second.shape and size > 0:
        return float(np.linalg.norm(second - first) / size)
    return None


def largest_moves(
    heads: Sequence[ComparedHead], measured: MeasuredRows, top: int
) -> list[MovedWeight]:
    """The `top` weights that differ most among the links that count, largest first; layer and head
    are A's, query and key positions in A. Equal weights are left out.

    heads: pairs of heads, with their differences.
    measured: which tokens correspond, and which rows and links count.
    """
    positions = measured.pairs.a
    rows = measured.rows
    moves = []
    for head in heads:
        # the `top` of all heads are among the `top` of each; links that do not count have size 0
        sizes = np.where(
            measured.counts, np.nan_to_num(np.abs(np.asarray(head.difference)[rows])), 0.0
        )
        for flat_index in np.argsort(-sizes, axis=None, kind="stable")[:top]:
            row, key = (int(place) for place in np.unravel_index(int(flat_index), sizes.shape))
            query = int(rows[row])
            if sizes[row, key] > 0:
                moves.append(
                    MovedWeight(
                        layer=head.a.layer,
                        head=head.a.head,
                        query=positions[query],
                        key=positions[key],
                        a=float(np.nan_to_num(head.weights_a[query, key])),
                        b=float(np.nan_to_num(head.weights_b[query, key])),
                        difference=float(head.difference[query, key]),
                    )
                )
    return sorted(moves, key=lambda move: -abs(move.difference))[:top]
