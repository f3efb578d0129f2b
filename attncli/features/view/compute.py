"""Documents from what was saved: a run from a tensor file, its heads compared, one query's
derivation.

No attention is computed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from attncli.documents import Count, Document, EmptyRows, Header, Part, ShapeRow
from attncli.documents.header import heading_of, identities_of, shape_row, tokens_of
from attncli.documents.parts import RunHead, RunLayer
from attncli.documents.reading import check, part_of
from attncli.errors import InputError, UnsupportedError
from attncli.features.compare.document import CompareDocument
from attncli.features.explain.compute import agreement, steps_of
from attncli.features.explain.document import After, AttentionTopic, Matrices
from attncli.features.heads.document import AverageHead, HeadMetrics, HeadsDocument
from attncli.features.run.document import RunDocument
from attncli.inputs.files import parse_object
from attncli.inputs.word_groups import unknown_notes
from attncli.language import listing, message, term
from attncli.measure.metric import DEFAULT, measure
from attncli.measure.row_facts import Floats
from attncli.measure.row_stream import LinkCollector, kinds_left_out
from attncli.measure.run_record import check_heads, metric_values
from attncli.mechanism.trace import STAGES, Shape, head_outputs, shapes_of

AnyDocument = TypeVar("AnyDocument", bound=Document)
Tensors = Mapping[str, np.ndarray[Any, Any]]

STAGE_NAME = re.compile(r"layers\.(0|[1-9][0-9]{0,5})\.([a-z_]+)")
"""The name of a stage's tensor; its groups are the layer and the stage."""
RUN_MEMBERS = ("schema", "version", "text", "tokens", "model", "attention")
"""Members that the metadata of every saved run has."""
WRITTEN_BY_SAVE = message("metadata as attn run --save writes it")
"""What an error expects of the metadata."""


class SavedMetadata(Header, tag="attn.run/1", frozen=True, kw_only=True):
    """What the metadata of a tensor file says about the run."""

    empty_rows: EmptyRows
    formulas: dict[str, str] | UnsetType = UNSET
    heads: dict[str, list[Count]] | UnsetType = UNSET


UNTOLD = {
    **dict.fromkeys(
        ("q", "k", "v", "global_q", "global_k", "global_v"),
        message("from X; this file does not say how"),
    ),
    "out": message("from O; this file does not say how"),
}
"""What stands for the formula of a projection in a file that does not tell it: of a model that adds
biases, or has narrow vectors, the plain one would be false."""


def run_of_tensors(
    tensors: Tensors, metadata: Mapping[str, str], where: str, top: int
) -> RunDocument:
    """The `attn.run/1` document made of a file that `--save` wrote. Raises InputError for a file
    without attn's metadata or without weights.

    tensors: by name, such as "layers.0.weights".
    metadata: JSON texts by name.
    where: the file's name, for errors.
    top: how many links the document lists.
    """
    saved_run = _saved_metadata(metadata, where)
    layers = _stages_by_layer(tensors, where)

    # check and collect layer by layer
    tokens = tokens_of(saved_run.tokens)
    is_learned = saved_run.model.source == "checkpoint"
    leave_out = kinds_left_out(tokens, is_learned=is_learned)
    links = LinkCollector(tokens, top=top, leave_out=leave_out)
    parts = []
    shapes = []
    for layer, stages in layers.items():
        weights = stages["weights"]  # [head, query, key]; learned keys make more keys than tokens
        if weights.ndim != 3 or weights.shape[1] != len(tokens) or weights.shape[2] < len(tokens):
            raise InputError(
                "layers.{layer}.weights has shape {shape}",
                where=where,
                expected="[head, {tokens}, {tokens}]",
                layer=layer,
                shape=list(weights.shape),
                tokens=len(tokens),
            )
        # the metadata has the heads of the first layer; another layer may have more
        all_heads = max(len(weights), saved_run.model.heads)
        shapes.append(_check_shapes(layer, stages, tensors, len(tokens), all_heads, where))
        numbers = _head_numbers(saved_run, layer, len(weights), where)
        links.add(layer, numbers, list(weights))
        heads = [
            RunHead(
                head=number,
                weights=weights[index],
                scores=_stage_of_head(stages, "masked", index),
                output=_stage_of_head(stages, "mixed", index),
            )
            for index, number in enumerate(numbers)
        ]
        parts.append(RunLayer(layer=layer, heads=heads, output=stages.get("out", UNSET)))
    # where tokens were merged to words, the pieces are what the tokenizer made of the text
    tokenizer_tokens = tokens
    if saved_run.pieces is not UNSET:
        tokenizer_tokens = tokens_of(saved_run.pieces)
    document = RunDocument(
        **heading_of(saved_run),
        # documents show the shapes of their first layer
        shapes=_shape_rows(shapes[0], saved_run.formulas),
        overview=links.overview(),
        layers=parts,
        links=links.strongest(),
        links_leave_out=list(leave_out) or UNSET,
        empty_rows=saved_run.empty_rows,
        warnings=[
            *unknown_notes(saved_run.text, tokenizer_tokens),
            *_unnumbered_heads(saved_run, min(len(part.heads) for part in parts)),
        ],
    )
    check(document, where)  # against its declaration: the file may come from anywhere
    return document


