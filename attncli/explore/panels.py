"""Panels: rankings of heads, effects, a search, the derivation of a weight; the cells and panes
that all are made of.

A pane is a block of styled lines that knows what lies under each cell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct, structs
from msgspec.structs import replace

from attncli.draw.lines import (
    FAINT,
    Line,
    Lines,
    Piece,
    clip_lines,
    join_sentences,
    line,
    line_width,
    remark,
    stack,
)
from attncli.draw.names import arrow
from attncli.draw.numbers import bar, bar_pieces
from attncli.draw.safe import cells, cut, pad, spell
from attncli.draw.shaded_matrix import Palette, bar_style, palette_of, shade, sign
from attncli.draw.tour import STEP_OF_PART, step_title
from attncli.draw.view import View
from attncli.errors import UsageError
from attncli.explore.loaded_run import LoadedRun, Pair
from attncli.explore.state import State
from attncli.features.effects.document import AblateDocument, EffectRow
from attncli.features.effects.effect_answer import effect_text
from attncli.features.explain.derivation_screen import Derivation
from attncli.features.explain.document import AttentionTopic, Scores, SoftmaxRow
from attncli.features.why.document import WhyDocument
from attncli.features.why.screen import why_sentences, why_sides
from attncli.inputs.token import find_span
from attncli.language import message, plural, say
from attncli.mechanism.spec import ARROW, head_label, plain_link, spoken_head

NDArray = np.ndarray[Any, Any]
SHADES = 25
"""Colours of a map, an odd number so that no difference has one of its own; neighbours that share
one are one piece.
"""
BLANK = -1
"""The level of a hidden cell."""


def accent(view: View) -> str:
    """The style of what is chosen; "" without colour."""
    if not view.color:
        return ""
    if view.light:
        return "bold #c2185b"
    return "bold #ff6ea8"


def cursor_style(view: View) -> str:
    """The style of the cursor: what is chosen, on a background of its own."""
    if not view.color:
        return "bold reverse"
    if view.light:
        return "bold #ffffff on #c2185b"
    return "bold #1a0810 on #ff6ea8"


def pool_blocks(values: NDArray, block: int, *, signed: bool) -> NDArray:
    """The largest value (signed: of largest magnitude) of every block × block cells, float64; NaN
    where all are hidden."""
    if block == 1:
        return values.astype(np.float64)
    # fmax and fmin take the other number where one is NaN
    high = _reduce_blocks(np.fmax, values, block)
    if not signed:
        return high
    low = _reduce_blocks(np.fmin, values, block)
    return np.where(np.abs(low) > np.abs(high), low, high)


def _reduce_blocks(by: np.ufunc, values: NDArray, block: int) -> NDArray:
    """A matrix reduced by block × block cells, float64; blocks at the edges may be smaller.

    by: what makes one number of a block, such as `np.fmax`.
    """
    row_starts = np.arange(0, values.shape[0], block)
    column_starts = np.arange(0, values.shape[1], block)
    by_row_block = by.reduceat(values, row_starts, axis=0)
    reduced: NDArray = by.reduceat(by_row_block, column_starts, axis=1).astype(np.float64)
    return reduced


def levels(fractions: NDArray) -> NDArray:
    """Fractions [0, 1] as levels 0 … SHADES − 1; NaN as BLANK."""
    rounded_levels = np.nan_to_num(np.rint(fractions * (SHADES - 1)), nan=BLANK)
    return rounded_levels.astype(np.int16)


@cache
def level_style(palette: Palette, level: int) -> str:
    """The style of a cell of a colour level: the level's colour as background, and a readable
    foreground; "" for a hidden cell."""
    if level == BLANK:
        return ""
    return palette.style(level / (SHADES - 1))


@cache
def _split_cell(palette: Palette, upper: int, lower: int) -> Piece:
    """The (character, style) of a terminal cell that shows two colour levels, `upper` in its upper
    half and `lower` in its lower one; a hidden half stays empty.
    """
    above = ""
    if upper != BLANK:
        above = palette.colour(upper / (SHADES - 1))
    below = ""
    if lower != BLANK:
        below = palette.colour(lower / (SHADES - 1))
    if above and below:
        return "▀", f"{above} on {below}"
    if above:
        return ("▀", above)
    if below:
        return ("▄", below)
    return (" ", "")


def whole_cells(level_map: NDArray, across: int, view: View, *, signed: bool) -> list[Line]:
    """A map of colour levels [row, column] as lines, each level `across` cells wide; equal levels
    beside each other are one piece.

    signed: whether the levels are those of a difference.
    """
    palette = palette_of(view, signed=signed)
    mark = sign if signed else shade
    lines: list[Line] = []
    for row in level_map:
        pieces: list[Piece] = []
        for start, stop, level in _runs(row):
            # without colours, or in ASCII, a character shows the level
            char = " "
            if level != BLANK and (view.ascii or not view.color):
                char = mark(level / (SHADES - 1), ascii=view.ascii)
            style = ""
            if view.color:
                style = level_style(palette, level)
            pieces.append((char * (stop - start) * across, style))
        lines.append(tuple(pieces))
    return lines


def half_cells(level_map: NDArray, view: View, *, signed: bool) -> list[Line]:
    """A map of colour levels [row, column] as lines in half blocks: each level is a cell wide and
    half a line high.

    signed: whether the levels are those of a difference.
    """
    palette = palette_of(view, signed=signed)
    if len(level_map) % 2:
        level_map = np.vstack([level_map, np.full((1, level_map.shape[1]), BLANK, level_map.dtype)])
    lines: list[Line] = []
    for first_row in range(0, len(level_map), 2):
        # both levels of a cell as one number; BLANK is −1, and no level reaches 63
        pair = (level_map[first_row].astype(np.int32) + 1) * 64 + level_map[first_row + 1] + 1
        pieces: list[Piece] = []
        for start, stop, both in _runs(pair):
            char, cell_style = _split_cell(palette, both // 64 - 1, both % 64 - 1)
            pieces.append((char * (stop - start), cell_style))
        lines.append(tuple(pieces))
    return lines


def _runs(row: NDArray) -> list[tuple[int, int, int]]:
    """The runs of equal values in a row, each (start, stop, value) with stop behind its last."""
    if not row.size:
        return []
    cuts = [0, *(np.flatnonzero(np.diff(row)) + 1).tolist(), len(row)]
    return [(start, stop, int(row[start])) for start, stop in pairwise(cuts)]


def lay_over(pieces: Line, start: int, text: str, text_style: str) -> Line:
    """A line's pieces with `text` in place of what stands from cell `start` on; every character
    must be one cell wide."""
    out: list[Piece] = []
    column = 0  # at which the piece begins
    stop = start + len(text)
    for piece, piece_style in pieces:
        end = column + len(piece)
        # of each piece, what stands before the text; the text, in the piece in which it begins; and
        # what stands behind it
        if column < start:
            out.append((piece[: start - column], piece_style))
        if column <= start < end:
            out.append((text, text_style))
        if end > stop:
            out.append((piece[max(stop - column, 0) :], piece_style))
        column = end
    return tuple(part for part in out if part[0])


# Panes: blocks of styled lines that know what lies under each of their cells, set beside and below
# each other.


class HeadSpot(Struct, frozen=True):
    """A head in the grid."""

    layer: int
    head: int


class PairSpot(Struct, frozen=True):
    """A pair of words in a matrix."""

    query: int
    key: int


class WordSpot(Struct, frozen=True):
    """A word.

    side: "query" or "key" for a name beside a matrix, "sentence" for a word of the sentence.
    """

    index: int
    side: str = "sentence"


class RowSpot(Struct, frozen=True):
    """A row of a list."""

    row: int


class KeySpot(Struct, frozen=True):
    """A key in the footer: it does what pressing it does."""

    key: str


Spot: TypeAlias = HeadSpot | PairSpot | WordSpot | RowSpot | KeySpot
Spots: TypeAlias = Callable[[int, int], "Spot | None"]


class Pane(Struct, frozen=True):
    """Styled lines, and a function that tells which item lies at column x of line y.

    width: cells of every line, None where they differ.
    """

    rows: tuple[Line, ...] = ()
    spots: Spots = lambda x, y: None
    width: int | None = None

    @property
    def height(self) -> int:
        """The pane's height in lines."""
        return len(self.rows)


