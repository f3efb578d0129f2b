"""The document of `attn run`: one text through the model, layer by layer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from attncli.arrays.backend import EVERY, SCORE_ITEM, Array, Backend, Selection, numbers_of
from attncli.documents import (
    EmptyRow,
    LeftOutKind,
    Numbers,
    Part,
    RegionRow,
    ShapeRow,
    members,
)
from attncli.documents.header import (
    empty_rows,
    header,
    layer_part,
    notes,
    overflow,
    position_stages,
    projection_formulas,
    resources,
    shape_rows,
)
from attncli.documents.parts import (
    HashProducts,
    HeadRegions,
    NextToken,
    PooledMap,
    RegionLink,
    RegionPart,
    RunHead,
    RunLayer,
)
from attncli.errors import UnsupportedError, UsageError
from attncli.features.run.document import ImplicitHead, ImplicitLayer, RunDocument
from attncli.inputs.token import Token, choose_last_token, choose_span, ignore
from attncli.inputs.word_groups import Words, join_words, merged_words
from attncli.language import listing, message
from attncli.measure.rest import is_learned, resting_keys
from attncli.measure.row_stream import STAGES, BlockCollector, LinkCollector, kinds_left_out
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.context import NO_INTERVENTIONS
from attncli.mechanism.head_choice import NamedHeads, pairs_or_all
from attncli.mechanism.mask import Hashed, Mask, shows_all
from attncli.mechanism.spec import ADDED, Attention, Block, Recurrence, Spec
from attncli.mechanism.trace import SAVED, SQUARE, LayerTrace
from attncli.mechanism.trace import STAGES as DECLARED
from attncli.models.estimate import (
    CostEstimate,
    StoredSizes,
    estimate,
    with_held_weights,
    with_predictions,
)
from attncli.models.model import Model, take_text
from attncli.models.run import LONG, check_indices, rows_for

if TYPE_CHECKING:
    from attncli.features.effects.weighing import Weighing
    from attncli.inputs.regions import Region
    from attncli.measure.query_links import QueryLinks
    from attncli.measure.region_sums import RegionShares
    from attncli.measure.run_record import Recording  # only a page needs it


class RunRequest(Struct, frozen=True):
    """What of a run goes into its document.

    layers, heads: which.
    query: the one query whose rows are wanted; None where none is chosen.
    matrices: whether scores, weights and outputs are held at all.
    stages: every stage by name.
    top: how many links.
    all_links: also the uninformative ones.
    words: whether pieces are merged to words, or what they are merged to.
    span: tokens or words [first, stop) in a row that are one; `query` counts after that.
    regions: between which weights are summed; a text is run by blocks of rows then.
    weighing: attention on some keys, multiplied while it runs; None for none.
    """

    layers: Selection = EVERY
    heads: Selection = EVERY
    query: int | None = None
    matrices: bool = True
    stages: bool = False
    top: int = 10
    all_links: bool = False
    words: bool | Words = False
    span: tuple[int, int] | None = None
    regions: tuple[Region, ...] = ()
    weighing: Weighing | None = None


def cost(
    model: Model,
    count: int,
    request: RunRequest,
    *,
    is_saved: bool,
    rows: int | None = None,
    last_rows: int | None = None,
) -> CostEstimate:
    """The memory, time and numbers of the document that running a text of `count` tokens takes,
    with the model's weights in memory.

    request: what the document holds.
    is_saved: whether all stages are kept to be saved.
    rows: query rows at a time; None for all at once.
    last_rows: how many rows of the last layer are computed; None for all.
    """
    running = cost_of(
        model.spec,
        count,
        request,
        dtype=model.backend.dtype,
        compute_dtype=model.compute_backend(count).dtype,
        is_saved=is_saved,
        rows=rows,
        last_rows=last_rows,
    )
    return with_held_weights(running, model.weights_in_memory)


def cost_of(
    spec: Spec,
    count: int,
    request: RunRequest,
    *,
    dtype: str,
    compute_dtype: str,
    is_saved: bool = False,
    rows: int | None = None,
    last_rows: int | None = None,
    stored_sizes: StoredSizes | None = None,
) -> CostEstimate:
    """The cost of running `count` tokens through a model of this Spec.

    request: what the document holds.
    dtype: of its results.
    compute_dtype: what it computes in.
    is_saved: whether all stages are kept to be saved.
    rows: query rows at a time; None for all at once.
    last_rows: how many rows of the last layer are computed, None for all.
    stored_sizes: sizes of weights in files.
    """
    # count numbers of the document, numbers held to the end (in the document, or to be saved), and
    # the most scores of one layer
    layers = spec.attending(request.layers)
    item = SCORE_ITEM[dtype]  # bytes of a number of the document
    if request.query is not None:
        row_count = 1
    else:
        row_count = count
    everything = request.stages or is_saved
    numbers = 0
    answer_numbers = 0
    most_scores = 0
    for layer in layers:
        block = spec.blocks[layer]
        attention = block.attention
        heads = len(numbers_of(request.heads, attention.heads))
        mixed_width = heads * attention.v_dim
        # `wide`: numbers in arrays as wide as the heads' outputs or as a token vector;
        # `square_arrays`: arrays [query, key] of each head in the document: scores and weights, and
        # each stage that is square
        if request.stages:
            # with a row per query: of the heads q, mixed and output, and what the layer keeps of
            # all heads; with a row per token: k and v, and hidden
            wide = row_count * (3 * mixed_width + _layer_width(block, spec.d_model))
            wide += count * (2 * mixed_width + spec.d_model)
            square_arrays = 2 + len(SQUARE)
        else:
            # the heads' outputs and the layer's
            wide = row_count * (mixed_width + spec.d_model)
            square_arrays = 2
        if request.matrices:
            numbers += heads * row_count * count * square_arrays + wide
        # arrays [query, key] of a head in memory: of a plain run weights alone, which overwrite the
        # scores; a bias by position is as large as what it is added to
        if everything:
            squares = _square_count(attention)
        elif request.matrices or isinstance(attention.position, ADDED):
            squares = 2
        else:
            squares = 1
        # rows of each such array that stay in memory to the end
        if is_saved:
            rows_in_memory = 2 * count  # what is saved is there twice while it is written
        elif request.matrices:
            rows_in_memory = row_count
        else:
            rows_in_memory = 0
        answer_numbers += heads * count * squares * rows_in_memory
        most_scores = max(most_scores, attention.heads * count * count * squares)

    running = estimate(
        spec,
        count,
        sizes=stored_sizes,
        layers=layers,
        kept_stages=0,  # the arrays [query, key] that are kept are counted here
        rows=rows,
        dtype=compute_dtype,
        last_rows=last_rows,
    )

    # a layer's scores are the answer's own arrays only where it keeps all of them in their type;
    # else they are in memory besides
    is_rounded = compute_dtype != dtype
    keeps_all = is_saved or (request.matrices and request.query is None)
    score_bytes = 0
    if is_rounded or not keeps_all or request.heads is not EVERY:
        score_bytes = most_scores * SCORE_ITEM[compute_dtype]
    if is_rounded and not keeps_all:
        score_bytes += (
            most_scores * item
        )  # the layer rounded to the answer's type, before it is cut
    if rows is not None:  # no layer's scores are in memory as a whole
        score_bytes = 0
    parts = {
        message("scores that are kept"): score_bytes,
        "answer": answer_numbers * item,
    }
    return replace(running, memory={**running.memory, **parts}, numbers=numbers)


def with_next_token(
    expected: CostEstimate,
    spec: Spec,
    layers: Selection,
    dtype: str,
    sizes: StoredSizes | None = None,
) -> CostEstimate:
    """The cost of a run of these layers including the next token, which a decoder predicts where
    the run reaches its last layer.

    expected: the cost of the layers.
    dtype: of the answer.
    sizes: of the weights in files.
    """
    # a run ends with its last layer with attention: where others follow, no next token is told
    reaches_the_end = len(spec.blocks) - 1 in spec.attending(layers)
    if spec.head is None or not reaches_the_end:
        return expected
    from attncli.features.effects.places import reads_on

    is_decoder = reads_on(spec)
    if not is_decoder:
        return expected
    return with_predictions(expected, spec, 1, dtype, sizes)  # of one position, the last


def _layer_width(block: Block, d_model: int) -> int:
    """How many numbers the stages of a layer that belong to no single head hold for a query, the
    layer's output and what leaves it included."""
    width = 3 * d_model  # `output`, `out`, and the vectors that leave the layer
    width += block.attention.heads * block.attention.v_dim  # `concat`
    reads_with_attention = block.parallel and block.mlp is not None
    if block.residual and not reads_with_attention:
        width += d_model  # `sum`
    if "attn.sum" in block.norms and not reads_with_attention:
        width += d_model  # `norm`
    return width


