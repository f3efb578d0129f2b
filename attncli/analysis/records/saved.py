"""Records of what was saved: the stages of a tensor file, or the weights and links of a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attncli.analysis.documents.declaration import Document
from attncli.analysis.records.captured import numbered
from attncli.analysis.records.feeding import arithmetic, feed_whole
from attncli.analysis.records.head import METRICS, HeadRecord, LayerRecords, Sides
from attncli.analysis.records.recipe import Absent
from attncli.analysis.records.run import RunRecord
from attncli.arrays.backend import choose
from attncli.inputs.token import Token

Tensors = Mapping[str, np.ndarray[Any, Any]]
NUMPY = choose("numpy", device=None, dtype="float32")


def tensors_record(tensors: Tensors, document: Document) -> RunRecord:
    """A file that `--save` wrote. document: the `attn.run/1` made of it."""
    shown = tokens_of(document["tokens"])
    attention = document["attention"]

    def found() -> Iterator[HeadRecord]:
        for layer in (part["layer"] for part in document["layers"]):
            prefix = f"layers.{layer}."
            stages = {
                name.removeprefix(prefix): np.asarray(array, np.float32)
                for name, array in tensors.items()
                if name.startswith(prefix)
            }
            made = LayerRecords(NUMPY, layer, Sides(shown, shown), range(len(stages["weights"])), everything=True)
            feed_whole(NUMPY, made, stages, None)
            known = isinstance(attention.get("scale"), int | float) and "hashing" not in attention
            cap = attention.get("softcap")
            yield from made.records(arithmetic(NUMPY, stages, attention["scale"], cap) if known else None)

    return _run(document, Sides(shown, shown), found())


def document_record(document: Document) -> RunRecord | None:
    """What a document holds of its heads; None for one that is not about heads. Where it holds no weights, the links
    that it names."""
    match document["schema"]:
        case "attn.run/1" | "attn.cross/1":
            parts = [(part["layer"], head) for part in document["layers"] for head in part["heads"]]
            parts = parts or [(one["layer"], one) for one in document.get("maps", ())]
        case "attn.heads/1":
            parts = [(head["layer"], head) for head in document["heads"]]
        case "attn.tensors/1":
            parts = [(layer, head) for layer, part in enumerate(document["batch"]) for head in part["heads"]]
        case "attn.find/1" | "attn.ablate/1":
            parts = []
        case _:
            return None
    if "queries" in document and isinstance(document["queries"], int):  # of arrays: how many, not which
        queries, keys = numbered(document["queries"]), numbered(document["keys"])
    elif "keys" in document:
        queries, keys = tokens_of(document["queries"]), tokens_of(document["keys"])
    else:
        queries = keys = tokens_of(document["tokens"])
    rows = document.get("queries") if document["schema"] == "attn.run/1" else None
    sides = Sides(queries, queries if keys is queries or len(keys) == len(queries) == 0 else keys)
    return _run(document, sides, _heads(document, parts, sides, rows))


def _heads(
    document: Document, parts: Sequence[tuple[int, Any]], sides: Sides, rows: Sequence[int] | None
) -> Iterator[HeadRecord]:
    for layer, head in parts:
        weights = np.asarray(head["weights"], np.float32) if head.get("weights") is not None else None
        pooled = head.get("pool", 1) > 1
        if weights is None or pooled or not len(weights):
            yield _known(document, layer, head, sides, weights if pooled else None)
            continue
        scores = head.get("scores")
        seen = np.isfinite(np.asarray(scores, np.float32)) if scores is not None else np.ones(weights.shape, bool)
        if rows is not None:  # only some queries are held: the others are as if they saw nothing
            whole = np.zeros((2, len(sides.queries), weights.shape[1]), np.float32)
            whole[0, list(rows)], whole[1, list(rows)] = weights, seen
            weights, seen = whole[0], whole[1] > 0
        made = LayerRecords(NUMPY, layer, sides, [0], everything=True)
        masked = np.where(seen, np.float32(0), np.float32(-np.inf))
        feed_whole(NUMPY, made, {"weights": weights[None], "masked": masked[None]}, None)
        yield from (replace(record, head=head["head"]) for record in made.records(None))
    if not parts:
        for row in document.get("heads") or document.get("effects") or ():
            yield _known(document, row["layer"], row, sides, None)


def _known(document: Document, layer: int, head: Any, sides: Sides, small: np.ndarray[Any, Any] | None) -> HeadRecord:
    """A head of which no weights are held: its metrics, and the links that the document names."""
    links = [
        (one["query"], one["key"], float(one["weight"]))
        for one in document.get("links", ())
        if one.get("layer") == layer and one.get("head") == head["head"]
    ]
    if "from" in document and "weight" in head:
        links = [(document["from"], document["to"], float(head["weight"]))]
    if head.get("top_link"):
        links = [(head["top_link"]["query"], head["top_link"]["key"], float(head["top_link"]["weight"])), *links]
    metrics = {name: (head.get("metrics", {}).get(name) or {}).get("value") for name in METRICS}
    held = np.zeros((1, 1), np.float32) if small is None else small
    labels = head.get("labels", ())
    return HeadRecord(layer, head["head"], len(sides.keys), held, metrics, labels, links, None, Absent(), None, 0.0, 0)


def _run(document: Document, sides: Sides, heads: Iterator[HeadRecord]) -> RunRecord:
    text = str(document.get("text") or document.get("query_text") or document.get("file") or "")
    return RunRecord(
        "", text, sides, document.get("model"), document.get("attention"), heads, document.get("warnings", ())
    )


def tokens_of(rows: Sequence[Any]) -> list[Token]:
    """Tokens as a document holds them."""
    return [Token(row["index"], row["text"], row["id"], row["start"], row["end"], row["special"]) for row in rows]
