"""The document of `attn cross`: queries from one text, keys and values from another."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Literal

import numpy as np
from msgspec.structs import replace

from attncli.arrays.backend import EVERY, SCORE_ITEM, Backend, Selection, numbers_of
from attncli.documents import EmptyRow, ShapeRow
from attncli.documents.header import (
    attention_part,
    empty_rows,
    model_part,
    projection_formulas,
    shape_rows,
    token_rows,
)
from attncli.errors import UnsupportedError, UsageError
from attncli.features.cross.document import (
    Aligned,
    BestKey,
    CrossDocument,
    CrossHead,
    CrossLayer,
)
from attncli.inputs.token import Text, Token
from attncli.inputs.word_groups import token_notes_of_two
from attncli.language import message
from attncli.measure.row_facts import Bools, Floats
from attncli.measure.row_stream import LinkCollector, kinds_left_out
from attncli.measure.run_record import CrossTexts, cross_traces
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.spec import Attention, Block
from attncli.mechanism.trace import LayerTrace
from attncli.models.estimate import estimate
from attncli.models.model import Model
from attncli.version import __version__

AT_ONCE = 4
"""Arrays of one number per pair that are alive while a layer is computed."""
SHIFTED = message(
    "the decoder reads the query text one token late, after its start token: each row is where the "
    "next token is predicted"
)


def states(count: int) -> list[Token]:
    """Stand-in tokens "s0", "s1", … for the captured states of an encoder as keys, as the states
    themselves have no text."""
    return [Token(place, f"s{place}", None, None, None) for place in range(count)]


@checked
def cross(
    model: Model,
    query_text: str,
    key_text: str | None = None,
    *,
    value_text: str | None = None,
    layers: Selection = EVERY,
    heads: Selection = EVERY,
    top: int = 10,
    all_links: bool = False,
    texts: CrossTexts | None = None,
) -> CrossDocument:
    """Run cross-attention: each token of the query text attends to the tokens of the key text, or
    to captured encoder states.

    Args:
        model: As `attncli.load` returns it: seeded weights, an encoder-decoder, or a decoder that
            reads captured states (`Model.reading`).
        query_text: The text that asks; of an encoder-decoder, the decoder's.
        key_text: The text that is looked at; None for the states that the model reads.
        value_text: Values from a third text with a token for every key, of seeded weights; None for
            the keys' own.
        layers: Which layers: a number, several, or a text such as "0,2-5"; see `HeadSelection`.
        heads: Which heads of each: 11, [0, 3], "2-5"; or heads with their layers, "L5H11" or
            (5, 11); see `HeadSelection`.
        top: How many links the document holds.
        all_links: Whether links may be those that say little: to special tokens.
        texts: The texts as tokens, as `cross_texts` returns them; None to let the model's tokenizer
            find them.

    Returns:
        What `attn cross --json` writes. `alignment` names for every query the key with the largest
        mean weight, and the best without special tokens, as the end of the text, where there are any.

    Raises:
        UnsupportedError: For a checkpoint without cross-attention.
        UsageError: For a third text beside a checkpoint.
    """
    if texts is None:
        if key_text is None:
            key = None
        else:
            key = Text(key_text, "argument")
        texts = cross_texts(model, Text(query_text, "argument"), key, value_text)
    is_learned = model.identity.source == "checkpoint"
    part: Literal["attn", "cross"] = "cross" if is_learned else "attn"
    leave_out = (
        () if all_links else kinds_left_out((*texts.queries, *texts.keys), is_learned=is_learned)
    )
    links = LinkCollector(texts.keys, queries=texts.queries, top=top, leave_out=leave_out)
    parts: list[CrossLayer] = []
    shapes: list[ShapeRow] = []
    empty: list[EmptyRow] = []
    specs: list[Attention] = []
    total: Floats = np.zeros((len(texts.queries), len(texts.keys)))
    for spec, trace in cross_traces(model, texts, layers, heads):
        head_numbers = sorted(numbers_of(heads, spec.heads))
        weights = np.asarray(model.backend.numpy(trace.stages["weights"]), np.float64)
        shapes = shapes or _cross_shapes(
            shape_rows(trace, spec, projection_formulas(model, trace.layer, part)),
            len(texts.keys),
            int(model.spec.d_model),
        )
        parts.append(_document_layer(model.backend, trace, head_numbers))
        empty += empty_rows(model.backend, trace, head_numbers)
        links.add(trace.layer, head_numbers, list(weights))
        total = total + weights[..., : len(texts.keys)].sum(axis=0)
        specs.append(spec)
    # blocks of these attentions alone, so that header lines speak of the cross-attention
    cross_model = replace(model, spec=replace(model.spec, blocks=tuple(map(Block, specs))))
    decoder = model.spec.decoder or model.spec
    computing = replace(model, spec=decoder).compute_backend(len(texts.queries))
    shifted = (SHIFTED,) if model.spec.decoder is not None else ()
    unknown = token_notes_of_two(
        (message("query text"), texts.query, texts.queries),
        (message("key text"), texts.key, texts.keys),
    )
    mean = total / sum(len(part.heads) for part in parts)
    return CrossDocument(
        version=__version__,
        query_text=texts.query,
        key_text=texts.key,
        value_text=texts.value,
        queries=token_rows(texts.queries),
        keys=token_rows(texts.keys),
        model=replace(model_part(cross_model), layers=len(decoder.blocks)),
        attention=attention_part(cross_model, computing),
        shapes=shapes,
        layers=parts,
        alignment=alignment(mean, np.array([token.special for token in texts.keys], bool)),
        links=links.strongest(),
        empty_rows=empty,
        warnings=list(dict.fromkeys((*model.warnings, *shifted, *unknown))),
    )


def cross_texts(
    model: Model, query: Text, key: Text | None, value: str | None = None, *, name: str = ""
) -> CrossTexts:
    """Tokenize the texts of a cross-attention; raises as `cross`. key None: the states that the
    model reads, with `name` as the name of their text."""
    if key is None:
        if model.memory is None:
            raise UsageError(
                "nothing is looked at",
                expected="a second text, or captured states that the model reads",
            )
        return CrossTexts(query.text, name, _tokens(model, query), states(model.memory.shape[-2]))
    if model.identity.source != "checkpoint":
        if value is None:
            values = None
        else:
            values = model.encode(value)
        return CrossTexts(
            query.text, key.text, _tokens(model, query), _tokens(model, key), value, values
        )
    if value is not None:
        raise UsageError(
            "--value-text does not go with --model",
            expected="an encoder-decoder takes keys and values from one text",
        )
    if model.spec.decoder is None:
        what = message("{family} models have no cross-attention", family=model.identity.family)
        raise UnsupportedError(
            what, expected="an encoder-decoder: t5, bart or marian", hint="attn models list"
        )
    keys = _tokens(model, key)
    return CrossTexts(query.text, key.text, _tokens(model.decoder(keys), query), keys)


def _tokens(model: Model, text: Text) -> list[Token]:
    """The tokens of a text, or of a chat where it is one, by the model's tokenizer."""
    if text.chat is None:
        return model.encode(text.text)
    from attncli.inputs.chat import encode_chat

    return model.encode(encode_chat(model.tokenizer, text.chat))