def _square_count(attention: Attention) -> int:
    """How many arrays [query, key] a head has if every stage is kept; a step that changes nothing
    shares its array.
    """
    # raw scores, scaled scores and weights are always there; biased, capped and masked scores are
    # counted where a bias, a soft cap or a mask makes them
    count = 3 + len(position_stages(attention.position))
    if isinstance(attention.position, ADDED):
        count += 1
    if attention.softcap is not None:
        count += 1
    if not shows_all(attention.mask):
        count += 1
    return count


class BatchTraces(Struct, frozen=True):
    """One text's part of a padded batch: its traces without padding, the shapes of the whole batch,
    and the backend that computed it."""

    traces: list[LayerTrace]
    shapes: list[ShapeRow]
    computing: Backend


def run_batch(
    model: Model, texts: Sequence[Sequence[Token]], layers: Selection, heads: Selection
) -> list[BatchTraces]:
    """Run texts together, padded to the longest, and return each one's part without the padding.

    layers, heads: the layers that are returned, and the heads of each.
    """
    traces = list(model.trace_batch(texts, layers=layers, heads=heads))
    first = traces[0]  # the table of shapes is of the first layer alone
    shapes = shape_rows(
        first,
        model.spec.blocks[first.layer].attention,
        projection_formulas(model, first.layer),
        leading=("batch",),
    )
    computing = model.compute_backend(max(map(len, texts)))
    return [
        BatchTraces([take_text(trace, entry, len(tokens)) for trace in traces], shapes, computing)
        for entry, tokens in enumerate(texts)
    ]


