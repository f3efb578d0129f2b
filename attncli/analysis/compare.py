"""What differs between two runs: the document of `attn compare`, made from two `attn.run/1` documents.

Every difference is B − A, over the queries and keys that both texts have. Weight that goes to
keys without a partner is kept in one further bin, so that a row remains a distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import UNSET

from attncli import __version__
from attncli.analysis.alignment import Alignment, align
from attncli.analysis.document import tokens_of
from attncli.analysis.documents.compare import (
    BothCounts,
    BothNumbers,
    ComparedHead,
    CompareDocument,
    CompareSide,
    CompareSummary,
    HeadPlace,
    MovedWeight,
    OnlyOn,
    SignedDifference,
)
from attncli.analysis.documents.declaration import members
from attncli.analysis.documents.run import RunDocument, RunHead
from attncli.analysis.exclusion import exclusion
from attncli.analysis.links import kinds_left_out
from attncli.analysis.similarity import row_divergences
from attncli.analysis.visible_keys import Bools, Floats, Ints
from attncli.errors import InputError

Head = tuple[int, RunHead]
"""A layer's number, and the part of one of its heads."""


def compare_document(
    a: RunDocument,
    b: RunDocument,
    *,
    names: tuple[str, str],
    top: int,
    query: Sequence[int] | None = None,
    all_links: bool = False,
) -> CompareDocument:
    """`attn.compare/1` for two `attn.run/1` documents.

    Args:
        a: One side, with the weights of every head.
        b: The other side.
        names: What the sides are called.
        top: How many of the weights that moved most are listed.
        query: Positions in A whose rows alone are measured; None for all that both texts have.
        all_links: Whether weights count among those that moved that say little of a trained model: `kinds_left_out`.

    Returns:
        The differences B − A, heads paired in the order in which the documents hold them.

    Raises:
        InputError: The texts have no token in common, a document holds no weights, the numbers of heads differ, or B
            lacks a query.
    """
    heads_a, heads_b = _heads(a), _heads(b)
    if len(heads_a) != len(heads_b):
        raise InputError(
            f"the sides have different numbers of heads: {len(heads_a)} and {len(heads_b)}",
            expected="as many on either side",
            hint="--layer and --head choose",
        )
    texts_a, texts_b = ([token.text for token in side.tokens] for side in (a, b))
    pairs = align(texts_a, texts_b)
    if not pairs.a:
        raise InputError(
            "the two texts have no token in common, so nothing can be compared", expected="texts that share words"
        )
    rows = _rows(a, pairs, query)
    learned = "checkpoint" in (a.model.source, b.model.source)
    leave_out = () if all_links else kinds_left_out(tokens_of([*a.tokens, *b.tokens]), learned=learned)
    counted = _counted(a, b, pairs, leave_out)[rows]
    heads = [compare_heads(left, right, pairs, rows, counted) for left, right in zip(heads_a, heads_b, strict=True)]
    return CompareDocument(
        version=__version__,
        a=_side(a, names[0]),
        b=_side(b, names[1]),
        differs=_differs(a, b, heads_a, heads_b),
        aligned=list(zip(pairs.a, pairs.b, strict=True)),
        only=OnlyOn(a=list(pairs.only_a), b=list(pairs.only_b)),
        queries=UNSET if query is None else list(query),
        heads=heads,
        summary=_summary(heads),
        links_leave_out=list(leave_out) or UNSET,
        moved=moved(heads, pairs, rows, counted, top),
        warnings=[*a.warnings, *(said for said in b.warnings if said not in a.warnings)],
    )


def _rows(a: RunDocument, pairs: Alignment, query: Sequence[int] | None) -> Ints:
    """Which of the aligned queries are measured. Raises InputError for a query that B lacks."""
    if query is None:
        return np.arange(len(pairs.a))
    for at in query:
        if at not in pairs.a:
            raise InputError(
                f"{a.tokens[at].text!r} (token {at}) is only in A, so there is nothing to compare its row with",
                expected="a token that both texts have",
            )
    return np.asarray([pairs.a.index(at) for at in query])


def _counted(a: RunDocument, b: RunDocument, pairs: Alignment, leave_out: Sequence[str]) -> Bools:
    """Which aligned pairs [query, key] count among the links that moved: those left out on neither side."""
    out = np.zeros((len(pairs.a), len(pairs.a)), bool)
    for side, places in ((a, pairs.a), (b, pairs.b)):
        out |= exclusion(leave_out, tokens_of(side.tokens)).rows(np.asarray(places))[:, list(places)]
    return ~out


