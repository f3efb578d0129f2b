"""The screen of `attn.run/1`: what ran, tokens, shapes, scores, weights, output, links; maps of
several heads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from attncli.documents import ShapeRow, TopLink
from attncli.documents.parts import PooledMap, RunHead, RunLayer
from attncli.draw.lines import (
    Lines,
    draw_parts,
    fit_to_view,
    heading,
    localize,
    remark,
    sentences,
    stack,
    stack_spaced,
)
from attncli.draw.numbers import percent
from attncli.draw.safe import safe, spell
from attncli.draw.screen_header import header, shown_tokens
from attncli.draw.sentence import left_out_note
from attncli.draw.shaded_matrix import (
    ROWS,
    NDArray,
    as_matrix,
    draw_grid,
    head_grid,
    matrix,
    visible,
)
from attncli.draw.tables import layer_and_head, links, table, vectors
from attncli.draw.token_names import key_names, quote_text, with_word
from attncli.draw.view import Parts, ScreenPart, View, never
from attncli.features.run.document import RunDocument
from attncli.features.run.run_answer import run_answer
from attncli.features.run.run_answer import run_sentences as word_sentences
from attncli.features.run.stage_tables import stage_part
from attncli.language import Message, choice, contextual, listing, message, plural, say, term
from attncli.mechanism.spec import spoken_head

if TYPE_CHECKING:
    from attncli.draw.heatmap import Map
    from attncli.features.cross.document import CrossHead

# The table of `attn.run/1` for `--plain`: a line for each pair of query and key.


def run_rows(document: RunDocument) -> Iterator[Sequence[object]]:
    """Every pair of query and key as a table for `--plain`, its first row the names of the columns;
    masked scores are empty.

    Of a document without matrices, the links in the same columns, without scores; of one with
    regions, a line for each.
    """
    # regions
    if document.region_shares is not UNSET and document.regions is not UNSET:
        yield ("region", "tokens", "share", "even")
        shares = document.region_shares
        for region, share, even in zip(document.regions, shares.share, shares.even, strict=True):
            numbers = [float(value) if np.isfinite(value) else None for value in (share, even)]
            yield (region.name, len(region.tokens), *numbers)
        return

    # links
    texts = [token.text for token in document.tokens]
    head_weights = [
        (layer, head, head.weights)
        for layer, head in heads_of(document)
        if head.weights is not UNSET
    ]
    if not head_weights:
        yield ("layer", "head", "query", "key", "query_text", "key_text", "weight")
        for link in document.links:
            query_index = link.query
            key = link.key
            yield (
                link.layer,
                link.head,
                query_index,
                key,
                texts[query_index],
                texts[key],
                link.weight,
            )
        return

    # pairs
    yield ("layer", "head", "query", "key", "query_text", "key_text", "score", "weight")
    positions = document.queries or range(len(texts))
    for layer, head, head_rows in head_weights:
        keys = key_names(texts, head_rows)
        score_rows: Iterable[Iterable[object]]
        if head.scores is UNSET:  # words have no scores
            score_rows = [[None] * len(keys)] * len(head_rows)
        else:
            score_rows = head.scores
        for query, scores, weights in zip(positions, score_rows, head_rows, strict=True):
            for key, (score, weight) in enumerate(zip(scores, weights, strict=True)):
                yield (layer, head.head, query, key, texts[query], keys[key], score, weight)


def heads_of(document: RunDocument) -> list[tuple[int, RunHead]]:
    """Every head of the document with its layer."""
    return [(layer.layer, head) for layer in document.layers for head in layer.heads]


# Parts of a run's screen that look over all layers and heads at once.

FEW = 3
"""Links below the grid of all layers and heads, where nobody asked for more: grid, links and answer
fit a screen.
"""


def row_texts(document: RunDocument) -> list[str]:
    """The texts of the queries that have a row in the document's matrices."""
    texts = [token.text for token in document.tokens]
    if document.queries:
        return [texts[index] for index in document.queries]
    return texts