@checked
def run(
    model: Model,
    text: str,
    *,
    query: str | None = None,
    layers: Selection = EVERY,
    heads: Selection = EVERY,
    words: bool | Words = False,
    matrices: bool = True,
    stages: bool = False,
    projections: bool = False,
    implicit: bool = False,
    top: int = 10,
    all_links: bool = False,
    whole: bool = False,
    regions: Sequence[Region] = (),
    weigh: str | None = None,
    weigh_in: NamedHeads | None = None,
    weigh_regions: Sequence[Region] = (),
    tokens: Sequence[Token] | None = None,
    note: Callable[[str], None] = ignore,
    on_cost: Callable[[CostEstimate, int], None] = ignore,
    on_trace: Callable[[LayerTrace], None] | None = None,
    progress: Callable[[float], None] | None = None,
    batch: BatchTraces | None = None,
    recording: Recording | None = None,
) -> RunDocument:
    """Run attention on a text: scores, weights, outputs, shapes and strongest links.

    Args:
        model: As `attncli.load` returns it.
        text: What runs.
        query: The one query whose rows are wanted: "it", "the:2", "#7" or several in a row; None
            for all.
        layers: Which layers: a number, several, or a text such as "0,2-5"; see `HeadSelection`.
        heads: Which heads of each: 11, [0, 3], "2-5"; or heads with their layers, "L5H11" or
            (5, 11); see `HeadSelection`.
        words: Whether pieces are merged to words, or those words: weights to a word are summed, from
            a word averaged.
        matrices: Whether the document holds scores, weights and outputs at all.
        stages: Whether it holds every stage by name.
        projections: Whether it holds the matrices W_Q, W_K, W_V and W_O.
        implicit: Whether it holds the weights that recurrences amount to; `layers` may then name
            such layers, too.
        top: How many links it holds.
        all_links: Whether links may be those that say little: special tokens, self.
        whole: Whether every row is computed at once, also of a long text.
        regions: Named sets of tokens, as `attncli.inputs.regions.find_regions` returns them: the
            document then tells what goes from region to region, and holds no matrices.
        weigh: A region or word and a factor, such as "document=×4", by which attention on it is
            multiplied before rows are scaled.
        weigh_in: The heads in which that is done, with their layers: "L5H11" or (5, 11), several
            as "L5H11,L3H1" or in a list; None for all.
        weigh_regions: Named sets of tokens that `weigh` may name, besides `regions`.
        tokens: Those of the text; None to let the model's tokenizer find them.
        note: Called with a sentence that says what an ambiguous name was read as.
        on_cost: Called before the run starts, with its estimated cost and the number of tokens.
        on_trace: Called with each layer's trace, with every stage, to save it.
        progress: Called with the share done, 0 to 1.
        batch: The text's part of a padded batch that has run, in place of a run of its own.
        recording: Records the heads of the run, for a page.

    Returns:
        What `attn run --json` writes. Masked scores are null, rows that see no key are all 0 and
        listed.

    Raises:
        InputError: For tokens, layers or heads that are not there.
        UsageError: For regions beside what needs single tokens or whole matrices.
    """
    if tokens is None:
        tokens = model.encode(text)

    # what is asked for, and what of it needs every row at once
    query_index, span = _query_place(tokens, text, query, note, words=words, last=bool(regions))
    is_saved = on_trace is not None
    needs_whole = stages or bool(words) or span is not None or is_saved
    if regions:
        _check_regions_alone(needs_whole or batch is not None)
    matrices = matrices and not regions
    recurrences: Sequence[int] = ()
    if implicit:
        merged = bool(words) or span is not None
        recurrences = recurrences_of(model.spec, layers, len(tokens), merged=merged)
        layers = _without_recurrences(model.spec, layers, recurrences)
    nameable = [*regions, *weigh_regions]
    weighed_heads = pairs_or_all(model.spec, weigh_in)
    weighing = _weighing_of(weigh, tokens, nameable, weighed_heads, note)
    request = RunRequest(
        layers=layers,
        heads=heads,
        query=query_index,
        matrices=matrices,
        stages=stages,
        top=top,
        all_links=all_links,
        words=words,
        span=span,
        regions=tuple(regions),
        weighing=weighing,
    )

    # regions and long texts run a block of rows at a time, unless the answer holds whole matrices
    # of every query
    rows = None
    fits_at_once = whole or not is_long(len(tokens)) or needs_whole
    wants_blocks = bool(regions) or not fits_at_once
    if wants_blocks and not (matrices and query is None):
        rows = rows_for(model.spec, len(tokens))

    # the cost, before anything runs
    expected = cost(model, len(tokens), request, is_saved=is_saved, rows=rows)
    if batch is None:  # of texts that ran as a batch no next token is told
        expected = with_next_token(expected, model.spec, layers, model.backend.dtype)
    if recurrences:
        expected = _with_implicit_weights(expected, model, recurrences, heads, len(tokens))
    on_cost(expected, len(tokens))

    # the run, and parts of the document that need another
    before = model.store.bytes_read()
    document = _measured_run(
        model,
        text,
        tokens,
        request,
        on_trace=on_trace,
        rows=rows,
        progress=progress,
        batch=batch,
        recording=recording,
    )
    document = replace(document, resources=resources(model, before, expected.peak))
    if implicit:
        implicit_weights = implicit_layers(model, tokens, recurrences, heads, query_index)
        document = replace(document, implicit=implicit_weights)
    if projections:
        return with_projections(document, model)
    return document


def _check_regions_alone(is_beside: bool) -> None:
    """Raise UsageError for regions beside what needs single tokens or every row at once.

    is_beside: whether anything of that kind is asked for.
    """
    if is_beside:
        raise UsageError(
            "regions are counted by blocks of rows of single tokens",
            expected="no stages, words or padded texts beside them",
        )


def _weighing_of(
    weigh: str | None,
    tokens: Sequence[Token],
    regions: Sequence[Region],
    heads: Sequence[tuple[int, int]] | None,
    note: Callable[[str], None],
) -> Weighing | None:
    """The weighing of attention that a run applies; None where nothing is weighed.

    weigh: a value of `--weigh`, such as "document=×4".
    regions: those that it may name.
    heads: in which it is done, each (layer, head); None for all.
    note: called with a sentence that says what an ambiguous name was read as.
    """
    if weigh is None:
        return None
    from attncli.features.effects.weighing import find_weighing

    return find_weighing(weigh, tokens, regions, heads=heads, note=note)


def _without_recurrences(spec: Spec, layers: Selection, recurrences: Sequence[int]) -> Selection:
    """The layers of a selection whose attention runs: those with recurrences are left out, as they
    have no attention. Every layer stays every layer, of which a run takes those that attend."""
    if layers is EVERY:
        return layers
    # the count matters for every layer only
    others = [layer for layer in numbers_of(layers, 0) if layer not in recurrences]
    return spec.attending(others)


def _query_place(
    tokens: Sequence[Token],
    text: str,
    query: str | None,
    note: Callable[[str], None],
    *,
    words: bool | Words,
    last: bool = False,
) -> tuple[int | None, tuple[int, int] | None]:
    """Find what `query` names. Returns (position, span): of several tokens or words in a row the
    position of the first and (first, stop); of a single one its position and None; (None, None) where
    `query` is None.

    words: whether positions are those of words that tokens are merged to.
    last: whether a word of several tokens is its last token alone, which a note says.
    """
    if query is None:
        return None, None
    if last and not words:
        return choose_last_token(tokens, query, note), None
    if isinstance(words, Words):
        tokens = words.words
    elif words:
        tokens = merged_words(tokens, text).words
    start, stop = choose_span(tokens, query, note)
    if stop - start > 1:
        return start, (start, stop)
    return start, None