class Scene(Struct, frozen=True, eq=False):
    """What a pane is drawn from: the state, the run, the view (language, colour, width), and the
    pane's size: width in cells, height in lines. The view has the pane's width."""

    state: State
    loaded_run: LoadedRun
    view: View
    width: int
    height: int

    def with_size(self, width: int, height: int) -> Scene:
        """The scene with another width and height, in cells."""
        return replace(
            self, view=structs.replace(self.view, width=width), width=width, height=height
        )

    def fit(self, pane: Pane) -> Pane:
        """A pane cut to the scene's size, or filled up with blanks."""
        return fit_pane(pane, self.width, self.height, ascii=self.view.ascii)


def blank(width: int, height: int) -> Pane:
    """A pane of blanks, `width` cells wide and `height` lines high."""
    return Pane((((" " * width, ""),),) * height, width=width)


def stack_panes(panes: Sequence[Pane]) -> Pane:
    """The panes one below the other; the width is not known where they differ in it."""
    widths = {pane.width for pane in panes if pane.height}

    def spot_at(x: int, y: int) -> Spot | None:
        """What a click on this cell of the pane chooses; None for nothing."""
        for pane in panes:
            if y < pane.height:
                return pane.spots(x, y)
            y -= pane.height
        return None

    rows = tuple(row for pane in panes for row in pane.rows)
    return Pane(rows, spot_at, widths.pop() if len(widths) == 1 else None)


