"""Documents from what was saved: stages of a tensor file as a run, a run as a comparison of its heads. No attention is
computed."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import UNSET, UnsetType

from attncli.analysis.document import heading_of, shape_row, tokens_of
from attncli.analysis.documents.heads import AverageHead, HeadMetrics, HeadsDocument
from attncli.analysis.documents.parts import EmptyRows, Header
from attncli.analysis.documents.reading import check, part_of
from attncli.analysis.documents.run import RunDocument, RunHead, RunLayer
from attncli.analysis.heads import numbers
from attncli.analysis.links import LinkCollector, kinds_left_out
from attncli.analysis.measure import measure
from attncli.analysis.metrics import DEFAULT
from attncli.analysis.words import identities, unknown_notes
from attncli.errors import InputError
from attncli.inputs.file_opening import parse_object
from attncli.inputs.token import Token
from attncli.mechanism.trace import STAGES, Shape, shapes_of

Tensors = Mapping[str, np.ndarray[Any, Any]]

STAGE_NAME = re.compile(r"layers\.(0|[1-9][0-9]{0,5})\.([a-z_]+)")
HEAD = ("schema", "version", "text", "tokens", "model", "attention")
HEADED = "metadata as attn run --save writes it"


class SavedHead(Header, tag="attn.run/1", frozen=True, kw_only=True):
    """What the metadata of a tensor file says about the run."""

    empty_rows: EmptyRows


def run_of_tensors(tensors: Tensors, metadata: Mapping[str, str], where: str, top: int) -> RunDocument:
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
    values = {
        name: _parse_value(name, value, where) for name, value in metadata.items() if name in (*HEAD, "empty_rows")
    }
    head_part = part_of(
        {**{name: values[name] for name in HEAD}, "empty_rows": values.get("empty_rows", [])}, SavedHead, where, HEADED
    )
    layers: dict[int, dict[str, np.ndarray[Any, Any]]] = {}
    for name, array in tensors.items():
        if (match := STAGE_NAME.fullmatch(name)) is not None:
            layers.setdefault(int(match[1]), {})[match[2]] = array
    layers = {layer: stages for layer, stages in sorted(layers.items()) if "weights" in stages}
    if not layers:
        raise InputError("this file holds no layer with weights", where=where, expected="layers.0.weights and so on")
    tokens = tokens_of(head_part.tokens)
    is_learned = head_part.model.source == "checkpoint"
    leave_out = kinds_left_out(tokens, is_learned=is_learned)
    links = LinkCollector(tokens, top=top, leave_out=leave_out)
    parts, shapes = [], []
    for layer, stages in layers.items():
        weights = stages["weights"]
        if weights.ndim != 3 or weights.shape[1] != len(tokens) or weights.shape[2] < len(tokens):
            raise InputError(
                f"layers.{layer}.weights has shape {list(weights.shape)}",
                where=where,
                expected=f"[head, {len(tokens)}, {len(tokens)}]",
            )
        shapes.append(_check_shapes(layer, stages, tensors, len(tokens), where))
        links.add(layer, range(len(weights)), list(weights))
        heads = [
            RunHead(head=head, weights=rows, scores=_of(stages, "masked", head), output=_of(stages, "mixed", head))
            for head, rows in enumerate(weights)
        ]
        parts.append(RunLayer(layer=layer, heads=heads, output=stages.get("out", UNSET)))
    document = RunDocument(
        **heading_of(head_part),
        shapes=[shape_row(row) for row in shapes[0]],
        overview=links.overview(),
        layers=parts,
        links=links.strongest(),
        links_leave_out=list(leave_out) or UNSET,
        empty_rows=head_part.empty_rows,
        warnings=unknown_notes(head_part.text, tokens if head_part.pieces is UNSET else tokens_of(head_part.pieces)),
    )
    check(document, where)
    return document


def _check_shapes(layer: int, stages: Tensors, tensors: Tensors, tokens: int, where: str) -> list[Shape]:
    """The shape trace of a layer. Raises InputError unless every stage has its axes, and each axis one size in all."""
    known_stages = {name: array for name, array in stages.items() if name in STAGES}
    if f"hidden.{layer}" in tensors:
        known_stages["hidden"] = tensors[f"hidden.{layer}"]
    heads = len(stages["weights"])
    try:
        sizes = {axis: size for row in shapes_of(known_stages) for axis, size in zip(row.axes, row.shape, strict=True)}
        if heads % (sizes.get("kv", heads) or heads + 1):
            raise ValueError(f"{heads} heads cannot share {sizes['kv']} of keys and values")
        if sizes.get("token", tokens) != tokens:
            raise ValueError(f"hidden.{layer} is of {sizes['token']} tokens, not {tokens}")
        return shapes_of(_steps(known_stages))
    except ValueError as error:
        raise InputError(
            f"layers.{layer} contradicts itself: {error}", where=where, expected="stages as attn run --save writes them"
        ) from error


def _of(stages: Tensors, name: str, head: int) -> np.ndarray[Any, Any] | UnsetType:
    """A head's part of a stage, absent where the file lacks it or has fewer heads of it."""
    return stages[name][head] if name in stages and head < len(stages[name]) else UNSET


