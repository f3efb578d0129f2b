"""The document of `attn find`: which heads send one token to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from attncli.arrays.backend import EVERY, Selection, numbers_of
from attncli.documents import RegionRow
from attncli.documents.header import header, notes, overflow
from attncli.errors import InputError, UsageError
from attncli.features.effects.ablation import Removal, remove
from attncli.features.effects.measures import MeasureRequest
from attncli.features.effects.sweep import CutLink
from attncli.features.find.document import FindDocument, FoundHead, Reverse
from attncli.features.run.compute import RunRequest, cost
from attncli.inputs.regions import Region, region_span, word_regions
from attncli.inputs.token import Token, choose_span, ignore
from attncli.inputs.word_groups import Words, join_words, merged_words
from attncli.language import message
from attncli.measure.row_stream import share
from attncli.mechanism.attend import RowBlock
from attncli.mechanism.spec import HeadSelection
from attncli.models.estimate import CostEstimate, free_memory
from attncli.models.model import Model
from attncli.models.run import rows_for

if TYPE_CHECKING:
    from attncli.measure.run_record import Recording  # only a page needs it


class SearchRequest(Struct, frozen=True):
    """What to look for: the weight from the query `start` to the key `end`, in these layers and
    heads.
    """

    start: int
    end: int
    layers: Selection = EVERY
    heads: Selection = EVERY


class CutOptions(Struct, frozen=True):
    """How the effect of cutting the link is measured. memory: bytes there may be. progress: is told
    the share done.
    """

    memory: int
    progress: Callable[[float], None]


class _QueryRows:
    """The rows [head, key] of a few queries, weights and which keys are visible, kept while blocks
    of a layer go by.
    """

    def __init__(self, model: Model, queries: Sequence[int], keys: int) -> None:
        self._model = model
        self._queries = queries
        self._keys = keys
        self.rows: dict[int, np.ndarray[Any, Any]] = {}
        self.visibility: dict[int, np.ndarray[Any, Any]] = {}

    def on_block(self, layer: int, kind: str, block: RowBlock) -> None:
        """Keep what a block of the layer's self-attention holds of the queries."""
        if kind != "self":
            return
        backend = self._model.backend
        every = self._model.spec.blocks[layer].attention.heads
        high = min(block.high, self._keys)  # learned keys stand after the tokens
        for query in (number for number in self._queries if block.start <= number < block.stop):
            for arrays, dtype in ((self.rows, np.float64), (self.visibility, np.bool_)):
                arrays.setdefault(query, np.zeros((every, self._keys), dtype))
            weights = backend.numpy(
                block.stages["weights"][..., query - block.start, : high - block.low]
            )
            cells = slice(block.first_head, block.first_head + len(weights)), slice(block.low, high)
            self.rows[query][cells] = weights
            visible: np.ndarray[Any, Any] | bool = True
            if block.visibility is not None:
                row = min(query - block.start, block.visibility.shape[-2] - 1)
                visible = backend.numpy(block.visibility[..., row, :])[..., : high - block.low]
            self.visibility[query][cells] = visible