def overview_part(document: RunDocument, view: View) -> Lines:
    """Draw a grid of layers × heads: the weight of each head's strongest link, of one query if the
    document is about one; nothing where no head has a link that counts.
    """
    entries = document.overview
    if not entries:
        return remark("no overview in this document", view)
    if all(entry.link is None for entry in entries):
        return Lines()
    grid = head_grid(
        (entry.layer, entry.head, None if entry.link is None else entry.link.weight)
        for entry in entries
    )
    note = message("strongest link in each head; rows: layers, columns: heads")
    if document.queries:  # the one query that is asked about
        token = document.tokens[document.queries[0]]
        token_name = f"{token.index} {safe(token.text, ascii=view.ascii)}"
        note = message(
            "strongest link of {token_name} in each head; rows: layers, columns: heads",
            token_name=token_name,
        )
    is_said_below = view.show is None or "links" in view.show
    picture = draw_grid(grid, view, limits=(0.0, 1.0), title="overview", note=note)
    return stack(picture, remark("" if is_said_below else left_out_note(document), view))


def average_part(document: RunDocument, view: View) -> Lines:
    """A table of the keys that get most of the query's weight, on average over the layers and heads
    that ran."""
    if document.average is UNSET:
        return remark("an average needs --query TOK", view)
    assert document.queries, "an average is that of a query's rows"
    query = document.queries[0]
    average = document.average
    texts = [with_word(token, view) for token in document.tokens]
    order = sorted(range(len(texts)), key=lambda key: (-average[key], key))[: view.top]
    average_links = [TopLink(query=query, key=key, weight=float(average[key])) for key in order]
    note = message("mean weight over all layers and heads that ran, every key counted")
    return links(average_links, texts, view, place=None, title="on average", note=note)


def links_part(document: RunDocument, view: View) -> Lines:
    """A table of the strongest links; only a few where a grid of all layers and heads stands above
    it. Nothing where there are no links, unless they were asked for."""
    if not document.links and view.show is None:
        return Lines()
    texts = [with_word(token, view) for token in document.tokens]
    has_one_head = len(document.overview or heads_of(document)) == 1
    place = None if has_one_head else layer_and_head
    # `view.few`: nobody asked for a number of links
    is_below_grid = view.few and view.show is None and several_layers(document)
    row_count = FEW if is_below_grid else view.top
    note = message("weight of a key in its query's row; bars from 0 to 1")
    few = replace(view, top=row_count)
    link_lines = links(document.links, texts, few, place=place, title="strongest links", note=note)
    return stack(link_lines, remark(left_out_note(document), view))


def several_layers(document: RunDocument) -> bool:
    """Whether the overview has more than one layer."""
    return len({entry.layer for entry in document.overview or ()}) > 1


LEARNED = {
    "hidden": "X", "q": "Q", "k": "K", "v": "V", "raw": "S", "scaled": message("S scaled"),
    "capped": message("S capped"), "biased": message("S biased"), "masked": message("S masked"), "weights": "A",
    "mixed": "O", "out": message("O of all"), "sum": "X + O", "memory": "Y",
}  # fmt: skip
"""What the texts call the stages, which JSON calls by these names."""


def run_sentences(document: RunDocument, view: View) -> list[str]:
    """Sentences with the answer of a run: on its regions where it has some, else on its words."""
    if not _has_regions(document, view):
        return word_sentences(document, view)
    from attncli.draw.region_tables import region_sentences

    return region_sentences(document, view)


MAPS = 24
"""Maps that are shown unless the view is full."""


def run_screen(document: RunDocument, view: View) -> Lines:
    """The whole screen for an `attn.run/1` document.

    Full tables are those of the first layer and head that the document holds, or of every one if
    the view is full; the screen says how to see the others. Rows are the document's `queries`, or
    all tokens.
    """
    return fit_to_view(draw_parts(RUN_PARTS, document, view), view)


def _has_maps(document: RunDocument, view: View) -> bool:
    """Whether heads' weights are drawn as maps without being asked for: where `document.maps` is
    set, for 2 to `MAPS` heads, and for one head of a text longer than its table shows where no
    query is chosen."""
    # the table of a single head says as much as its map, but where it is cut
    is_table_cut = len(document.tokens) > ROWS and not document.queries
    least = 1 if is_table_cut else 2
    return bool(document.maps) or least <= len(heads_of(document)) <= MAPS


def _has_tables(document: RunDocument, view: View) -> bool:
    """Whether tables of numbers are shown without being asked for: where the document holds any."""
    return bool(document.layers)