def _heads(document: RunDocument) -> list[Head]:
    """The heads of a run, each with whole weights."""
    if document.queries is not UNSET:
        raise InputError("this run holds only some queries", expected="a run without --query")
    found = [(layer.layer, head) for layer in document.layers for head in layer.heads]
    if not found or any(head.weights is UNSET for _, head in found):
        raise InputError("this run holds no weights", expected="a run saved with them: attn run TEXT --json")
    return found


def _side(document: RunDocument, name: str) -> CompareSide:
    return CompareSide(
        name=name, text=document.text, tokens=document.tokens, model=document.model, attention=document.attention
    )


def _differs(a: RunDocument, b: RunDocument, heads_a: Sequence[Head], heads_b: Sequence[Head]) -> list[str]:
    """In what the sides differ, by name: text, tokens, weights, layer, head, and members of `attention`."""
    found = ["text"] if a.text != b.text else []
    found += ["tokens"] if [t.text for t in a.tokens] != [t.text for t in b.tokens] and not found else []
    identity = ("source", "name", "seed", "digest", "d_model", "layers", "heads", "d_k", "d_v")
    found += ["weights"] if any(getattr(a.model, name) != getattr(b.model, name) for name in identity) else []
    found += ["layer"] if any(x[0] != y[0] for x, y in zip(heads_a, heads_b, strict=True)) else []
    found += ["head"] if any(x[1].head != y[1].head for x, y in zip(heads_a, heads_b, strict=True)) else []
    sides = [dict(members(side.attention)) for side in (a, b)]
    return found + [name for name in dict.fromkeys((*sides[0], *sides[1])) if sides[0].get(name) != sides[1].get(name)]


def _matrix(values: Any) -> Floats:
    """Numbers, with NaN for null and for −∞."""
    found = np.asarray(values, np.float64)
    return np.where(np.isfinite(found), found, np.nan)


def compare_heads(a: Head, b: Head, pairs: Alignment, measured: Ints, counted: Bools) -> ComparedHead:
    """One pair of heads. Weights are compared on aligned queries and keys.

    measured: the rows [row] of the aligned queries that everything but the matrices is about.
    counted: which of their pairs [row, aligned key] may be the link.
    max_difference: the difference of largest magnitude, signed, with query and key as positions in A.
    mean_difference: mean of |B − A|. js: mean Jensen–Shannon divergence of the rows in nats, 0 to ln 2,
    over `js_rows` rows that see something on both sides; null without any. outside: mean weight on
    keys without a partner. kept: mean share of A's weight on keys that B sees too; null without scores.
    output_error: |O_B − O_A| / |O_A| over the aligned queries (Frobenius); null for different widths.
    """
    (layer_a, part_a), (layer_b, part_b) = a, b
    weights = [_matrix(part.weights) for part in (part_a, part_b)]
    places = (pairs.a, pairs.b)
    common = [found[np.ix_(at, at)] for found, at in zip(weights, places, strict=True)]
    outside = [
        np.clip(found[list(at)].sum(axis=1) - cut.sum(axis=1), 0.0, None)
        for found, cut, at in zip(weights, common, places, strict=True)
    ]
    difference = common[1] - common[0]
    if np.isnan(difference).all():
        raise InputError(
            f"layer {layer_a} head {part_a.head} and layer {layer_b} head {part_b.head} have no weights that are "
            f"numbers on both sides",
            expected="numbers that their type can hold",
        )
    sizes = np.abs(difference[measured])
    at = np.unravel_index(int(np.nanargmax(sizes)), sizes.shape)
    filled = [found[list(rows)].sum(axis=1) > 0 for found, rows in zip(weights, places, strict=True)]
    rows = measured[(filled[0] & filled[1])[measured]]
    js = row_divergences(*(np.column_stack([cut, rest])[rows] for cut, rest in zip(common, outside, strict=True)))
    queries = [[places[at] for at in measured] for places in (pairs.a, pairs.b)]
    return ComparedHead(
        a=HeadPlace(layer=layer_a, head=part_a.head),
        b=HeadPlace(layer=layer_b, head=part_b.head),
        max_difference=_signed(difference, measured, pairs, at),
        link=_largest(difference, measured, pairs, counted),
        mean_difference=float(np.nanmean(sizes)),
        js=float(js.mean()) if rows.size else None,
        js_rows=rows.size,
        outside=BothNumbers(a=float(outside[0][measured].mean()), b=float(outside[1][measured].mean())),
        pairs=_visible_pairs(part_a, part_b, queries if len(measured) < len(difference) else None),
        kept=_kept(common[0][measured], part_b, queries[1], pairs),
        output_error=_output_error(part_a, part_b, queries),
        weights_a=_shown(common[0], part_a, pairs.a),
        weights_b=_shown(common[1], part_b, pairs.b),
        difference=difference,
    )


