"""Records of a whole run, of a model's or of a saved one's: its tokens, and its heads one after
another, so that none is held longer than needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple, assert_never

import numpy as np
from msgspec import UNSET, Struct
from msgspec.structs import replace

from attncli.arrays.backend import EVERY, Array, Backend, Selection, choose, numbers_of
from attncli.documents import AttentionPart, Document, ModelPart
from attncli.documents.header import attention_part, identities_of, model_part, notes, tokens_of
from attncli.errors import InputError, LimitError, UnsupportedError
from attncli.features.compare.document import CompareDocument
from attncli.features.cross.document import CrossDocument
from attncli.features.effects.document import (
    AblateDocument,
    EffectRow,
    LogitsDocument,
    PatchDocument,
)
from attncli.features.find.document import FindDocument
from attncli.features.heads.document import HeadMetrics, HeadsDocument, MetricValue
from attncli.features.run.document import RunDocument
from attncli.features.tensors.document import TensorsDocument
from attncli.features.why.document import WhyDocument, WhyLink
from attncli.inputs.token import Token
from attncli.inputs.word_groups import Words, identities, merged_words, token_notes_of_two
from attncli.language import message
from attncli.measure.head_record import (
    HIDDEN,
    METRICS,
    Absent,
    Arithmetic,
    Floats,
    HeadRecord,
    LayerRecords,
    Sides,
    numbered_tokens,
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

# From blocks of rows and from whole stages to the records of a layer.


@np.errstate(
    invalid="ignore", over="ignore"
)  # a score that is no number is found by the check of what is made again
def feed(backend: Backend, records: LayerRecords, block: RowBlock) -> None:
    """Add a block of rows to a layer's records: its weights, its visibility, and the bias where the
    stages "capped" and "biased" were kept."""
    local_heads, first = select_in_block(block, records.head_numbers)
    rows = records.rows(block.high)
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
        rows.add(
            block.start,
            block.low,
            np.nan_to_num(stages["weights"]),
            lse,
            visibility,
            bias,
            first=first,
        )
    records.feeder.on_block(block)


@np.errstate(invalid="ignore", over="ignore", divide="ignore")
def feed_whole(
    backend: Backend, records: LayerRecords, stages: Mapping[str, Array], words: Words | None
) -> None:
    """Add all rows of a layer to its records at once, from the stages "weights" and, where there
    are any, "masked", "capped" and "biased".

    words: what tokens are merged to.
    """
    arrays = {
        name: backend.numpy(stages[name])[records.head_numbers]
        for name in ("weights", "masked", "capped", "biased")
        if name in stages
    }
    weights = np.nan_to_num(arrays["weights"])  # what is no number is told by a warning of the run
    if "masked" in arrays:
        visibility = arrays["masked"] != -np.inf
    else:
        visibility = np.ones(weights.shape, bool)
    if words is not None:
        weights = words.merge(weights).astype(np.float32)
        visibility = words.merge_visible(visibility)
    lse = np.full(weights.shape[:2], np.nan, np.float32)
    if words is None and "masked" in arrays:
        strongest = weights.argmax(-1)[..., None]
        score, most = (
            np.take_along_axis(arrays[name], strongest, -1)[..., 0]
            for name in ("masked", "weights")
        )
        lse = np.where(most > 0, score - np.log(most), -np.inf).astype(np.float32)
    if "biased" in arrays and "capped" in arrays:
        bias = arrays["biased"] - arrays["capped"]
    else:
        bias = None
    shared_visibility = (
        visibility[0] if bool((visibility == visibility[:1]).all()) else visibility
    )  # heads that see the same
    records.rows(weights.shape[-1]).add(
        0, 0, weights, lse, None if visibility.all() else shared_visibility, bias
    )
    keys = records.keys
    records.feeder.take_layer(weights[..., :keys].astype(np.float64), visibility[..., :keys])


def arithmetic(
    backend: Backend, stages: Mapping[str, Array], scale: float, softcap: float | None
) -> Arithmetic | None:
    """A layer's queries and keys (stages "q" and "k") with the scale and softcap of their scores;
    None where these stages were not kept, or do not give all scores."""
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
    """A run as a viewer keeps it. heads: an iterator to be used once, which gives each head's
    record as soon as it is known.

    sides: the tokens that look and that are looked at. model, attention: as documents have them,
        None where not known.
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
    """Run a text through the model and record its heads. layers, heads: which. words: whether
    tokens are merged to words.

    exact: as for `LayerRecords`. progress: told the share done. Nothing n × n is held of a long
    text, unless its words are merged or it is hashed.
    """
    if not recordable(model, words=words):
        return _whole_record(
            model, text, tokens, name, layers, heads, merged_words(tokens, text) if words else None
        )
    blocks = model.spec.blocks
    recording = Recording(model, tokens, heads, exact=exact)

    def on_block(layer: int, kind: str, block: RowBlock) -> None:
        """Report the share done when a block of a layer's self-attention is there."""
        if kind == "self" and progress is not None:
            progress(
                (layer + block.stop / len(tokens)) / (max(numbers_of(layers, len(blocks))) + 1)
            )

    def head_records() -> Iterator[HeadRecord]:
        """Records of the chosen heads, each layer's as soon as it has run."""
        for _ in recording.trace(
            tokens, layers=layers, rows=_rows_at_once(blocks, len(tokens)), on_block=on_block
        ):
            yield from recording.take_records()

    return replace(recorded_run(model, text, recording, name=name), heads=head_records())