def _has_regions(document: RunDocument, view: View) -> bool:
    """Whether the document has numbers of regions."""
    return document.region_shares is not UNSET


def buckets_part(document: RunDocument, view: View) -> Lines:
    """The buckets of an `lsh` mask, worked out for the query, or the first token where none is
    asked about; nothing under another mask, or why there are none where Reformer's are asked for
    by name."""
    if document.hashing is UNSET:
        is_named = view.show is not None and len(view.show) < len(RUN_PARTS)
        if is_named and document.attention.hashing is not UNSET:
            return remark(
                "buckets: shown for a mask lsh:B; Reformer hashes queries and keys alike, and its"
                " buckets are not kept in this result",
                view,
            )
        return Lines()
    from attncli.draw.hash_buckets import bucket_part  # only a run that hashes needs it

    query = 0
    if document.queries:
        query = document.queries[0]
    return bucket_part(document.hashing, document.tokens, query, view)


def region_part(name: str, document: RunDocument, view: View) -> Lines:
    """The part of the screen about regions that `REGION_PARTS` has under this name."""
    from attncli.draw.region_tables import REGION_PARTS  # only a run with regions needs it

    return REGION_PARTS[name](document, view)


def answer_part(document: RunDocument, view: View) -> Lines:
    """The answer of a run: about its regions where it has some, else about its words."""
    next_line = sentences(_next_sentences(document, view), view)
    if _has_regions(document, view):
        return stack(sentences(run_sentences(document, view), view), next_line)
    return stack(run_answer(document, view), next_line, run_hint(document, view))


def _next_sentences(document: RunDocument, view: View) -> Iterator[str]:
    """Yield the sentence with the likeliest next tokens after the text, and the command that says
    more; nothing of a model that predicts none."""
    if document.next_tokens is UNSET:
        return
    names = [
        message(
            "{token} ({share})",
            token=quote_text(row.token.text, view),
            share=percent(row.probability),
        )
        for row in document.next_tokens
    ]
    if len(names) == 1:
        yield say(view, "The likeliest next token is {token}. More: attn next.", token=names[0])
        return
    template = message("The likeliest next tokens are {tokens}. More: attn next.")
    # beside sentences on a word before the end it is said where they come
    if document.queries and document.queries[0] != len(document.tokens) - 1:
        template = message(
            "After the whole text the likeliest next tokens are {tokens}. More: attn next."
        )
    yield say(
        view,
        template,
        tokens=choice(names, last=" and "),
    )


def shapes_part(shapes: Sequence[ShapeRow], view: View) -> Lines:
    """A table of the shape trace: each step of the computation with its axes, shape and formula."""
    times = spell(" × ", ascii=view.ascii)
    counts: dict[str, int] = {}
    for row in shapes:
        counts |= dict(zip(row.axes, row.shape, strict=True))
    # an axis "kv" is called so only where heads of queries share those of keys and values
    has_shared_keys = counts.get("kv", 1) != counts.get("head", 1)
    rows = []
    for row in shapes:
        axes = ["head" if axis == "kv" and not has_shared_keys else axis for axis in row.axes]
        rows.append(
            [
                localize(LEARNED.get(row.step, row.step), view),
                times.join(localize(axis, view) for axis in axes),
                times.join(map(str, row.shape)),
                localize(row.formula, view),
            ]
        )
    columns = [contextual("column", "step"), "axes", "shape", "formula"]
    return table(columns, rows, view, align=["left", "left", "right", "left"], title="shapes")