def _with_implicit_weights(
    expected: CostEstimate, model: Model, layers: Sequence[int], heads: Selection, count: int
) -> CostEstimate:
    """The cost of a run including the implicit weights of these recurrences, [query, key].

    count: of tokens.
    """
    implicit_heads = sum(len(_implicit_heads(model.spec, layer, heads)) for layer in layers)
    square = implicit_heads * count**2
    size = square * SCORE_ITEM[model.backend.dtype]
    memory = {**expected.memory, message("implicit weights"): size}
    return replace(expected, memory=memory, numbers=expected.numbers + square)


def _measured_run(
    model: Model,
    text: str,
    tokens: Sequence[Token],
    request: RunRequest,
    *,
    on_trace: Callable[[LayerTrace], None] | None = None,
    rows: int | None = None,
    progress: Callable[[float], None] | None = None,
    batch: BatchTraces | None = None,
    recording: Recording | None = None,
) -> RunDocument:
    """Run a text and return its `attn.run/1` document.

    on_trace: called with each layer's trace, to save it.
    rows: None for dense attention; else query rows at a time, nothing is n × n then, and maps are
        pooled.
    progress: called with the share done, where rows are given.
    batch: the text's part of a padded batch that has run, in place of a run of its own.
    recording: records the heads of the run, for a page.
    """
    words = _words_of(tokens, text, request)
    row_tokens = tokens if words is None else words.words

    # what collects the parts of the document, layer by layer
    links = _RunLinks(row_tokens, request, is_learned(model.identity.source))
    long: BlockCollector | None = None
    if rows is not None:
        long = BlockCollector(
            model,
            len(tokens),
            links.strongest,
            layers=request.layers,
            heads=request.heads,
            query=request.query,
            progress=progress,
            regions=request.regions,
            watchers=links.watchers,
            rest=resting_keys(row_tokens, model.identity.source),
        )
    parts = _LayerParts(model, tokens, request, words, links, long)

    # the run
    if batch is not None:
        traces: Iterable[LayerTrace] = batch.traces
        parts.shapes = batch.shapes
    else:
        traces = _traces(
            recording or model, model.spec, tokens, request, long, rows, on_trace is not None
        )
    likeliest: list[NextToken] = []
    for trace in traces:
        if on_trace is not None:
            on_trace(trace)
        parts.add(trace)
        # (of texts that ran as a batch no next token is told)
        if trace.layer == len(model.spec.blocks) - 1 and batch is None:
            likeliest = _next_tokens(model, trace.after[-1:])
        del trace  # free this layer's arrays before the next one is computed

    # without a chosen query the last token stands for it, in links and regions
    query = len(tokens) - 1 if request.query is None else request.query
    links.finish(query)
    warnings = [
        *notes(model, text, tokens),
        *_chunk_notes(model.spec, len(tokens)),
        *parts.warnings,
    ]
    if request.weighing is not None:
        from attncli.features.effects.weighing import weighing_notes

        warnings += weighing_notes(request.weighing)
    return RunDocument(
        **header(model, text, tokens, words, computing=None if batch is None else batch.computing),
        queries=UNSET if request.query is None else [request.query],
        shapes=parts.shapes,
        **links.members(),
        **parts.members(query),
        next_tokens=likeliest or UNSET,
        weighed=UNSET if request.weighing is None else request.weighing.part(),
        warnings=warnings,
    )


def _chunk_notes(spec: Spec, tokens: int) -> list[str]:
    """The note that hash attention leaves no pair out, as the text is no longer than two chunks;
    none for a longer text and for dense attention."""
    hashing = spec.blocks[0].attention.hashing  # all layers have the same option
    if hashing is None:
        return []
    chunk = hashing.chunk_of(tokens)
    if tokens > 2 * chunk:
        return []
    return [
        message(
            "a chunk has {chunk} tokens here and looks at itself and the one before, the first at the"
            " last: the text has at most two chunks, so that every pair is compared",
            chunk=chunk,
        )
    ]


def _words_of(tokens: Sequence[Token], text: str, request: RunRequest) -> Words | None:
    """The words that the request merges tokens to, the query's several tokens as one; None where
    nothing is merged."""
    words: Words | None = None
    if isinstance(request.words, Words):
        words = request.words
    elif request.words:
        words = merged_words(tokens, text)
    if request.span is not None:
        words = join_words(tokens, text, [request.span], words)
    return words


def _traces(
    running: Recording | Model,
    spec: Spec,
    tokens: Sequence[Token],
    request: RunRequest,
    long: BlockCollector | None,
    rows: int | None,
    is_saved: bool,
) -> Iterable[LayerTrace]:
    """Run the text and yield the trace of each layer that a request asks for, as it is computed;
    nothing where it asks for none.

    running: what runs: the model, or a recording of it for a page.
    long: collects the blocks of a text that runs `rows` query rows at a time; None for dense
        attention.
    is_saved: whether every stage is kept to be saved.
    """
    if request.layers is not EVERY and not request.layers:
        return ()
    # scores are kept only where the document shows them: without, weights overwrite their memory
    if long is None:
        keeps_scores = request.matrices
    else:
        keeps_scores = request.query is not None
    keep: Sequence[str] = ("weights",)
    if request.stages or is_saved:
        keep = SQUARE
    elif keeps_scores:
        keep = STAGES
    changes = NO_INTERVENTIONS
    if request.weighing is not None:
        changes = request.weighing.interventions(spec)
    return running.trace(
        tokens,
        layers=request.layers,
        heads=request.heads,
        keep=keep,
        rows=rows,
        on_block=None if long is None else long.on_block,
        interventions=changes,
    )