def _signed(difference: Floats, measured: Ints, pairs: Alignment, at: tuple[Any, ...]) -> SignedDifference:
    """The difference at a place [row, aligned key] among the measured rows, by positions in A."""
    row, key = int(measured[at[0]]), int(at[1])
    return SignedDifference(value=float(difference[row, key]), query=pairs.a[row], key=pairs.a[key])


def _largest(difference: Floats, measured: Ints, pairs: Alignment, counted: Bools) -> SignedDifference | None:
    """The largest difference that counts; None where none does."""
    sizes = np.where(counted, np.nan_to_num(np.abs(difference[measured])), -1.0)
    at = np.unravel_index(int(sizes.argmax()), sizes.shape)
    return _signed(difference, measured, pairs, at) if sizes[at] >= 0 else None


def _visible(part: RunHead) -> np.ndarray[Any, Any] | None:
    """Which pairs a head sees, from its scores; None where it has none."""
    return None if part.scores is UNSET else np.isfinite(np.asarray(part.scores, np.float64))


def _shown(weights: Floats, part: RunHead, at: Sequence[int]) -> Floats:
    """The weights with NaN where they are hidden, which is not the same as 0."""
    seen = _visible(part)
    return weights if seen is None else np.where(seen[np.ix_(at, at)], weights, np.nan)


def _visible_pairs(a: RunHead, b: RunHead, queries: Sequence[Sequence[int]] | None) -> BothCounts | None:
    """How many pairs each side computes, of these queries of either side alone where there are any; null without
    scores."""
    seen = [_visible(part) for part in (a, b)]
    if seen[0] is None or seen[1] is None:
        return None
    rows = [visible if queries is None else visible[queries[at]] for at, visible in enumerate((seen[0], seen[1]))]
    return BothCounts(a=int(rows[0].sum()), b=int(rows[1].sum()))


def _kept(weights: Floats, b: RunHead, queries: Sequence[int], pairs: Alignment) -> float | None:
    """The share of these weights of A [query, aligned key] on keys that B's queries see; None where nothing tells."""
    seen = _visible(b)
    if seen is None:
        return None
    total = np.nansum(weights)
    return float(np.nansum(np.where(seen[np.ix_(queries, pairs.b)], weights, 0.0)) / total) if total > 0 else None


def _output_error(a: RunHead, b: RunHead, queries: Sequence[Sequence[int]]) -> float | None:
    """|O_B − O_A| / |O_A| over these queries of A and of B; None where it is not defined."""
    if a.output is UNSET or b.output is UNSET:
        return None
    first, second = (
        np.asarray(part.output, np.float64)[list(rows)] for part, rows in zip((a, b), queries, strict=True)
    )
    size = float(np.linalg.norm(first))
    return float(np.linalg.norm(second - first) / size) if first.shape == second.shape and size > 0 else None


def _summary(heads: Sequence[ComparedHead]) -> CompareSummary:
    """Over all heads: the difference of largest magnitude, the mean, the mean divergence."""
    divergences = [head.js for head in heads if head.js is not None]
    return CompareSummary(
        max_difference=max((head.max_difference.value for head in heads), key=abs),
        mean_difference=float(np.mean([head.mean_difference for head in heads])),
        js=float(np.mean(divergences)) if divergences else None,
    )


def moved(
    heads: Sequence[ComparedHead], pairs: Alignment, measured: Ints, counted: Bools, top: int
) -> list[MovedWeight]:
    """The weights that differ most of those counted [measured row, aligned key], largest first; layer and head are A's,
    query and key positions in A. Equal weights are left out."""
    found = []
    for head in heads:
        sizes = np.where(counted, np.nan_to_num(np.abs(np.asarray(head.difference)[measured])), 0.0)
        for at in np.argsort(-sizes, axis=None, kind="stable")[:top]:
            row, key = (int(place) for place in np.unravel_index(int(at), sizes.shape))
            query = int(measured[row])
            if sizes[row, key] > 0:
                found.append(
                    MovedWeight(
                        layer=head.a.layer,
                        head=head.a.head,
                        query=pairs.a[query],
                        key=pairs.a[key],
                        a=float(np.nan_to_num(head.weights_a[query, key])),
                        b=float(np.nan_to_num(head.weights_b[query, key])),
                        difference=float(head.difference[query, key]),
                    )
                )
    return sorted(found, key=lambda one: -abs(one.difference))[:top]
