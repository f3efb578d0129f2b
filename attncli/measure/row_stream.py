"""Blocks of query rows, as the attention step yields them, streamed to what adds up metrics, links
and maps.

The strongest links are kept while rows go by: which query looks at which key, over layers and
heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
from msgspec.structs import replace

from attncli.arrays.backend import EVERY, Backend, Selection, numbers_of, numpy_backend
from attncli.documents import LeftOutKind, LinkRow, Numbers, TopLink
from attncli.documents.parts import PooledMap, StrongestLink
from attncli.inputs.token import Token
from attncli.measure.rest import is_separator
from attncli.measure.row_facts import (
    Bools,
    Exclusion,
    Floats,
    Ints,
    Sight,
    TokenFacts,
    WeightRows,
    exclusion,
    find_sight,
    portions,
    sight_of_mask,
)
from attncli.mechanism.attend import RowBlock
from attncli.models.model import Model

if TYPE_CHECKING:
    from attncli.inputs.regions import Region
    from attncli.measure.region_sums import RegionShares, RegionSums

# The strongest links of each head, kept while blocks of query rows go by.

AT_ONCE = 2**16
"""Weights looked at together; of a longer row, one row at a time."""


class TopLinks:
    """Collects the `top` strongest links of each head: its largest weights with their query and
    key.

    heads: how many heads there are.
    leave_out: pairs that do not count; None where all do.

    Ties go to the lower query, then the lower key; weights of 0 are no links. Only rows whose
    largest weight beats the last link kept are looked at.
    """

    def __init__(self, heads: int, top: int, leave_out: Exclusion | None = None) -> None:
        self.top = top
        self._leave_out = leave_out
        # of each head the links as (−weight, query, key), so that they sort strongest first
        self._links: list[list[tuple[float, int, int]]] = [[] for _ in range(heads)]

    def add(self, rows: WeightRows, *, first_head: int = 0) -> None:
        """Add rows of heads first_head, first_head + 1, …"""
        heads, count, keys = rows.weights.shape
        if self._leave_out is None:
            has_links = np.ones(count, bool)
        else:
            has_links = ~self._leave_out.queries[rows.i]
        step = max(AT_ONCE // max(keys, 1), 1)  # rows of a portion
        for place in range(heads):
            head = first_head + place

            # only rows whose peak beats the last link kept can have a link to keep; a left-out
            # query has none
            peak = np.where(has_links, rows.peak[place], 0.0)
            candidates = np.flatnonzero(peak > self._least_kept(head))
            # the first row of each portion that has a candidate, each once, ascending
            portion_starts = dict.fromkeys((candidates // step * step).tolist())
            for begin in portion_starts:
                # compared again: the links of the portions before may have raised the bar
                stronger = np.flatnonzero(peak[begin : begin + step] > self._least_kept(head))
                if stronger.size:
                    weights = rows.numpy(rows.weights[place, begin : begin + step])
                    self._add_rows(head, rows, weights[stronger], begin + stronger)

    def _least_kept(self, head: int) -> float:
        """The weight that a new link of this head must exceed to be kept."""
        links = self._links[head]
        if len(links) == self.top:
            negative_weight, _, _ = links[-1]
            return -negative_weight
        return 0.0

    def _add_rows(self, head: int, rows: WeightRows, weights: Floats, row_indices: Ints) -> None:
        """Add the links of some of one head's rows, without left-out pairs.

        rows: the block that they are of; its first key is `rows.low`.
        weights: those of these rows alone, [row, key].
        row_indices: the rows' indices in the block.
        """
        queries = rows.i[row_indices]
        if self._leave_out is not None:
            high = rows.low + weights.shape[1]
            is_left_out = self._leave_out.rows(queries)[:, rows.low : high]
            weights = np.where(is_left_out, 0.0, weights)
        self._keep_strongest(head, queries, weights, weights.max(-1), rows.low)

    def add_whole(self, head: int, weights: Floats, i: Ints, counting: Floats | None) -> None:
        """Add one head's rows of weights over all keys, [row, key], for the query positions i,
        ascending; NaN counts as no link.

        counting: 1 for each pair that counts and 0 for the others, of the weights' type; None where
            all count.
        """
        if counting is None:
            counted_weights = weights
        else:
            counted_weights = weights * counting
        # a row with a NaN has a peak of NaN; weights without any are not copied
        peak = counted_weights.max(-1)
        if np.isnan(peak).any():
            counted_weights = np.nan_to_num(counted_weights)
            peak = counted_weights.max(-1)
        self._keep_strongest(head, i, counted_weights, peak, low=0)

    def _keep_strongest(
        self, head: int, queries: Ints, weights: Floats, peak: Floats, low: int
    ) -> None:
        """Keep the strongest `top` of the links kept so far and those of one head's rows of weights,
        [row, key].

        queries: the rows' positions.
        peak: each row's largest weight.
        low: the first key.
        """
        # each row's peak is the weight of a link, so that the `top` largest peaks alone are `top`
        # links: a weight below the smallest of these is not among the strongest
        least = self._least_of_top(peak)
        least_kept = self._least_kept(head)
        strong_rows = np.flatnonzero((peak >= least) & (peak > least_kept))
        weights = weights[strong_rows]
        queries = queries[strong_rows]
        row, key = np.nonzero((weights >= least) & (weights > least_kept))
        values = weights[row, key]
        if values.size > self.top:
            # only those that may be among the strongest are sorted
            candidates = np.flatnonzero(values >= self._least_of_top(values))
            # stable: of equal weights the first stay first, by query and then by key
            order = np.argsort(-values[candidates], kind="stable")
            strongest = candidates[order[: self.top]]
            row = row[strongest]
            key = key[strongest]
            values = values[strongest]
        # weights with a minus, so that sorting puts the strongest first
        links = self._links[head]
        links += zip((-values).tolist(), queries[row].tolist(), (low + key).tolist(), strict=True)
        links.sort()
        del links[self.top :]

    def _least_of_top(self, weights: Floats) -> float:
        """The smallest of the `top` largest of these weights; −∞ where there are fewer."""
        place = weights.size - self.top
        if 0 <= place < weights.size:
            return float(np.partition(weights, place)[place])
        return -np.inf

    def sorted_links(self) -> list[list[tuple[int, int, float]]]:
        """For each head its links (query, key, weight), strongest first."""
        return [[(query, key, -less) for less, query, key in links] for links in self._links]


LEFT_OUT: Final[tuple[LeftOutKind, ...]] = ("special", "self", "neighbours", "first")
"""What is no news in a trained model: links from or to special tokens, to the query itself, to the
tokens beside it, and to the first token, where heads rest when they have nothing to say."""


def kinds_left_out(tokens: Iterable[Token], *, is_learned: bool) -> tuple[LeftOutKind, ...]:
    """The kinds of links and tokens that are left out of a text's strongest links: `LEFT_OUT` for
    trained weights, with separators where there are any, and for all weights words that the model
    does not know, where there are any.

    is_learned: whether the weights are trained.
    """
    every = list(tokens)
    kinds: list[LeftOutKind] = []
    if is_learned:
        kinds += LEFT_OUT
        if any(map(is_separator, every)):
            kinds.append("separators")
    if any(token.unknown for token in every):
        kinds.append("unknown")
    return tuple(kinds)


class LinkCollector:
    """Collects the `top` strongest links of every head, layer by layer, and from these the
    strongest of all heads together.

    tokens: the keys.
    queries: the query tokens if they are another text's (cross-attention).
    query: the one query whose links are wanted; None where none is chosen.
    leave_out: as `kinds_left_out` has it. Ties go to the lower layer, head, query, key. Rows that
        see nothing have no links.
    """

    def __init__(
        self,
        tokens: Sequence[Token],
        *,
        top: int,
        query: int | None = None,
        leave_out: Sequence[str] = (),
        queries: Sequence[Token] | None = None,
    ) -> None:
        """Collect the strongest links of heads, whose weights are added layer by layer.

        tokens: of the keys.
        top: how many links are kept of each head and of all together.
        query: the only query whose links are wanted; None for all.
        leave_out: kinds of tokens and pairs that do not count, such as "special" or "self".
        queries: the query tokens where they are another text's.
        """
        self.top = top
        self._keys = len(tokens)
        excluded_pairs = exclusion(leave_out, tokens, queries=queries)
        if query is not None:
            # all other queries are left out; the chosen one is not, even if its token is special
            other_queries = np.arange(excluded_pairs.queries.size) != query
            excluded_pairs = replace(excluded_pairs, queries=other_queries)
        self._exclusion = excluded_pairs
        # of each layer added: its number, its heads and the collector of their links
        self._layers: list[tuple[int, Sequence[int], TopLinks]] = []
        # the mask last made by `_counted_pairs`, behind the queries and the type it is for
        self._last: tuple[tuple[int, int, np.dtype[Any]], Floats] | None = None

    def consumer(self, layer: int, heads: Sequence[int]) -> TopLinks:
        """A new `TopLinks` for the rows of one layer's heads, whose links count among those of this
        collector.
        """
        leave_out = None if self._counts_every_pair() else self._exclusion
        collector = TopLinks(len(heads), self.top, leave_out)
        self._layers.append((layer, heads, collector))
        return collector

    def add(
        self, layer: int, heads: Sequence[int], weights: Sequence[Numbers], first: int = 0
    ) -> None:
        """Add a whole layer's weights [query, key], one array per head; keys after the tokens
        (learned keys) are ignored.

        first: the query of the first row.
        """
        collector = self.consumer(layer, heads)
        count = 0  # rows, as many for each head
        if len(heads):
            count = len(weights[0])
        # some rows of all heads at a time, which share the mask of these rows
        for _, row in portions(1, count, self._keys):
            queries = slice(first + row.start, first + row.stop)
            i = np.arange(queries.start, queries.stop)
            for head, matrix in enumerate(weights):
                rows = matrix[row, : self._keys]
                collector.add_whole(head, rows, i, self._counted_pairs(queries, rows.dtype))

    def _counts_every_pair(self) -> bool:
        """Whether no pair and no query is left out."""
        return not self._exclusion.names and not self._exclusion.queries.any()

    def _counted_pairs(self, row: slice, dtype: np.dtype[Any]) -> Floats | None:
        """A mask [query, key] of this type, 1 for pairs that count and 0 for left-out ones; None
        where all count.

        row: the queries.
        """
        if self._counts_every_pair():
            return None
        # every head of every layer asks for the same mask: the last one is kept
        request = (row.start, row.stop, dtype)
        if self._last is None or self._last[0] != request:
            left_out = self._exclusion.rows(np.arange(row.start, row.stop))
            self._last = (request, (~left_out).astype(dtype))
        return self._last[1]

    def overview(self) -> list[StrongestLink]:
        """The strongest link of each head of all layers; its `link` is None for a head without."""
        strongest = []
        for layer, heads, collector in self._layers:
            for head, links in zip(heads, collector.sorted_links(), strict=True):
                link = _top_link(*links[0]) if links else None
                strongest.append(StrongestLink(layer=layer, head=head, link=link))
        return strongest

    def strongest(self) -> list[LinkRow]:
        """The links of all layers and heads together, strongest first, as documents hold them."""
        every = []
        for layer, heads, collector in self._layers:
            for head, links in zip(heads, collector.sorted_links(), strict=True):
                for query, key, weight in links:
                    # tuples that sort by falling weight, then by layer, head, query and key
                    every.append((-weight, layer, head, query, key))
        return [
            LinkRow(layer=layer, head=head, query=query, key=key, weight=-negative_weight)
            for negative_weight, layer, head, query, key in sorted(every)[: self.top]
        ]


def _top_link(query: int, key: int, weight: float) -> TopLink:
    """A link from a query to a key as the `TopLink` of a document."""
    return TopLink(query=query, key=key, weight=weight)


BLOCK_FACTS = ("entropy", "peak")
"""Facts of rows that the attention step knows where it is asked to keep them."""


class Consumer(Protocol):
    """Something that grows row by row and needs no row twice: `Tally`, `TopLinks`, `PooledMaps`."""

    def add(self, rows: WeightRows, *, first_head: int = 0) -> None:
        """Take a block of rows of heads first_head, first_head + 1, …"""


class LayerWatcher(Protocol):
    """Something that wants the rows of every layer: `LinkCollector`, `QueryLinks`."""

    def consumer(self, layer: int, heads: Sequence[int]) -> Consumer:
        """Return the object to which the rows of one layer's heads are added, block by block."""