def _steps(stages: Tensors) -> dict[str, np.ndarray[Any, Any]]:
    """A layer's stages as its shape trace tells them: without steps that changed nothing."""
    steps = dict(stages)
    for name, before in (("masked", "biased"), ("biased", "capped"), ("capped", "scaled")):
        if name in stages and before in stages and np.array_equal(stages[name], stages[before]):
            del steps[name]
    if "mixed" in stages and "out" in stages:
        concat = stages["mixed"].swapaxes(0, 1).reshape((stages["mixed"].shape[1], -1))
        if not np.array_equal(concat, stages["out"]):  # W_O stood between them
            steps["concat"] = concat
    return steps


def heads_of_run(document: RunDocument, metrics: Sequence[str] = DEFAULT) -> HeadsDocument:
    """The `attn.heads/1` document of a run's weights: metrics, baselines and links of what the run document holds.

    Raises InputError for a run without weights or with some of its rows only.
    """
    heads = [(layer.layer, head) for layer in document.layers for head in layer.heads if head.weights is not UNSET]
    if not heads or document.queries is not UNSET:
        raise InputError(
            "this document holds no whole weights to compare",
            expected="a run saved with all rows: attn run TEXT --json",
        )
    tokens = tokens_of(document.tokens)
    same = identities_of(document, tokens)
    rows = []
    for layer, head in heads:
        weights = np.asarray(head.weights, np.float64)[:, : len(tokens)]
        visible = None if head.scores is UNSET else np.isfinite(np.asarray(head.scores, np.float64)[:, : len(tokens)])
        results = measure(
            weights[None], visible, metrics=metrics, tokens=same, special=[token.special for token in tokens]
        )
        links = LinkCollector(tokens, top=1, leave_out=document.links_leave_out or ())
        links.add(layer, [head.head], [weights])
        rows.append(
            HeadMetrics(
                layer=layer,
                head=head.head,
                metrics=numbers(results, 0, "value"),
                baseline=numbers(results, 0, "baseline"),
                top_link=links.overview()[0].link,
                weights=head.weights,
            )
        )
    last = [np.asarray(head.weights, np.float64) for layer, head in heads if layer == heads[-1][0]]
    return HeadsDocument(
        **heading_of(document),
        heads=rows,
        average=AverageHead(weights=np.mean(last, 0)),
        empty_rows=document.empty_rows,
        warnings=document.warnings,
        links_leave_out=document.links_leave_out,
    )


def identities_of(document: Header, tokens: Sequence[Token]) -> list[Hashable]:
    """What makes each token of a document the same as another: its id; of a word the ids of its pieces."""
    if document.pieces is UNSET:
        return identities(tokens)
    names: list[Hashable] = []
    for word in tokens:
        inside = [
            piece.id
            for piece in document.pieces
            if None not in (word.start, word.end, piece.start, piece.end)
            and (word.start or 0) <= (piece.start or 0) < (piece.end or 0) <= (word.end or 0)
        ]
        names.append(tuple(inside) or (word.text if word.id is None else word.id))
    return names


def _parse_value(name: str, value: str, where: str) -> Any:
    """One member of the metadata, which is JSON text."""
    return parse_object(
        b'{"value":' + value.encode("utf-8", "surrogatepass") + b"}", where, f"JSON in the metadata {name}"
    )["value"]