def recordable(model: Model, *, words: bool) -> bool:
    """Whether a `Recording` can keep a run's heads block by block: not where words are merged or
    attention hashes its tokens."""
    return not words and all(block.attention.hashing is None for block in model.spec.blocks)


def recorded_run(model: Model, text: str, recording: Recording, *, name: str = "") -> RunRecord:
    """The `RunRecord` of a run that is over, made of what `recording` kept of its heads."""
    computing = attention_part(model, model.compute_backend(len(recording.sides.queries)))
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
    """The record of a run whose weights must be held whole: of merged words, or of hashed
    attention.
    """
    row_tokens = list(tokens if word_groups is None else word_groups.words)
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
            has_recipe = word_groups is None and attention.hashing is None
            yield from records.records(
                arithmetic(model.backend, trace.stages, attention.scale, attention.softcap)
                if has_recipe
                else None
            )

    computing = attention_part(model, model.compute_backend(len(tokens)))
    return RunRecord(
        name, text, sides, model_part(model), computing, head_records(), notes(model, text, tokens)
    )


def cross_record(
    model: Model, texts: CrossTexts, *, layers: Selection = EVERY, heads: Selection = EVERY
) -> RunRecord:
    """The record of a cross-attention between two texts, as `attn cross` runs it. layers, heads:
    which.
    """
    side = replace(model, spec=model.spec.decoder or model.spec)
    sides = Sides(texts.queries, texts.keys)
    is_learned = model.identity.source == "checkpoint"

    def head_records() -> Iterator[HeadRecord]:
        """Records of the chosen heads of each layer's cross-attention."""
        for spec, trace in cross_traces(model, texts, layers, EVERY):
            head_numbers = numbers_of(heads, spec.heads)
            records = LayerRecords(
                model.backend, trace.layer, sides, head_numbers, is_learned=is_learned
            )
            feed_whole(model.backend, records, trace.stages, None)
            yield from records.records(
                arithmetic(model.backend, trace.stages, spec.scale, spec.softcap)
            )

    attention = attention_part(side, side.compute_backend(len(texts.queries)))
    sides_of_text = (
        (message("query text"), texts.query, texts.queries),
        (message("key text"), texts.key, texts.keys),
    )
    warnings = [*model.warnings, *token_notes_of_two(*sides_of_text)]
    return RunRecord("", texts.query, sides, model_part(side), attention, head_records(), warnings)