def maps_part(document: RunDocument, view: View) -> Lines:
    """A small map of the weights of every head, on one scale; the first `MAPS` unless the view is
    full.
    """
    heads_with_maps: list[tuple[int, RunHead | PooledMap]] = [
        (part.layer, part) for part in document.maps or ()
    ]
    if not heads_with_maps:
        heads_with_maps += [
            (layer, head) for layer, head in heads_of(document) if head.weights is not UNSET
        ]
    if not heads_with_maps:
        return Lines()
    from attncli.draw.heatmap import side_by_side

    has_several_layers = len({layer for layer, _ in heads_with_maps}) > 1
    if view.full:
        heads_shown = heads_with_maps
    else:
        heads_shown = heads_with_maps[:MAPS]
    maps = [
        head_map(layer, head.head, _visible_weights(head), several=has_several_layers)
        for layer, head in heads_shown
    ]

    # the note on what a cell is, and of which layer the heads are
    first_layer, first_head = heads_with_maps[0]  # all maps of a run are pooled alike
    parts = [message("rows: queries, columns: keys")]
    if isinstance(first_head, PooledMap) and first_head.pool > 1:
        pool = first_head.pool
        parts.append(message("each cell the largest of {pool}×{pool} weights", pool=pool))
    if not has_several_layers:
        parts.append(message("layer {layer}", layer=first_layer))
    note = listing(parts, " · ")

    # of several layers, each has a row of its own
    most_in_a_row = None
    if has_several_layers:
        heads_by_layer = Counter(layer for layer, _ in heads_shown)
        most_in_a_row = max(heads_by_layer.values())
    names = row_texts(document)
    picture = side_by_side(maps, view, limits=(0.0, 1.0), names=names, in_a_row=most_in_a_row)
    more = more_maps(len(heads_shown), len(heads_with_maps))
    return stack(heading("maps of the weights", note, view), picture, remark(more, view))


def more_maps(heads_shown: int, heads_with_maps: int) -> str:
    """The remark on how many heads have their map on the screen, and on how to see the other heads;
    "" where all have.

    heads_shown, heads_with_maps: how many.
    """
    if heads_shown == heads_with_maps:
        return ""
    return message(
        "{heads_shown} of {heads_with_maps} heads shown; --layer L --head H chooses, --full"
        " shows all",
        heads_shown=heads_shown,
        heads_with_maps=heads_with_maps,
    )


def tables_part(part: str, document: RunDocument, view: View) -> Lines:
    """Tables of the scores, weights or output (`part`) of the first head, or of all heads in a full
    view; below weights, a note on how to see the other heads."""
    heads = heads_of(document)
    if document.pieces is not UNSET and part != "weights":
        if view.show is None:  # nobody asked for it
            return Lines()
        return remark(message("words have no {part}: only weights are merged", part=part), view)
    heads_shown = heads if view.full else heads[:1]
    blocks = [_table_of_head(part, layer, head, document, view) for layer, head in heads_shown]

    # the output of a layer comes after those of its heads, unless both are the same
    if part == "output":
        if _only_head_is_output(document):
            blocks = []
        shown_layers = {layer for layer, _ in heads_shown}
        blocks += [
            _layer_output(layer, document, view)
            for layer in document.layers
            if layer.layer in shown_layers
        ]
    notes: list[Lines] = []
    if part == "weights":
        notes = _notes_below_weights(document, len(heads) - len(heads_shown), view)
    return stack(stack_spaced(*blocks), *notes)


def implicit_part(document: RunDocument, view: View) -> Lines:
    """The implicit weights of the recurrences (A in O = A·V): of the first layer and head, or of
    each in a full view."""
    if document.implicit is UNSET:
        return remark("implicit weights need --show implicit", view)
    heads = [(layer, head) for layer in document.implicit for head in layer.heads]
    if view.full:
        heads_shown = heads
    else:
        heads_shown = heads[:1]
    texts = [token.text for token in document.tokens]
    queries = document.queries or None
    rows = row_texts(document)
    # a recurrence reads from left to right: later keys are left empty
    is_read = np.arange(len(texts)) <= np.array(queries or range(len(texts)))[:, None]
    tables = []
    for layer, head in heads_shown:
        place = spoken_head(layer.layer, head.head)
        note = message(
            "{place} · {kind} · rows: queries, columns: keys", place=place, kind=term(layer.kind)
        )
        values = np.where(is_read, head.weights, np.nan)
        tables.append(
            matrix(
                values,
                rows,
                texts,
                view,
                signed=True,
                by_size=True,
                title="implicit weights",
                note=note,
                row_numbers=queries,
            )
        )
    meaning = message(
        "what each value counts in what leaves the recurrence, O = A·V, before norm and gate: no"
        " softmax, so a weight may be negative, and a row's sum is anything"
    )
    return stack(
        stack_spaced(*tables),
        remark(meaning, view),
        remark(more_heads(len(heads) - len(heads_shown)), view),
    )


MOST_BLIND = 20
"""Queries that see no key and are told by number."""


