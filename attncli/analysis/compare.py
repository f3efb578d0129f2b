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
from attncli.analysis.similarity import row_divergences
from attncli.analysis.visible_keys import Floats
from attncli.errors import InputError

Head = tuple[int, RunHead]
"""A layer's number, and the part of one of its heads."""


def compare_document(a: RunDocument, b: RunDocument, *, names: tuple[str, str], top: int) -> CompareDocument:
    """`attn.compare/1` for two `attn.run/1` documents. names: what the sides are called. top: how many moved weights.

    Heads are paired in the order in which the documents hold them. Raises InputError for texts
    without a common token, documents without weights, and different numbers of heads.
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
    heads = [compare_heads(left, right, pairs) for left, right in zip(heads_a, heads_b, strict=True)]
    return CompareDocument(
        version=__version__,
        a=_side(a, names[0]),
        b=_side(b, names[1]),
        differs=_differs(a, b, heads_a, heads_b),
        aligned=list(zip(pairs.a, pairs.b, strict=True)),
        only=OnlyOn(a=list(pairs.only_a), b=list(pairs.only_b)),
        heads=heads,
        summary=_summary(heads),
        moved=moved(heads, pairs, top),
        warnings=[*a.warnings, *(said for said in b.warnings if said not in a.warnings)],
    )


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


def compare_heads(a: Head, b: Head, pairs: Alignment) -> ComparedHead:
    """One pair of heads. Weights are compared on aligned queries and keys.

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
    at = np.unravel_index(int(np.nanargmax(np.abs(difference))), difference.shape)
    filled = [found[list(rows)].sum(axis=1) > 0 for found, rows in zip(weights, places, strict=True)]
    rows = filled[0] & filled[1]
    js = row_divergences(*(np.column_stack([cut, rest])[rows] for cut, rest in zip(common, outside, strict=True)))
    return ComparedHead(
        a=HeadPlace(layer=layer_a, head=part_a.head),
        b=HeadPlace(layer=layer_b, head=part_b.head),
        max_difference=SignedDifference(
            value=float(difference[at]), query=int(pairs.a[at[0]]), key=int(pairs.a[at[1]])
        ),
        mean_difference=float(np.nanmean(np.abs(difference))),
        js=float(js.mean()) if rows.any() else None,
        js_rows=int(rows.sum()),
        outside=BothNumbers(a=float(outside[0].mean()), b=float(outside[1].mean())),
        pairs=_visible_pairs(part_a, part_b),
        kept=_kept(common[0], part_b, pairs),
        output_error=_output_error(part_a, part_b, pairs),
        weights_a=_shown(common[0], part_a, pairs.a),
        weights_b=_shown(common[1], part_b, pairs.b),
        difference=difference,
    )


def _visible(part: RunHead) -> np.ndarray[Any, Any] | None:
    """Which pairs a head sees, from its scores; None where it has none."""
    return None if part.scores is UNSET else np.isfinite(np.asarray(part.scores, np.float64))


def _shown(weights: Floats, part: RunHead, at: Sequence[int]) -> Floats:
    """The weights with NaN where they are hidden, which is not the same as 0."""
    seen = _visible(part)
    return weights if seen is None else np.where(seen[np.ix_(at, at)], weights, np.nan)


def _visible_pairs(a: RunHead, b: RunHead) -> BothCounts | None:
    """How many pairs each side computes; null without scores."""
    seen = [_visible(part) for part in (a, b)]
    if seen[0] is None or seen[1] is None:
        return None
    return BothCounts(a=int(seen[0].sum()), b=int(seen[1].sum()))


def _kept(weights: Floats, b: RunHead, pairs: Alignment) -> float | None:
    seen = _visible(b)
    if seen is None:
        return None
    total = np.nansum(weights)
    return float(np.nansum(np.where(seen[np.ix_(pairs.b, pairs.b)], weights, 0.0)) / total) if total > 0 else None


def _output_error(a: RunHead, b: RunHead, pairs: Alignment) -> float | None:
    if a.output is UNSET or b.output is UNSET:
        return None
    first, second = (np.asarray(a.output, np.float64)[list(pairs.a)], np.asarray(b.output, np.float64)[list(pairs.b)])
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


def moved(heads: Sequence[ComparedHead], pairs: Alignment, top: int) -> list[MovedWeight]:
    """The weights that differ most, largest first; layer and head are A's, query and key positions in A. Equal weights
    are left out."""
    found = []
    for head in heads:
        sizes = np.abs(head.difference)
        for at in np.argsort(-sizes, axis=None, kind="stable")[:top]:
            query, key = (int(place) for place in np.unravel_index(int(at), sizes.shape))
            if sizes[query, key] > 0:
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