def find(
    model: Model,
    text: str,
    query: str,
    key: str,
    *,
    layers: Selection = EVERY,
    heads: Selection = EVERY,
    words: bool = False,
    unknown: bool = False,
    effect: bool = False,
    regions: Sequence[Region] = (),
    memory: int | None = None,
    tokens: Sequence[Token] | None = None,
    note: Callable[[str], None] = ignore,
    on_cost: Callable[[CostEstimate, int], None] = ignore,
    progress: Callable[[float], None] = ignore,
    recording: Recording | None = None,
) -> FindDocument:
    """Find the heads that send one token to another: every head, the largest weight first.

    Args:
        model: As `attncli.load` returns it.
        text: What runs.
        query: The token that looks: "it", "the:2" (its second occurrence), "#7", or several in a
            row.
        key: The token that is looked at.
        layers: Which layers.
        heads: Which heads of each.
        words: Whether pieces are merged to words first: weights to a word are summed, from a word
            averaged.
        unknown: Whether the tokens may be such as the model does not know.
        effect: Whether also to measure what cutting the link in each head changes.
        regions: Named sets of tokens, which `query` and `key` may name.
        memory: Bytes that cutting may take; None for what is free.
        tokens: Those of the text; None to let the model's tokenizer find them.
        note: Is told what becomes of ambiguous names.
        on_cost: Is told what the run will take, and of how many tokens, before it starts.
        progress: Is told the share done, 0 to 1.
        recording: Takes the heads of the run, for a page.

    Returns:
        What `attn find --json` writes.

    Raises:
        UsageError: For two names that share tokens.
        InputError: For tokens, layers or heads that are not there, and where no head has finite
            weights.
    """
    if tokens is None:
        tokens = model.encode(text)
    if words:
        merged_tokens = merged_words(tokens, text)
    else:
        merged_tokens = None
    named_tokens = tokens if merged_tokens is None else merged_tokens.words
    if merged_tokens is not None:
        regions = word_regions(regions, merged_tokens.starts.tolist())
    spans = {
        reference: (
            region_span(regions, reference, note)
            or choose_span(named_tokens, reference, note, unknown=unknown)
        )
        for reference in dict.fromkeys((query, key))
    }
    several = [span for span in dict.fromkeys(spans.values()) if span[1] - span[0] > 1]
    if several:
        if any(a != b and a[1] > b[0] for a, b in pairwise(sorted(spans.values()))):
            expected = message("two that do not, or the same twice")
            raise UsageError(
                "{end} and {end_2} share tokens",
                expected=expected,
                end=repr(query),
                end_2=repr(key),
            )
        merged_tokens = join_words(tokens, text, several, merged_tokens)
    # joining tokens before them moves the places of those after
    places = {
        reference: first - sum(stop - start - 1 for start, stop in several if start < first)
        for reference, (first, _) in spans.items()
    }
    run_request = RunRequest(layers, heads, matrices=False)
    rows = rows_for(model.spec, len(tokens))
    on_cost(cost(model, len(tokens), run_request, is_saved=False, rows=rows), len(tokens))
    if effect:
        cutting = CutOptions(free_memory().bytes if memory is None else memory, progress)
    else:
        cutting = None
    sought = SearchRequest(places[query], places[key], layers, heads)
    watch = None if effect else progress
    document = find_document(
        model,
        text,
        tokens,
        sought,
        words=merged_tokens,
        cutting=cutting,
        progress=watch,
        recording=recording,
    )
    names = {region.name for region in regions}
    ends = [RegionRow(name=name, tokens=[place]) for name, place in places.items() if name in names]
    return replace(document, regions=ends or UNSET)


def find_document(
    model: Model,
    text: str,
    tokens: Sequence[Token],
    request: SearchRequest,
    *,
    words: Words | None = None,
    cutting: CutOptions | None = None,
    progress: Callable[[float], None] | None = None,
    recording: Recording | None = None,
) -> FindDocument:
    """The `attn.find/1` document: every head, the largest weight from → to first; ties by layer and
    head.

    rank: 1 for the key that the query looks at most; null where the mask hides the key. reverse:
        the
    same from `end` to `start`. words: merge pieces first; then start and end are words. progress:
    told the share done of a long text. recording: takes the heads of the run.
    Heads whose numbers left the range of their type have no rank; warnings name them. Raises
    InputError where no other is left.
    """
    ends = [list(_tokens_of_word(words, word)) for word in (request.start, request.end)]
    queries = sorted({*ends[0], *ends[1]})
    layers = model.spec.attending(request.layers)
    end_rows = {layer: _QueryRows(model, queries, len(tokens)) for layer in layers}
    heads: list[FoundHead] = []
    warnings = notes(model, text, tokens)

    def on_block(layer: int, kind: str, block: RowBlock) -> None:
        """Keep the rows of the link's two tokens from a block of query rows, and tell the share
        that is done.
        """
        end_rows[layer].on_block(layer, kind, block)
        if progress is not None and kind == "self":
            layer_share = share(block, model.spec.blocks[layer].attention.heads, len(tokens))
            progress((layer + layer_share) / (max(layers) + 1))

    for trace in (recording or model).trace(
        tokens,
        layers=request.layers,
        keep=("weights",),
        rows=rows_for(model.spec, len(tokens)),
        on_block=on_block,
    ):
        layer_rows = end_rows.pop(trace.layer)
        warnings += overflow(model.backend, trace)
        forward, visibility = _word_row(layer_rows, ends[0], words)
        back, visible_back = _word_row(layer_rows, ends[1], words)
        for head in numbers_of(request.heads, forward.shape[0]):
            if np.isnan((forward[head], back[head])).any():
                continue
            link = _ranked_key(forward[head], visibility[head], request.end)
            reverse = Reverse(**_ranked_key(back[head], visible_back[head], request.start))
            heads.append(FoundHead(layer=trace.layer, head=head, **link, reverse=reverse))
    if not heads:
        expected = message("numbers that their type can hold")
        raise InputError(
            "no head has weights that are finite numbers", expected=expected, hint="--dtype float64"
        )
    together: float | UnsetType | None = UNSET
    if cutting is not None:
        heads, together = _with_effects(model, tokens, request, ends, heads, cutting)
    heads.sort(key=lambda row: (-row.weight, row.layer, row.head))
    return FindDocument(
        **header(model, text, tokens, words),
        query=request.start,
        key=request.end,
        words=words is not None,
        heads=heads,
        effect_together=together,
        warnings=warnings,
    )