def _notes_below_weights(document: RunDocument, hidden_heads: int, view: View) -> list[Lines]:
    """Two notes: on which queries see no key, and on how to see the heads that are not shown; each
    empty where there are none.

    hidden_heads: how many are not shown.
    """
    blind = sorted({row.query for row in document.empty_rows})
    numbers = listing(map(str, blind[:MOST_BLIND]))
    if len(blind) > MOST_BLIND:
        numbers = message("{numbers} and more", numbers=numbers)
    model = document.model
    # every head has each of these rows empty
    if len(document.empty_rows) == len(blind) * model.layers * model.heads:
        empty = plural(
            "query {numbers} can see no key: weights and A·V are 0",
            "queries {numbers} can see no key: weights and A·V are 0",
            count=len(blind),
            numbers=numbers,
        )
    else:
        empty = plural(
            "query {numbers} can see no key in some head: weights and A·V are 0",
            "queries {numbers} can see no key in some head: weights and A·V are 0",
            count=len(blind),
            numbers=numbers,
        )
    return [
        remark(empty if blind else "", view, style="yellow"),
        remark(more_heads(hidden_heads), view),
    ]


def more_heads(count: int) -> str:
    """The remark on how to see so many heads that are not shown; "" for none."""
    if not count:
        return ""
    return plural(
        "{count} other head not shown in full; --layer L --head H chooses, --full shows all",
        "{count} other heads not shown in full; --layer L --head H chooses, --full shows all",
        count=count,
    )


def _table_of_head(
    part: str, layer: int, head: RunHead, document: RunDocument, view: View
) -> Lines:
    """A head's scores, weights or output in numbers; nothing where the document does not hold them.

    part: "scores", "weights" or "output".
    """
    values = getattr(head, part)
    if values is UNSET:
        return Lines()
    texts = [token.text for token in document.tokens]
    place = spoken_head(layer, head.head)
    note = listing((place, message("weights × values")), " · ")  # shown for an output alone
    if part != "output":
        keys = key_names(texts, values)
    else:
        keys = texts
    numbers = document.queries or None
    return head_table(
        part, head, place, row_texts(document), keys, view, note=note, row_numbers=numbers
    )


def head_table(
    part: str,
    head: RunHead | CrossHead,
    place: Message,
    queries: Sequence[str],
    keys: Sequence[str],
    view: View,
    *,
    note: str,
    row_numbers: Sequence[int] | None = None,
) -> Lines:
    """A table of one head's numbers, of which `part` says which: "scores", "weights" or "output".

    place: the head's name.
    queries, keys: their texts.
    note: the heading's note for an output; scores and weights have their own.
    row_numbers: the positions of the queries, where they are not all.
    """
    if part == "output":
        assert head.output is not UNSET, "a head without an output has no table of it"
        return vectors(
            head.output,
            queries,
            view,
            title="output of the head",
            note=note,
            row_numbers=row_numbers,
        )
    draw = partial(matrix, rows=queries, columns=keys, view=view, row_numbers=row_numbers)
    if part == "scores":
        note = message(
            "{place} · what enters the softmax; rows: queries, columns: keys", place=place
        )
        return draw(head.scores, signed=True, title=message("scores"), note=note)
    note = message("{place} · softmax of each row; rows: queries, columns: keys", place=place)
    return draw(
        visible(head.weights, head.scores), limits=(0.0, 1.0), title=message("weights"), note=note
    )


def head_map(layer: int, head: int, weights: NDArray, *, several: bool) -> Map:
    """A small map of a head's weights.

    several: whether its title names the layer too, as heads of several layers stand together.
    """
    from attncli.draw.heatmap import Map

    place = spoken_head(layer, head)
    return Map(place if several else message("head {head}", head=head), weights)


def _layer_output(layer: RunLayer, document: RunDocument, view: View) -> Lines:
    """The output of a layer's attention in numbers; nothing where the document does not hold it."""
    if layer.output is UNSET:
        return Lines()
    note = message("layer {layer} · one vector per token", layer=layer.layer)
    numbers = document.queries or None
    return vectors(
        layer.output, row_texts(document), view, title="output", note=note, row_numbers=numbers
    )


def _visible_weights(head: RunHead | PooledMap) -> NDArray:
    """A head's weights [query, key], or those of its pooled map, with NaN where a score is masked."""
    if isinstance(head, RunHead):
        return visible(head.weights, head.scores)
    return visible(head.weights, None)