class _RunLinks:
    """Collects the strongest links of a run, and those of its chosen query.

    Where every link of the query's row is left out as one that says little, `finish` lets them all
    count.
    """

    def __init__(self, row_tokens: Sequence[Token], request: RunRequest, is_trained: bool) -> None:
        """Prepare the collectors of links.

        row_tokens: the tokens of the text, or the words that they are merged to.
        is_trained: whether the model's weights are trained.
        """
        # only training makes heads put weight on special tokens and neighbours when they look for
        # nothing; of random weights no link is left out
        self._is_trained = is_trained
        self._query = request.query
        self._leave_out: Sequence[LeftOutKind] = ()
        if not request.all_links:
            self._leave_out = kinds_left_out(row_tokens, is_learned=is_trained)
        self.strongest = self._collector(row_tokens, request, self._leave_out)
        self._query_links: QueryLinks | None = None
        # the collector that `finish` falls back on, which leaves out unknown words alone, and the
        # rows that it is then given
        self._uncut: LinkCollector | None = None
        self._all_count = False  # whether `finish` fell back on it
        self._rows: list[tuple[int, list[int], list[Numbers]]] = []
        if request.query is not None and not request.regions:
            from attncli.measure.query_links import QueryLinks

            self._query_links = QueryLinks(row_tokens, request.query)
            if self._leave_out:
                kinds = [kind for kind in self._leave_out if kind == "unknown"]
                self._uncut = self._collector(row_tokens, request, kinds)

    @staticmethod
    def _collector(
        row_tokens: Sequence[Token], request: RunRequest, kinds: Sequence[LeftOutKind]
    ) -> LinkCollector:
        """A collector of the strongest links without those of some kinds."""
        return LinkCollector(row_tokens, top=request.top, query=request.query, leave_out=kinds)

    @property
    def watchers(self) -> list[QueryLinks | LinkCollector]:
        """The collectors, beside `strongest`, that a long text's rows are given to block by block."""
        return [watcher for watcher in (self._query_links, self._uncut) if watcher is not None]

    def add_whole(self, layer: int, heads: list[int], weights: list[Numbers]) -> None:
        """Add all rows of a layer, before they are cut to that of the query.

        weights: of each of the heads, [query, key].
        """
        if self._query_links is not None:
            self._query_links.add(layer, heads, weights)

    def add(self, layer: int, heads: list[int], weights: list[Numbers]) -> None:
        """Add the rows of a layer that the document keeps: all, or the query's alone.

        weights: of each of the heads, [row, key].
        """
        first_query = 0 if self._query is None else self._query
        self.strongest.add(layer, heads, weights, first_query)
        if self._uncut is not None:  # `finish` may need them
            self._rows.append((layer, heads, weights))

    def finish(self, query: int) -> None:
        """Called after the last layer: where every link of the query was left out, collect again and
        let every link count."""
        if self._uncut is None or self.strongest.strongest():
            return
        # a long text has no such rows: its collector got them block by block, as a watcher
        for layer, heads, weights in self._rows:
            self._uncut.add(layer, heads, weights, query)
        self._all_count = True
        self.strongest = self._uncut
        self._leave_out = ()

    def members(self) -> dict[str, Any]:
        """The members of the document about links."""
        members: dict[str, Any] = {
            "overview": self.strongest.overview(),
            "links": self.strongest.strongest(),
            "links_leave_out": list(self._leave_out) or UNSET,
            "every_link_counts": True if self._all_count else UNSET,
        }
        if self._query_links is not None:
            members["strongest_back"] = self._query_links.strongest_back()
            if self._is_trained:
                members["strongest_neighbour"] = self._query_links.strongest_neighbour()
        return members


def _is_hashed(mask: Mask) -> bool:
    """Whether a mask, or a part of it, shows the keys of a query's hash bucket."""
    return any(isinstance(part, Hashed) for part in mask.parts_of())


class _LayerParts:
    """Collects what of each layer goes into the document of a run.

    words: those that pieces are merged to, None for none.
    long: what the rows of a long text were streamed to, None for dense attention.
    """

    def __init__(
        self,
        model: Model,
        tokens: Sequence[Token],
        request: RunRequest,
        words: Words | None,
        links: _RunLinks,
        long: BlockCollector | None,
    ) -> None:
        """Begin with no layers.

        words: those that tokens are merged to; None for none.
        links: collects the strongest links.
        long: collects the blocks of a long text; None for dense attention.
        """
        self._model = model
        self._tokens = tokens
        self._request = request
        self._words = words
        self._links = links
        self._long = long
        self._layers: list[RunLayer] = []  # with scores, weights and outputs
        self._empty: list[EmptyRow] = []  # rows that see no key
        self._maps: list[PooledMap] = []  # of a long text, in place of its weights
        self._query_rows: list[Numbers] = []  # by layer, the query's mean over heads, [key]
        # of each layer its number, its heads, and what goes from region to region
        self._region_shares: list[tuple[int, list[int], RegionShares]] = []
        self._hashing: list[HashProducts] = []  # what decides the buckets of an `lsh` mask
        self.shapes: list[ShapeRow] = []
        self.warnings: list[str] = []

    def add(self, trace: LayerTrace) -> None:
        """Add what the document holds of one layer, from the layer's trace."""
        model = self._model
        attention = model.spec.blocks[trace.layer].attention
        heads = numbers_of(self._request.heads, attention.heads)
        if not self.shapes:
            formulas = projection_formulas(model, trace.layer)
            self.shapes = shape_rows(trace, attention, formulas)
        self._empty += empty_rows(model.backend, trace, heads)
        self.warnings += overflow(model.backend, trace)
        if self._long is not None:
            part = self._add_long(trace, heads, self._long)
        else:
            part = self._add_dense(trace, heads)
        if self._request.query is not None:  # the query's row, mean over heads
            # the part has this one row; learned keys behind the tokens are cut off
            count = len(self._tokens if self._words is None else self._words.words)
            rows = [kept_weights(head)[0][:count] for head in part.heads]
            self._query_rows.append(np.asarray(np.mean(rows, 0, dtype=np.float64)))
        if self._request.matrices:
            self._layers.append(part)

    def _add_long(self, trace: LayerTrace, heads: list[int], long: BlockCollector) -> RunLayer:
        """Keep the maps and shares of a layer that ran by blocks of rows, and return its part."""
        self._maps += long.maps()
        shares = long.region_shares()
        if shares is not None:
            self._region_shares.append((trace.layer, heads, shares))
        return rows_of_long_text(trace.layer, heads, long.row())

    def _add_dense(self, trace: LayerTrace, heads: list[int]) -> RunLayer:
        """Collect the links of a layer that has all its rows, and return its part of the document:
        between words where tokens are merged, of the query's row alone where one is asked about."""
        request = self._request
        part = layer_part(self._model.backend, trace, heads, stages=request.stages)
        if request.stages and trace.layer == 0:
            part = _with_embedding(self._model, self._tokens, part)
        if self._words is not None:
            part = between_words(part, self._words, outputs=isinstance(request.words, Words))
        elif _is_hashed(self._model.spec.blocks[trace.layer].attention.mask):
            from attncli.measure.hash_products import hash_products  # few runs hash

            attention = self._model.spec.blocks[trace.layer].attention
            self._hashing += hash_products(self._model.backend, attention, trace, heads)
        weights = [kept_weights(head) for head in part.heads]
        self._links.add_whole(trace.layer, heads, weights)
        if request.query is not None:
            part = rows_of_query(part, request.query)
            weights = [kept_weights(head) for head in part.heads]
        self._links.add(trace.layer, heads, weights)
        return part

    def members(self, query: int) -> dict[str, Any]:
        """The members of the document about layers.

        query: the token whose weight on each region the document has.
        """
        request = self._request
        regions = [
            RegionRow(name=region.name, tokens=list(region.tokens)) for region in request.regions
        ]
        shares: RegionPart | UnsetType = UNSET
        if self._region_shares:
            shares = region_part(self._region_shares, query, request.regions, request.top)
        return {
            "layers": self._layers,
            "maps": UNSET if self._long is None or request.regions else self._maps,
            "regions": regions or UNSET,
            "region_shares": shares,
            "hashing": self._hashing or UNSET,
            "average": np.mean(self._query_rows, 0) if self._query_rows else UNSET,
            "empty_rows": self._empty,
        }