def select_in_block(block: RowBlock, heads: Sequence[int]) -> tuple[list[int], int]:
    """Which heads of a block are among these head numbers, by index within the block; and how many
    of the numbers belong to heads before the block, which is where the block's first head stands in
    an array of the chosen heads alone."""
    block_heads = range(block.first_head, block.first_head + block.stages["weights"].shape[0])
    local_heads = [head - block_heads.start for head in heads if head in block_heads]
    return local_heads, sum(head < block_heads.start for head in heads)


def block_visibility(backend: Backend, block: RowBlock, local_heads: Sequence[int]) -> Bools | None:
    """Which keys the rows of a block see, booleans [row, key], or [head or 1, row, key] of the
    heads in `local_heads`; None where all are visible."""
    block_booleans = block.visibility
    if block_booleans is None:
        return None
    visibility = backend.numpy(block_booleans)
    if visibility.ndim == 3 and visibility.shape[0] > 1:
        return visibility[local_heads]
    return visibility


class RowFeeder:
    """Hands the blocks of one attention to consumers as `WeightRows`, cut to the chosen heads, to
    keys that are tokens, and without excluded pairs.

    about: what is known of the keys.
    keys: how many keys are tokens; learned keys beyond them are cut off.
    heads: which, in rising order.
    offset: position of query 0.
    exclusion: pairs to leave out before anything is counted.
    """

    def __init__(
        self,
        backend: Backend,
        consumers: Sequence[Consumer],
        about: TokenFacts,
        keys: int,
        *,
        heads: Sequence[int],
        offset: int = 0,
        exclusion: Exclusion | None = None,
    ) -> None:
        """Hand each block of rows of a layer to the same consumers.

        consumers: what each block of rows is handed to.
        about: what is known of the keys' tokens.
        keys: how many keys are tokens; learned keys after them are cut off.
        heads: the numbers of the chosen heads, ascending.
        offset: the position of query 0.
        exclusion: pairs that are left out before anything is counted.
        """
        self._backend = backend
        self._consumers = consumers
        self._about = about
        self._keys = keys
        self._offset = offset
        self._heads = heads
        self._exclusion = exclusion
        # of the last block: the positions of its rows, and which keys they see where the mask alone
        # says so
        self._i: Ints = np.empty(0, np.int64)
        self._shared_sight: Sight | None = None

    def take_layer(self, weights: Floats, visible: Bools) -> None:
        """Take all rows at once: weights [head, query, key] in NumPy, and visibility that
        broadcasts to them.

        visible: which keys each query sees, booleans.
        """
        visibility = np.broadcast_to(visible, weights.shape)
        # slices of heads and of rows, some at a time, as metrics make float64 copies of them
        for head, row in portions(*weights.shape):
            i = np.arange(row.start, row.stop) + self._offset
            sight = find_sight(visibility[head, row], i.size, 0, weights.shape[-1])
            rows = WeightRows(
                numpy_backend("float64"),
                weights[head, row],
                i=i,
                low=0,
                sight=sight,
                about=self._about,
            )
            self._feed(rows, first_head=head.start)

    def on_block(self, block: RowBlock) -> None:
        """Take a block [head, row, key] of the heads first_head, first_head + 1, …"""
        local_heads, first = select_in_block(block, self._heads)
        if not local_heads:
            return
        i = self._positions(block)
        high = min(block.high, self._keys)
        weights = block.stages["weights"]
        facts = {}
        # the attention step's facts are of all the block's keys: no use where learned ones are cut
        if high == block.high:
            facts = {name: block.stages[name] for name in BLOCK_FACTS if name in block.stages}
        if len(local_heads) < weights.shape[0]:  # else no copy is made
            weights = weights[local_heads]
            facts = {name: fact[local_heads] for name, fact in facts.items()}
        if high < block.high:
            weights = weights[..., : high - block.low]

        sight = self._sight_of(block, i, high, local_heads)
        rows = WeightRows(
            self._backend,
            weights,
            i=i,
            low=block.low,
            sight=sight,
            about=self._about,
            facts=facts,
        )
        self._feed(rows, first_head=first)

    def _feed(self, rows: WeightRows, first_head: int) -> None:
        """Hand rows of heads first_head, first_head + 1, … to the consumers, with excluded pairs
        taken out.
        """
        if self._exclusion is not None:
            i = rows.i
            low = rows.low
            high = rows.low + rows.weights.shape[-1]
            weights = self._exclusion.without(rows.numpy(rows.weights), i, low)
            left_out = self._exclusion.rows(i)[:, low:high]
            sight = find_sight(~left_out & rows.sight.visibility_matrix(high), i.size, low, high)
            # without the facts that the attention step computed: these are of all pairs
            rows = WeightRows(numpy_backend("float64"), weights, i, low, sight, self._about)
        for consumer in self._consumers:
            consumer.add(rows, first_head=first_head)

    def _positions(self, block: RowBlock) -> Ints:
        """The positions of a block's rows, [row]; the same array object for the same rows of other
        heads, as consumers keep facts of rows by that object. Also keeps in `_shared_sight` which
        keys these rows see, where the mask alone gives it."""
        first = block.start + self._offset
        stop = block.stop + self._offset
        are_last_rows = self._i.size and (self._i[0], self._i[-1] + 1) == (first, stop)
        if not are_last_rows:
            self._i = np.arange(first, stop)
            self._shared_sight = None
            # not with excluded pairs: `_feed` then needs a `Sight` from the block's first key on,
            # and this one is from key 0
            if block.alone is not None and self._exclusion is None:
                self._shared_sight = sight_of_mask(block.alone, self._i, self._keys)
        return self._i

    def _sight_of(self, block: RowBlock, i: Ints, high: int, local_heads: Sequence[int]) -> Sight:
        """The `Sight` (which keys each row sees) of the rows of a block at positions i, over its keys
        below `high`.

        local_heads: the heads, by index in the block.
        """
        if self._shared_sight is not None:
            return self._shared_sight
        visibility = block_visibility(self._backend, block, local_heads)
        if visibility is not None and visibility.shape[-1] > 1:  # one column stands for all keys
            visibility = visibility[..., : high - block.low]
        return find_sight(visibility, i.size, block.low, high)