def _document_layer(backend: Backend, trace: LayerTrace, heads: Sequence[int]) -> CrossLayer:
    """Convert a layer's trace to the document's `CrossLayer`.

    heads: the numbers of the heads that the trace holds.
    """
    scores, weights, mixed, out = (
        backend.numpy(trace.stages[name]) for name in ("masked", "weights", "mixed", "out")
    )
    parts = [
        CrossHead(head=head, scores=scores[place], weights=weights[place], output=mixed[place])
        for place, head in enumerate(heads)
    ]
    return CrossLayer(layer=trace.layer, heads=parts, output=out)


def _cross_shapes(rows: list[ShapeRow], keys: int, width: int) -> list[ShapeRow]:
    """Adapt the rows of a shape table to cross-attention: keys and values come from Y, the second
    text's vectors, [keys, width]."""
    renamed_rows = [
        replace(row, formula=row.formula.replace("X", "Y")) if row.step in ("k", "v") else row
        for row in rows
    ]
    memory = ShapeRow(step="memory", axes=["key", "width"], shape=[keys, width], formula="Y")
    return [*renamed_rows[:1], memory, *renamed_rows[1:]]


def alignment(mean: Floats, special: Bools) -> list[Aligned]:
    """For each query the key with the largest weight, the first of equals; None where all weights
    are 0. Where the key text has special tokens, also their total weight and the best other key:
    the end of a text gets what has no counterpart in it.

    mean: weights, [query, key].
    special: which keys are special tokens, [key].
    """
    best = mean.argmax(axis=1)
    rows = [
        Aligned(
            query=query,
            key=int(key) if mean[query, key] > 0 else None,
            weight=float(mean[query, key]),
        )
        for query, key in enumerate(best)
    ]
    if not special.any():
        return rows
    others = np.where(special, 0.0, mean)
    return [
        replace(
            row,
            special=float(mean[row.query, special].sum()),
            beyond_special=_best_key(others[row.query]),
        )
        for row in rows
    ]


def _best_key(weights: Floats) -> BestKey | None:
    """The key with the largest weight, the first of equals; None where all are 0."""
    key = int(weights.argmax())
    if not weights[key] > 0:
        return None
    return BestKey(key=key, weight=float(weights[key]))


def cross_memory(model: Model, texts: CrossTexts, layers: Selection, heads: Selection) -> int:
    """Estimated peak memory in bytes of `cross`, before it runs."""
    queries = len(texts.queries)
    keys = len(texts.keys)
    spec = model.spec.decoder or model.spec
    most = max((block.cross or block.attention).heads for block in spec.blocks)
    if "float64" in (model.compute_backend(count).dtype for count in (queries, keys)):
        compute_dtype = "float64"
    else:
        compute_dtype = "float32"
    pairs = queries * keys
    sides = 0
    if model.spec.decoder is not None:
        pairs += queries * queries  # the decoder's attention to its own text
        encoder_peak = estimate(
            model.spec, keys, layers=[len(model.spec.blocks) - 1], dtype=compute_dtype
        ).peak
        sides = max(
            encoder_peak,
            estimate(spec, queries, layers=layers, kept_stages=0, dtype=compute_dtype).peak,
        )
    vectors = (
        (queries + keys)
        * most
        * 2
        * (spec.blocks[0].attention.head_dim + spec.blocks[0].attention.v_dim)
    )
    numbers = sum(prod(shape) for shape in cross_numbers(model, texts, layers, heads))
    return sides + (vectors + AT_ONCE * most * pairs + numbers) * SCORE_ITEM[compute_dtype]


def cross_numbers(
    model: Model, texts: CrossTexts, layers: Selection, heads: Selection
) -> list[tuple[int, ...]]:
    """Shapes of the arrays that the `cross` document will hold, to estimate its size before it is
    built.
    """
    spec = model.spec.decoder or model.spec
    attention = spec.blocks[0].cross or spec.blocks[0].attention
    count = len(numbers_of(layers, len(spec.blocks))) * len(numbers_of(heads, attention.heads))
    return [
        (2 * count, len(texts.queries), len(texts.keys)),
        (count, len(texts.queries), attention.v_dim),
        (len(texts.queries), spec.d_model),
    ]
