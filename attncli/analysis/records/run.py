"""Records of a whole run: its tokens, and its heads one after another, so that none is held longer than needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from attncli.analysis.cross import CrossTexts, cross_traces
from attncli.analysis.document import attention_part, model_part, notes
from attncli.analysis.documents.parts import AttentionPart, ModelPart
from attncli.analysis.links import kinds_left_out
from attncli.analysis.records.feeding import arithmetic, feed_whole
from attncli.analysis.records.head import HeadRecord, LayerRecords, Sides
from attncli.analysis.records.recording import Recording
from attncli.analysis.words import Words, identities, merged_words, unknown_notes_of_two
from attncli.arrays.backend import EVERY, Selection, numbers_of
from attncli.inputs.token import Token
from attncli.mechanism.attend import RowBlock
from attncli.mechanism.spec import Block
from attncli.models.model import Model

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
