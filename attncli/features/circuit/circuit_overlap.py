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
    """How much two circuits have in common, at equal sizes.

    Args:
        a: A circuit.
        b: Another of a model whose parts are as many: of another task, seed, training step or size.
        names: What both are called, such as their files.

    Returns:
        What `attn circuit compare --json` writes.

    Raises:
        InputError: For circuits of models of different sizes, and one without edges.
    """
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
    """The document's part on one of the two circuits."""
    return CircuitSide(
        name=name,
        model=document.model.name or document.model.source,
        pairs=document.pairs.name,
        seed=document.seed,
        edges=len(document.edges),
        stability=document.stability,
    )


def _edge(edge: CircuitEdge) -> Edge:
    """The key of an edge: its writer, its reader, and the side that it reads."""
    return edge.writer, edge.to, edge.reads


def _heads(edges: Sequence[CircuitEdge]) -> list[str]:
    """The heads that write to these edges, the strongest first, each once."""
    return list(dict.fromkeys(edge.writer for edge in edges if HEAD.fullmatch(edge.writer)))


def _overlap(first: Sequence[object], second: Sequence[object]) -> Overlap:
    """The overlap of two sets: how many members both have, how many either has, and the share."""
    both = len(set(first) & set(second))
    either = len(set(first) | set(second))
    share = None
    if either:
        share = both / either
    return Overlap(both=both, either=either, share=share)


def _missing_heads(heads: Sequence[str], others: Sequence[str]) -> list[str]:
    """The heads that only this circuit has, the strongest first."""
    return [head for head in heads if head not in others]


def _correlation(first: Sequence[CircuitEdge], second: Sequence[CircuitEdge]) -> float | None:
    """Spearman's correlation of |score| over the edges of both; None below `FEWEST`, and where one
    side does not vary."""
    scores = {_edge(edge): abs(edge.score) for edge in second}
    pairs = [(abs(edge.score), scores[_edge(edge)]) for edge in first if _edge(edge) in scores]
    if len(pairs) < FEWEST:
        return None
    first_scores, second_scores = (np.asarray(side) for side in zip(*pairs, strict=True))
    return rank_correlation(first_scores, second_scores)


def _warnings(a: CircuitDocument, b: CircuitDocument) -> list[str]:
    """Warnings on differences that make two circuits hard to compare."""
    if a.steps == b.steps and a.dtype == b.dtype:
        return []
    return [message("the two were scored with other --steps or in another type of number")]
