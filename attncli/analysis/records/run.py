"""Records of a whole run: its tokens, and its heads one after another, so that none is held longer than needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.analysis.document import attention_part, model_part, notes
from attncli.analysis.documents.parts import AttentionPart, ModelPart
from attncli.analysis.links import kinds_left_out
from attncli.analysis.records.feeding import arithmetic, feed_whole
from attncli.analysis.records.head import HeadRecord, LayerRecords, Sides
from attncli.analysis.records.recording import Recording
from attncli.analysis.words import Words, identities, merged_words, unknown_notes_of_two
from attncli.arrays.backend import EVERY, Selection, numbers_of
from attncli.errors import InputError, UnsupportedError
from attncli.inputs.token import Token
from attncli.mechanism.attend import RowBlock, attend
from attncli.mechanism.block import join_heads
from attncli.mechanism.context import Context
from attncli.mechanism.feed_forward import linear_if_any
from attncli.mechanism.projection import project
from attncli.mechanism.spec import Attention, Block
from attncli.mechanism.trace import LayerTrace
from attncli.models.model import Model, choose_heads

AT_ONCE = 1 << 19
"""Weights of a layer that are computed at a time."""


class RunRecord(Struct, frozen=True, eq=False):
    """A run as a viewer keeps it. heads: to be gone through once; each comes when it is known.

    sides: the tokens that look and that are looked at. model, attention: as documents have them, None where not known.
    warnings: what a reader must know.
    """

    name: str
    text: str
    sides: Sides
    model: ModelPart | None
    attention: AttentionPart | None
    heads: Iterator[HeadRecord]
    warnings: Sequence[str] = ()


def run_record(
    model: Model,
    text: str,
    tokens: Sequence[Token],
    *,
    name: str = "",
    layers: Selection = EVERY,
    heads: Selection = EVERY,
    words: bool = False,
    exact: bool = False,
    progress: Callable[[float], None] | None = None,
) -> RunRecord:
    """A text through the model. layers, heads: which. words: whether pieces are merged to words.

    exact: as for `LayerRecords`. progress: told the share done. Nothing n × n is held of a long text, unless its words
    are merged or it is hashed.
    """
    if not recordable(model, words=words):
        return _whole_record(model, text, tokens, name, layers, heads, merged_words(tokens, text) if words else None)
    blocks = model.spec.blocks
    recording = Recording(model, tokens, heads, exact=exact)

    def on_block(layer: int, kind: str, block: RowBlock) -> None:
        if kind == "self" and progress is not None:
            progress((layer + block.stop / len(tokens)) / (max(numbers_of(layers, len(blocks))) + 1))

    def head_records() -> Iterator[HeadRecord]:
        for _ in recording.trace(tokens, layers=layers, rows=_rows(blocks, len(tokens)), on_block=on_block):
            yield from recording.take_records()

    return replace(recorded_run(model, text, recording, name=name), heads=head_records())


def recordable(model: Model, *, words: bool) -> bool:
    """Whether a `Recording` can take a run's heads: not where words are merged or tokens are hashed."""
    return not words and all(block.attention.hashing is None for block in model.spec.blocks)


def recorded_run(model: Model, text: str, recording: Recording, *, name: str = "") -> RunRecord:
    """What a recording took of a run, once that is over."""
    computing = attention_part(model, model.computing(len(recording.sides.queries)))
    return RunRecord(
        name,
        text,
        recording.sides,
        model_part(model),
        computing,
        recording.take_records(),
        notes(model, text, recording.sides.queries),
    )


def _whole_record(
    model: Model,
    text: str,
    tokens: Sequence[Token],
    name: str,
    layers: Selection,
    heads: Selection,
    word_groups: Words | None,
) -> RunRecord:
    """A run whose weights are needed whole."""
    row_tokens = list(tokens if word_groups is None else word_groups.words)
    sides = Sides(row_tokens, row_tokens, names=identities(tokens, word_groups))
    leave_out = kinds_left_out((*sides.queries, *sides.keys), is_learned=model.identity.source == "checkpoint")

    def head_records() -> Iterator[HeadRecord]:
        for trace in model.trace(tokens, layers=layers, keep=("masked", "weights")):
            attention = model.spec.blocks[trace.layer].attention
            head_numbers = numbers_of(heads, attention.heads)
            records = LayerRecords(model.backend, trace.layer, sides, head_numbers, leave_out=leave_out)
            feed_whole(model.backend, records, trace.stages, word_groups)
            has_recipe = word_groups is None and attention.hashing is None
            yield from records.records(
                arithmetic(model.backend, trace.stages, attention.scale, attention.softcap) if has_recipe else None
            )

    computing = attention_part(model, model.computing(len(tokens)))
    return RunRecord(name, text, sides, model_part(model), computing, head_records(), notes(model, text, tokens))