def _saved_metadata(metadata: Mapping[str, str], where: str) -> SavedMetadata:
    """What the metadata of a tensor file says about the run. Raises InputError for a file that
    `--save` did not write.

    metadata: JSON texts by name.
    where: the file's name, for errors.
    """
    if any(name not in metadata for name in RUN_MEMBERS):
        what = message("this tensor file was not written by --save")
        raise InputError(
            what, where=where, expected="metadata that says what ran", hint="attn tensors FILE"
        )
    members = {
        name: _metadata_value(name, metadata[name], where)
        for name in (*RUN_MEMBERS, "empty_rows", "formulas", "heads")
        if name in metadata
    }
    # a file may lack the rows that see nothing: there are none, then
    return part_of({"empty_rows": [], **members}, SavedMetadata, where, WRITTEN_BY_SAVE)


def _stages_by_layer(tensors: Tensors, where: str) -> dict[int, dict[str, np.ndarray[Any, Any]]]:
    """The stages of each layer that has weights, by name, in the order of layers. Raises InputError
    where no layer has any.

    where: the file's name, for errors.
    """
    layers: dict[int, dict[str, np.ndarray[Any, Any]]] = {}
    for name, array in tensors.items():
        match = STAGE_NAME.fullmatch(name)
        if match is not None:
            layers.setdefault(int(match[1]), {})[match[2]] = array
    layers = {layer: stages for layer, stages in sorted(layers.items()) if "weights" in stages}
    if not layers:
        raise InputError(
            "this file holds no layer with weights",
            where=where,
            expected="layers.0.weights and so on",
        )
    return layers


def _unnumbered_heads(run: SavedMetadata, kept: int) -> list[str]:
    """The warning, in a list, that a file holds only some heads without saying which; an empty list
    where it holds all, or says which.

    kept: how many heads of a layer it holds.
    """
    if run.heads is not UNSET or kept >= run.model.heads:
        return []
    return [
        message(
            "this file holds {kept} of {count} heads and does not say which: they are numbered"
            " from 0 as they stand",
            kept=kept,
            count=run.model.heads,
        )
    ]


TEXTS = {
    "text": "tokens",
    "query_text": "queries",
    "key_text": "keys",
    "clean": "tokens",
    "corrupt": "corrupt_tokens",
}
"""Where documents have their texts, and the tokens of each."""


def translatable_warnings(document: AnyDocument) -> AnyDocument:
    """The document with its warnings of unknown words made again from the tokens as translatable
    messages, since a file holds them in English only; other warnings stay.
    """
    warnings = getattr(document, "warnings", None) or ()
    if not any(warnings):
        return document
    if isinstance(document, CompareDocument):
        parts: list[Part] = [document.a, document.b]
    else:
        parts = [document]
    # messages, each of which equals its English sentence
    notes = [note for part in parts for note in _unknown_notes(part)]
    messages: dict[str, str] = {}  # the translatable message of an English warning
    for warning in warnings:
        for note in notes:
            # a warning of a document with several texts begins with the name of one: "query text: …"
            name, separator, rest = warning.partition(": ")
            if warning == note:
                messages[warning] = note
            elif rest == note and separator:
                messages[warning] = listing((term(name), note), separator)
    return replace(document, warnings=[messages.get(warning, warning) for warning in warnings])


def _unknown_notes(part: Part) -> list[str]:
    """The warnings on words that are unknown to the model, in each text that a part of a document
    has (`TEXTS` says under which names)."""
    notes: list[str] = []
    for text_name, tokens_name in TEXTS.items():
        text = getattr(part, text_name, None)
        rows = getattr(part, tokens_name, None)
        # where tokens were merged to words, the pieces are what the tokenizer made of the text
        pieces = getattr(part, "pieces", UNSET)
        if isinstance(text, str) and rows:
            notes += unknown_notes(text, tokens_of(rows if pieces is UNSET else pieces))
    return notes