def _only_head_is_output(document: RunDocument) -> bool:
    """Whether every layer's output is that of its only head: without W_O there is one table to show
    instead of two.
    """
    for layer in document.layers:
        if len(layer.heads) != 1:
            return False
        output = layer.heads[0].output
        if output is UNSET or layer.output is UNSET:
            return False
        if not np.array_equal(as_matrix(output), as_matrix(layer.output), equal_nan=True):
            return False
    return True


# The answers of the screens that are not about one sentence: what was compared, counted or
# captured, in words.


def run_hint(document: RunDocument, view: View) -> Lines:
    """The commands to try next: `attn ablate`, which measures whether what the query looks at
    matters, and `attn find` where another token looks back at it. Nothing without a query, for a
    model that is not trained, and in a brief answer."""
    if view.brief or not document.queries or document.model.source != "checkpoint":
        return Lines()
    query = document.queries[0]
    if document.tokens[query].unknown:  # attn ablate takes no such word
        return Lines()
    from attncli.draw.command_lines import command_about, command_lines, options_note, reference

    name = reference(document, query, view)
    ablation = command_about(document, "ablate", ["--query", name], view)
    matter = command_lines(ablation, view, before=say(view, "Does it matter?"))
    note = options_note(view)
    # the answer names what looks back only where every link counts
    back = document.strongest_back
    if not back or not document.every_link_counts:
        return stack(matter, note)
    ends = ["--from", reference(document, back.query, view), "--to", name]
    command = command_about(document, "find", ends, view)
    return stack(command_lines(command, view, before=say(view, "Try:")), matter, note)


RUN_PARTS: Parts[RunDocument] = (
    ScreenPart("header", header),
    ScreenPart(
        "tokens", shown_tokens, lambda document, view: view.full or not several_layers(document)
    ),
    ScreenPart(
        "shapes",
        lambda document, view: shapes_part(document.shapes, view),
        lambda document, view: not several_layers(document),
    ),
    ScreenPart("overview", overview_part, lambda document, view: several_layers(document)),
    ScreenPart("maps", maps_part, _has_maps),
    ScreenPart("embedding", partial(stage_part, "embedding"), never),
    ScreenPart("positions", partial(stage_part, "positions"), never),
    ScreenPart("input", partial(stage_part, "input"), never),
    ScreenPart("W_Q", partial(stage_part, "W_Q"), never),
    ScreenPart("W_K", partial(stage_part, "W_K"), never),
    ScreenPart("W_V", partial(stage_part, "W_V"), never),
    ScreenPart("W_O", partial(stage_part, "W_O"), never),
    ScreenPart("q", partial(stage_part, "q"), never),
    ScreenPart("k", partial(stage_part, "k"), never),
    ScreenPart("v", partial(stage_part, "v"), never),
    ScreenPart("raw", partial(stage_part, "raw"), never),
    ScreenPart("scaled", partial(stage_part, "scaled"), never),
    ScreenPart("capped", partial(stage_part, "capped"), never),
    ScreenPart("biased", partial(stage_part, "biased"), never),
    ScreenPart("masked", partial(stage_part, "masked"), never),
    ScreenPart("concat", partial(stage_part, "concat"), never),
    ScreenPart("sum", partial(stage_part, "sum"), never),
    ScreenPart("norm", partial(stage_part, "norm"), never),
    ScreenPart("scores", partial(tables_part, "scores"), _has_tables),
    ScreenPart("buckets", buckets_part, _has_tables),
    ScreenPart("weights", partial(tables_part, "weights"), _has_tables),
    ScreenPart("output", partial(tables_part, "output"), _has_tables),
    ScreenPart("implicit", implicit_part, never),
    ScreenPart("regions", partial(region_part, "regions"), _has_regions),
    ScreenPart("region-heads", partial(region_part, "region-heads"), _has_regions),
    ScreenPart("region-layers", partial(region_part, "region-layers"), _has_regions),
    ScreenPart("region-pairs", partial(region_part, "region-pairs"), _has_regions),
    ScreenPart("region-links", partial(region_part, "region-links"), _has_regions),
    ScreenPart("links", links_part),
    ScreenPart(
        "average", average_part, lambda document, view: document.average is not UNSET and view.full
    ),
    ScreenPart("answer", answer_part),
)