LIKELIEST = 3
"""Next tokens that the document of a run has."""


def _next_tokens(model: Model, vector: Array) -> list[NextToken]:
    """The likeliest next tokens of a text with their probabilities; empty for a model that does not
    predict them.

    vector: what leaves the last layer at the last token, [1, width].
    """
    if model.spec.head is None:
        return []
    from attncli.features.effects.places import reads_on

    # a model that sees later tokens fills gaps, and says nothing of a next token
    if not reads_on(model.spec):
        return []
    from attncli.features.effects.targets import likeliest_tokens, predicts_next

    # a checkpoint may be saved without the head's matrix
    if not predicts_next(model):
        return []
    # softmax, from which the largest score is taken so that nothing overflows
    scores = np.asarray(model.backend.numpy(model.logits(vector)), np.float64)[0]
    shares = np.exp(scores - scores.max())
    return likeliest_tokens(model, shares / shares.sum(), LIKELIEST)


def region_part(
    layers: Sequence[tuple[int, list[int], RegionShares]],
    query: int,
    regions: Sequence[Region],
    top: int,
) -> RegionPart:
    """The document's part on regions (named sets of tokens): how much of its weight one query, and
    the tokens of each region, give to each region, by head, by layer and on average.

    layers: of each its number, its heads and its shares.
    query: the position of that query.
    top: how many links between regions are listed.
    """
    # a row of an even share may be the same for all heads, and is then there once
    heads = [
        HeadRegions(
            layer=layer,
            head=head,
            share=shares.query[place],
            even=shares.query_even[place % len(shares.query_even)],
            share_beyond_rest=shares.query_beyond[place],
            even_beyond_rest=shares.query_even_beyond[place % len(shares.query_even_beyond)],
        )
        for layer, numbers, shares in layers
        for place, head in enumerate(numbers)
    ]

    def mean(name: str) -> Numbers:
        """The mean over all layers and heads of the attribute of this name of the shares."""
        return finite_mean(np.concatenate([getattr(shares, name) for _, _, shares in layers]))

    return RegionPart(
        query=query,
        share=mean("query"),
        even=mean("query_even"),
        layers=[layer for layer, _, _ in layers],
        by_layer=np.stack([finite_mean(shares.query) for _, _, shares in layers]),
        between=mean("between"),
        between_even=mean("between_even"),
        heads=heads,
        rest=_finite_or_none(mean("query_rest")),
        even_rest=_finite_or_none(mean("query_rest_even")),
        share_beyond_rest=mean("query_beyond"),
        even_beyond_rest=mean("query_even_beyond"),
        by_layer_beyond_rest=np.stack(
            [finite_mean(shares.query_beyond) for _, _, shares in layers]
        ),
        # the arrays of weight at rest have a last axis of size 1: resting keys as one region
        rest_by_layer=np.stack([finite_mean(shares.query_rest)[0] for _, _, shares in layers]),
        between_beyond_rest=mean("between_beyond"),
        rest_between=mean("between_rest")[:, 0],
        links=region_links(layers, regions, top),
    )


def _finite_or_none(value: Numbers) -> float | None:
    """The only number of an array; None for one that is not finite."""
    number = float(value[0])
    if np.isfinite(number):
        return number
    return None


def region_links(
    layers: Sequence[tuple[int, list[int], RegionShares]], regions: Sequence[Region], top: int
) -> list[RegionLink]:
    """The `top` largest weights that single heads give from one region to another, without resting
    keys (the first token and special tokens, on which heads put weight when they look for nothing).
    Regions that share a token are left out, and so is the region of all tokens that are in no
    other.

    layers: number, heads and their shares, of each layer.
    """
    from attncli.inputs.regions import REST

    # indices of two regions, each way
    pairs = [
        (query, key)
        for query, query_region in enumerate(regions)
        for key, key_region in enumerate(regions)
        if REST not in (query_region.name, key_region.name)
        and set(query_region.tokens).isdisjoint(key_region.tokens)
    ]
    links = []
    for layer, heads, shares in layers:
        weights_of_heads = shares.between_beyond
        # what the same heads would give if they spread their weight evenly
        even_of_heads = np.broadcast_to(shares.between_even_beyond, weights_of_heads.shape)
        for head, weights, even in zip(heads, weights_of_heads, even_of_heads, strict=True):
            for query, key in pairs:
                weight = float(weights[query, key])
                if np.isfinite(weight) and weight > 0:
                    link = RegionLink(
                        layer=layer,
                        head=head,
                        query=query,
                        key=key,
                        weight=weight,
                        even=float(even[query, key]),
                    )
                    links.append(link)
    return sorted(links, key=lambda link: (-link.weight, link.layer, link.head))[:top]