def _with_effects(
    model: Model,
    tokens: Sequence[Token],
    request: SearchRequest,
    ends: Sequence[Sequence[int]],
    heads: Sequence[FoundHead],
    cutting: CutOptions,
) -> tuple[list[FoundHead], float | None]:
    """The heads with what cutting the link in each alone changes, and what cutting it in all of
    them does.
    """
    selection = HeadSelection(request.layers, request.heads)
    link = CutLink(tuple(ends[0]), tuple(ends[1]))
    removal = remove(
        model,
        tokens,
        Removal(selection, link=link, baseline="none"),
        MeasureRequest(("vector",), link.queries, link.queries[-1]),
        memory=cutting.memory,
        progress=cutting.progress,
    )
    cosines = {
        (effect.place.layer, effect.place.head): _finite_or_none(effect.readings["cosine"])
        for effect in removal.effects
    }
    with_effect = [replace(head, effect=cosines.get((head.layer, head.head))) for head in heads]
    return with_effect, _finite_or_none(removal.together["cosine"])


def _finite_or_none(value: float) -> float | None:
    """The number, or None for NaN, for which JSON has no word."""
    return None if np.isnan(value) else value


def _tokens_of_word(words: Words | None, word: int) -> range:
    """The indices of the tokens that make a word; without words each token is one."""
    if words is None:
        return range(word, word + 1)
    return range(int(words.starts[word]), int(words.starts[word] + words.sizes[word]))


def _word_row(
    query_rows: _QueryRows, queries: Sequence[int], words: Words | None
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The weights of one token, or of a word, and which keys it sees, both [head, key]: the mean
    over its pieces, keys summed by word."""
    row, visibility = (
        np.stack([rows[query] for query in queries], 1)
        for rows in (query_rows.rows, query_rows.visibility)
    )
    if words is None:
        return row[:, 0], visibility[:, 0]
    looking = np.maximum((row.sum(-1) > 0).sum(-1), 1)[:, None]
    word_visibility: np.ndarray[Any, Any] = (
        np.add.reduceat(visibility.any(1), words.starts, axis=-1) > 0
    )
    return np.add.reduceat(row, words.starts, axis=-1).sum(1) / looking, word_visibility


def _ranked_key(
    row: np.ndarray[Any, Any], visibility: np.ndarray[Any, Any], key: int
) -> dict[str, Any]:
    """What a row [key] has for one key, as the document's fields: its weight and rank, the keys
    seen and the first.
    """
    weight = float(row[key])
    top = int(np.argmax(row))
    if visibility[key]:
        rank = int((row > weight).sum()) + 1
    else:
        rank = None
    top_key = top if row[top] > 0 else None
    return {"weight": weight, "rank": rank, "visible": int(visibility.sum()), "top_key": top_key}
