"""Records of a whole run of a model: its tokens, and its heads one after another, so that none is
held longer than needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import EVERY, Array, Backend, Selection, numbers_of
from attncli.documents import AttentionPart, ModelPart
from attncli.documents.header import attention_part, model_part, notes
from attncli.documents.parts import MetricValue
from attncli.errors import InputError, LimitError, UnsupportedError
from attncli.inputs.token import Token
from attncli.inputs.word_groups import (
    Words,
    WordsOfTwo,
    identities,
    merged_words,
    token_notes_of_two,
)
from attncli.language import message
from attncli.measure.head_record import (
    Arithmetic,
    HeadRecord,
    LayerRecords,
    Sides,
)
from attncli.measure.metric import Measured
from attncli.measure.row_facts import Bools
from attncli.measure.row_stream import block_visibility, select_in_block
from attncli.mechanism.attend import RowBlock, attend
from attncli.mechanism.block import join_heads
from attncli.mechanism.context import NO_INTERVENTIONS, Context, Interventions
from attncli.mechanism.feed_forward import linear_if_any
from attncli.mechanism.projection import LayerAttention, project
from attncli.mechanism.spec import Attention, Block
from attncli.mechanism.trace import SQUARE, LayerTrace
from attncli.models.model import Model, choose_heads

# From blocks of rows and from whole stages to the records of a layer. A stage is an array that the
# attention step keeps by name, [head, query, key]: "capped" are the scores, "biased" the scores with
# the bias of their positions, "masked" those with −inf where a key is hidden, "weights" the softmax.


# a score that is no number is noticed when weights are computed again and compared
@np.errstate(invalid="ignore", over="ignore")
def feed(backend: Backend, records: LayerRecords, block: RowBlock) -> None:
    """Add a block of rows to a layer's records: its weights, which keys its rows see, and the bias
    where the stages "capped" and "biased" were kept."""
    # the block's recorded heads by index in it, and the index of their first among all recorded
    local_heads, first = select_in_block(block, records.head_numbers)
    if local_heads:
        stages = {
            name: backend.numpy(array)[local_heads]
            for name, array in block.stages.items()
            if name in SQUARE
        }
        visibility = block_visibility(backend, block, local_heads)
        if "biased" in stages and "capped" in stages:
            bias = stages["biased"] - stages["capped"]
        else:
            bias = None

        lse = backend.numpy(block.lse)[local_heads]
        records.rows(block.high).add(
            start=block.start,
            low=block.low,
            weights=np.nan_to_num(stages["weights"]),  # the run itself warns of NaN
            lse=lse,
            visibility=visibility,
            bias=bias,
            first=first,
        )
    records.feeder.on_block(block)


@np.errstate(invalid="ignore", over="ignore", divide="ignore")
def feed_whole(
    backend: Backend,
    records: LayerRecords,
    stages: Mapping[str, Array],
    words: Words | WordsOfTwo | None,
) -> None:
    """Add all rows of a layer to its records at once, from the stages "weights" and, where there
    are any, "masked", "capped" and "biased".

    words: the words that tokens are merged to, of queries and of keys; None for tokens.
    """
    # of the recorded heads
    arrays = {
        name: backend.numpy(stages[name])[records.head_numbers]
        for name in ("weights", "masked", "capped", "biased")
        if name in stages
    }
    weights = np.nan_to_num(arrays["weights"])  # the run itself warns of NaN
    if "masked" in arrays:
        visibility = arrays["masked"] != -np.inf
    else:
        visibility = np.ones(weights.shape, bool)
    if words is not None:
        weights = words.merge(weights).astype(np.float32)
        visibility = words.merge_visible(visibility)

    # log Σ exp of each row's scores, [head, row]: score − ln(weight) of any key, since weight =
    # exp(score − lse), and of the largest weight most exactly; −inf for a row that sees nothing, NaN
    # where rows are words, which have no scores, or scores were not kept
    lse = np.full(weights.shape[:2], np.nan, np.float32)
    if words is None and "masked" in arrays:
        strongest = weights.argmax(-1)[..., None]
        score = np.take_along_axis(arrays["masked"], strongest, -1)[..., 0]
        weight = np.take_along_axis(arrays["weights"], strongest, -1)[..., 0]
        lse = np.where(weight > 0, score - np.log(weight), -np.inf).astype(np.float32)
    if "biased" in arrays and "capped" in arrays:
        bias = arrays["biased"] - arrays["capped"]
    else:
        bias = None

    # records take None where all is visible and [row, key] where all heads see the same
    smallest_visibility: Bools | None = visibility
    if visibility.all():
        smallest_visibility = None
    elif bool((visibility == visibility[:1]).all()):
        smallest_visibility = visibility[0]
    records.rows(weights.shape[-1]).add(
        start=0, low=0, weights=weights, lse=lse, visibility=smallest_visibility, bias=bias
    )
    keys = records.keys  # without the learned keys, which stand after the tokens
    records.feeder.take_layer(weights[..., :keys].astype(np.float64), visibility[..., :keys])


def arithmetic(
    backend: Backend, stages: Mapping[str, Array], scale: float, softcap: float | None
) -> Arithmetic | None:
    """A layer's queries and keys (stages "q" and "k") with the scale and softcap of their scores;
    None where these stages were not kept, or do not give all scores."""
    # Longformer's global tokens have queries of their own, "global_q"
    if "q" not in stages or "k" not in stages or "global_q" in stages:
        return None
    q, k = (np.asarray(backend.numpy(stages[name]), np.float32) for name in ("q", "k"))
    if "v" in stages:
        v = np.asarray(backend.numpy(stages["v"]), np.float32)
    else:
        v = None
    return Arithmetic(q, k, scale, softcap, v)


AT_ONCE = 1 << 19
"""Weights of a layer that are computed at a time."""


class RunRecord(Struct, frozen=True, eq=False):
    """A run as a viewer keeps it.

    name: what the viewer calls this run, where it shows several; "" for none.
    heads: an iterator to be used once, which gives each head's record as soon as it is known.
    sides: the tokens that look and that are looked at.
    model, attention: as documents have them, None where not known.
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
    words: bool | Words = False,
    exact: bool = False,
    progress: Callable[[float], None] | None = None,
) -> RunRecord:
    """The record of a text's run through the model: one of each chosen head, made as the layers run
    while `heads` is iterated over. Nothing n × n is held of a long text, unless its words are merged
    or its attention hashes tokens.

    name: the record's.
    layers, heads: which are recorded.
    words: whether tokens are merged to words, or the words that they are merged to.
    exact: whether queries and keys are kept as they are, for a viewer that need not be small.
    progress: called with the share of the run that is done.
    """
    # merged words, and attention that hashes tokens, need each layer's weights whole
    if not recordable(model, words=bool(words)):
        groups: Words | None = None
        if isinstance(words, Words):
            groups = words
        elif words:
            groups = merged_words(tokens, text)
        return _whole_record(model, text, tokens, name, layers, heads, groups)
    blocks = model.spec.blocks
    recording = Recording(model, tokens, heads, exact=exact)

    def on_block(layer: int, kind: str, block: RowBlock) -> None:
        """Report the share done when a block of a layer's self-attention is there."""
        if kind == "self" and progress is not None:
            # layers run up to the last one recorded
            layer_count = max(numbers_of(layers, len(blocks))) + 1
            progress((layer + block.stop / len(tokens)) / layer_count)

    def head_records() -> Iterator[HeadRecord]:
        """Records of the chosen heads, each layer's as soon as it has run."""
        rows = _rows_at_once(blocks, len(tokens))
        # the traces hold nothing that is needed: records are made from the blocks
        for _ in recording.trace(tokens, layers=layers, rows=rows, on_block=on_block):
            yield from recording.take_records()

    return replace(recorded_run(model, text, recording, name=name), heads=head_records())