def cross_record(model: Model, texts: CrossTexts, *, layers: Selection = EVERY, heads: Selection = EVERY) -> RunRecord:
    """A text that looks at another one, as `attn cross` runs it. layers, heads: which."""
    side = replace(model, spec=model.spec.decoder or model.spec)
    sides = Sides(texts.queries, texts.keys)
    leave_out = kinds_left_out((*sides.queries, *sides.keys), is_learned=model.identity.source == "checkpoint")

    def head_records() -> Iterator[HeadRecord]:
        for spec, trace in cross_traces(model, texts, layers, EVERY):
            head_numbers = numbers_of(heads, spec.heads)
            records = LayerRecords(model.backend, trace.layer, sides, head_numbers, leave_out=leave_out)
            feed_whole(model.backend, records, trace.stages, None)
            yield from records.records(arithmetic(model.backend, trace.stages, spec.scale, spec.softcap))

    attention = attention_part(side, side.computing(len(texts.queries)))
    sides_of_text = (("query text", texts.query, texts.queries), ("key text", texts.key, texts.keys))
    warnings = [*model.warnings, *unknown_notes_of_two(*sides_of_text)]
    return RunRecord("", texts.query, sides, model_part(side), attention, head_records(), warnings)


def _rows(blocks: Sequence[Block], count: int) -> int:
    """How many query rows to compute at a time."""
    many = max(block.attention.heads for block in blocks)
    return max(min(AT_ONCE // (many * count), count), 1)


KEPT = ("masked", "weights")


class CrossTexts(Struct, frozen=True):
    """The texts of a cross-attention with their tokens. values: None where they are the keys' own."""

    query: str
    key: str
    queries: Sequence[Token]
    keys: Sequence[Token]
    value: str | None = None
    values: Sequence[Token] | None = None


def cross_traces(
    model: Model, texts: CrossTexts, layers: Selection, heads: Selection
) -> Iterator[tuple[Attention, LayerTrace]]:
    """The cross-attention of each layer with its Spec.

    An encoder-decoder reads the keys' text with its encoder and runs its decoder over the queries' text;
    a one-layer model or weight file projects the queries' embeddings with W_Q and the others' with W_K and
    W_V. Raises UnsupportedError for a checkpoint of one side.
    """
    if model.identity.source == "checkpoint":
        decoder = model if model.memory is not None else model.decoder(list(texts.keys))
        for trace in decoder.trace(list(texts.queries), layers=layers, heads=heads, keep=KEPT):
            spec = decoder.spec.blocks[trace.layer].cross
            assert trace.cross is not None
            assert spec is not None
            yield spec, trace.cross
        return
    spec = model.spec.blocks[0].attention
    trace = _attend_to_text(model, spec, texts)
    yield spec, trace if heads is EVERY else choose_heads(trace, sorted(heads), spec.heads // spec.kv_heads)


def _attend_to_text(model: Model, spec: Attention, texts: CrossTexts) -> LayerTrace:
    """One cross-attention of a model without an encoder."""
    if spec.hashing is not None:
        raise UnsupportedError("hash attention is within one text", expected="--attention dense")
    backend, weights = model.backend, model.store.layer(model.backend, 0)
    x, memory = (model.store.embed(backend, list(tokens)) for tokens in (texts.queries, texts.keys))
    context = Context(np.arange(len(texts.queries)), max(len(texts.queries), len(texts.keys)), memory=memory)
    parts = project(backend, spec, weights, "attn", x, memory, context, 0)
    v = parts.v
    if texts.values is not None:
        if len(texts.values) != len(texts.keys):
            raise InputError(
                f"the values' text has {len(texts.values)}, the keys' {len(texts.keys)} tokens",
                expected="one value for every key",
            )
        v = project(backend, spec, weights, "attn", x, model.store.embed(backend, list(texts.values)), context, 0).v
    block = attend(backend, parts.q, parts.k, v, parts.rule, keep=KEPT)
    concat = join_heads(backend, block.mixed)
    out = linear_if_any(backend, weights, "attn.o", concat)
    stages = {
        "hidden": x,
        "q": parts.q,
        "k": parts.k,
        "v": v,
        "masked": block.stages["masked"],
        "weights": block.stages["weights"],
        "mixed": block.mixed,
    }
    stages |= {"out": concat} if out is None else {"concat": concat, "out": out}
    return LayerTrace(0, stages, block.empty, x, lambda: stages["out"])
