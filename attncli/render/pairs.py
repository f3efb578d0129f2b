"""Every pair of query and key as a table with a header row, for `--plain`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

COLUMNS = ("layer", "head", "query", "query_text", "key", "key_text", "score", "weight")


def run_rows(document: Mapping[str, Any]) -> Iterator[Sequence[object]]:
    """The pairs of an `attn.run/1` document; the score of a hidden pair is empty."""
    yield COLUMNS
    texts = [token["text"] for token in document["tokens"]]
    for layer in document["layers"]:
        for head in layer["heads"]:
            queries = document.get("queries") or range(len(head["weights"]))
            for row, query in enumerate(queries):
                for key, weight in enumerate(head["weights"][row]):
                    name = texts[key] if key < len(texts) else ""
                    yield (layer["layer"], head["head"], query, texts[query], key, name, head["scores"][row][key], weight)
