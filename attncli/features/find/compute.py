"""The document of `attn find`: which heads send one token to another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from attncli.arrays.backend import EVERY, Selection, numbers_of
from attncli.documents import RegionRow
from attncli.documents.header import header, notes, overflow
from attncli.errors import InputError, UsageError
from attncli.features.effects.ablation import Removal, remove
from attncli.features.effects.document import Difference
from attncli.features.effects.measures import MeasureRequest
from attncli.features.effects.places import reads_on
from attncli.features.effects.sweep import CutLink
from attncli.features.effects.targets import choose_target, refuse_one_token, target_token
from attncli.features.find.document import (
    BeyondRest,
    FindDocument,
    FoundHead,
    OtherKey,
    Reverse,
    VerifiedLink,
    counted_weight,
)
from attncli.features.run.compute import RunRequest, cost
from attncli.inputs.regions import Region, region_span, word_regions
from attncli.inputs.token import Token, choose_span, find_span, ignore
from attncli.inputs.word_groups import Words, join_words, merged_words
from attncli.language import message
from attncli.measure.rest import Bools, Floats, resting_keys, word_in_front
from attncli.measure.row_stream import share
from attncli.mechanism.attend import RowBlock
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.spec import HeadSelection
from attncli.mechanism.trace import LayerTrace
from attncli.models.estimate import CostEstimate, free_memory
from attncli.models.model import Model
from attncli.models.run import LONG, no_output_head, rows_for

if TYPE_CHECKING:
    from attncli.features.cross.document import CrossDocument
    from attncli.measure.run_record import Recording  # only a page needs it


class SourceText(Struct, frozen=True):
    """What a decoder's encoder has read, beside the decoder's own text: a text and its tokens."""

    text: str
    tokens: Sequence[Token]


class SourceLink(Struct, frozen=True):
    """A link that may lead from a decoder's own text to what its encoder has read.

    tokens: those of the text.
    start, ends: the names of the query and the keys.
    words: whether pieces are merged to words on both sides.
    """

    source: SourceText
    text: str
    tokens: Sequence[Token]
    start: str
    ends: Sequence[str]
    words: bool = False

    def key_in_source(self) -> str | None:
        """The first key that is in the source and not in the text; None where all are in the text,
        or in neither. Raises InputError where the query is in the source alone."""
        from attncli.features.cross.compute import on_other_side

        if self._is_in_source(self.start):
            raise on_other_side(self.tokens, self.start, is_query=True)
        for end in self.ends:
            if self._is_in_source(end):
                return end
        return None

    def _is_in_source(self, name: str) -> bool:
        """Whether a name is of a token or word of the source, and of none of the text."""
        in_text = self._is_there(self.tokens, self.text, name)
        return not in_text and self._is_there(self.source.tokens, self.source.text, name)

    def _is_there(self, side: Sequence[Token], side_text: str, name: str) -> bool:
        """Whether a name is that of one of these tokens or, where pieces are merged, of their
        words."""
        tokens = merged_words(side, side_text).words if self.words else side
        try:
            find_span(tokens, name)
        except InputError:
            return False
        return True


def find_in_source(
    model: Model,
    link: SourceLink,
    *,
    layers: Selection = EVERY,
    heads: Selection = EVERY,
    top: int = 10,
    note: Callable[[str], None] = ignore,
) -> CrossDocument:
    """Find the heads of cross-attention that send a token of the source to one of the text: every
    head, the largest weight first.

    Args:
        model: A decoder that reads a source, as `Model.decoder` returns it.
        link: Its ends, the text and the source; of its keys the first is looked for.
        layers, heads: Which layers, and which heads of each.
        top: How many links the document holds.
        note: Called with a sentence that says what an ambiguous name was read as.

    Returns:
        The document of `attn cross` with `key_heads`.

    Raises:
        InputError: For tokens that are not there.
    """
    from attncli.features.cross.compute import cross
    from attncli.measure.run_record import CrossTexts

    assert model.encoder is not None
    return cross(
        model.encoder,
        link.text,
        link.source.text,
        layers=layers,
        heads=heads,
        top=top,
        texts=CrossTexts(link.text, link.source.text, link.tokens, link.source.tokens),
        words=link.words,
        query=link.start,
        key=link.ends[0],
        note=note,
    )


class SearchRequest(Struct, frozen=True):
    """What to look for: the weight from the query `start` to the key `end`, in these layers and
    heads.

    others: further keys, whose weights the document has beside it.
    verify: whether the text also runs with another word in front, in whose place the first token is
        then.
    """

    start: int
    end: int
    layers: Selection = EVERY
    heads: Selection = EVERY
    verify: bool = False
    others: tuple[int, ...] = ()


class CutOptions(Struct, frozen=True):
    """How the effect of cutting the link is measured.

    memory: bytes there may be.
    progress: called with the share done.
    entries: the vocabulary ids of target and versus, whose logits' difference is measured as well;
        None for neither.
    """

    memory: int
    progress: Callable[[float], None]
    entries: tuple[int, int] | None = None


class _QueryRows:
    """Collects, from the blocks in which a layer's attention is computed, the rows of a few queries.

    queries: their positions.
    keys: how many tokens the text has.
    rows: attention weights by query, [head, key].
    visibility: which keys the mask shows, by query, [head, key].
    """

    def __init__(self, model: Model, queries: Sequence[int], keys: int) -> None:
        self._model = model
        self._queries = queries
        self._keys = keys
        self.rows: dict[int, np.ndarray[Any, Any]] = {}
        self.visibility: dict[int, np.ndarray[Any, Any]] = {}

    def on_block(self, layer: int, kind: str, block: RowBlock) -> None:
        """Store the weights and the visibility of the chosen queries from one block of rows of a
        layer's self-attention.

        kind: "self", or "cross" for attention to another text, which is passed over.
        block: the queries start..stop−1 over the keys low..high−1; its weights are
            [head, query, key].
        """
        if kind != "self":
            return
        backend = self._model.backend
        head_count = self._model.spec.blocks[layer].attention.heads
        high = min(block.high, self._keys)  # learned keys stand after the tokens
        key_count = high - block.low
        for query in self._queries:
            if not block.start <= query < block.stop:
                continue
            if query not in self.rows:
                self.rows[query] = np.zeros((head_count, self._keys))
                self.visibility[query] = np.zeros((head_count, self._keys), np.bool_)
            row = query - block.start
            weights = backend.numpy(block.stages["weights"][..., row, :key_count])
            # a block may hold some heads only
            heads = slice(block.first_head, block.first_head + len(weights))
            self.rows[query][heads, block.low : high] = weights
            visible: np.ndarray[Any, Any] | bool = True
            if block.visibility is not None:
                # one row of visibility may stand for all rows of the block
                visible_row = min(row, block.visibility.shape[-2] - 1)
                visible = backend.numpy(block.visibility[..., visible_row, :])[..., :key_count]
            self.visibility[query][heads, block.low : high] = visible

    def merge_row(self, queries: Sequence[int], words: Words | None, rest: Bools) -> MergedRow:
        """The row of one token, or of a word: the mean over its pieces, keys summed by word.

        Args:
            queries: The tokens that look.
            words: The words of the text; None where each token is one.
            rest: Which tokens are resting keys (the first token and special tokens, on which heads
                put weight when they look for nothing), booleans [key].
        """
        rows = np.stack([self.rows[query] for query in queries], 1)  # [head, query, key]
        is_visible = np.stack([self.visibility[query] for query in queries], 1)
        rows_beyond = np.where(rest, 0.0, rows)
        # the mean is over pieces that see something; where none does, sums of 0 are divided by 1
        looking = np.maximum((rows.sum(-1) > 0).sum(-1), 1)[:, None]
        sees = np.asarray(is_visible.any(1), bool)
        sees_beyond = sees & ~rest
        if words is not None:
            rows = np.add.reduceat(rows, words.starts, axis=-1)
            rows_beyond = np.add.reduceat(rows_beyond, words.starts, axis=-1)
            sees = np.logical_or.reduceat(sees, words.starts, axis=-1)
            sees_beyond = np.logical_or.reduceat(sees_beyond, words.starts, axis=-1)
        return MergedRow(
            weights=rows.sum(1) / looking,
            visible=sees,
            beyond=rows_beyond.sum(1) / looking,
            visible_beyond=sees_beyond,
            partly=_words_partly_at_rest(words, rest),
        )


class MergedRow(NamedTuple):
    """What a query looks at in each head of a layer, [head, key]; a key is a token or a word.

    Resting keys are the first token and special tokens, on which heads put weight when they look
    for nothing.

    weights: to each key.
    visible: whether it is visible.
    beyond: the weight on its tokens that are no resting keys.
    visible_beyond: whether such a token of it is visible.
    partly: which keys hold both resting keys and other tokens, [key].
    """

    weights: Floats
    visible: Bools
    beyond: Floats
    visible_beyond: Bools
    partly: Bools

    def ranked_key(self, head: int, key: int) -> dict[str, Any]:
        """What a head's row has for one key, as the document's fields: its weight and rank, how many
        keys the query sees, and the key of the largest weight.
        """
        row = self.weights[head]
        rank, top_key = _rank_of_key(row, self.visible[head], key)
        return {
            "weight": float(row[key]),
            "rank": rank,
            "visible": int(self.visible[head].sum()),
            "top_key": top_key,
        }

    def other_key(self, head: int, key: int) -> OtherKey:
        """A head's weight for a further key, beside the one asked for first, as the document's
        fields; without resting keys where the key holds other tokens, too.
        """
        row = self.weights[head]
        visible = self.visible[head]
        whole: float | UnsetType = UNSET
        if self.partly[key]:
            whole = float(row[key])
            row = self.beyond[head]
            visible = self.visible_beyond[head]
        rank, _ = _rank_of_key(row, visible, key)
        return OtherKey(weight=float(row[key]), rank=rank, whole=whole)

    def beyond_rest(self, head: int, key: int) -> BeyondRest:
        """What a head's row has for one key if resting keys (the first token and special tokens)
        are left out, as the document's fields: the key's share of the other weight, its rank, how
        many keys are seen, and the first."""
        row = self.beyond[head]
        rank, top_key = _rank_of_key(row, self.visible_beyond[head], key)
        total = float(row.sum())
        weight: float | UnsetType = UNSET
        if self.partly[key]:
            weight = float(row[key])
        share = None
        if rank is not None and total > 0:
            share = float(row[key]) / total
        return BeyondRest(
            weight=weight,
            share=share,
            rank=rank,
            visible=int(self.visible_beyond[head].sum()),
            top_key=top_key,
        )


def _rank_of_key(row: Floats, visible: Bools, key: int) -> tuple[int | None, int | None]:
    """The rank of a key in a row of weights, [key], from 1, None where it is not visible; and the
    key of the largest weight, None where all weights are 0."""
    rank = None
    if visible[key]:
        rank = int((row > row[key]).sum()) + 1
    top_key = int(np.argmax(row))
    if row[top_key] > 0:
        return rank, top_key
    return rank, None


@checked
def find(
    model: Model,
    text: str,
    query: str,
    key: str | Sequence[str],
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
    verify: bool = False,
    target: str | None = None,
    versus: str | None = None,
) -> FindDocument:
    """Find the heads that send one token to another: every head, the largest weight first.

    Args:
        model: As `attncli.load` returns it.
        text: What runs.
        query: The token that looks: "it", "the:2" (its second occurrence), "#7", or several in a
            row.
        key: The token that is looked at. Several: heads are ranked by the first, and what they give
            the others stands beside it.
        layers: Which layers: a number, several, or a text such as "0,2-5"; see `HeadSelection`.
        heads: Which heads of each: 11, [0, 3], "2-5"; or heads with their layers, "L5H11" or
            (5, 11); see `HeadSelection`.
        words: Whether pieces are merged to words first: weights to a word are summed, from a word
            averaged.
        unknown: Whether the tokens may be such as the model does not know.
        effect: Whether also to measure what cutting the link in each head changes.
        regions: Named sets of tokens, which `query` and `key` may name.
        memory: Bytes that cutting may take; None for what is free.
        tokens: Those of the text; None to let the model's tokenizer find them.
        note: Called with a sentence that says what an ambiguous name was read as.
        on_cost: Called before the run starts, with its estimated cost and the number of tokens.
        progress: Called with the share done, 0 to 1.
        recording: Records the heads of the run, for a page.
        verify: Whether the text also runs with another word in front: a head that looks at the first
            token of any text looks at that word then, and not at the key.
        target: With `effect`, a vocabulary entry or "id:N": it is also measured what its logit less
            that of `versus` loses, after the last token.
        versus: The entry whose logit is taken away.

    Returns:
        What `attn find --json` writes.

    Raises:
        UsageError: For two names that share tokens, without a key, and for a key asked for twice.
        InputError: For tokens, layers or heads that are not there, and where no head has finite
            weights.
    """

    # the tokens or words that the names stand for, several in a row joined to one
    keys = _key_names(key)
    if tokens is None:
        tokens = model.encode(text)
    merged_tokens = None
    named_tokens = tokens
    if words:
        merged_tokens = merged_words(tokens, text)
        named_tokens = merged_tokens.words
        regions = word_regions(regions, merged_tokens.starts.tolist())
    # by name the first position and the one after the last: a region's before a token's
    spans = {
        reference: (
            region_span(regions, reference, note)
            or choose_span(named_tokens, reference, note, unknown=unknown)
        )
        for reference in dict.fromkeys((query, *keys))
    }
    _check_keys_differ(keys, spans)
    joined_spans = [span for span in dict.fromkeys(spans.values()) if span[1] - span[0] > 1]
    if joined_spans:
        _check_apart(spans)
        merged_tokens = join_words(tokens, text, joined_spans, merged_tokens)
    # joining tokens before them moves the places of those after
    places = {
        reference: first - sum(stop - start - 1 for start, stop in joined_spans if start < first)
        for reference, (first, _) in spans.items()
    }

    # the cost, before anything runs
    run_request = RunRequest(layers, heads, matrices=False)
    rows = rows_for(model.spec, len(tokens))
    last_rows = None  # how many rows the last layer computes: of a long text the ends' own alone
    if len(tokens) > LONG and recording is None and not effect:
        query_rows = sum(stop - start for start, stop in set(spans.values()))
        last_rows = min(query_rows, len(tokens))
    expected_cost = cost(
        model, len(tokens), run_request, is_saved=False, rows=rows, last_rows=last_rows
    )
    on_cost(expected_cost, len(tokens))

    # the search; where links are cut, that takes longest, and progress is of it alone
    cutting = None
    search_progress: Callable[[float], None] | None = progress
    if effect:
        search_progress = None
        entries = _measured_entries(model, tokens, target, versus, note)
        if memory is None:
            memory = free_memory().bytes
        cutting = CutOptions(memory, progress, entries)
    first_key, *other_keys = (places[name] for name in keys)
    search = SearchRequest(
        start=places[query],
        end=first_key,
        layers=layers,
        heads=heads,
        verify=verify,
        others=tuple(other_keys),
    )
    document = _found_heads(
        model,
        text,
        tokens,
        search,
        words=merged_tokens,
        cutting=cutting,
        progress=search_progress,
        recording=recording,
    )
    ends = _ends_in_regions(places, regions)
    return replace(document, regions=ends or UNSET)


def _ends_in_regions(places: Mapping[str, int], regions: Sequence[Region]) -> list[RegionRow]:
    """The ends of a link that are named by a region, as rows of the document.

    places: the position of each end by name, as one token or word.
    """
    names = {region.name for region in regions}
    return [RegionRow(name=name, tokens=[place]) for name, place in places.items() if name in names]


def _check_apart(spans: Mapping[str, tuple[int, int]]) -> None:
    """Raise UsageError where two names share tokens and do not name the same ones.

    spans: by name, in the order in which they were given, the first token and the one after the
        last.
    """
    by_position = sorted(spans, key=lambda name: spans[name])
    for left, right in pairwise(by_position):
        _, left_stop = spans[left]
        right_start, _ = spans[right]
        if spans[left] != spans[right] and left_stop > right_start:
            # the error names them in the order in which they were given
            given_order = list(spans)
            first, second = sorted((left, right), key=given_order.index)
            raise UsageError(
                "{first} and {second} share tokens",
                expected=message("two that do not, or the same twice"),
                first=repr(first),
                second=repr(second),
            )


def _key_names(key: str | Sequence[str]) -> list[str]:
    """The names of the keys as a list, in the order in which they were given. Raises UsageError for
    an empty one."""
    if isinstance(key, str):
        return [key]
    if not key:
        raise UsageError("no key is named", expected="at least one token that is looked at")
    return list(key)


def _check_keys_differ(keys: Sequence[str], spans: Mapping[str, tuple[int, int]]) -> None:
    """Raise UsageError where two keys name the same tokens.

    spans: by name, the first token and the one after the last.
    """
    names: dict[tuple[int, int], str] = {}
    for key in keys:
        span = spans[key]
        if span in names:
            raise UsageError(
                "{first} and {second} name the same token",
                expected=message("keys that differ"),
                first=repr(names[span]),
                second=repr(key),
            )
        names[span] = key


def _found_heads(
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
    """Run a text and return its `attn.find/1` document: every head, the largest weight from the query
    to the key first; ties by layer and head. Resting keys (the first token and special tokens) do
    not count in that order where the key is a word that holds other tokens, too.

    words: what pieces are merged to; the request's ends are words then. None for tokens.
    cutting: how the effect of cutting the link is measured; None where it is not.
    progress: called with the share done of a long text.
    recording: records the heads of the run, for a page.

    Heads whose numbers left the range of their type are left out, and warnings name them. Raises
    InputError where no other is left.
    """
    ends = [list(_tokens_of_word(words, word)) for word in (request.start, request.end)]
    rest = resting_keys(tokens, model.identity.source)
    link_ends = LinkEnds(ends, words, rest)
    warnings = notes(model, text, tokens)
    half = None  # with `--verify` this run is the first half of the work
    if progress is not None:
        half = partial(_progress_of_half, progress, request.verify)
    heads: list[FoundHead] = []
    for trace, rows in _rows_by_layer(model, tokens, request, link_ends, half, recording):
        warnings += overflow(model.backend, trace)
        forward, back = (rows.merge_row(side, words, rest) for side in ends)
        for head in numbers_of(request.heads, forward.weights.shape[0]):
            if np.isnan((forward.weights[head], back.weights[head])).any():
                continue
            link = forward.ranked_key(head, request.end)
            beyond: BeyondRest | UnsetType = UNSET
            beyond_back: BeyondRest | UnsetType = UNSET
            if rest.any():
                beyond = forward.beyond_rest(head, request.end)
                beyond_back = back.beyond_rest(head, request.start)
            reverse = Reverse(**back.ranked_key(head, request.start), beyond_rest=beyond_back)
            others = [forward.other_key(head, key) for key in request.others]
            heads.append(
                FoundHead(
                    layer=trace.layer,
                    head=head,
                    **link,
                    reverse=reverse,
                    beyond_rest=beyond,
                    others=others or UNSET,
                )
            )
    if not heads:
        expected = message("numbers that their type can hold")
        raise InputError(
            "no head has weights that are finite numbers", expected=expected, hint="--dtype float64"
        )

    # further runs: with another word in front, and with the link cut
    word_before: str | UnsetType = UNSET
    if request.verify:
        second_half = None
        if progress is not None:
            second_half = partial(_progress_of_second_half, progress)
        word_before, heads = _with_word_before(
            model, text, tokens, request, link_ends, heads, second_half
        )
    cut_members: dict[str, Any] = {}
    if cutting is not None:
        heads, cut_members = _with_effects(model, tokens, request, ends, heads, cutting)
    heads.sort(key=lambda row: (-counted_weight(row), row.layer, row.head))
    return FindDocument(
        **header(model, text, tokens, words),
        query=request.start,
        key=request.end,
        other_keys=list(request.others) or UNSET,
        words=words is not None,
        heads=heads,
        **cut_members,
        rest=np.flatnonzero(_words_at_rest(words, rest)).tolist() if rest.any() else UNSET,
        word_before=word_before,
        warnings=warnings,
    )


def _progress_of_half(progress: Callable[[float], None], has_second: bool, share: float) -> None:
    """Call `progress` with the share of the whole work for a share of this run, which is half of
    the work where a second run follows."""
    if has_second:
        progress(share / 2)
    else:
        progress(share)


def _progress_of_second_half(progress: Callable[[float], None], share: float) -> None:
    """Call `progress` with the share of the whole work for a share of the second of two runs."""
    progress(0.5 + share / 2)


class LinkEnds(NamedTuple):
    """A link between words of a text.

    tokens: the positions of the query's tokens, and of the key's.
    merged: the words of the text; None where each token is one.
    rest: which tokens are resting keys (the first token and special tokens, on which heads put
        weight when they look for nothing), booleans [key].
    """

    tokens: Sequence[Sequence[int]]
    merged: Words | None
    rest: Bools


def _rows_by_layer(
    model: Model,
    tokens: Sequence[Token],
    request: SearchRequest,
    ends: LinkEnds,
    progress: Callable[[float], None] | None,
    recording: Recording | None = None,
) -> Iterator[tuple[LayerTrace, _QueryRows]]:
    """Run a text and yield each layer's trace with the rows of the link's two ends.

    progress: called with the share done; None for nobody.
    recording: records the heads of the run, for a page; every row is computed then.
    """
    queries = sorted({*ends.tokens[0], *ends.tokens[1]})
    layers = model.spec.attending(request.layers)
    end_rows = {layer: _QueryRows(model, queries, len(tokens)) for layer in layers}

    def on_block(layer: int, kind: str, block: RowBlock) -> None:
        """Called with each block of query rows: keep the rows of the link's two ends, and report the
        share that is done.

        kind: "self", or "cross" for attention to another text.
        """
        end_rows[layer].on_block(layer, kind, block)
        if progress is not None and kind == "self":
            layer_share = share(block, model.spec.blocks[layer].attention.heads, len(tokens))
            progress((layer + layer_share) / (max(layers) + 1))

    rows = rows_for(model.spec, len(tokens))
    last_queries = None
    if recording is not None:  # a page shows every row
        traces: Iterable[LayerTrace] = recording.trace(
            tokens, layers=request.layers, keep=("weights",), rows=rows, on_block=on_block
        )
    else:
        # of a long text the last layer computes the rows of these queries alone
        if len(tokens) > LONG:
            last_queries = queries
        traces = model.trace(
            tokens,
            layers=request.layers,
            keep=("weights",),
            rows=rows,
            on_block=on_block,
            last_queries=last_queries,
        )
    for trace in traces:
        if last_queries is not None and trace.layer == max(layers):
            trace = _trace_of_queries(trace, last_queries)
        yield trace, end_rows.pop(trace.layer)


def _trace_of_queries(trace: LayerTrace, queries: Sequence[int]) -> LayerTrace:
    """The trace with the mixed values of these queries alone: those of the other queries are 0,
    as they were not computed, and no warning on overflow is to count them."""
    mixed = trace.stages["mixed"][..., list(queries), :]
    return replace(trace, stages={**trace.stages, "mixed": mixed})


def _with_word_before(
    model: Model,
    text: str,
    tokens: Sequence[Token],
    request: SearchRequest,
    ends: LinkEnds,
    heads: Sequence[FoundHead],
    progress: Callable[[float], None] | None,
) -> tuple[str, list[FoundHead]]:
    """Run the text again with another word in front. Returns that word, and the heads with the
    link's weight in this run.

    progress: called with the share done of this run; None for nobody.
    """
    front = word_in_front(model.tokenizer, text, tokens)
    words = None
    if ends.merged is not None:
        words = front.moved_words(ends.merged)

    # the link's new positions; the first token of a word tells its position among the words
    sides = [[front.new_index(token) for token in side] for side in ends.tokens]
    rest = resting_keys(front.tokens, model.identity.source)
    if words is None:
        key = sides[1][0]
    else:
        key = int(np.searchsorted(words.starts, sides[1][0]))
    moved = LinkEnds(sides, words, rest)

    verified: dict[tuple[int, int], VerifiedLink] = {}
    for trace, rows in _rows_by_layer(model, front.tokens, request, moved, progress):
        row = rows.merge_row(sides[0], words, rest)
        for head in numbers_of(request.heads, row.weights.shape[0]):
            link = row.ranked_key(head, key)
            verified[trace.layer, head] = VerifiedLink(
                weight=link["weight"], rank=link["rank"], beyond_rest=row.beyond_rest(head, key)
            )
    return front.word, [replace(head, verified=verified[head.layer, head.head]) for head in heads]


def _words_at_rest(words: Words | None, rest: Bools) -> Bools:
    """Which words consist of resting keys alone, [word]; without words, which tokens are resting
    keys, as `rest` says.

    words: the words that tokens are merged to; None for none.
    rest: which tokens are resting keys (the first token and special tokens, on which heads put
        weight when they look for nothing), [token].
    """
    if words is None:
        return rest
    whole: Bools = np.logical_and.reduceat(rest, words.starts)
    return whole


def _words_partly_at_rest(words: Words | None, rest: Bools) -> Bools:
    """Which words hold both resting keys and other tokens, [word]; without words, no token does.

    words: the words that tokens are merged to; None for none.
    rest: which tokens are resting keys (the first token and special tokens, on which heads put
        weight when they look for nothing), [token].
    """
    if words is None:
        return np.zeros_like(rest)
    has_resting_key: Bools = np.logical_or.reduceat(rest, words.starts)
    return has_resting_key & ~_words_at_rest(words, rest)


def _with_effects(
    model: Model,
    tokens: Sequence[Token],
    request: SearchRequest,
    ends: Sequence[Sequence[int]],
    heads: Sequence[FoundHead],
    cutting: CutOptions,
) -> tuple[list[FoundHead], dict[str, Any]]:
    """Cut the link in each head alone, and in all heads at once. Returns the heads with what
    cutting changes (`effect`: how far the query's vector turns, 1 − cosine), and the members of the
    document on cutting all.

    ends: the queries and the keys of the link.
    """
    # the query's vector is measured and, with two vocabulary entries, their logits' difference
    selection = HeadSelection(request.layers, request.heads)
    link = CutLink(tuple(ends[0]), tuple(ends[1]))
    measuring = MeasureRequest(("vector",), positions=link.queries, position=link.queries[-1])
    if cutting.entries is not None:
        target, versus = cutting.entries
        last = len(tokens) - 1
        measuring = MeasureRequest(
            ("vector", "difference"),
            positions=link.queries,
            position=last,
            target=target,
            versus=versus,
        )
    removal = remove(
        model,
        tokens,
        Removal(selection, link=link, baseline="none"),
        measuring,
        memory=cutting.memory,
        progress=cutting.progress,
    )
    readings = {
        (effect.place.layer, effect.place.head): effect.readings for effect in removal.effects
    }
    with_effect = [_with_readings(head, readings.get((head.layer, head.head))) for head in heads]
    members: dict[str, Any] = {"effect_together": _none_for_nan(removal.together["cosine"])}
    if cutting.entries is not None:
        target, versus = cutting.entries
        members["target"] = target_token(model, target)
        members["versus"] = target_token(model, versus)
        members["difference_together"] = Difference(
            all=_none_for_nan(removal.together["difference"])
        )
    return with_effect, members


def _with_readings(head: FoundHead, readings: Mapping[str, float] | None) -> FoundHead:
    """A head with what cutting the link in it changes; `effect` is None where that was not
    measured.

    readings: the change by measure, "cosine" and perhaps "difference".
    """
    if readings is None:
        return replace(head, effect=None)
    changed = replace(head, effect=_none_for_nan(readings["cosine"]))
    if "difference" not in readings:
        return changed
    return replace(changed, difference=Difference(all=_none_for_nan(readings["difference"])))


def _measured_entries(
    model: Model,
    tokens: Sequence[Token],
    target: str | None,
    versus: str | None,
    note: Callable[[str], None],
) -> tuple[int, int] | None:
    """The vocabulary ids of the words `target` and `versus`; None where neither is given.

    note: called with a sentence that says which spelling of a word is taken.

    Raises UsageError for one without the other, UnsupportedError for a model that predicts no next
    token, InputError where both are the same entry.
    """
    if target is None and versus is None:
        return None
    if target is None or versus is None:
        what = message("--target and --versus are measured together")
        raise UsageError(what, expected="both, or neither")
    if model.spec.head is None or not reads_on(model.spec):
        raise no_output_head(model.spec)
    last = len(tokens) - 1
    chosen_target = choose_target(model, tokens, target, position=last, several=False, note=note)
    chosen_versus = choose_target(model, tokens, versus, position=last, several=False, note=note)
    target_id = chosen_target.ids[0]
    versus_id = chosen_versus.ids[0]
    refuse_one_token(target_id, versus_id)
    return target_id, versus_id


def _none_for_nan(value: float) -> float | None:
    """The number, or None for NaN, for which JSON has no word."""
    return None if np.isnan(value) else value


def _tokens_of_word(words: Words | None, word: int) -> range:
    """The indices of the tokens that make a word; without words each token is one."""
    if words is None:
        return range(word, word + 1)
    return range(int(words.starts[word]), int(words.starts[word] + words.sizes[word]))