def share(block: RowBlock, heads: int, queries: int) -> float:
    """The share of a layer that is done after this block, 0 to 1.

    heads, queries: how many the layer has. Blocks come by rows, and for the same rows head by head.
    """
    heads_done = block.first_head + block.empty.shape[0]  # `empty` is [head, row]
    rows_done = block.start * heads + (block.stop - block.start) * heads_done
    return rows_done / (heads * queries)


# Pooled maps: the weights of heads in at most `side` × `side` cells, built block by block.

SIDE = 256
"""Cells along each side of a map, at most; a shorter text is kept whole."""


class PooledMaps:
    """Collects a small map of each head's weights, [head, query cell, key cell]: each cell is the
    largest weight of `pool` × `pool` pairs.

    With `pool` 1 these are the weights themselves. Memory does not grow with the text.
    offset: position of query 0.
    """

    def __init__(
        self, heads: int, queries: int, keys: int, *, side: int = SIDE, offset: int = 0
    ) -> None:
        """Make empty maps of at most `side` × `side` cells for so many heads, queries and keys.

        offset: the position of query 0.
        """
        self._offset = offset
        self.pool = max(-(-max(queries, keys) // side), 1)  # divided and rounded up
        self.values: Floats = np.zeros((heads, -(-queries // self.pool), -(-keys // self.pool)))

    def add(self, rows: WeightRows, *, first_head: int = 0) -> None:
        """Add the rows of heads first_head, first_head + 1, …"""
        weights = rows.weights
        pool = self.pool
        low = rows.low
        start = int(rows.i[0]) - self._offset
        heads = slice(first_head, first_head + weights.shape[0])
        if not weights.shape[-1]:  # rows that see no key
            return
        high = low + weights.shape[-1]
        if pool == 1:
            row_numbers = slice(start, start + weights.shape[1])
            self.values[heads, row_numbers, low:high] = rows.numpy(weights)
            return

        # `whole_cells`: the keys, from and to, that fill whole cells and are reduced at once; the
        # keys before and after them fill only a part of a cell and are reduced by themselves
        whole_cells = (-(-low // pool) * pool, high // pool * pool)
        if whole_cells[0] >= whole_cells[1]:
            spans = [(low, high)]
        else:
            spans = [(low, whole_cells[0]), whole_cells, (whole_cells[1], high)]
        for first, stop in spans:
            if first >= stop:  # no key before or after the whole cells
                continue
            span_weights = weights[..., first - low : stop - low]
            cells = range(first // pool, (stop - 1) // pool + 1)
            # the largest weight of each cell's keys, [head, row, cell]
            if (first, stop) == whole_cells:
                by_cell = span_weights.reshape((*span_weights.shape[:2], -1, pool))
                maxima = rows.numpy(rows.backend.max(by_cell, -1)[..., 0])
            else:
                cell_maxima = []
                for cell in cells:
                    begin = max(cell * pool - first, 0)
                    cell_weights = span_weights[..., begin : (cell + 1) * pool - first]
                    cell_maxima.append(rows.numpy(rows.backend.max(cell_weights, -1)[..., 0]))
                maxima = np.stack(cell_maxima, -1)
            # each row raises the cells that it belongs to
            for row in range(maxima.shape[1]):
                row_cells = self.values[heads, (start + row) // pool, cells.start : cells.stop]
                np.maximum(row_cells, maxima[:, row], out=row_cells)


# A run too long for n × n: its document from blocks of query rows, with maps pooled and single rows
# kept.

CELLS = 64
"""Cells along a pooled map: more would not fit a terminal."""
STAGES = ("masked", "weights")


class BlockCollector:
    """Takes the blocks of a run and keeps what a document of a long text needs: pooled maps, links,
    one query's rows, and shares of regions.

    count: tokens.
    layers, heads: those asked for.
    query: the query whose rows are kept whole, None for none.
    links: fed with every head's rows.
    progress: called with the share of the run that is done, 0 to 1.
    regions: between which weights are summed; the query, or the last token, by itself too.
    watchers: fed with every head's rows besides.
    rest: the keys on which heads put weight whatever the text says, booleans [key]; None for none.
    """

    def __init__(
        self,
        model: Model,
        count: int,
        links: LinkCollector,
        *,
        layers: Selection = EVERY,
        heads: Selection = EVERY,
        query: int | None = None,
        progress: Callable[[float], None] | None = None,
        regions: Sequence[Region] = (),
        watchers: Sequence[LayerWatcher] = (),
        rest: Bools | None = None,
    ) -> None:
        """Collect what a text's run shows, from its blocks of rows as they are computed.

        count: tokens of the text.
        links: collects the strongest links.
        layers, heads: those that are shown.
        query: the query whose rows are kept whole; None for none.
        progress: called with the share of the run that is done.
        regions: named sets of tokens between which weights are summed.
        watchers: collect from every head's rows, too.
        rest: the keys on which heads put weight whatever the text says, such as the first token,
            booleans [key].
        """
        self._watchers = watchers
        if rest is None:
            self._rest = np.zeros(count, bool)
        else:
            self._rest = rest
        self._model = model
        self._count = count
        self._links = links
        self._regions = regions
        self._sums: RegionSums | None = None
        self._heads = heads
        self._query = query
        self._progress = progress
        # how many layers run: all up to the last one shown
        self._layer_count = 1 + max(model.spec.attending(layers))
        # what is collected of the layer whose blocks come at present; -1 before the first
        self._layer = -1
        self._maps: PooledMaps | None = None
        self._feeder: RowFeeder | None = None
        # the chosen query's row of each stage, "masked" and "weights", [head, key]
        self._row: dict[str, np.ndarray[Any, Any]] = {}

    def select_heads(self, layer: int) -> list[int]:
        """The numbers of the chosen heads of a layer."""
        return numbers_of(self._heads, self._model.spec.blocks[layer].attention.heads)

    def on_block(self, layer: int, kind: str, block: RowBlock) -> None:
        """Take a block of rows of a layer. Blocks of cross-attention are ignored.

        kind: "self", or "cross" for attention to another text.
        """
        if kind != "self":
            return

        # the first block of a layer: new collectors, which replace those of the layer before
        if layer != self._layer:
            heads = self.select_heads(layer)
            self._maps = PooledMaps(len(heads), self._count, self._count, side=CELLS)
            consumers: list[Consumer] = [self._links.consumer(layer, heads), self._maps]
            consumers += [watcher.consumer(layer, heads) for watcher in self._watchers]
            if self._regions:
                from attncli.measure.region_sums import RegionSums  # few runs name regions

                if self._query is None:  # without a chosen query, the last token's row is kept
                    query = self._count - 1
                else:
                    query = self._query
                self._sums = RegionSums(len(heads), self._regions, self._count, query, self._rest)
                consumers.append(self._sums)
            self._feeder = RowFeeder(
                self._model.backend, consumers, TokenFacts(), self._count, heads=heads
            )
            self._layer = layer
            self._row = {}

        assert self._feeder is not None
        self._feeder.on_block(block)
        if self._query is not None and block.start <= self._query < block.stop:
            self._keep_row(block, self._query - block.start)
        if self._progress is not None:
            head_count = self._model.spec.blocks[layer].attention.heads
            self._progress((layer + share(block, head_count, self._count)) / self._layer_count)

    def _keep_row(self, block: RowBlock, row: int) -> None:
        """Copy the chosen query's scores and weights from a block of rows, for the heads in it.

        row: the query's row in the block.
        """
        heads = self.select_heads(self._layer)
        # with what stands for keys that the block leaves out, which are hidden
        for name, hidden in (("masked", -np.inf), ("weights", 0.0)):
            stage_row = self._model.backend.numpy(block.stages[name][:, row, :])
            if name not in self._row:
                # learned keys stand after the tokens, and every block has them
                width = max(self._count, block.high)
                self._row[name] = np.full((len(heads), width), hidden, stage_row.dtype)
            for place, head in enumerate(heads):
                index = head - block.first_head  # within the block, which may hold some heads only
                if 0 <= index < len(stage_row):
                    self._row[name][place, block.low : block.high] = stage_row[index]

    def maps(self) -> list[PooledMap]:
        """The pooled maps of the last layer: each cell is the largest of `pool` × `pool` weights;
        [] where there are none."""
        if self._maps is None:
            return []
        pooled = self._maps
        return [
            PooledMap(layer=self._layer, head=head, pool=pooled.pool, weights=values)
            for head, values in zip(self.select_heads(self._layer), pooled.values, strict=True)
        ]

    def region_shares(self) -> RegionShares | None:
        """How the weights of the last layer's heads are shared out between regions; None without
        regions."""
        if self._sums is None:
            return None
        return self._sums.shares()

    def row(self) -> dict[str, np.ndarray[Any, Any]]:
        """The chosen query's scores ("masked") and weights in the last layer, each [head, 1, key];
        empty without a chosen query."""
        return {name: row[:, None, :] for name, row in self._row.items()}