def fit_pane(pane: Pane, width: int, height: int, *, ascii: bool) -> Pane:
    """The pane exactly this wide and high: cut, or filled with blanks."""
    rows = list(pane.rows[:height])
    if pane.width != width:  # measuring lines takes time: a pane of known width is spared it
        rows = [_fit_row(row, width, ascii) for row in rows]
    rows += blank(width, height - len(rows)).rows
    return Pane(tuple(rows), pane.spots, width)


def _fit_row(row: Line, width: int, ascii: bool) -> Line:
    """A line exactly this many cells wide: cut, or filled with blanks."""
    rest = width - line_width(row)
    if rest < 0:  # before a wide character, the cut line may lack a cell
        return _fit_row(clip_lines(Lines((row,)), width, ascii=ascii).rows[0], width, ascii)
    if rest:
        return (*row, (" " * rest, ""))
    return row


def beside(left: Pane, right: Pane, gap: str = "") -> Pane:
    """Two panes of equal height side by side; the left one must have a known width.

    gap: blanks between them.
    """
    assert left.width is not None
    between: Line = ()
    if gap:
        between = ((gap, ""),)
    rows = tuple((*a, *between, *b) for a, b in zip(left.rows, right.rows, strict=True))
    width = left.width
    start = left.width + len(gap)

    def spot_at(x: int, y: int) -> Spot | None:
        """What a click on this cell of the pane chooses; None for nothing."""
        if x < width:
            return left.spots(x, y)
        if x >= start:
            return right.spots(x - start, y)
        return None

    return Pane(rows, spot_at, None if right.width is None else start + right.width)


# Rankings: heads below each other by a number, with its bar; the chosen row stands out.

BAR = 28
"""Cells of the longest bar."""


class RankingRow(Struct, frozen=True):
    """One head of a ranking.

    share: how much of the longest bar its bar is, 0 to 1.
    value_text: its number as written.
    more: a remark behind the bar, "" for none.
    """

    layer: int
    head: int
    share: float
    value_text: str
    more: str = ""


