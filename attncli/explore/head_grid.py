"""The grid of heads, a cell for each, coloured by one number; and the chosen head's weights as a
map under its axes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.documents.parts import label_name
from attncli.draw.lines import FAINT, Line, Piece, remark
from attncli.draw.names import arrow
from attncli.draw.safe import cells, clusters, cut, label, pad, spell
from attncli.draw.shaded_matrix import normalise, palette_of, shade, sign
from attncli.explore.loaded_run import WHOLE, LoadedRun, Pair
from attncli.explore.panels import (
    BLANK,
    SHADES,
    HeadSpot,
    PairSpot,
    Pane,
    Scene,
    Spot,
    WordSpot,
    accent,
    cursor_style,
    half_cells,
    lay_over,
    level_style,
    levels,
    pool_blocks,
    whole_cells,
)
from attncli.explore.state import Extent, State
from attncli.language import contextual, message, say
from attncli.measure.head_record import METRICS, SIDE, HeadRecord
from attncli.measure.row_facts import Bools
from attncli.mechanism.spec import spoken_head

MEASURES = ("word", *METRICS)
MEASURE_NAMES = {
    "word": message("strongest link of {word}"),
    "entropy": message("entropy, nats"),
    "confidence": message("confidence"),
    "distance": message("distance"),
    "previous": message("previous token"),
    "self": message("itself"),
    "next": message("next token"),
    "sink": message("first token"),
    "special": message("special tokens"),
    "normalised_entropy": message("normalised entropy"),
}
"""What the colours of the heads may show, and what that is called."""
METRIC_NAMES = MEASURE_NAMES | {
    "entropy": message("entropy"),
    "previous": message("previous"),
    "next": message("next"),
    "special": contextual("metric", "special"),
    "normalised_entropy": message("entropy, 0–1"),
}
"""The same below the grid, where there is little room."""
ROOMY = 4
"""Cells of a head whose number is written in it."""


def head_values(state: State, loaded_run: LoadedRun) -> dict[Pair, float | None]:
    """The number that colours each head in the grid, by (layer, head): its strongest link with the
    chosen word, or a metric, as `state.measure` says; None where it is not known."""
    if state.measure == "word":
        strongest_links = loaded_run.strongest(state.word, is_turned=state.is_turned)
        return {place: strongest_links.get(place) for place in loaded_run.heads}
    return {place: head.metrics.get(state.measure) for place, head in loaded_run.heads.items()}


def head_cell_width(extent: Extent, width: int) -> int:
    """How many cells wide each head is in a grid of this width: `ROOMY` with its number, or else 2
    or 1."""
    for cell_width in (ROOMY, 2):
        if extent.columns * cell_width + extent.edge <= width:
            return cell_width
    return 1


def grid(scene: Scene, *, values: dict[Pair, float | None] | None) -> Pane:
    """The grid of heads, a cell for each, layers in rows, coloured by a number; of more layers or
    heads than fit, those around the chosen one.

    values: by (layer, head), what colours the heads in place of the chosen measure; None for that.
    """
    state = scene.state
    extent = scene.loaded_run.extent
    if values is None:
        values_by_head = head_values(state, scene.loaded_run)
    else:
        values_by_head = values

    # the layers and heads that are shown
    wide = head_cell_width(extent, scene.width)
    edge = extent.edge
    columns = extent.columns
    fitting = max((scene.width - edge) // wide, 1)
    columns_shown = _window_around(state.head, columns, fitting)
    layers = list(extent.heads)
    if state.layer in layers:
        layer_row = layers.index(state.layer)
    else:
        layer_row = 0
    layers_shown = [layers[row] for row in _window_around(layer_row, len(layers), scene.height - 1)]

    # the number that has the strongest colour: weights and entropies below 1 are coloured alike in
    # every run
    finite = [
        value for value in values_by_head.values() if value is not None and not math.isnan(value)
    ]
    highest = max(map(abs, finite), default=0.0)
    if state.measure in ("word", "entropy") and values is None and highest <= 1:
        highest = 1.0
    signed = any(value < 0 for value in finite)

    rows: list[Line] = [((" " * edge, ""), *_head_numbers(columns_shown, wide, state.head))]
    for layer in layers_shown:
        name = (pad(str(layer), edge - 1, "right") + " ", "bold" if layer == state.layer else FAINT)
        heads = (
            _head_cell(
                scene,
                (layer, head),
                values_by_head.get((layer, head)),
                highest,
                wide,
                signed=signed,
            )
            for head in columns_shown
        )
        rows.append((name, *heads))

    def spot_at(x: int, y: int) -> Spot | None:
        """What a click on this cell of the pane chooses; None for nothing."""
        column = (x - edge) // wide + columns_shown.start
        row = y - 1
        if x < edge or not 0 <= row < len(layers_shown) or column not in columns_shown:
            return None
        if extent.has(layers_shown[row], column):
            return HeadSpot(layers_shown[row], column)
        return None

    return scene.fit(Pane(tuple(rows), spot_at))


def _head_numbers(columns_shown: range, wide: int, chosen_head: int) -> list[Piece]:
    """The row of head numbers above the grid: every 1st, 2nd, 5th, 10th … head, so that two numbers
    never touch. The chosen head is always numbered, and its neighbours give way to it.

    wide: cells of a column.
    """
    digits = 1
    if len(columns_shown):
        digits = len(str(columns_shown.stop - 1))
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 1000) if step * wide > digits)
    # heads nearer than this to the chosen one have numbers that would touch its number
    touching = digits // wide + 1
    pieces: list[Piece] = []
    end_of_last = 0
    for head in columns_shown:
        gives_way = head != chosen_head and abs(head - chosen_head) < touching
        if (head % step == 0 and not gives_way) or head == chosen_head:
            text = pad(str(head), wide, "right")
            # a number ends where its column does; it may be wider than that
            start = (head - columns_shown.start + 1) * wide - len(text)
            first_free = end_of_last
            if end_of_last > 0 and wide == 1:
                # in columns of one cell a number overhangs to the left: one blank stays free
                first_free += 1
            if start >= first_free:
                if head == chosen_head:
                    style = "bold"
                else:
                    style = FAINT
                pieces += [(" " * (start - end_of_last), ""), (text, style)]
                end_of_last = start + len(text)
    return pieces


def _head_cell(
    scene: Scene, place: Pair, value: float | None, highest: float, wide: int, *, signed: bool
) -> Piece:
    """The (text, style) of one head in the grid: its colour, its number where there is room, a mark
    on the chosen one, "A" on the one that is subtracted.

    place: (layer, head).
    value: its number, None where it is not known.
    highest: the magnitude that has the strongest colour.
    wide: cells of a head: 1, 2, or ROOMY, where its number has room.
    signed: whether some head's number is below 0.
    """
    state = scene.state
    view = scene.view
    if not scene.loaded_run.extent.has(*place):
        return " " * wide, ""

    # its number and colour
    if value is None or math.isnan(value):
        text = (".." if view.ascii else "··")[:wide].rjust(wide)
        cell_style = FAINT
    else:
        if highest > 0:
            fraction = min(abs(value) / highest, 1.0)
        else:
            fraction = 0.0
        if signed:  # 0 has the colour in the middle
            fraction = 0.5 + np.sign(value) * fraction / 2
        level = int(levels(np.array([fraction]))[0])
        if view.color and not view.ascii:
            text = " " * wide
        else:
            mark = sign if signed else shade
            text = mark(level / (SHADES - 1), ascii=view.ascii) * min(wide, 2)
        if wide == ROOMY:
            text = " " + _number_in_three_cells(value)
        if view.color:
            cell_style = level_style(palette_of(view, signed=signed), level)
        else:
            cell_style = ""
    text = text.rjust(wide)[:wide]

    # the mark of the head that is subtracted, and that of the chosen one: the cursor's colour over
    # its number, brackets in two cells, a sign in one
    if place == state.subtracted_head:
        text = f"A{text[1:]}"
    if place != (state.layer, state.head):
        return text, cell_style
    if wide == ROOMY:
        if view.color:
            return (text, cursor_style(view))
        # the number begins behind a blank, which the bracket takes; there is no room for another
        return (f"[{text[1:]}"[:wide], "bold reverse")
    if wide > 1:
        cursor = "[]"
    elif view.ascii:
        cursor = "@"
    else:
        cursor = "◆"
    return cursor, cursor_style(view)


def _number_in_three_cells(value: float) -> str:
    """A number in at most three cells: `.65`, `1.0`, `12`, `-.3`; `big` or `-99` for one beyond
    99."""
    # each bound is where rounding would give a digit more: 99.5 becomes 100, and 0.995 becomes 1.00
    if abs(value) >= 99.5:
        return "big" if value > 0 else "-99"
    if abs(value) >= 9.95:
        return f"{value:.0f}"
    if value < 0:
        return f"{value:.1f}".replace("-0.", "-.")
    if value >= 0.995:
        return f"{value:.1f}"
    return f"{value:.2f}"[1:]


def head_summary(scene: Scene) -> Pane:
    """The pane about the chosen head below the grid: its labels, its metrics, its strongest links,
    which can be clicked; blank where the head has not run yet."""
    state = scene.state
    loaded_run = scene.loaded_run
    view = scene.view
    head = loaded_run.heads.get((state.layer, state.head))
    if head is None or scene.height < 2:
        return scene.fit(Pane())
    rows: list[Line] = [((say(view, spoken_head(state.layer, state.head)), "bold"),)]
    if head.labels:
        names = (label_name(head_label, view.lang) for head_label in head.labels)
        labels_text = label(say(view, contextual("between", ", ")).join(names), ascii=view.ascii)
        rows[0] = (*rows[0], ("  " + cut(labels_text, scene.width, ascii=view.ascii), FAINT))

    # a learned key, which is no token, may be an end of a link
    links = [
        link
        for link in head.links
        if link[0] < len(loaded_run.queries) and link[1] < len(loaded_run.keys)
    ]
    # lines that are kept free for a title and up to three links; few lines are for metrics alone
    link_lines = 0
    if links and scene.height > 4:
        link_lines = min(len(links), 3) + 1
    rows += _metric_lines(head, max(scene.height - 1 - link_lines, 1), scene)
    lines_left = scene.height - len(rows)
    pairs: dict[int, Pair] = {}  # by line, the (query, key) of the link that stands there
    if links and lines_left > 1:
        rows.append(((say(view, "strongest links"), FAINT),))
        for query, key, weight in links[: lines_left - 1]:
            pairs[len(rows)] = (query, key)
            rows.append(_link_line(query, key, weight, scene))

    def spot_at(x: int, y: int) -> Spot | None:
        """The link on line y of the pane; None for a line without one."""
        if y not in pairs:
            return None
        query, key = pairs[y]
        return PairSpot(query, key)

    return scene.fit(Pane(tuple(rows), spot_at))


def _metric_lines(head: HeadRecord, room: int, scene: Scene) -> Iterator[Line]:
    """Yield lines with the metrics of a head that are known, in one column or two, on at most
    `room` lines."""
    view = scene.view
    numbers = [
        (spell(say(view, METRIC_NAMES[name]), ascii=view.ascii), head.metrics.get(name))
        for name in METRICS
    ]
    metrics = [(name, value) for name, value in numbers if value is not None]
    # a number takes 6 cells behind its name, and one more stays free
    name_width = max((cells(name) for name, _ in metrics), default=0)
    columns = 1
    if scene.width >= 2 * (name_width + 7):
        columns = 2
    column = scene.width // columns
    for start in range(0, min(len(metrics), room * columns), columns):
        row: list[Piece] = []
        for name, value in metrics[start : start + columns]:
            text = pad(cut(name, column - 7, ascii=view.ascii), min(name_width, column - 7))
            space = " " * max(column - cells(text) - 6, 0)
            row += [(text, FAINT), (pad(f" {value:.2f}", 6, "right"), ""), (space, "")]
        yield tuple(row)


def _link_line(query: int, key: int, weight: float, scene: Scene) -> Line:
    """A line for one link: the query's word, an arrow, the key's word, and the weight."""
    view = scene.view
    side = max((scene.width - 8) // 2, 3)  # cells of a word: 8 are for the arrow and the weight
    query_name = scene.loaded_run.names("queries", ascii=view.ascii)[query]
    key_name = scene.loaded_run.names("keys", ascii=view.ascii)[key]
    return (
        (pad(cut(query_name, side, ascii=view.ascii), side, "right"), ""),
        (arrow(view), FAINT),
        (pad(cut(key_name, side, ascii=view.ascii), side, "left"), ""),
        (f"{weight:.2f}"[-4:], ""),  # four cells, such as 0.65
    )


def next_measure(state: State) -> State:
    """The state with the next number to colour heads by."""
    return replace(state, measure=MEASURES[(MEASURES.index(state.measure) + 1) % len(MEASURES)])


NDArray = np.ndarray[Any, Any]
NAME, SIDEWAYS = 12, 6
"""Cells of a word beside a map, and lines of one above it."""
LETTERS = 3
"""Lines from which on words are written downwards."""
ROOMY_AREA, LEAST_WRITTEN = 4, 0.095
"""Cells of a weight that is written as a number, and the least weight that is."""


class MatrixArea(Struct, frozen=True):
    """How a matrix of weights is drawn in the room that a pane has.

    rows, columns: the positions of the queries and the keys that are shown.
    block: how many queries, and how many keys, are pooled to one cell of the map.
    across, down: how many cells of the terminal each cell of the map is wide and high.
    halves: whether two rows of the map share a line, in half blocks.
    """

    rows: range
    columns: range
    block: int
    across: int
    down: int
    halves: bool = False


def matrix_area(scene: Scene) -> MatrixArea:
    """How the matrix of weights is drawn in the scene's room: all words where they fit, in cells as
    large as possible; else all words pooled, or, in the near view, the words around the chosen
    pair.
    """
    state = scene.state
    width = scene.width
    height = scene.height
    queries = len(scene.loaded_run.queries)
    keys = len(scene.loaded_run.keys)
    # each word has a cell of its own, two columns wide at least. A column of the terminal is half
    # as wide as its line is high: cells of 6 by 3, the largest, are square
    if 2 * keys <= width and queries <= height:
        # there may be no words: then the map is empty
        across = min(width // max(keys, 1), 6)
        down = max(min(height // max(queries, 1), across // 2, 3), 1)
        return MatrixArea(range(queries), range(keys), block=1, across=across, down=down)
    if state.near:
        rows = _window_around(state.query, queries, height)
        columns = _window_around(state.key, keys, width // 2)
        return MatrixArea(rows, columns, block=1, across=2, down=1)
    # with colours, a line can hold two rows of the map
    has_halves = scene.view.color and not scene.view.ascii
    if has_halves:
        lines = 2 * height
    else:
        lines = height
    block = max(-(-keys // max(width, 1)), -(-queries // max(lines, 1)), 1)  # rounded up
    return MatrixArea(range(queries), range(keys), block=block, across=1, down=1, halves=has_halves)


def _window_around(position: int, many: int, room: int) -> range:
    """The range of `room` positions out of 0..many-1, one at least, with `position` as near to its
    middle as can be; all where they fit."""
    room = max(min(room, many), 1)
    start = min(max(position - room // 2, 0), max(many - room, 0))
    return range(start, min(start + room, many))


def fractions(weights: NDArray, state: State) -> NDArray:
    """Weights as fractions of the colour range, 0 to 1, by the chosen colour scale; NaN stays NaN.
    A difference of two heads has a scale of its own, on which 0 is in the middle."""
    if state.compared_head is not None:
        return normalise(weights, "signed")
    if state.scale == "rest":
        return normalise(weights, "linear")
    if state.scale == "linear":
        return normalise(weights, "linear", low=0.0, high=1.0)
    return normalise(weights, state.scale)


def keys_left_open(loaded_run: LoadedRun) -> Bools:
    """The keys that the colour scale "without rest" leaves uncoloured, booleans [key]: those where
    heads rest, or the first key where none rests.
    """
    if loaded_run.rest.any():
        return loaded_run.rest
    return np.arange(loaded_run.rest.size) == 0


def weights_of(state: State, loaded_run: LoadedRun, rows: slice) -> NDArray | None:
    """The weights of the chosen head in these rows, [query, key]; while two heads are compared,
    less those of the other head. None where they are not known."""
    weights = loaded_run.weights((state.layer, state.head), rows)
    if state.compared_head is None or weights is None:
        return weights
    subtracted_weights = loaded_run.weights(state.compared_head, rows)
    if subtracted_weights is None:
        return None
    return weights - subtracted_weights


def matrix(scene: Scene) -> Pane:
    """The map of the chosen head's weights, queries in rows, under its axes."""
    state = scene.state
    loaded_run = scene.loaded_run
    view = scene.view
    width = scene.width
    height = scene.height

    # the axes: `side` cells of queries to the left of the map, `above` lines of keys over it
    names = loaded_run.names("queries", ascii=view.ascii)
    side = min(loaded_run.widest("queries", ascii=view.ascii), NAME, max(width // 4, 4)) + 1
    above = _axis_height(scene.with_size(width - side, height))
    area = matrix_area(scene.with_size(width - side, height - above))
    if area.across < 2:  # too narrow for words: numbers take one line
        above = 1
        area = matrix_area(scene.with_size(width - side, height - above))
    map_lines = _map_lines(scene, area)
    if map_lines is None:
        return scene.fit(_waiting_pane(scene))

    # put the axes around the map's lines
    rows: list[Line] = [
        ((" " * side, ""), *row) for row in _key_axis(scene, area, above, width - side)
    ]
    per = area.block * (2 if area.halves else 1)  # queries that a row of cells stands for
    for line_number, pieces in enumerate(map_lines):
        cell_row = line_number // area.down
        first = area.rows.start + cell_row * per
        is_chosen = first <= state.query < first + per
        # the first line of a row of cells has a name: each word where rows are words, else the
        # chosen word, and the number of every fourth row
        text = ""
        if line_number % area.down == 0:
            if is_chosen:
                text = names[state.query]
            elif area.across >= 2:
                text = names[first]
            elif cell_row % 4 == 0:
                text = str(first)
        name = pad(cut(text, side - 1, ascii=view.ascii), side - 1, "right") + " "
        style = FAINT
        if is_chosen:
            style = accent(view) or "bold"
        rows.append(((name, style), *pieces))

    def spot_at(x: int, y: int) -> Spot | None:
        """What a click on this cell of the pane chooses; None for nothing."""
        column = area.columns.start + (x - side) // area.across * area.block
        row = area.rows.start + (y - above) // area.down * per
        inside = column in area.columns and x >= side
        if y < above:
            if inside:
                return WordSpot(column, "key")
            return None
        if row not in area.rows:
            return None
        if inside:
            return PairSpot(row, column)
        if x < side:
            return WordSpot(row, "query")
        return None

    return scene.fit(Pane(tuple(rows), spot_at))


def _map_lines(scene: Scene, area: MatrixArea) -> list[Line] | None:
    """The lines of the map of weights, without axes, with the chosen cell marked; None where no
    weights are kept."""
    state = scene.state
    loaded_run = scene.loaded_run
    signed = scene.state.compared_head is not None
    # of a longer text the whole matrix would be made anew for each drawing
    if area.block > 1 and len(loaded_run.queries) > WHOLE:
        return _pooled_map_lines(scene, area)
    weights = weights_of(state, loaded_run, slice(area.rows.start, area.rows.stop))
    if weights is None:
        return None
    columns = slice(area.columns.start, area.columns.stop)
    weights = weights[:, columns]
    coloured_weights = weights  # NaN has no colour
    if state.scale == "rest" and not signed:
        coloured_weights = np.where(
            keys_left_open(loaded_run)[columns], np.float32(np.nan), weights
        )
    level_map = levels(fractions(pool_blocks(coloured_weights, area.block, signed=signed), state))
    lines = _mark_pair(level_map, scene, area)
    if area.across >= ROOMY_AREA and not signed:
        _write_weights(lines, level_map, weights, scene, area)
    return lines


def _write_weights(
    lines: list[Line], level_map: NDArray, weights: NDArray, scene: Scene, area: MatrixArea
) -> None:
    """Write the number of each weight of `LEAST_WRITTEN` or more, and that of the chosen pair, into
    the middle of its cell in a map's lines, in place.

    level_map: the colour level of each cell, [query, key].
    weights: [query, key]; NaN for hidden pairs.
    """
    view = scene.view
    palette = palette_of(scene.view, signed=False)
    chosen_cell = (scene.state.query - area.rows.start, scene.state.key - area.columns.start)
    for (row, column), weight in np.ndenumerate(weights.astype(np.float64)):
        is_chosen = (row, column) == chosen_cell
        has_number = weight >= LEAST_WRITTEN or (is_chosen and not math.isnan(weight))
        if not has_number:
            continue
        number = f"{weight:.2f}"[1:]  # such as .65
        if weight >= 0.995:
            number = "1.0"
        # a number of three characters ends two behind the cell's middle
        text = number.rjust(area.across // 2 + 2).ljust(area.across)
        if view.color:
            text_style = level_style(palette, int(level_map[row, column]))
        else:
            text_style = ""
        if is_chosen:
            text_style = cursor_style(view)
            if not view.color:
                text = f"[{text.strip()}]".center(area.across)[: area.across]
        line = row * area.down + (area.down - 1) // 2  # the middle one of the cell's lines
        lines[line] = lay_over(lines[line], column * area.across, text, text_style)


def _pooled_map_lines(scene: Scene, area: MatrixArea) -> list[Line] | None:
    """The lines of a long text's map, drawn from the small map that was pooled while it ran; None
    where there is none, and for a difference of two heads.

    Cells are blank that hold nothing but hidden pairs and, under the colour scale without rest, the
    keys that it leaves out, together with the keys pooled with them.
    """
    head = scene.loaded_run.heads.get((scene.state.layer, scene.state.head))
    if head is None or head.small.size <= 1 or scene.state.sight == "difference":
        return None
    small = head.small.astype(np.float64)
    small[~_visible_cells(head)] = np.nan
    if scene.state.scale == "rest":
        open_keys = np.flatnonzero(keys_left_open(scene.loaded_run))
        small[:, open_keys // _pooled_keys(head)] = np.nan
    # which row and column of the small map each cell of the drawn one shows
    rows = _nearest_indices(-(-len(area.rows) // area.block), small.shape[0])
    columns = _nearest_indices(-(-len(area.columns) // area.block), small.shape[1])
    level_map = levels(fractions(small[np.ix_(rows, columns)], scene.state))
    return _mark_pair(level_map, scene, area)


def _nearest_indices(count: int, size: int) -> NDArray:
    """For each of `count` evenly spaced places, the index of the entry there out of `size`."""
    return np.minimum(np.arange(count) * size // count, size - 1)


def _visible_cells(head: HeadRecord) -> Bools:
    """The cells of a head's small map in which some query sees a key, booleans [row, column]."""
    bits = head.visibility_bits  # [query, key // 8], a bit for each key
    if bits is None:
        return np.ones(head.small.shape, bool)
    pool = _pooled_keys(head)
    by_row = np.bitwise_or.reduceat(bits, np.arange(0, len(bits), pool), axis=0)
    visible = np.unpackbits(by_row, axis=-1, count=head.columns).astype(bool)
    visible_cells: Bools = np.logical_or.reduceat(visible, np.arange(0, head.columns, pool), axis=1)
    return visible_cells


def _pooled_keys(head: HeadRecord) -> int:
    """How many keys each cell of a head's small map stands for. A map was pooled so that its longer
    side has at most `SIDE` cells; that of a saved run may have been pooled otherwise."""
    longest = head.columns
    if head.visibility_bits is not None:
        longest = max(longest, len(head.visibility_bits))
    pool = -(-longest // SIDE)  # rounded up
    if -(-head.columns // pool) == head.small.shape[1]:
        return pool
    return -(-head.columns // head.small.shape[1])


def _mark_pair(level_map: NDArray, scene: Scene, area: MatrixArea) -> list[Line]:
    """The lines of a map of colour levels [row, column], with the cell of the chosen pair in
    brackets, or as one mark where cells are narrow.
    """
    state = scene.state
    view = scene.view
    signed = scene.state.compared_head is not None
    row = (state.query - area.rows.start) // area.block
    column = (state.key - area.columns.start) // area.block
    if area.halves:
        lines = half_cells(level_map, view, signed=signed)
        lines[row // 2] = lay_over(lines[row // 2], column, "◆", cursor_style(view))
        return lines
    lines = [
        line
        for line in whole_cells(level_map, area.across, view, signed=signed)
        for _ in range(area.down)
    ]
    inner = " "  # the cell's own colour is covered; a hidden cell says so
    if level_map[row, column] == BLANK and not view.ascii:
        inner = "·"
    if area.across > 1:
        text = f"[{inner * (area.across - 2)}]"
    else:
        text = "@"
    for line_number in range(row * area.down, (row + 1) * area.down):
        lines[line_number] = lay_over(
            lines[line_number], column * area.across, text, cursor_style(view)
        )
    return lines


def _axis_height(scene: Scene) -> int:
    """Lines that the keys' words take above a map in this room, written downwards."""
    keys = scene.loaded_run.keys
    # more words than fit: a few lines, as those around the chosen pair or numbers alone are shown
    if 2 * len(keys) > scene.width:
        return min(4, max(scene.height // 4, 1))
    # each query of the map needs a line below the words
    queries = len(scene.loaded_run.queries)
    names = scene.loaded_run.names("keys", ascii=scene.view.ascii)
    longest = max((len(list(clusters(name))) for name in names), default=1)
    return min(longest, SIDEWAYS, max(scene.height - queries, 3))


def _key_axis(scene: Scene, area: MatrixArea, above: int, width: int) -> list[list[Piece]]:
    """The `above` lines over a map that name its columns: words written downwards or, where there
    is little room, one line of numbers with the chosen word among them.

    width: cells of the map.
    """
    if area.across < 2 or above < LETTERS:
        return [_numbered_axis(scene, area, width)]
    names = scene.loaded_run.names("keys", ascii=scene.view.ascii)
    if area.across > 2:
        align = "center"
    else:
        align = "left"
    lines: list[list[Piece]] = [[] for _ in range(above)]
    for column in area.columns:
        style = FAINT
        if column == scene.state.key:
            style = accent(scene.view) or "bold"
        letters = _letters_downwards(names[column], above, ascii=scene.view.ascii)
        for line, letter in zip(lines, letters, strict=True):
            line.append((pad(letter, area.across, align), style))
    return lines


def _letters_downwards(name: str, above: int, *, ascii: bool) -> list[str]:
    """A word's letters on `above` lines from the top down, blanks before them; of a longer word the
    first letters and a mark that it goes on.
    """
    text = list(clusters(name))
    if len(text) > above:
        text = [*text[: above - 1], "~" if ascii else "⋮"]
    return [" "] * (above - len(text)) + text


def _numbered_axis(scene: Scene, area: MatrixArea, width: int) -> list[Piece]:
    """One line over a map: the number of the key at every tenth or fifth cell, and the chosen word
    over its own cell, such as "0    5    ▾ cat 15".

    width: cells of the map.
    """
    state = scene.state
    view = scene.view

    # the chosen word, moved to the left where it would pass the right edge
    offset = (state.key - area.columns.start) // area.block * area.across
    name = cut(scene.loaded_run.names("keys", ascii=view.ascii)[state.key], 14, ascii=view.ascii)
    start = max(min(offset, width - cells(name) - 2), 0)  # 2: the mark and a blank
    text = f"{'v' if view.ascii else '▾'} {name}"

    # the numbers, as if there were no word
    line = ""
    for cell in range(0, -(-len(area.columns) // area.block), 10 if area.across == 1 else 5):
        line = line.ljust(cell * area.across) + str(area.columns.start + cell * area.block) + " "
    line = line.ljust(width)[:width]

    # the word covers some of them: a number that it covers in part is left out
    before = line[:start]
    after = line[start + cells(text) :]
    if before and before[-1] != " ":
        before = before[: before.rfind(" ") + 1].ljust(start)
    if after and after[0] != " ":
        rest_of_number = (after + " ").find(" ")
        after = " " * rest_of_number + after[rest_of_number:]
    return [(before, FAINT), (text, accent(view) or "bold"), (after, FAINT)]


def _waiting_pane(scene: Scene) -> Pane:
    """The pane in place of the map that says why the chosen head has none."""
    if scene.loaded_run.share < 1:
        name = message("the run has not reached this head yet")
    else:
        name = message(
            "the weights of this head are not held; its numbers and links are on the left"
        )
    return Pane(remark(name, scene.view).rows)
