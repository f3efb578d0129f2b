"""The table of `attn.run/1` for `--plain`: a line for each pair of query and key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET

from attncli.analysis.documents.run import RunDocument, RunHead
from attncli.render.token_names import key_names


def run_rows(document: RunDocument) -> Iterator[Sequence[object]]:
    """Every pair of query and key as a table for `--plain`, its first row the names of the columns; masked scores are
    empty.

    Of a document without matrices, the links in the same columns, without scores.
    """
    texts = [token.text for token in document.tokens]
    head_weights = [(layer, head, head.weights) for layer, head in heads_of(document) if head.weights is not UNSET]
    if not head_weights:
        yield ("layer", "head", "query", "key", "query_text", "key_text", "weight")
        for link in document.links:
            query_index, key = link.query, link.key
            yield (link.layer, link.head, query_index, key, texts[query_index], texts[key], link.weight)
        return
    yield ("layer", "head", "query", "key", "query_text", "key_text", "score", "weight")
    positions = document.queries or range(len(texts))
    for layer, head, head_rows in head_weights:
        keys = key_names(texts, head_rows)
        # words have no scores
        rows = [[None] * len(keys)] * len(head_rows) if head.scores is UNSET else head.scores
        for query, scores, weights in zip(positions, rows, head_rows, strict=True):
            for key, (score, weight) in enumerate(zip(scores, weights, strict=True)):
                yield (layer, head.head, query, key, texts[query], keys[key], score, weight)


def heads_of(document: RunDocument) -> list[tuple[int, RunHead]]:
    """Every head of the document with its layer."""
    return [(layer.layer, head) for layer in document.layers for head in layer.heads]