def ranking(rows: Sequence[RankingRow], scene: Scene) -> Pane:
    """Rows of heads, each with a number and its bar: as many as fit, around the chosen head."""
    # the rows that are shown, with the chosen one in the middle
    view = scene.view
    room = max(scene.height, 1)
    chosen_row = min(scene.state.row, len(rows) - 1)
    top = min(max(chosen_row - room // 2, 0), max(len(rows) - room, 0))
    visible_rows = rows[top : top + room]

    # how wide names, numbers and remarks are, and what is left for bars
    names = [head_label(row.layer, row.head) for row in visible_rows]
    name_width = max(map(len, names), default=0)
    number_width = max((cells(row.value_text) for row in visible_rows), default=0)
    more_width = max((cells(row.more) for row in visible_rows), default=0)
    # 6 cells are for the blanks between them
    length = max(min(scene.width - name_width - number_width - more_width - 6, BAR), 0)

    lines: list[Line] = []
    for index, (row, name) in enumerate(zip(visible_rows, names, strict=True), top):
        text = f" {name.ljust(name_width)}  {pad(row.value_text, number_width, 'right')} "
        bar_text = ""
        if length > 3:  # a shorter bar says nothing
            bar_text = bar(row.share, length, ascii=view.ascii)
        text_style = ""
        more_style = FAINT
        if index == chosen_row:
            text_style = cursor_style(view)
            more_style = ""
        bars = bar_pieces(bar_text, bar_style(view))
        lines.append(((text, text_style), (" ", ""), *bars, (f" {row.more}", more_style)))

    def spot_at(x: int, y: int) -> Spot | None:
        """What a click on this cell of the pane chooses; None for nothing."""
        if y >= 0 and y + top < len(rows):  # not in the blanks below a short list
            return RowSpot(y + top)
        return None

    return scene.fit(Pane(tuple(lines), spot_at))


class HeadEffects(Struct, frozen=True, eq=False):
    """How far the last vector of a word turns when heads are removed.

    place: the (layer, head) asked about.
    query: the position of the word.
    key: with `query`, the link asked about.
    head: the effect of removing that head.
    cut_document: the effect of cutting that link in it; None for a link that the mask hides.
    every: the effects of removing each head in turn, None where that was not asked for.
    """

    place: Pair
    query: int
    key: int
    head: AblateDocument | None = None
    cut_document: AblateDocument | None = None
    every: AblateDocument | None = None


def cosine_of(row: EffectRow) -> float:
    """How far the word's last vector turns without a head, 1 − cosine; 0 where that is not known,
    as for a vector of zeros."""
    return getattr(row.vector, "cosine", None) or 0.0


def effect_by_head(head_effects: HeadEffects | None) -> dict[Pair, float | None] | None:
    """By (layer, head), the effect of removing each head, which colours the grid; None where that
    was not asked for. A decoder's heads over its encoder, which the grid does not have, are left
    out."""
    if head_effects is None or head_effects.every is None:
        return None
    return {
        (row.layer, row.head): cosine_of(row)
        for row in head_effects.every.effects
        if row.attention == "self"
    }


def effect_rows(head_effects: HeadEffects | None) -> list[RankingRow]:
    """The rows of the ranking of the grid's heads by the effect of removing each, the largest
    first, as the document has them; [] where that was not asked for."""
    if head_effects is None or head_effects.every is None:
        return []
    # not those over an encoder, which the grid does not have
    effects_of_heads = [row for row in head_effects.every.effects if row.attention == "self"]
    most = max((cosine_of(row) for row in effects_of_heads), default=0.0)
    rows = []
    for row in effects_of_heads:
        cosine = cosine_of(row)
        share = 0.0  # of the largest effect: the length of the bar
        value_text = "0"
        if cosine:
            share = cosine / most
            value_text = effect_text(cosine)
        rows.append(RankingRow(row.layer, row.head, share, value_text, more=_random_turn(row)))
    return rows


def _random_turn(row: EffectRow) -> str:
    """How far a random change of the same size turns the word, as written; "" for rows without one."""
    if row.random is None:
        return ""
    cosine = getattr(row.random.vector, "cosine", None)
    if cosine is None:
        return ""
    return effect_text(cosine)


def effects(scene: Scene, head_effects: HeadEffects | None) -> Pane:
    """The pane of what removing heads changed, in words; below it a ranking of all heads, if that
    was asked for.

    head_effects: None where it is not known yet.
    """
    view = scene.view
    if head_effects is None:
        return scene.fit(Pane(remark("Taking the head away …", view).rows))
    # the words that were asked about, which may not be the chosen ones any more
    state = replace(scene.state, query=head_effects.query, key=head_effects.key)
    texts: Iterable[str] = _effect_sentences(replace(scene, state=state), head_effects)
    if head_effects.every is not None:  # one paragraph, which leaves room for the ranking
        texts = [join_sentences(texts, view)]
    text_rows = stack(*(remark(text, view, style="") for text in texts)).rows
    ranking_rows = effect_rows(head_effects)
    if not ranking_rows:
        return scene.fit(Pane(text_rows))
    above = Pane((*text_rows, ()))
    below = ranking(ranking_rows, scene.with_size(scene.width, max(scene.height - above.height, 1)))
    return scene.fit(stack_panes((above, below)))


def _effect_sentences(scene: Scene, head_effects: HeadEffects) -> Iterator[str]:
    """Sentences on a removal: what was taken away, how much that changed the word's last vector,
    and what may be asked next."""
    view = scene.view
    link = link_name(scene.state, scene.loaded_run, scene.view)
    word = link.partition(arrow(view))[0]  # the query, which stands before the arrow
    if head_effects.every is not None:
        yield say(view, "How far the last vector of {word} turns without each head:", word=word)
    if head_effects.head is not None and head_effects.head.effects:
        row = head_effects.head.effects[0]  # the only one: one head was taken away
        layer, head_number = head_effects.place
        head = say(view, spoken_head(layer, head_number))
        turn = message("Without {head} the last vector of {word} turns by {size} (1 − cosine).")
        yield say(view, turn, head=head, word=word, size=effect_text(cosine_of(row)))
        if _random_turn(row):
            yield say(
                view, "A random change of the same size turns it by {size}.", size=_random_turn(row)
            )
    if head_effects.cut_document is not None and head_effects.cut_document.effects:
        cut_size = effect_text(cosine_of(head_effects.cut_document.effects[0]))
        yield say(
            view,
            "With the link {link} alone cut in this head it turns by {size}.",
            link=link,
            size=cut_size,
        )
    if head_effects.every is not None:
        yield say(view, "Behind the first rows: a random change of the same size.")
        yield say(view, "Heads are taken away one at a time: these numbers do not add up.")
    else:
        yield say(view, "e again: every head, one at a time. Esc stops.")


# Search: which heads send one word to another.


def find_pair(text: str, loaded_run: LoadedRun) -> tuple[int, int]:
    """The positions of the words in "it → animal", "it animal" or "#7 #2". Raises UsageError for
    another number of words, InputError for a word that there is not."""
    parts = [part.strip() for part in re.split(rf"{ARROW}|->", text)]
    if len(parts) != 2:
        parts = text.split()
    if len(parts) != 2 or not all(parts):
        raise UsageError(
            "{text} does not name two words",
            expected=message(
                "{link}, such as {example}",
                link=plain_link("FROM", "TO"),
                example=plain_link("it", "animal"),
            ),
            text=repr(text),
        )
    # of a word of several tokens the last one
    return (
        find_span(loaded_run.queries, parts[0]).stop - 1,
        find_span(loaded_run.keys, parts[1]).stop - 1,
    )


def search_rows(state: State, loaded_run: LoadedRun) -> list[RankingRow]:
    """The rows of the ranking of heads by their weight on the chosen link, the largest first."""
    weights = loaded_run.search(state.query, state.key)
    return [RankingRow(layer, head, weight, f"{weight:.3f}") for weight, (layer, head) in weights]


def search(scene: Scene) -> Pane:
    """The pane that ranks heads by their weight on the chosen link; a word instead where no head is
    known to have it."""
    ranking_rows = search_rows(scene.state, scene.loaded_run)
    if not ranking_rows:
        return Pane(remark("No head is known to have this link.", scene.view).rows)
    return ranking(ranking_rows, scene)


def link_name(state: State, loaded_run: LoadedRun, view: View) -> str:
    """The chosen link as `query → key`, such as `it → animal`."""
    query = loaded_run.names("queries", ascii=view.ascii)[state.query]
    key = loaded_run.names("keys", ascii=view.ascii)[state.key]
    return arrow(view).join(cut(name, 16, ascii=view.ascii) for name in (query, key))


# Why: the derivation of the chosen weight, one step at a time, each column with its sum.

STEPS = (*STEP_OF_PART, "matrices")
"""The parts of a derivation that are gone through, one at a time: five numbered steps, and all of
them as matrices.
"""


def part_title(state: State, view: View) -> str:
    """The number and the name of the derivation's step in sight; of the matrices, the name alone."""
    step = STEP_OF_PART.get(STEPS[min(state.step, len(STEPS) - 1)])
    if step is None:
        return say(view, "as matrices")
    return step_title(step, view)


def why(scene: Scene, derivation: AttentionTopic | None, *, with_words: bool) -> Pane:
    """The pane of one step of the derivation, scrolled by `state.top`; below it the formula of the
    chosen weight.

    derivation: None where it is not known yet.
    with_words: whether the pane says in words what the step does.
    """
    state = scene.state
    # 3 to 10 keys, as leave 8 lines for the words, the titles, the sum and the formula around them
    view = structs.replace(scene.view, top=min(10, max(scene.height - 8, 3)))
    if derivation is None:
        return scene.fit(Pane(remark("deriving …", view).rows))
    step = STEPS[min(state.step, len(STEPS) - 1)]
    formula = _weight_formula(derivation, state.key, view)
    room = max(scene.height - len(formula.rows) - 1, 1)  # one line says how many more there are
    # the methods of `Derivation` that draw steps have the steps' names
    if with_words:
        steps = Derivation(derivation, view)
        words = remark(steps.lead(step), view, style="")
        block = stack(words, line(""), getattr(steps, step)())
    else:
        block = _step_in_room(derivation, step, view, room)

    # as many lines of it as there is room for, and how many follow
    top = min(state.top, max(len(block.rows) - room, 0))
    lines = block.rows[top : top + room]
    lines_left = len(block.rows) - top - len(lines)
    more: Line = ()
    if lines_left:
        text = say(view, plural("↓ {count} more line", "↓ {count} more lines", count=lines_left))
        more = ((spell(text, ascii=view.ascii), FAINT),)
    rows = [*lines, *([()] * (room - len(lines))), more, *formula.rows]
    return scene.fit(Pane(tuple(rows)))


def _step_in_room(derivation: AttentionTopic, step: str, view: View, room: int) -> Lines:
    """The lines of a step of a derivation with as many keys as leave its last line, the sum, in
    sight; one line stands for the other keys.

    room: lines that there are.
    """
    # the method of `Derivation` that draws a step has the step's name; draw it with fewer keys, each on
    # a line of its own, until it fits
    keys = len(derivation.tokens) + derivation.extra_keys
    block: Lines = getattr(Derivation(derivation, view, all_keys=keys), step)()
    # (the step "matrices" does not end in a sum, and is scrolled instead)
    # as many keys go as there are lines too many; the line for these keys may be one too many again
    while step != "matrices" and len(block.rows) > room and keys > 1:
        keys = max(keys - (len(block.rows) - room), 1)
        fewer = structs.replace(view, top=keys)
        # all_keys=0: the number of keys follows `top`, however few there are
        block = getattr(Derivation(derivation, fewer, all_keys=0), step)()
    return block


def _weight_formula(derivation: AttentionTopic, key: int, view: View) -> Lines:
    """The formula of one weight of the derived row with its numbers, such as
    "w = exp(1.234 − 2.345) / 3.456 = 0.095"; that the key is hidden where the mask hides it."""
    scores = derivation.step(Scores)
    softmax = derivation.step(SoftmaxRow)
    score = None
    if key < len(scores.scores):
        score = scores.scores[key]
    if score is None or softmax.highest is None:
        return remark("The mask hides this key: its weight is 0.", view, style=accent(view))
    weight = float(np.asarray(softmax.weights)[key])
    difference = f"{score:.3f} − {softmax.highest:.3f}".replace("− -", "+ ")  # less a negative one
    formula = f"w = exp({difference}) / {softmax.sum:.3f} = {weight:.3f}"
    return remark(spell(formula, ascii=view.ascii), view, style=accent(view) or "bold")


# Parts: what the score of the chosen link is the sum of.


def parts(scene: Scene, document: WhyDocument | None) -> Pane:
    """The pane on what the score of the chosen link is made of, scrolled by `state.top`: the answer
    in words, then the parts of the query and of the key.

    document: None where it is not known yet.
    """
    # of either side, which stand below each other, as many parts, but at least 3, as leave 12 lines
    # for the words and titles around them; few=False: the view must not show fewer still
    view = structs.replace(
        scene.view, top=min(scene.view.top, max((scene.height - 12) // 2, 3)), few=False
    )
    height = scene.height
    if document is None:
        return scene.fit(Pane(remark("taking the score apart …", view).rows))
    words = remark(join_sentences(why_sentences(document, view), view), view, style="")
    block = stack(words, line(""), why_sides(document, view))
    top = min(scene.state.top, max(len(block.rows) - height, 0))
    return scene.fit(Pane(block.rows[top : top + height]))
