"""How much two circuits of one graph overlap, beside what pairs drawn again alone would make."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from attncli.documents.header import SIZES_IN_COMMON
from attncli.errors import InputError
from attncli.features.circuit.document import (
    CircuitCompareDocument,
    CircuitDocument,
    CircuitEdge,
    CircuitSide,
    Overlap,
)
from attncli.features.effects.circuit_heads import model_words
from attncli.language import listing, message
from attncli.measure.rank_correlation import rank_correlation
from attncli.version import __version__

HEAD = re.compile(r"L[0-9]+H[0-9]+")
FEWEST = 3
"""Edges in common from which on ranks are correlated."""
Edge = tuple[str, str, str]


def compare_circuits(
    a: CircuitDocument, b: CircuitDocument, names: tuple[str, str]
) -> CircuitCompareDocument:
    """Count the edges and heads that two circuits have in common, at equal sizes: of the larger only
    its strongest edges are compared, as many as the smaller has.

    Args:
        a: A circuit.
        b: Another one, found in a model of as many layers and heads: for another task, seed,
            training step or number of edges.
        names: What the two are called, such as their files.

    Returns:
        What `attn circuit compare --json` writes.

    Raises:
        InputError: For circuits of models of different sizes, and one without edges.
    """
    # the sizes must be the same; the first of these names is the family, which need not
    if any(getattr(a.model, name) != getattr(b.model, name) for name in SIZES_IN_COMMON[1:]):
        raise InputError(
            "these circuits are of models of different sizes: {a}, and {b}",
            expected="two models whose heads correspond, such as two checkpoints of one",
            a=model_words(a.model),
            b=model_words(b.model),
        )
    size = min(len(a.edges), len(b.edges))
    if not size:
        empty = [name for name, side in zip(names, (a, b), strict=True) if not side.edges]
        raise InputError(
            "no edges are in {circuits}",
            expected="a larger circuit, such as --size 2%",
            circuits=listing([repr(name) for name in dict.fromkeys(empty)]),
        )
    first, second = a.edges[:size], b.edges[:size]
    graph = max(a.graph_edges, b.graph_edges)
    # n edges of each, drawn at random from N, have about n²/N in common: n / (2N − n) of either
    return CircuitCompareDocument(
        version=__version__,
        a=_side(a, names[0]),
        b=_side(b, names[1]),
        size=size,
        edges=_overlap([_edge(edge) for edge in first], [_edge(edge) for edge in second]),
        heads=_overlap(_heads(first), _heads(second)),
        only_a=_missing_heads(_heads(first), _heads(second)),
        only_b=_missing_heads(_heads(second), _heads(first)),
        correlation=_correlation(first, second),
        chance=size / (2 * graph - size),
        warnings=_warnings(a, b),
    )


def _side(document: CircuitDocument, name: str) -> CircuitSide:
    """The document's part on one of the two circuits; `name` is what it is called."""
    return CircuitSide(
        name=name,
        model=document.model.name or document.model.source,
        pairs=document.pairs.name,
        seed=document.seed,
        edges=len(document.edges),
        stability=document.stability,
    )


def _edge(edge: CircuitEdge) -> Edge:
    """What identifies an edge in both circuits: the node that writes, the node that reads, and by
    which input it reads ("q", "k", "v", "mlp" or "logits")."""
    return edge.writer, edge.to, edge.reads


def _heads(edges: Sequence[CircuitEdge]) -> list[str]:
    """The heads that write to these edges, such as "L5H3", each once, in the order of the edges."""
    return list(dict.fromkeys(edge.writer for edge in edges if HEAD.fullmatch(edge.writer)))


def _overlap(first: Sequence[object], second: Sequence[object]) -> Overlap:
    """Count how many members are in both lists, how many in either, and the share of the first in
    the second; the share is None where both lists are empty."""
    both = len(set(first) & set(second))
    either = len(set(first) | set(second))
    share = None
    if either:
        share = both / either
    return Overlap(both=both, either=either, share=share)


def _missing_heads(heads: Sequence[str], others: Sequence[str]) -> list[str]:
    """The heads of one circuit that are not among those of the other, in their order."""
    return [head for head in heads if head not in others]


def _correlation(first: Sequence[CircuitEdge], second: Sequence[CircuitEdge]) -> float | None:
    """Spearman's correlation of the |scores| that the edges in both lists have in one and in the
    other; None for fewer than `FEWEST` such edges, and where the scores of a list do not vary."""
    scores = {_edge(edge): abs(edge.score) for edge in second}
    pairs = [(abs(edge.score), scores[_edge(edge)]) for edge in first if _edge(edge) in scores]
    if len(pairs) < FEWEST:
        return None
    first_scores, second_scores = (np.asarray(side) for side in zip(*pairs, strict=True))
    return rank_correlation(first_scores, second_scores)


def _warnings(a: CircuitDocument, b: CircuitDocument) -> list[str]:
    """The warning that two circuits are hard to compare, where their edges were scored with other
    steps or in another type of number; [] where not."""
    if a.steps == b.steps and a.dtype == b.dtype:
        return []
    return [message("the two were scored with other --steps or in another type of number")]