def finite_mean(values: Numbers) -> Numbers:
    """The mean over the first axis of the finite entries; NaN where there are none."""
    is_number = np.isfinite(values)
    counts = np.where(is_number.any(0), is_number.sum(0), np.nan)
    mean: Numbers = np.where(is_number, values, 0).sum(0) / counts
    return mean


def _with_embedding(model: Model, tokens: Sequence[Token], part: RunLayer) -> RunLayer:
    """The document's first layer with two stages more, "embedding" E and "position" P, whose sum is
    its input X; unchanged for a model whose input is no such sum."""
    from attncli.models.one_layer import split_embedding  # only a document of every stage asks

    if part.stages is UNSET:
        return part
    summands = split_embedding(model, tokens)
    if summands is None:
        return part
    embedding, position = summands
    return replace(part, stages={"embedding": embedding, "position": position, **part.stages})


# What of a layer goes into the document of a run: one query's rows, weights between words, a long
# text's rows.


def kept_weights(head: RunHead) -> Numbers:
    """The weights of a head that were kept, [query, key]."""
    assert head.weights is not UNSET
    return head.weights


def rows_of_long_text(layer: int, heads: Sequence[int], rows: Mapping[str, Numbers]) -> RunLayer:
    """A layer of the document of which only one query's row was kept.

    rows: the row's "masked" scores and "weights", [head, 1, key]; empty where nothing was kept.
    """
    if not rows:
        return RunLayer(layer=layer, heads=[])
    parts = [
        RunHead(head=head, scores=scores, weights=weights)
        for head, scores, weights in zip(heads, rows["masked"], rows["weights"], strict=True)
    ]
    return RunLayer(layer=layer, heads=parts)


def between_words(layer: RunLayer, words: Words, *, outputs: bool = False) -> RunLayer:
    """The layer with its weights between words; scores, outputs and stages belong to pieces and are
    left out.

    outputs: whether the outputs of a word's tokens are averaged, not left out.
    """
    heads = [
        RunHead(
            head=head.head,
            weights=words.merge(kept_weights(head)),
            output=words.average(head.output) if outputs and head.output is not UNSET else UNSET,
        )
        for head in layer.heads
    ]
    return RunLayer(layer=layer.layer, heads=heads)


def rows_of_query(layer: RunLayer, query: int) -> RunLayer:
    """A layer of the document with the row of one query alone in each array that has a row per
    query. Keys and values, which have a row per key, stay whole."""

    def take_row(rows: Numbers | UnsetType) -> Numbers | UnsetType:
        """A copy of the query's row alone, [1, …]."""
        if rows is UNSET:
            return rows
        return rows[query : query + 1].copy()

    def cut_stages(stages: dict[str, Numbers] | UnsetType) -> dict[str, Numbers] | UnsetType:
        """The stages, with only the one query's row where a stage has a row per query; UNSET stays."""
        if stages is UNSET:
            return UNSET
        cut = dict(stages)
        for stage, rows in stages.items():
            if stage in DECLARED and "query" in DECLARED[stage].axes:
                cut[stage] = rows[query : query + 1].copy()
        return cut

    heads = [
        RunHead(
            head=head.head,
            scores=take_row(head.scores),
            weights=take_row(head.weights),
            output=take_row(head.output),
            stages=cut_stages(head.stages),
        )
        for head in layer.heads
    ]
    return RunLayer(
        layer=layer.layer,
        heads=heads,
        output=take_row(layer.output),
        stages=cut_stages(layer.stages),
        hidden=take_row(layer.hidden),
    )


# The tensors that `--save` writes: every stage of every layer that ran.


class SavedStages:
    """Collects layers' traces as `layers.{i}.{stage}` and `hidden.{i}`, arrays on the CPU.

    Stages of cross-attention are named `layers.{i}.cross.{stage}`. Stages that a run did not
    keep are left out.

    heads: which run.
    """

    def __init__(self, model: Model, heads: Selection = EVERY) -> None:
        """Begin with no arrays.

        heads: which heads of each layer run.
        """
        self.backend = model.backend
        self.tensors: dict[str, np.ndarray[Any, Any]] = {}  # by name, such as "layers.0.weights"
        self.heads: dict[str, list[int]] = {}  # the heads that ran, by layer
        self._blocks = model.spec.blocks
        self._selection = heads

    def add(self, trace: LayerTrace) -> None:
        """Add the stages of one layer; layers may come in any order."""
        count = self._blocks[trace.layer].attention.heads
        self.heads[str(trace.layer)] = sorted(numbers_of(self._selection, count))
        self.tensors[f"hidden.{trace.layer}"] = self.backend.numpy(trace.before)
        self.tensors[f"hidden.{trace.layer + 1}"] = self.backend.numpy(trace.after)
        self._stages(f"layers.{trace.layer}", trace)
        if trace.cross is not None:
            self._stages(f"layers.{trace.layer}.cross", trace.cross)

    def _stages(self, prefix: str, trace: LayerTrace) -> None:
        """Keep the stages of one attention that are saved, by `prefix` and the stage's name."""
        for name in SAVED:
            if name in trace.stages:
                self.tensors[f"{prefix}.{name}"] = np.ascontiguousarray(
                    self.backend.numpy(trace.stages[name])
                )


def is_long(count: int) -> bool:
    """Whether a text of so many tokens runs a block of query rows at a time, unless the answer needs
    all rows at once.
    """
    return count > LONG


def save_stages(path: Path, stages: SavedStages, document: RunDocument) -> None:
    """Write the stages of a run to a tensor file, with its document's header as metadata. Raises
    AttnError where it cannot."""
    from attncli.inputs.tensors import write_tensors  # only --save asks

    write_tensors(path, stages.tensors, metadata(document, stages.heads))


def without_tables(document: RunDocument) -> RunDocument:
    """The document with its links and maps, without scores, weights and outputs."""
    return replace(document, layers=[])


