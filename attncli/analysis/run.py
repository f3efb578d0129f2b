"""The document of `attn run`: one text through the model, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET, Struct
from msgspec.structs import replace

from attncli.analysis.document import empty_rows, header, layer_part, notes, overflow, position_stages, shape_rows
from attncli.analysis.documents.declaration import Numbers
from attncli.analysis.documents.parts import EmptyRow, ShapeRow
from attncli.analysis.documents.run import PooledMap, RunDocument, RunLayer
from attncli.analysis.links import Links, kinds_left_out
from attncli.analysis.long_run import STAGES, Rowwise
from attncli.analysis.run_layers import between_words, of_query, rows_of, single_rows
from attncli.analysis.words import joined, merged_words
from attncli.arrays.backend import SCORE_ITEM, Backend
from attncli.arrays.selection import EVERY, Selection, selected
from attncli.inputs.token import Token
from attncli.mechanism.mask import shows_all
from attncli.mechanism.position_spec import ADDED
from attncli.mechanism.spec import Attention, Spec
from attncli.mechanism.trace import SQUARE, LayerTrace
from attncli.models.batch import alone
from attncli.models.estimate import Estimate, StoredSizes, estimate
from attncli.models.model import Model

if TYPE_CHECKING:
    from attncli.analysis.records.recording import Recording  # only a page needs it


class Wanted(Struct, frozen=True):
    """What of a run goes into its document.

    layers, heads: which. query: the one query whose rows are wanted; None where none is chosen.
    matrices: whether scores, weights and outputs are held at all; stages: every stage by name.
    top: how many links; all_links: also the uninformative ones. words: whether pieces are merged to words.
    span: tokens or words [first, stop) in a row that are one; `query` counts after that.
    """

    layers: Selection = EVERY
    heads: Selection = EVERY
    query: int | None = None
    matrices: bool = True
    stages: bool = False
    top: int = 10
    all_links: bool = False
    words: bool = False
    span: tuple[int, int] | None = None


class Cost(Struct, frozen=True):
    """What a run will take, estimated before it starts. numbers: how many there are in the document."""

    estimate: Estimate
    numbers: int

    @property
    def memory(self) -> int:
        """Bytes at the peak, besides the program itself."""
        return self.estimate.peak


def cost(model: Model, count: int, wanted: Wanted, *, saved: bool, rows: int | None = None) -> Cost:
    """The cost of running `count` tokens; see `cost_of`."""
    return cost_of(
        model.spec,
        count,
        wanted,
        dtype=model.backend.dtype,
        computed=model.computing(count).dtype,
        saved=saved,
        rows=rows,
    )


def cost_of(
    spec: Spec,
    count: int,
    wanted: Wanted,
    *,
    dtype: str,
    computed: str,
    saved: bool = False,
    rows: int | None = None,
    stored: StoredSizes | None = None,
) -> Cost:
    """The cost of running `count` tokens through a model of this Spec. dtype: of its results. computed: what it
    computes in.

    saved: whether all stages are kept to be saved. rows: query rows at a time. stored: sizes of weights in files.
    """
    layers = spec.attending(wanted.layers)
    attentions = [spec.blocks[layer].attention for layer in layers]
    item, shown = SCORE_ITEM[dtype], 1 if wanted.query is not None else count
    everything = wanted.stages or saved
    numbers = held = most = 0  # held: to the end, in the document or to be saved
    for attention in attentions:
        heads = len(selected(wanted.heads, attention.heads))
        wide = shown * (heads * attention.v_dim * (1 + 2 * wanted.stages) + spec.d_model * (1 + 3 * wanted.stages))
        wide += count * (2 * heads * attention.v_dim + spec.d_model) * wanted.stages  # k, v and hidden are whole
        numbers += (heads * shown * count * (2 + len(SQUARE) * wanted.stages) + wide) * wanted.matrices
        # a bias by position is as large as what it is added to
        least = 2 if wanted.matrices else 1 + isinstance(attention.position, ADDED)
        squares = _squares(attention) if everything else least
        # what is saved is there twice while it is written
        held += heads * count * squares * (2 * count * saved or shown * wanted.matrices)
        most = max(most, attention.heads * count * count * squares)
    running = estimate(spec, count, stored=stored, layers=layers, kept=0, rows=rows, dtype=computed)
    rounds = computed != dtype
    whole = saved or (wanted.matrices and wanted.query is None)
    # what a layer keeps is part of the answer only where all of it is, as it is
    kept = most * SCORE_ITEM[computed] * (rounds or not whole or wanted.heads is not EVERY)
    if not whole:
        kept += most * item * rounds
    parts = {"scores that are kept": kept if rows is None else 0, "answer": held * item}
    return Cost(replace(running, memory={**running.memory, **parts}), numbers)


def _squares(attention: Attention) -> int:
    """How many arrays of n × n there are when every stage is kept; a step that changes nothing shares its array."""
    biased = isinstance(attention.position, ADDED)
    terms = len(position_stages(attention.position))
    return 3 + terms + (attention.softcap is not None) + biased + (not shows_all(attention.mask))


class Batched(Struct, frozen=True):
    """One text's part of a padded batch: its traces without padding, the shapes of the whole batch, and what computed
    it."""

    traces: list[LayerTrace]
    shapes: list[ShapeRow]
    computing: Backend


def run_batch(model: Model, texts: Sequence[Sequence[Token]], layers: Selection, heads: Selection) -> list[Batched]:
    """Run texts together, as `Model.trace_batch` does. layers, heads: which."""
    traces = list(model.trace_batch(texts, layers=layers, heads=heads))
    shapes = shape_rows(traces[0], model.spec.blocks[traces[0].layer].attention, leading=("batch",))
    computing = model.computing(max(map(len, texts)))
    return [
        Batched([alone(trace, entry, len(tokens)) for trace in traces], shapes, computing)
        for entry, tokens in enumerate(texts)
    ]


def run_document(
    model: Model,
    text: str,
    tokens: Sequence[Token],
    wanted: Wanted,
    *,
    see: Callable[[LayerTrace], None] | None = None,
    rows: int | None = None,
    progress: Callable[[float], None] | None = None,
    batched: Batched | None = None,
    recording: Recording | None = None,
) -> RunDocument:
    """Run a text and return its `attn.run/1` document.

    see: is handed each layer's trace, to save it. rows: None for dense attention; else query rows
    at a time, nothing is n × n then, and maps are pooled. progress: told the share done, where
    rows are given. batched: what the text gave in a batch, in place of a run. recording: takes the heads of the run.
    """
    words = merged_words(tokens, text) if wanted.words else None
    words = words if wanted.span is None else joined(tokens, text, [wanted.span], words)
    shown = tokens if words is None else words.words
    # only training makes heads rest on special tokens and neighbours; other weights have nothing to leave out
    learned = model.identity.source == "checkpoint"
    leave_out = () if wanted.all_links else kinds_left_out(shown, learned=learned)
    links = Links(shown, top=wanted.top, query=wanted.query, leave_out=leave_out)
    long = (
        None
        if rows is None
        else Rowwise(
            model, len(tokens), links, layers=wanted.layers, heads=wanted.heads, query=wanted.query, progress=progress
        )
    )
    traces: Iterable[LayerTrace] = () if batched is None else batched.traces
    if batched is None:
        # scores that are kept could not be overwritten
        scores = wanted.matrices if long is None else wanted.query is not None
        keep: Sequence[str] = STAGES if scores else ("weights",)
        keep = SQUARE if wanted.stages or see is not None else keep
        watch = None if long is None else long.see
        traces = (recording or model).trace(
            tokens, layers=wanted.layers, heads=wanted.heads, keep=keep, rows=rows, see=watch
        )
    shapes: list[ShapeRow] = [] if batched is None else batched.shapes
    layers: list[RunLayer] = []
    empty: list[EmptyRow] = []
    warnings: list[str] = notes(model, text, tokens)
    maps: list[PooledMap] = []
    averages: list[Numbers] = []
    for trace in traces:
        heads = selected(wanted.heads, model.spec.blocks[trace.layer].attention.heads)
        shapes = shapes or shape_rows(trace, model.spec.blocks[trace.layer].attention)
        empty += empty_rows(model.backend, trace, heads)
        warnings += overflow(model.backend, trace)
        if see is not None:
            see(trace)
        if long is not None:
            maps += long.maps()
            part = single_rows(trace.layer, heads, long.row())
        else:
            part = layer_part(model.backend, trace, heads, stages=wanted.stages)
            if wanted.stages and trace.layer == 0:
                part = _embedded(model, tokens, part)
            if words is not None:
                part = between_words(part, words)
            links.add(trace.layer, heads, [rows_of(head) for head in part.heads])
            part = of_query(part, wanted.query)
        if wanted.query is not None:
            averages.append(
                np.asarray(np.mean([rows_of(head)[0][: len(shown)] for head in part.heads], 0, dtype=np.float64))
            )
        if wanted.matrices:
            layers.append(part)
        del trace, part  # while the next layer is computed
    return RunDocument(
        **header(model, text, tokens, words, computing=None if batched is None else batched.computing),
        queries=UNSET if wanted.query is None else [wanted.query],
        shapes=shapes,
        overview=links.overview(),
        layers=layers,
        links=links.found(),
        maps=UNSET if long is None else maps,
        average=np.mean(averages, 0) if averages else UNSET,
        links_leave_out=list(leave_out) or UNSET,
        empty_rows=empty,
        warnings=warnings,
    )


def _embedded(model: Model, tokens: Sequence[Token], part: RunLayer) -> RunLayer:
    """The first layer with what its input X is the sum of: `embedding` E and `position` P, where `embedded` has
    them."""
    from attncli.analysis.added_positions import embedded  # only --stages all asks

    both = None if part.stages is UNSET else embedded(model, tokens)
    if both is None or part.stages is UNSET:
        return part
    return replace(part, stages={"embedding": both[0], "position": both[1], **part.stages})
