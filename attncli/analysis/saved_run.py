"""Documents from what was saved: stages of a tensor file as a run, a run as a comparison of its heads. No attention is
computed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attncli.analysis.document import Document
from attncli.analysis.heads import numbers
from attncli.analysis.links import LEFT_OUT, Links
from attncli.analysis.measure import measure
from attncli.analysis.metrics import DEFAULT
from attncli.errors import InputError
from attncli.inputs.strict_json import parsed_object
from attncli.inputs.token import Token
from attncli.mechanism.trace import STAGES, shapes_of

Tensors = Mapping[str, np.ndarray[Any, Any]]

STAGE_NAME = re.compile(r"layers\.(\d{1,6})\.([a-z]+)")
HEAD = ("schema", "version", "text", "tokens", "model", "attention")


def run_of_tensors(tensors: Tensors, metadata: Mapping[str, str], where: str, top: int) -> Document:
    """The `attn.run/1` document of a file that `--save` wrote. top: how many links.

    Raises InputError for a file without our metadata or without weights.
    """
    if any(name not in metadata for name in HEAD):
        raise InputError(
            "this tensor file was not written by --save",
            where=where,
            expected="metadata that says what ran",
            hint="attn tensors FILE",
        )
    document: Document = {
        name: _parsed(name, value, where) for name, value in metadata.items() if name in (*HEAD, "empty_rows")
    }
    layers: dict[int, dict[str, np.ndarray[Any, Any]]] = {}
    for name, array in tensors.items():
        if (match := STAGE_NAME.fullmatch(name)) is not None:
            layers.setdefault(int(match[1]), {})[match[2]] = array
    layers = {layer: stages for layer, stages in sorted(layers.items()) if "weights" in stages}
    if not layers:
        raise InputError("this file holds no layer with weights", where=where, expected="layers.0.weights and so on")
    tokens = _tokens(document)
    links = Links(tokens, top=top, everything=_source(document) != "checkpoint")
    parts = []
    for layer, stages in layers.items():
        weights = stages["weights"]
        if weights.ndim != 3 or weights.shape[1] != len(tokens) or weights.shape[2] < len(tokens):
            raise InputError(
                f"layers.{layer}.weights has shape {list(weights.shape)}",
                where=where,
                expected=f"[head, {len(tokens)}, {len(tokens)}]",
            )
        links.add(layer, range(len(weights)), list(weights))
        heads = []
        for head, rows in enumerate(weights):
            part: Document = {"head": head, "weights": rows}
            if "masked" in stages:
                part["scores"] = stages["masked"][head]
            if "mixed" in stages:
                part["output"] = stages["mixed"][head]
            heads.append(part)
        parts.append({"layer": layer, "heads": heads, **({"output": stages["out"]} if "out" in stages else {})})
    shapes = [
        {"step": row.step, "axes": list(row.axes), "shape": list(row.shape), "formula": row.formula}
        for row in shapes_of(_steps(next(iter(layers.items())), tensors))
    ]
    left_out = {} if _source(document) != "checkpoint" else {"links_leave_out": list(LEFT_OUT)}
    kept = {name: document[name] for name in HEAD}
    found = {
        "shapes": shapes,
        "overview": links.overview(),
        "layers": parts,
        "links": links.found(),
        "empty_rows": document.get("empty_rows", []),
    }
    return kept | {"schema": "attn.run/1"} | found | left_out | {"warnings": []}


def _steps(
    layer: tuple[int, dict[str, np.ndarray[Any, Any]]], tensors: Mapping[str, np.ndarray[Any, Any]]
) -> dict[str, np.ndarray[Any, Any]]:
    """A layer's stages as its shape trace tells them: with what entered it, without steps that changed nothing."""
    number, stages = layer
    found = {name: array for name, array in stages.items() if name in STAGES}
    if f"hidden.{number}" in tensors:
        found["hidden"] = tensors[f"hidden.{number}"]
    for name, before in (("masked", "biased"), ("biased", "capped"), ("capped", "scaled")):
        if name in stages and before in stages and np.array_equal(stages[name], stages[before]):
            del found[name]
    if "mixed" in stages and "out" in stages:
        joined = stages["mixed"].swapaxes(0, 1).reshape((stages["mixed"].shape[1], -1))
        if not np.array_equal(joined, stages["out"]):  # W_O stood between them
            found["concat"] = joined
    return found


def heads_of_run(document: Document, metrics: Sequence[str] = DEFAULT) -> Document:
    """The `attn.heads/1` document of a run's weights: metrics, baselines and links of what the run document holds.

    Raises InputError for a run without weights or with some of its rows only.
    """
    held = [(layer["layer"], head) for layer in document["layers"] for head in layer["heads"] if "weights" in head]
    if not held or document.get("queries"):
        raise InputError(
            "this document holds no whole weights to compare",
            expected="a run saved with all rows: attn run TEXT --json",
        )
    tokens = _tokens(document)
    everything = "links_leave_out" not in document
    found = []
    for layer, head in held:
        weights = np.asarray(head["weights"], np.float64)[:, : len(tokens)]
        scores = head.get("scores")
        visible = None if scores is None else np.isfinite(np.asarray(scores, np.float64)[:, : len(tokens)])
        measured = measure(
            weights[None],
            visible,
            metrics=metrics,
            tokens=[token.text for token in tokens],
            special=[token.special for token in tokens],
        )
        links = Links(tokens, top=1, everything=everything)
        links.add(layer, [head["head"]], [weights])
        place = {"layer": layer, "head": head["head"], "weights": head["weights"]}
        both = {"metrics": numbers(measured, 0, "value"), "baseline": numbers(measured, 0, "baseline")}
        found.append(place | both | {"top_link": links.overview()[0]["link"]})
    last = [np.asarray(head["weights"], np.float64) for layer, head in held if layer == held[-1][0]]
    kept = {name: document[name] for name in (*HEAD, "empty_rows", "warnings", "links_leave_out") if name in document}
    return kept | {"schema": "attn.heads/1", "heads": found, "average": {"weights": np.mean(last, 0)}}


def _parsed(name: str, value: str, where: str) -> Any:
    """One member of the metadata, which is JSON text."""
    return parsed_object(
        b'{"value":' + value.encode("utf-8", "surrogatepass") + b"}", where, f"JSON in the metadata {name}"
    )["value"]


def _tokens(document: Document) -> list[Token]:
    try:
        return [
            Token(row["index"], row["text"], row["id"], row["start"], row["end"], row["special"])
            for row in document["tokens"]
        ]
    except (KeyError, TypeError) as error:
        raise InputError(
            "the tokens in this file are not what attn writes", expected="what attn schema run describes"
        ) from error


def _source(document: Document) -> str:
    model = document["model"]
    return str(model.get("source")) if isinstance(model, Mapping) else ""