def _rows_at_once(blocks: Sequence[Block], count: int) -> int:
    """How many query rows of a text of `count` tokens to compute at a time, so that memory is
    bounded; at least 1.
    """
    many = max(block.attention.heads for block in blocks)
    return max(min(AT_ONCE // (many * count), count), 1)


KEPT = ("masked", "weights")


class CrossTexts(Struct, frozen=True):
    """The texts of a cross-attention, as tokens: of the queries, of the keys, and of the values
    (None where they are the keys' own)."""

    query: str
    key: str
    queries: Sequence[Token]
    keys: Sequence[Token]
    value: str | None = None
    values: Sequence[Token] | None = None


def cross_traces(
    model: Model, texts: CrossTexts, layers: Selection, heads: Selection
) -> Iterator[tuple[Attention, LayerTrace]]:
    """The cross-attention of each chosen layer: its specification and its trace.

    An encoder-decoder reads the keys' text with its encoder and runs its decoder over the queries'
    text; a one-layer model or weight file projects the queries' embeddings with W_Q and the others'
    with W_K and W_V. Raises UnsupportedError for a checkpoint of one side.
    """
    if model.identity.source == "checkpoint":
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
    yield (
        spec,
        trace
        if heads is EVERY
        else choose_heads(trace, sorted(numbers_of(heads, spec.heads)), spec),
    )


def _attend_to_text(model: Model, spec: Attention, texts: CrossTexts) -> LayerTrace:
    """The trace of one cross-attention of a model without an encoder: queries from one text, keys
    and values from another."""
    if spec.hashing is not None:
        raise UnsupportedError("hash attention is within one text", expected="--attention dense")
    backend = model.backend
    attention = LayerAttention(backend, model.store.layer(backend, 0), "attn", spec)
    x, memory = (model.store.embed(backend, list(tokens)) for tokens in (texts.queries, texts.keys))
    context = Context(
        np.arange(len(texts.queries)), max(len(texts.queries), len(texts.keys)), memory=memory
    )
    parts = project(attention, x, memory, context, 0)
    v = parts.v
    if texts.values is not None:
        if len(texts.values) != len(texts.keys):
            what = message(
                "the values' text has {values}, the keys' {keys} tokens",
                values=len(texts.values),
                keys=len(texts.keys),
            )
            raise InputError(what, expected="one value for every key")
        v = project(attention, x, model.store.embed(backend, list(texts.values)), context, 0).v
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
    stages |= {"out": concat} if out is None else {"concat": concat, "out": out}
    return LayerTrace(0, stages, block.empty, x, lambda: stages["out"])


# Records of a run that is made for something else, taken from what it computes: nothing runs twice.

STAGES = ("weights", "entropy", "capped", "biased")
"""What is needed of each block: the last two differ by the bias."""
WHOLE = ("weights", "masked", "capped", "biased")
"""What is needed of a layer that is computed at once."""


class Recording:
    """Traces a model as `Model.trace` does, and makes a record of each chosen head on the way.

    heads: which; exact: as for `LayerRecords`. Records of layers that are not traced do not come.
    Nothing n × n is held that the run does not hold itself, but weights that queries and keys do
    not give.
    """

    def __init__(
        self,
        model: Model,
        tokens: Sequence[Token],
        heads: Selection = EVERY,
        *,
        exact: bool = False,
    ) -> None:
        self._model = model
        self._heads = heads
        self._exact = exact
        token_list = list(tokens)
        self.sides = Sides(token_list, token_list, names=identities(tokens, None))
        self._layers: dict[int, LayerRecords] = {}
        self._records: list[HeadRecord] = []

    def take_records(self) -> Iterator[HeadRecord]:
        """The records made since the last call; they are no longer kept here."""
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
        """The layers asked for, as `Model.trace` gives them; records of all of them are there when
        they are.
        """
        model = self._model

        def feed_block(layer: int, kind: str, block: RowBlock) -> None:
            """Give a block of self-attention to its layer's records, and any block to whoever asked
            for it.
            """
            if kind == "self":
                feed(model.backend, self._layer_records(layer), block)
            if on_block is not None:
                on_block(layer, kind, block)

        stage_names = WHOLE if rows is None else STAGES
        for trace in model.trace(
            tokens,
            layers=layers,
            keep={*keep, *stage_names},
            rows=rows,
            on_block=None if rows is None else feed_block,
            interventions=interventions,
        ):
            if rows is None:
                feed_whole(model.backend, self._layer_records(trace.layer), trace.stages, None)
            attention = model.spec.blocks[trace.layer].attention
            terms = arithmetic(model.backend, trace.stages, attention.scale, attention.softcap)
            self._records += self._layers.pop(trace.layer).records(terms)
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


Tensors = Mapping[str, np.ndarray[Any, Any]]
EffectDocuments = AblateDocument | PatchDocument | LogitsDocument
AboutHeads = (
    RunDocument
    | HeadsDocument
    | FindDocument
    | CrossDocument
    | TensorsDocument
    | EffectDocuments
    | WhyDocument
)
NUMPY = choose("numpy", device=None, dtype="float32")


def tensors_record(tensors: Tensors, document: RunDocument) -> RunRecord:
    """The record of a run from the tensors of a file that `--save` wrote. document: the
    `attn.run/1` made of that file."""
    tokens = tokens_of(document.tokens)
    sides = Sides(tokens, tokens, names=identities_of(document, tokens))
    attention = document.attention
    is_learned = document.model.source == "checkpoint"

    def head_records() -> Iterator[HeadRecord]:
        """Records of the heads in the tensors, layer by layer."""
        for layer in (part.layer for part in document.layers):
            prefix = f"layers.{layer}."
            stages = {
                name.removeprefix(prefix): np.asarray(array, np.float32)
                for name, array in tensors.items()
                if name.startswith(prefix)
            }
            records = LayerRecords(
                NUMPY, layer, sides, range(len(stages["weights"])), is_learned=is_learned
            )
            feed_whole(NUMPY, records, stages, None)
            scale = attention.scale
            cap = attention.softcap
            has_recipe = scale is not None and attention.hashing is UNSET
            yield from records.records(
                arithmetic(NUMPY, stages, scale, cap) if has_recipe and scale is not None else None
            )

    return _record_of_document(document, document.text, sides, head_records())


def document_record(document: Document) -> RunRecord | None:
    """The record of a document's heads; None for a document that is not about heads. Where it holds
    no weights, a head's record has the links that the document names."""
    rows: Sequence[int] | None = None
    parts: list[tuple[int, Any]] = []
    match document:
        case CrossDocument():
            parts = [(part.layer, head) for part in document.layers for head in part.heads]
        case RunDocument():
            parts = [(part.layer, head) for part in document.layers for head in part.heads]
            parts = parts or [(map_part.layer, map_part) for map_part in document.maps or ()]
            rows = document.queries or None
        case HeadsDocument() | FindDocument():
            parts = [(head.layer, head) for head in document.heads]
        case AblateDocument() | PatchDocument():
            parts = [(row.layer, row) for row in document.effects if row.attention == "self"]
        case LogitsDocument():
            parts = [(part.layer or 0, part) for part in document.parts if part.attention == "self"]
        case WhyDocument(link=link):
            parts = [(link.layer, link), *_earlier_heads(document)]
        case TensorsDocument():
            parts = [
                (layer, head) for layer, part in enumerate(document.batch) for head in part.heads
            ]
        case _:
            return None
    check_heads(len(parts))
    parts.sort(
        key=lambda part: (part[0], part[1].head or 0)
    )  # a ranking lists heads by what it ranks
    match document:
        case TensorsDocument():
            text = PurePath(
                document.file
            ).name  # where a file lies on this machine is nothing for a page
            queries = numbered_tokens(document.queries)
            keys = numbered_tokens(document.keys)
            sides = Sides(queries, queries if len(keys) == len(queries) else keys)
        case CrossDocument():
            text = document.query_text
            queries = tokens_of(document.queries)
            keys = tokens_of(document.keys)
            sides = Sides(queries, queries if len(keys) == len(queries) == 0 else keys)
        case WhyDocument() if document.source_tokens is not UNSET:
            text = document.text
            queries = tokens_of(document.tokens)
            keys = tokens_of(document.source_tokens)
            sides = Sides(queries, keys)
        case _:
            text = document.text
            queries = tokens_of(document.tokens)
            sides = Sides(queries, queries, names=identities_of(document, queries))
    return _record_of_document(document, text, sides, _head_records(document, parts, sides, rows))


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


def _earlier_heads(document: WhyDocument) -> list[tuple[int, EarlierHead]]:
    """The heads (layer, head) before a link's own that are parts of its explanation and attend to
    the same text.
    """
    if (
        document.link.attention == "cross"
    ):  # the page of a link to another text has that text's words
        return []
    places = {
        (part.layer, part.head)
        for part in document.parts
        if part.kind == "head" and part.layer is not None and part.head is not None
    }
    return [(layer, EarlierHead(head)) for layer, head in places]


class EarlierHead(NamedTuple):
    """A head before the one that a link belongs to, of which only its number is known."""

    head: int


def compared_records(document: CompareDocument) -> list[RunRecord]:
    """The records of the two sides of a comparison, cut to the tokens that both have; paired heads
    stand at the same place in both."""

    def head_records(first: bool, sides: Sides) -> Iterator[HeadRecord]:
        """Records of one side's heads, in the order of the pairs. first: whether the side is a."""
        is_learned = (document.a if first else document.b).model.source == "checkpoint"
        for pair in document.heads:
            place, values = (pair.a, pair.weights_a) if first else (pair.b, pair.weights_b)
            weights = _as_float32(values)
            visibility = np.isfinite(weights)
            yield _weights_record(
                place.layer, place.head, sides, np.nan_to_num(weights), visibility, is_learned
            )

    check_heads(2 * len(document.heads))
    records = []
    for side_index, side in enumerate((document.a, document.b)):
        tokens = tokens_of([side.tokens[pair[side_index]] for pair in document.aligned])
        sides = Sides(tokens, tokens)
        heads = head_records(side_index == 0, sides)
        records.append(
            RunRecord(
                side.name, side.text, sides, side.model, side.attention, heads, document.warnings
            )
        )
    return records


def _head_records(
    document: AboutHeads, parts: Sequence[tuple[int, Any]], sides: Sides, rows: Sequence[int] | None
) -> Iterator[HeadRecord]:
    """The records of a document's heads. parts: each head with the number of its layer. rows: the
    queries whose weights the document has, None for all."""
    for layer, head in parts:
        values = getattr(head, "weights", UNSET)
        if values is UNSET:
            weights = None
        else:
            weights = _as_float32(values)
        pooled = (getattr(head, "pool", UNSET) or 1) > 1
        if weights is None or pooled or not len(weights):
            yield _links_record(document, layer, head, sides, weights if pooled else None)
            continue
        scores = getattr(head, "scores", UNSET)
        if scores is UNSET:
            visibility = np.ones(weights.shape, bool)
        else:
            visibility = np.isfinite(_as_float32(scores))
        if rows is not None:  # only some queries are held: the others are as if they saw nothing
            whole = np.zeros((2, len(sides.queries), weights.shape[1]), np.float32)
            whole[0, list(rows)], whole[1, list(rows)] = weights, visibility
            weights = whole[0]
            visibility = whole[1] > 0
        is_learned = document.model.source == "checkpoint"
        yield _weights_record(layer, head.head, sides, weights, visibility, is_learned)


def _as_float32(values: Any) -> Floats:
    """Numbers of a document as float32; one that is too large becomes infinite, without a warning."""
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float32)


def _weights_record(
    layer: int, head: int, sides: Sides, weights: Floats, visibility: Bools, is_learned: bool
) -> HeadRecord:
    """The record of a head of which only the weights, [query, key], are known. visibility: booleans
    of that shape, false where hidden. is_learned: as for `LayerRecords`."""
    records = LayerRecords(NUMPY, layer, sides, [0], is_learned=is_learned)
    masked = np.where(visibility, np.float32(0), np.float32(-np.inf))
    feed_whole(NUMPY, records, {"weights": weights[None], "masked": masked[None]}, None)
    return replace(next(records.records(None)), head=head)


def _links_record(
    document: AboutHeads, layer: int, head: Any, sides: Sides, small: np.ndarray[Any, Any] | None
) -> HeadRecord:
    """The record of a head whose weights the document does not hold: its metrics, and the links
    that the document names. small: its pooled map, None without."""
    links: list[tuple[int, int, float]] = []
    if isinstance(document, RunDocument | CrossDocument):
        links = [
            (link.query, link.key, link.weight)
            for link in document.links
            if (link.layer, link.head) == (layer, head.head)
        ]
    metrics: dict[str, float | None] = dict.fromkeys(METRICS)
    labels: Sequence[str] = ()
    match document:
        case FindDocument():
            links = [(document.query, document.key, HIDDEN if head.rank is None else head.weight)]
        case AblateDocument():
            links = _looked_at(document, head)
        case WhyDocument(link=link) if isinstance(head, WhyLink):
            links = [
                (link.query, row.key, row.weight)
                for row in document.row
                if row.key < len(sides.keys)
            ]
            links.sort(key=lambda row: (row[1] != link.key, -row[2]))
        case _:
            pass
    if isinstance(head, HeadMetrics):
        if head.top_link is None:
            links = []
        else:
            links = [(head.top_link.query, head.top_link.key, head.top_link.weight)]
        metrics |= {
            name: metric.value for name in METRICS if (metric := head.metrics.get(name)) is not None
        }
        labels = head.labels or ()
    strongest = max((weight for *_, weight in links if weight != HIDDEN), default=0.0)
    if small is None:
        map_values = np.full((1, 1), strongest, np.float32)
    else:
        map_values = small
    return HeadRecord(
        layer,
        head.head,
        len(sides.keys),
        map_values,
        metrics,
        labels,
        links,
        None,
        Absent(),
        None,
        0.0,
        0,
    )


def _looked_at(document: AblateDocument, row: EffectRow) -> list[tuple[int, int, float]]:
    """The links (query, key, weight) of a head that a document of effects tells: the link that was
    cut, or the strongest of the token measured at; [] where several tokens are meant."""
    cut_link = document.link
    place = document.place
    if cut_link is not None:
        if cut_link.attention == "cross":  # its keys are another text's
            return []
        if (
            isinstance(cut_link.query, int)
            and isinstance(cut_link.key, int)
            and row.weight is not None
        ):
            return [(cut_link.query, cut_link.key, row.weight)]
        return []
    if row.looks is None or isinstance(place, str) or place.last not in (UNSET, place.token):
        return []
    return [(place.token, row.looks.key, row.looks.weight)]


def shown_link(
    document: AblateDocument | PatchDocument | LogitsDocument, head: tuple[int, int] | None
) -> tuple[int, int]:
    """The (query, key) link of a head (layer, head) that a page shows first: one that the document
    names, else that of
    a token to itself: the one measured at, or the first in which two texts differ."""
    word = next((place for place, token in enumerate(document.tokens) if not token.special), 0)
    match document:
        case AblateDocument(place=place):
            rows = [
                row
                for row in document.effects
                if row.attention == "self" and (row.layer, row.head) == head
            ]
            links = [(query, key) for row in rows for query, key, _ in _looked_at(document, row)]
            word = word if isinstance(place, str) else place.token
        case PatchDocument():
            pairs = enumerate(zip(document.tokens, document.corrupt_tokens, strict=False))
            links = []
            if len(document.query) < len(document.tokens):
                word = document.query[-1]
            else:
                word = next(
                    (at for at, (clean, corrupt) in pairs if clean.text != corrupt.text), word
                )
        case LogitsDocument(position=word):
            parts = [
                part
                for part in document.parts
                if part.attention == "self" and (part.layer, part.head) == head
            ]
            links = [(word, part.looks.key) for part in parts if part.looks is not UNSET]
        case _:
            assert_never(document)
    if links:
        return links[0]
    return (word, word)


def _record_of_document(
    document: AboutHeads, text: str, sides: Sides, heads: Iterator[HeadRecord]
) -> RunRecord:
    """A `RunRecord` with a document's model, attention and warnings, and these texts and heads."""
    return RunRecord("", text, sides, document.model, document.attention, heads, document.warnings)


def metric_values(
    results: Mapping[str, Measured], place: int, which: str
) -> dict[str, MetricValue]:
    """The measured metrics of one head as documents hold them, by name. place: of the head; which:
    "value" or "baseline"."""
    return {
        name: MetricValue(
            value=None if np.isnan(number := float(getattr(result, which)[place])) else number,
            rows=int(result.rows[place]),
        )
        for name, result in results.items()
    }