def _check_shapes(
    layer: int, stages: Tensors, tensors: Tensors, tokens: int, all_heads: int, where: str
) -> list[Shape]:
    """The shape trace of a layer, checked. Raises InputError unless every stage has the axes that
    its name says, and each axis has one size in all stages.

    stages: of the layer, by name.
    tensors: all of the file.
    tokens: how many the text has.
    all_heads: how many heads the layer has, those that the file does not hold included.
    where: the file's name, for errors.
    """
    # a file may hold tensors of other names, of which no axes are known
    known_stages = {name: array for name, array in stages.items() if name in STAGES}
    if f"hidden.{layer}" in tensors:
        known_stages["hidden"] = tensors[f"hidden.{layer}"]
    heads = len(stages["weights"])
    try:
        # `shapes_of` raises ValueError where two stages disagree on an axis
        sizes = {
            axis: size
            for row in shapes_of(known_stages)
            for axis, size in zip(row.axes, row.shape, strict=True)
        }
        # the heads must share keys and values evenly; a file without k and v has no axis "kv"
        kv_heads = sizes.get("kv", heads)
        shares_evenly = kv_heads > 0 and heads % kv_heads == 0
        if heads > 0 and not shares_evenly:
            raise ValueError(f"{heads} heads cannot share {kv_heads} of keys and values")
        if sizes.get("token", tokens) != tokens:
            raise ValueError(f"hidden.{layer} is of {sizes['token']} tokens, not {tokens}")
        # once more, of the stages that the trace lists
        return shapes_of(_traced_stages(known_stages, all_heads))
    except ValueError as error:
        what = message("layers.{layer} contradicts itself: {error}", layer=layer, error=error)
        raise InputError(
            what, where=where, expected="stages as attn run --save writes them"
        ) from error


def _shape_rows(shapes: Sequence[Shape], formulas: dict[str, str] | UnsetType) -> list[ShapeRow]:
    """The shape trace of a saved run with the formulas that its file states; where it states none,
    with sentences that say so (`UNTOLD`)."""
    if formulas is UNSET:
        return [shape_row(row, UNTOLD.get(row.step)) for row in shapes]
    # heads are joined only in a run whose formulas name that step
    rows = [row for row in shapes if row.step in formulas or row.step != "concat"]
    return [shape_row(row, formulas.get(row.step)) for row in rows]


def _head_numbers(run: SavedMetadata, layer: int, count: int, where: str) -> list[int]:
    """The numbers of a layer's heads, in the order of its arrays; 0, 1, 2 … for a file that does
    not hold them.

    count: heads that the arrays hold.

    Raises InputError where the metadata tells of other heads than the arrays hold.
    """
    if run.heads is UNSET:
        return list(range(count))
    numbers = run.heads.get(str(layer), [])
    if len(numbers) != count or sorted(set(numbers)) != numbers:
        raise InputError(
            "the metadata tells of heads {numbers} in layer {layer}, and the file holds {count}",
            where=where,
            expected="the number of each head, ascending",
            numbers=listing(numbers, ", "),
            layer=layer,
            count=count,
        )
    return numbers


def _stage_of_head(stages: Tensors, name: str, head: int) -> np.ndarray[Any, Any] | UnsetType:
    """A head's part of a stage; UNSET where the file lacks the stage, or that head of it.

    head: the index of the head in the arrays.
    """
    if name in stages and head < len(stages[name]):
        return stages[name][head]
    return UNSET


def _traced_stages(stages: Tensors, all_heads: int) -> dict[str, np.ndarray[Any, Any]]:
    """The stages of a layer that its shape trace lists: without the steps that changed nothing, and
    with the concatenated heads where W_O follows them.

    all_heads: how many heads are concatenated, those that the file does not hold included.
    """
    steps = dict(stages)
    # a step that equals the one before it changed nothing
    for name, before in (("masked", "biased"), ("biased", "capped"), ("capped", "scaled")):
        if name in stages and before in stages and np.array_equal(stages[name], stages[before]):
            del steps[name]
    if "mixed" in stages and "out" in stages:
        heads = np.swapaxes(np.asarray(head_outputs(stages)), 0, 1)
        concat = heads.reshape((len(heads), -1))
        if not np.array_equal(concat, stages["out"]):  # W_O stood between them
            head_width = concat.shape[1] // max(heads.shape[1], 1)  # a file may hold 0 heads
            # only the shape counts: zeros that take no memory
            shape = (len(concat), head_width * all_heads)
            steps["concat"] = np.broadcast_to(np.zeros(1), shape)
    return steps