def metadata(document: RunDocument, heads: Mapping[str, Sequence[int]]) -> dict[str, str]:
    """The header of a document (schema, text, tokens, model and settings) as metadata of a tensor
    file: each member as JSON text; with it `formulas`, how each stage comes about, and `heads`.

    heads: the numbers of those that ran, in the order of the arrays, by layer.

    The file holds every token and every row, also where the document merges words or is about one
    query.
    """
    import orjson

    def members_of(part: object) -> object:
        """A part of a document as a mapping, for JSON. Raises TypeError for anything else."""
        if not isinstance(part, Part):
            raise TypeError(f"metadata holds no {type(part).__name__}")
        return dict(members(part))

    values = dict(members(document))
    if document.pieces is not UNSET:  # the document's tokens are words then
        values["tokens"] = document.pieces
    values["formulas"] = {row.step: row.formula for row in document.shapes}
    values["heads"] = heads
    names = (
        "schema",
        "version",
        "text",
        "tokens",
        "model",
        "attention",
        "empty_rows",
        "formulas",
        "heads",
    )
    try:
        return {name: orjson.dumps(values[name], default=members_of).decode() for name in names}
    except TypeError:  # half of a character, which JSON can write as an escape
        return {name: json.dumps(values[name], default=members_of) for name in names}


# W_Q, W_K, W_V and W_O as the texts write them: what a row x is multiplied with from the right.


def head_projections(model: Model, layer: int, head: int) -> dict[str, Numbers]:
    """A head's W_Q and W_K, [width, dim], and W_V, [width, v_dim], by name; heads that share keys and
    values have the same W_K and W_V.

    Empty for a model that runs through another library, whose weights cannot be read one by one;
    without the projections that a layer has not as one matrix.
    """
    if not model.own_layers:
        return {}
    spec = model.spec.blocks[layer].attention
    weights = model.store.layer(model.backend, layer)
    matrices = {}
    projections = (
        ("W_Q", "q", spec.head_dim, spec.heads),
        ("W_K", "k", spec.head_dim, spec.kv_heads),
        ("W_V", "v", spec.v_dim, spec.kv_heads),
    )
    for name, role, dim, heads in projections:
        matrix = weights(f"attn.{role}.weight")  # [head · dim, width]
        if matrix is not None and matrix.shape[0] == heads * dim:
            own_head = head * heads // spec.heads  # several heads may share one of keys and values
            rows = slice(own_head * dim, (own_head + 1) * dim)
            matrices[name] = np.asarray(model.backend.numpy(matrix), np.float64)[rows].T
    return matrices


def layer_projections(model: Model, layer: int) -> dict[str, Numbers]:
    """A layer's W_O, [head · v_dim, width]; empty where the layer has none or it cannot be read."""
    if not model.own_layers:
        return {}
    weights = model.store.layer(model.backend, layer)
    matrix = weights("attn.o.weight")  # [width, head · v_dim]
    if matrix is None:
        return {}
    return {"W_O": np.asarray(model.backend.numpy(matrix), np.float64).T}


# The weights that recurrences amount to.


def recurrences_of(spec: Spec, layers: Selection, count: int, *, merged: bool) -> list[int]:
    """Which of these layers have a recurrence that can be written as implicit weights, A in O =
    A·V: their numbers, ascending.

    count: how many tokens the text has.
    merged: whether tokens are merged to words.

    Raises UsageError where tokens are merged or too many, UnsupportedError where no layer has any.
    """
    from attncli.mechanism.mixer import has_implicit_weights  # few models have one

    numbers = numbers_of(layers, len(spec.blocks))
    check_indices("layer", numbers, len(spec.blocks))
    layers_with = [
        layer for layer, block in enumerate(spec.blocks) if has_implicit_weights(block.mixer)
    ]
    if merged or count > LONG:
        raise UsageError(
            "implicit weights have a number for each pair of tokens",
            expected=(
                "no --words or --query of several tokens beside them, and at most {most:,} tokens"
            ),
            most=LONG,
        )
    chosen = sorted(set(layers_with) & set(numbers))
    if not chosen:
        expected = message("a model with the gated delta rule, Mamba 2 or lightning attention")
        if layers_with:
            expected = message("one of the layers {layers}", layers=listing(map(str, layers_with)))
        raise UnsupportedError("none of these layers has implicit weights", expected=expected)
    return chosen


def _implicit_heads(spec: Spec, layer: int, heads: Selection) -> list[int]:
    """The numbers of the heads of a layer's recurrence that are selected; numbers that it
    does not have are left out."""
    mixer = spec.blocks[layer].mixer
    assert isinstance(mixer, Recurrence)
    return [head for head in numbers_of(heads, mixer.heads) if head < mixer.heads]


def implicit_layers(
    model: Model,
    tokens: Sequence[Token],
    layers: Sequence[int],
    heads: Selection,
    query: int | None,
) -> list[ImplicitLayer]:
    """The implicit weights of the recurrences in these layers, A in O = A·V, by head.

    query: the query whose row alone is returned; None for all rows.
    """
    from attncli.mechanism.mixer import implicit_weights

    parts = []
    # `idle`: layers with a recurrence do not attend, and are yielded nevertheless
    for trace in model.trace(tokens, layers=layers, keep=(), idle=True):
        mixer = model.spec.blocks[trace.layer].mixer
        assert isinstance(mixer, Recurrence)
        weights = model.store.layer(model.backend, trace.layer)
        # A of each head, [head, query, key]; the values V are not shown
        matrices, _ = implicit_weights(model.backend, mixer, weights, trace.stages["hidden"])
        if query is None:
            rows = slice(None)
        else:
            rows = slice(query, query + 1)
        parts.append(
            ImplicitLayer(
                layer=trace.layer,
                kind=mixer.name,
                heads=[
                    ImplicitHead(head=head, weights=model.backend.numpy(matrices[head])[rows])
                    for head in _implicit_heads(model.spec, trace.layer, heads)
                ],
            )
        )
    return parts


def with_projections(document: RunDocument, model: Model) -> RunDocument:
    """The document with projections added: W_Q, W_K and W_V to each of its heads, W_O to each of its
    layers."""
    layers = [
        replace(
            layer,
            projections=layer_projections(model, layer.layer),
            heads=[
                replace(head, projections=head_projections(model, layer.layer, head.head))
                for head in layer.heads
            ],
        )
        for layer in document.layers
    ]
    return replace(document, layers=layers)