def recordable(model: Model, *, words: bool) -> bool:
    """Whether a `Recording` can keep a run's heads block by block: not where words are merged or
    attention hashes its tokens."""
    return not words and all(block.attention.hashing is None for block in model.spec.blocks)


def recorded_run(model: Model, text: str, recording: Recording, *, name: str = "") -> RunRecord:
    """The `RunRecord` of a run that is over, with the records that `recording` kept of its heads.

    name: the record's.
    """
    tokens = recording.sides.queries
    return RunRecord(
        name=name,
        text=text,
        sides=recording.sides,
        model=model_part(model),
        attention=attention_part(model, model.compute_backend(len(tokens))),
        heads=recording.take_records(),
        warnings=notes(model, text, tokens),
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
    """The record of a run that holds each layer's weights whole, [head, query, key]: merged words
    sum weights of several tokens, and hashed attention needs all tokens for its groups.

    name: the record's.
    layers, heads: which are recorded.
    word_groups: how tokens are merged to words, None where rows and columns are tokens.
    """
    if word_groups is None:
        row_tokens = list(tokens)
    else:
        row_tokens = list(word_groups.words)
    sides = Sides(row_tokens, row_tokens, names=identities(tokens, word_groups))
    is_learned = model.identity.source == "checkpoint"

    def head_records() -> Iterator[HeadRecord]:
        """Records of the chosen heads from each layer's whole weights, of words where these are
        merged.
        """
        for trace in model.trace(tokens, layers=layers, keep=("masked", "weights")):
            attention = model.spec.blocks[trace.layer].attention
            head_numbers = numbers_of(heads, attention.heads)
            records = LayerRecords(
                model.backend, trace.layer, sides, head_numbers, is_learned=is_learned
            )
            feed_whole(model.backend, records, trace.stages, word_groups)
            products = None
            if word_groups is None and attention.hashing is None:
                # only then is a weight the softmax of one row's scores
                products = arithmetic(
                    model.backend, trace.stages, attention.scale, attention.softcap
                )
            yield from records.records(products)

    computing = attention_part(model, model.compute_backend(len(tokens)))
    return RunRecord(
        name=name,
        text=text,
        sides=sides,
        model=model_part(model),
        attention=computing,
        heads=head_records(),
        warnings=notes(model, text, tokens),
    )


def cross_record(
    model: Model,
    texts: CrossTexts,
    *,
    layers: Selection = EVERY,
    heads: Selection = EVERY,
    words: WordsOfTwo | None = None,
) -> RunRecord:
    """The record of a cross-attention between two texts, as `attn cross` runs it.

    layers, heads: which are recorded.
    words: the words to which the tokens of either text are merged; None for tokens.
    """
    # of an encoder-decoder the decoder attends, and is what the record tells of
    attending_model = replace(model, spec=model.spec.decoder or model.spec)
    sides = Sides(texts.queries, texts.keys)
    if words is not None:
        sides = Sides(words.queries.words, words.keys.words)
    is_learned = model.identity.source == "checkpoint"

    def head_records() -> Iterator[HeadRecord]:
        """Records of the chosen heads of each layer's cross-attention."""
        for spec, trace in cross_traces(model, texts, layers, EVERY):
            head_numbers = numbers_of(heads, spec.heads)
            records = LayerRecords(
                model.backend, trace.layer, sides, head_numbers, is_learned=is_learned
            )
            feed_whole(model.backend, records, trace.stages, words)
            products = None
            if words is None:
                products = arithmetic(model.backend, trace.stages, spec.scale, spec.softcap)
            yield from records.records(products)

    backend = attending_model.compute_backend(len(texts.queries))
    sides_of_text = (
        (message("query text"), texts.query, texts.queries),
        (message("key text"), texts.key, texts.keys),
    )
    warnings = [*model.warnings, *token_notes_of_two(*sides_of_text)]
    return RunRecord(
        name="",
        text=texts.query,
        sides=sides,
        model=model_part(attending_model),
        attention=attention_part(attending_model, backend),
        heads=head_records(),
        warnings=warnings,
    )


def _rows_at_once(blocks: Sequence[Block], count: int) -> int:
    """How many query rows of a text of `count` tokens to compute at a time, so that memory is
    bounded; at least 1.
    """
    heads = max(block.attention.heads for block in blocks)
    return max(min(AT_ONCE // (heads * count), count), 1)


KEPT = ("masked", "weights")


class CrossTexts(Struct, frozen=True):
    """The texts of a cross-attention, as tokens: of the queries, of the keys, and of the values
    (None where they are the keys' own).

    said: of a decoder that reads its text one token late, the token of that text which each query
        predicts; None where queries are the text's own tokens.
    """

    query: str
    key: str
    queries: Sequence[Token]
    keys: Sequence[Token]
    value: str | None = None
    values: Sequence[Token] | None = None
    said: Sequence[Token] | None = None


def cross_traces(
    model: Model, texts: CrossTexts, layers: Selection, heads: Selection
) -> Iterator[tuple[Attention, LayerTrace]]:
    """Yield the specification and the trace of each chosen layer's cross-attention, with the chosen
    heads.

    An encoder-decoder reads the keys' text with its encoder and runs its decoder over the queries'
    text; a one-layer model or weight file projects the queries' embeddings with W_Q and the others'
    with W_K and W_V. Raises UnsupportedError for a checkpoint without cross-attention.
    """
    if model.identity.source == "checkpoint":
        # a model with a memory is a decoder whose encoder has read the keys' text already
        if model.memory is not None:
            decoder = model
        else:
            decoder = model.decoder(list(texts.keys))
        for trace in decoder.trace(list(texts.queries), layers=layers, heads=heads, keep=KEPT):
            spec = decoder.spec.blocks[trace.layer].cross
            assert trace.cross is not None
            assert spec is not None
            yield spec, trace.cross
        return
    spec = model.spec.blocks[0].attention
    trace = _attend_to_text(model, spec, texts)
    if heads is not EVERY:
        trace = choose_heads(trace, sorted(numbers_of(heads, spec.heads)), spec)
    yield spec, trace


def _attend_to_text(model: Model, spec: Attention, texts: CrossTexts) -> LayerTrace:
    """The trace of one cross-attention of a model without an encoder: queries from one text, keys
    and values from another."""
    if spec.hashing is not None:
        raise UnsupportedError("hash attention is within one text", expected="--attention dense")
    backend = model.backend
    attention = LayerAttention(backend, model.store.layer(backend, 0), "attn", spec)
    x = model.store.embed(backend, list(texts.queries))
    memory = model.store.embed(backend, list(texts.keys))
    position_count = max(len(texts.queries), len(texts.keys))
    context = Context(np.arange(len(texts.queries)), position_count, memory=memory)
    parts = project(attention, x, memory, context, layer=0)

    # values of a third text, where one is given
    v = parts.v
    if texts.values is not None:
        if len(texts.values) != len(texts.keys):
            what = message(
                "the values' text has {values}, the keys' {keys} tokens",
                values=len(texts.values),
                keys=len(texts.keys),
            )
            raise InputError(what, expected="one value for every key")
        values = model.store.embed(backend, list(texts.values))
        # projected a second time, with the values' text in the keys' place; v alone is used
        v = project(attention, x, values, context, layer=0).v

    block = attend(backend, parts.q, parts.k, v, parts.rule, keep=KEPT)
    concat = join_heads(backend, block.mixed)
    out = linear_if_any(backend, attention.weights, "attn.o", concat)
    stages = {
        "hidden": x,
        "q": parts.q,
        "k": parts.k,
        "v": v,
        "masked": block.stages["masked"],
        "weights": block.stages["weights"],
        "mixed": block.mixed,
    }
    if out is None:  # without an output projection, the heads side by side are the output
        stages["out"] = concat
    else:
        stages |= {"concat": concat, "out": out}
    # this attention is all of the layer: what leaves it is its output
    return LayerTrace(
        layer=0, stages=stages, empty_rows=block.empty, before=x, leaving=lambda: stages["out"]
    )


# Records of a run that is made for something else, taken from what it computes: nothing runs twice.

STAGES = ("weights", "entropy", "capped", "biased")
"""What is needed of each block of rows, which itself knows which keys are hidden; "biased" less
"capped" is the bias."""
WHOLE = ("weights", "masked", "capped", "biased")
"""What is needed of a layer that is computed at once; "masked" tells which keys are hidden."""


class Recording:
    """Traces a model as `Model.trace` does, and makes a record of each chosen head on the way.

    heads: which.
    exact: as for `LayerRecords`.

    Layers that are not traced have no records. Nothing n × n is held that the run does not hold
    itself, but weights that queries and keys do not give.
    """

    def __init__(
        self,
        model: Model,
        tokens: Sequence[Token],
        heads: Selection = EVERY,
        *,
        exact: bool = False,
    ) -> None:
        """Prepare to record the heads of a text's run; `trace` then runs it.

        tokens: of the text.
        heads: those that are recorded.
        exact: whether queries and keys are kept as they are, for a viewer that need not be small.
        """
        self._model = model
        self._heads = heads
        self._exact = exact
        token_list = list(tokens)
        self.sides = Sides(token_list, token_list, names=identities(tokens, words=None))
        # by layer number, the collectors of layers that run; then the records made from them
        self._layers: dict[int, LayerRecords] = {}
        self._records: list[HeadRecord] = []

    def take_records(self) -> Iterator[HeadRecord]:
        """Yield the records made since the last call, and forget them."""
        records = self._records
        self._records = []
        yield from records

    def trace(
        self,
        tokens: Sequence[Token],
        *,
        layers: Selection = EVERY,
        heads: Selection = EVERY,
        keep: Collection[str] = (),
        rows: int | None = None,
        on_block: Callable[[int, str, RowBlock], None] | None = None,
        interventions: Interventions = NO_INTERVENTIONS,
    ) -> Iterator[LayerTrace]:
        """Yield the layers asked for, as `Model.trace` does; when a layer is yielded, the records of
        its heads have been made (`take_records`).

        layers: which run and are yielded.
        heads: those that traces hold, not those that are recorded.
        keep: names of the stages that traces hold.
        rows: None to compute each layer whole; else how many query rows are held at once, in
            blocks.
        on_block: called with the layer, the kind of attention and each block of rows, where there
            are blocks.
        interventions: what is changed in the run.
        """
        model = self._model

        def feed_block(layer: int, kind: str, block: RowBlock) -> None:
            """Add a block of self-attention to its layer's records, and call the caller's `on_block`
            with any block.
            """
            if kind == "self":
                feed(model.backend, self._layer_records(layer), block)
            if on_block is not None:
                on_block(layer, kind, block)

        # whole layers are recorded once they have run, blocks of rows while they run
        if rows is None:
            stage_names = WHOLE
        else:
            stage_names = STAGES
        for trace in model.trace(
            tokens,
            layers=layers,
            keep={*keep, *stage_names},
            rows=rows,
            on_block=None if rows is None else feed_block,
            interventions=interventions,
        ):
            if rows is None:
                records = self._layer_records(trace.layer)
                feed_whole(model.backend, records, trace.stages, words=None)
            attention = model.spec.blocks[trace.layer].attention
            products = arithmetic(model.backend, trace.stages, attention.scale, attention.softcap)
            self._records += self._layers.pop(trace.layer).records(products)
            yield model.only(trace, heads)

    def _layer_records(self, layer: int) -> LayerRecords:
        """The collector of a layer's rows, made when they are first asked for."""
        if layer not in self._layers:
            model = self._model
            head_numbers = numbers_of(self._heads, model.spec.blocks[layer].attention.heads)
            is_learned = model.identity.source == "checkpoint"
            self._layers[layer] = LayerRecords(
                model.backend,
                layer,
                self.sides,
                head_numbers,
                is_learned=is_learned,
                exact=self._exact,
            )
        return self._layers[layer]


MOST_HEADS = 16_384
"""Heads of a document that are measured again, at most: 7 ms each, and some 1 to 2 kB of a page.
The largest model in use has 16,128."""


def check_heads(count: int) -> None:
    """Raise LimitError for a document with more heads than `attn` makes records or pages of."""
    if count > MOST_HEADS:
        what = message(
            "each of the document's {heads:,} heads by itself takes minutes", heads=count
        )
        expected = message("at most {most:,} heads", most=MOST_HEADS)
        raise LimitError(
            what, expected=expected, hint="attn run TEXT --layer 0-9 --json saves fewer"
        )


def metric_values(
    results: Mapping[str, Measured], place: int, which: str
) -> dict[str, MetricValue]:
    """The measured metrics of one head as documents hold them, by name; NaN becomes None.

    place: the head's index in the results.
    which: "value" or "baseline".
    """
    values = {}
    for name, result in results.items():
        number = float(getattr(result, which)[place])
        values[name] = MetricValue(
            value=None if np.isnan(number) else number, rows=int(result.rows[place])
        )
    return values