def heads_of_run(document: RunDocument, metrics: Sequence[str] = DEFAULT) -> HeadsDocument:
    """The `attn.heads/1` document of a run's weights: metrics, baselines and links of what the run
    document holds.

    Raises InputError for a run without weights or with some of its rows only, LimitError for too
    many heads.
    """
    heads = [
        (layer.layer, head)
        for layer in document.layers
        for head in layer.heads
        if head.weights is not UNSET
    ]
    if not heads or document.queries is not UNSET:
        what = message("this document holds no whole weights to compare")
        raise InputError(what, expected="a run saved with all rows: attn run TEXT --json")
    check_heads(len(heads))
    tokens = tokens_of(document.tokens)
    same = identities_of(document, tokens)
    special = [token.special for token in tokens]
    rows = []
    for layer, head in heads:
        # metrics and links are about the text's tokens, without learned keys behind them
        weights = np.asarray(head.weights, np.float64)[:, : len(tokens)]
        if head.scores is UNSET:
            visible = None  # then only weights above 0 are known to be visible
        else:
            # a masked score is −∞
            visible = np.isfinite(np.asarray(head.scores, np.float64)[:, : len(tokens)])
        results = measure(weights[None], visible, metrics=metrics, tokens=same, special=special)
        links = LinkCollector(tokens, top=1, leave_out=document.links_leave_out or ())
        links.add(layer, [head.head], [weights])
        rows.append(
            HeadMetrics(
                layer=layer,
                head=head.head,
                metrics=metric_values(results, 0, "value"),  # of the one head that was measured
                baseline=metric_values(results, 0, "baseline"),
                top_link=links.overview()[0].link,  # of the one head that was added
                weights=head.weights,
            )
        )
    # documents of heads have the average over the heads of the last layer
    last = [np.asarray(head.weights, np.float64) for layer, head in heads if layer == heads[-1][0]]
    return HeadsDocument(
        **heading_of(document),
        heads=rows,
        average=AverageHead(weights=np.mean(last, 0)),
        empty_rows=document.empty_rows,
        warnings=document.warnings,
        links_leave_out=document.links_leave_out,
    )


def _metadata_value(name: str, value: str, where: str) -> Any:
    """The value that a member of the metadata holds as JSON text. Raises InputError for text that
    is no JSON.

    name: of the member, for errors.
    """
    # as the value of an object's one name, since whole texts of JSON must be objects
    content = value.encode("utf-8", "surrogatepass")
    what = message("JSON in the metadata {name}", name=name)
    return parse_object(b'{"value":' + content + b"}", where, what)["value"]


# The derivation of one query of a saved run: the stages that `--save` wrote, worked out again step
# by step.

NEEDED = ("q", "k", "v", "raw", "scaled", "capped", "biased", "masked", "weights", "mixed")
"""The stages from which one query's output is derived."""
LEAST = 0.999
"""A row of weights that sums to less, yet not to 0 as one that sees nothing, has a learned sink, which
is not saved; rounding takes far less."""


def saved_derivation(
    tensors: Tensors, document: RunDocument, layer: int, head: int, query: int
) -> AttentionTopic:
    """The `attn.explain/1` document that derives one query of a saved run, from
    `layers.{layer}.{stage}` and `hidden.{layer}` of its tensor file.

    document: the run's.
    head: its number; the file may hold some heads alone.

    Raises UnsupportedError where a stage is missing, or a learned sink took a part of the row.
    """
    # does the file hold all that it takes?
    names = {"hidden": f"hidden.{layer}"} | {name: f"layers.{layer}.{name}" for name in NEEDED}
    scale = document.attention.scale
    if (
        not tensors.keys() >= set(names.values())
        or scale is None
        or document.attention.hashing is not UNSET
    ):
        what = message("this file does not hold what a derivation takes")
        raise UnsupportedError(
            what, expected="every stage of dense attention, as --save writes them"
        )
    head_stages: dict[str, Floats] = {
        name: np.asarray(tensors[key], np.float64) for name, key in names.items()
    }

    # of each stage the one head, [1, ...]
    heads = len(head_stages["q"])
    kept = next(part for part in document.layers if part.layer == layer).heads
    index = [row.head for row in kept].index(head)
    for name in NEEDED:
        # several heads in a row may share one of keys and values: k and v have fewer than `heads`
        stage_index = index * len(head_stages[name]) // heads
        head_stages[name] = head_stages[name][stage_index : stage_index + 1]
    row_sum = float(head_stages["weights"][0, query].sum())
    if 0 < row_sum < LEAST:
        raise UnsupportedError(
            "a learned sink took a part of this row, and the file does not hold it"
        )
    steps = steps_of(head_stages, scale, document.attention.softcap, sink=None, query=query)
    out = tensors.get(f"layers.{layer}.out")
    return AttentionTopic(
        **heading_of(document),
        topic="attention",
        layer=layer,
        head=head,
        query=query,
        extra_keys=head_stages["k"].shape[-2] - len(document.tokens),
        rotated=document.attention.position.startswith("rope"),
        shapes=document.shapes,
        steps=steps,
        matrices=Matrices(
            scores=head_stages["masked"][0],
            weights=head_stages["weights"][0],
            output=head_stages["mixed"][0],
        ),
        after=(
            UNSET
            if out is None
            else After(x=head_stages["hidden"][query], out=np.asarray(out, np.float64)[query])
        ),
        agreement=agreement(steps, head_stages, query),
        empty_rows=document.empty_rows,
        warnings=document.warnings,
    )
