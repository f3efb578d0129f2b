"""What of a layer goes into the document of a run: one query's rows, weights between words, a long text's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET, UnsetType

from attncli.analysis.documents.declaration import Numbers
from attncli.analysis.documents.run import RunHead, RunLayer
from attncli.analysis.words import Words
from attncli.mechanism.trace import STAGES as DECLARED


def rows_of(head: RunHead) -> Numbers:
    """The weights of a head that were kept, [query, key]."""
    assert head.weights is not UNSET
    return head.weights


def single_rows(layer: int, heads: Sequence[int], row: Mapping[str, Numbers]) -> RunLayer:
    """A layer of which only one query's rows were kept, or nothing."""
    head_numbers = enumerate(heads if row else ())
    parts = [
        RunHead(head=head, scores=row["masked"][place], weights=row["weights"][place]) for place, head in head_numbers
    ]
    return RunLayer(layer=layer, heads=parts)


def between_words(layer: RunLayer, words: Words) -> RunLayer:
    """The layer with its weights between words; scores, outputs and stages belong to pieces and are left out."""
    heads = [RunHead(head=head.head, weights=words.merge(rows_of(head))) for head in layer.heads]
    return RunLayer(layer=layer.layer, heads=heads)


def of_query(layer: RunLayer, query: int | None) -> RunLayer:
    """The layer with only one query's rows in what has a row per query; the others are let go. Keys, values and inputs
    are whole."""
    if query is None:
        return layer

    def take_row(rows: Numbers | UnsetType) -> Numbers | UnsetType:
        return rows if rows is UNSET else rows[query : query + 1].copy()

    def cut_stages(stages: dict[str, Numbers] | UnsetType) -> dict[str, Numbers] | UnsetType:
        if stages is UNSET:
            return UNSET
        return {
            stage: rows[query : query + 1].copy() if stage in DECLARED and "query" in DECLARED[stage].axes else rows
            for stage, rows in stages.items()
        }

    heads = [
        RunHead(
            head=head.head,
            scores=take_row(head.scores),
            weights=take_row(head.weights),
            output=take_row(head.output),
            stages=cut_stages(head.stages),
        )
        for head in layer.heads
    ]
    return RunLayer(
        layer=layer.layer,
        heads=heads,
        output=take_row(layer.output),
        stages=cut_stages(layer.stages),
        hidden=take_row(layer.hidden),
    )
