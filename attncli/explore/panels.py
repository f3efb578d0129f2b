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
    """The style of what is chosen, on a ground of its own."""
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
    high = _reduce_blocks(np.fmax, values, block)
    if not signed:
        return high
    low = _reduce_blocks(np.fmin, values, block)
    return np.where(np.abs(low) > np.abs(high), low, high)


def _reduce_blocks(by: np.ufunc, values: NDArray, block: int) -> NDArray:
    """A reduction, such as `np.fmax`, of every block × block cells of a matrix, float64."""
    down, across = (np.arange(0, size, block) for size in values.shape)
    values_by_block: NDArray = by.reduceat(
        by.reduceat(values, down, axis=0), across, axis=1
    ).astype(np.float64)
    return values_by_block


def levels(fractions: NDArray) -> NDArray:
    """Fractions [0, 1] as levels 0 … SHADES − 1; NaN as BLANK."""
    rounded_levels = np.nan_to_num(np.rint(fractions * (SHADES - 1)), nan=BLANK)
    return rounded_levels.astype(np.int16)


@cache
def level_style(palette: Palette, level: int) -> str:
    """The style of a level: the colour behind, a readable one in front; "" for a hidden cell."""
    if level == BLANK:
        return ""
    return palette.style(level / (SHADES - 1))


@cache
def _split_cell(palette: Palette, upper: int, lower: int) -> Piece:
    """A terminal cell that shows two shades, `upper` in its upper half and `lower` in its lower
    one, and its style.
    """
    above, below = (
        palette.colour(level / (SHADES - 1)) if level != BLANK else "" for level in (upper, lower)
    )
    if above and below:
        return "▀", f"{above} on {below}"
    if above:
        return ("▀", above)
    if below:
        return ("▄", below)
    return (" ", "")


def whole_cells(level_map: NDArray, across: int, view: View, *, signed: bool) -> list[Line]:
    """Levels [row, column] as pieces, each `across` cells wide, one for each run of one level."""
    palette = palette_of(view, signed=signed)
    mark = sign if signed else shade
    lines: list[Line] = []
    for row in level_map:
        pieces: list[Piece] = []
        for start, stop, level in _runs(row):
            is_plain = level == BLANK or (view.color and not view.ascii)
            if is_plain:
                char = " "
            else:
                char = mark(level / (SHADES - 1), ascii=view.ascii)
            pieces.append(
                (char * (stop - start) * across, level_style(palette, level) if view.color else "")
            )
        lines.append(tuple(pieces))
    return lines


def half_cells(level_map: NDArray, view: View, *, signed: bool) -> list[Line]:
    """Levels [row, column] as pieces, a cell wide and half a line high."""
    palette = palette_of(view, signed=signed)
    if len(level_map) % 2:
        level_map = np.vstack([level_map, np.full((1, level_map.shape[1]), BLANK, level_map.dtype)])
    lines: list[Line] = []
    for first_row in range(0, len(level_map), 2):
        pair = (level_map[first_row].astype(np.int32) + 1) * 64 + level_map[first_row + 1] + 1
        pieces: list[Piece] = []
        for start, stop, both in _runs(pair):
            char, cell_style = _split_cell(palette, both // 64 - 1, both % 64 - 1)
            pieces.append((char * (stop - start), cell_style))
        lines.append(tuple(pieces))
    return lines


def _runs(row: NDArray) -> list[tuple[int, int, int]]:
    """The runs of equal values in a row: (start, stop, value)."""
    if not row.size:
        return []
    cuts = [0, *(np.flatnonzero(np.diff(row)) + 1).tolist(), len(row)]
    return [(start, stop, int(row[start])) for start, stop in pairwise(cuts)]


def lay_over(pieces: Line, start: int, text: str, text_style: str) -> Line:
    """The pieces with `text` laid over them from cell `start` on; all cells one column wide."""
    out: list[Piece] = []
    column = 0
    stop = start + len(text)
    for piece, piece_style in pieces:
        end = column + len(piece)
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

    side: whether it looks or is looked at, or is of the sentence, which is about the chosen one.
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
        """A pane cut to this room, or filled with blanks."""
        return fit_pane(pane, self.width, self.height, ascii=self.view.ascii)


def blank(width: int, height: int) -> Pane:
    """A pane of blanks, this large."""
    return Pane((((" " * width, ""),),) * height, width=width)


def stack_panes(panes: Sequence[Pane]) -> Pane:
    """The panes one below the other."""
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
    if pane.width != width:  # to measure lines is what takes time
        rows = [_fit_row(row, width, ascii) for row in rows]
    rows += blank(width, height - len(rows)).rows
    return Pane(tuple(rows), pane.spots, width)


def _fit_row(row: Line, width: int, ascii: bool) -> Line:
    """A line exactly this many cells wide: cut, or filled with blanks."""
    rest = width - line_width(row)
    if rest < 0:
        return _fit_row(clip_lines(Lines((row,)), width, ascii=ascii).rows[0], width, ascii)
    if rest:
        return (*row, (" " * rest, ""))
    return row


def beside(left: Pane, right: Pane, gap: str = "") -> Pane:
    """Two panes of like height side by side, the left one of a known width.

    gap: blanks between.
    """
    assert left.width is not None
    if gap:
        between: Line = ((gap, ""),)
    else:
        between = ()
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

    share: of the bar, 0 to 1.
    value_text: its number as written.
    more: a remark behind.
    """

    layer: int
    head: int
    share: float
    value_text: str
    more: str = ""


def ranking(rows: Sequence[RankingRow], scene: Scene) -> Pane:
    """Rows of heads, each with a number and its bar: as many as fit, around the chosen head."""
    view = scene.view
    room = max(scene.height, 1)
    chosen_row = min(scene.state.row, len(rows) - 1)
    top = min(max(chosen_row - room // 2, 0), max(len(rows) - room, 0))
    visible_rows = rows[top : top + room]
    name = max((len(head_label(row.layer, row.head)) for row in visible_rows), default=0)
    number = max((cells(row.value_text) for row in visible_rows), default=0)
    more = max((cells(row.more) for row in visible_rows), default=0)
    length = max(min(scene.width - name - number - more - 6, BAR), 0)
    lines: list[Line] = []
    for index, row in enumerate(visible_rows, top):
        text = f" {head_label(row.layer, row.head).ljust(name)}  {pad(row.value_text, number, 'right')} "
        if length > 3:
            bar_text = bar(row.share, length, ascii=view.ascii)
        else:
            bar_text = ""
        text_style, more_style = (cursor_style(view), "") if index == chosen_row else ("", FAINT)
        bars = bar_pieces(bar_text, bar_style(view))
        lines.append(((text, text_style), (" ", ""), *bars, (f" {row.more}", more_style)))

    def spot_at(x: int, y: int) -> Spot | None:
        """What a click on this cell of the pane chooses; None for nothing."""
        if y >= 0 and y + top < len(rows):
            return RowSpot(y + top)
        return None

    return scene.fit(Pane(tuple(lines), spot_at))


class HeadEffects(Struct, frozen=True, eq=False):
    """What removing heads changed.

    place, query, key: the (layer, head), the word and the link asked about.

    head: that head taken away.
    cut_document: the link cut in it.
    every: each head taken away, None where that was not asked.
    """

    place: Pair
    query: int
    key: int
    head: AblateDocument | None = None
    cut_document: AblateDocument | None = None
    every: AblateDocument | None = None


def cosine_of(row: EffectRow) -> float:
    """How far the word's last vector turns without a head, 1 − cosine; 0 where it is undefined."""
    return getattr(row.vector, "cosine", None) or 0.0


def effect_by_head(head_effects: HeadEffects | None) -> dict[Pair, float | None] | None:
    """The effect of every head, by which the grid is coloured; None where not all were taken away."""
    if head_effects is None or head_effects.every is None:
        return None
    return {
        (row.layer, row.head): cosine_of(row)
        for row in head_effects.every.effects
        if row.attention == "self"
    }


def effect_rows(head_effects: HeadEffects | None) -> list[RankingRow]:
    """The ranking of all heads, the largest effect first."""
    if head_effects is None or head_effects.every is None:
        return []
    every = [row for row in head_effects.every.effects if row.attention == "self"]
    most = max((cosine_of(row) for row in every), default=0.0)
    return [
        RankingRow(
            row.layer,
            row.head,
            cosine / most if most else 0.0,
            effect_text(cosine) if cosine else "0",
            _random_turn(row),
        )
        for row, cosine in zip(every, map(cosine_of, every), strict=True)
    ]


def _random_turn(row: EffectRow) -> str:
    """How far a random change of the same size turns the word, as written; "" for rows without one."""
    if row.random is None:
        cosine = None
    else:
        cosine = getattr(row.random.vector, "cosine", None)
    if cosine is None:
        return ""
    return effect_text(cosine)


def effects(scene: Scene, head_effects: HeadEffects | None) -> Pane:
    """What taking heads away changed, in words; then all heads, if they were asked for. None: it is
    not known yet.
    """
    view = scene.view
    if head_effects is None:
        return scene.fit(Pane(remark("Taking the head away …", view).rows))
    state = replace(scene.state, query=head_effects.query, key=head_effects.key)
    texts: Iterable[str] = _effect_sentences(replace(scene, state=state), head_effects)
    if head_effects.every is not None:
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
    word = link.partition(arrow(view))[0]
    if head_effects.every is not None:
        yield say(view, "How far the last vector of {word} turns without each head:", word=word)
    if head_effects.head is not None and head_effects.head.effects:
        row, (layer, head_number) = head_effects.head.effects[0], head_effects.place
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
    return (
        find_span(loaded_run.queries, parts[0]).stop - 1,
        find_span(loaded_run.keys, parts[1]).stop - 1,
    )


def search_rows(state: State, loaded_run: LoadedRun) -> list[RankingRow]:
    """Every head with its weight of the chosen link, the largest first."""
    weights = loaded_run.search(state.query, state.key)
    return [RankingRow(layer, head, weight, f"{weight:.3f}") for weight, (layer, head) in weights]


def search(scene: Scene) -> Pane:
    """The heads by the weight of the chosen link; each row's head is chosen as one moves along it."""
    ranking_rows = search_rows(scene.state, scene.loaded_run)
    if not ranking_rows:
        return Pane(remark("No head is known to have this link.", scene.view).rows)
    return ranking(ranking_rows, scene)


def link_name(state: State, loaded_run: LoadedRun, view: View) -> str:
    """The chosen link as `query → key`, such as `it → animal`."""
    queries, keys = (loaded_run.names(side, ascii=view.ascii) for side in ("queries", "keys"))
    texts = [cut(name, 16, ascii=view.ascii) for name in (queries[state.query], keys[state.key])]
    return arrow(view).join(texts)


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
    """A step of the derivation, from the line on that is its first; below it the chosen weight in
    one line.

    derivation: None where it is not known yet.
    with_words: whether it says in words what the step does.
    """
    state = scene.state
    view = structs.replace(scene.view, top=min(10, max(scene.height - 8, 3)))
    if derivation is None:
        return scene.fit(Pane(remark("deriving …", view).rows))
    step = STEPS[min(state.step, len(STEPS) - 1)]
    formula = _weight_formula(derivation, state.key, view)
    room = max(scene.height - len(formula.rows) - 1, 1)
    if with_words:
        steps = Derivation(derivation, view)
        words = remark(steps.lead(step), view, style="")
        block = stack(words, line(""), getattr(steps, step)())
    else:
        block = _step_in_room(derivation, step, view, room)
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
    """A step of a derivation with as many keys as leave its last line in sight; one line stands for
    the others.
    """
    keys = len(derivation.tokens) + derivation.extra_keys
    block: Lines = getattr(Derivation(derivation, view, keys), step)()
    while step != "matrices" and len(block.rows) > room and keys > 1:
        keys = max(min(keys - 1, keys - (len(block.rows) - room)), 1)
        block = getattr(Derivation(derivation, structs.replace(view, top=keys), 0), step)()
    return block


def _weight_formula(derivation: AttentionTopic, key: int, view: View) -> Lines:
    """The chosen weight from its score: exp(score − max) / sum."""
    scores = derivation.step(Scores)
    softmax = derivation.step(SoftmaxRow)
    if key < len(scores.scores):
        score = scores.scores[key]
    else:
        score = None
    if score is None or softmax.highest is None:
        return remark("The mask hides this key: its weight is 0.", view, style=accent(view))
    weight = float(np.asarray(softmax.weights)[key])
    formula = (
        f"w = exp({score:.3f} − {softmax.highest:.3f}) / {softmax.sum:.3f} = {weight:.3f}".replace(
            "− -", "+ "
        )
    )
    return remark(spell(formula, ascii=view.ascii), view, style=accent(view) or "bold")


# Parts: what the score of the chosen link is the sum of.


def parts(scene: Scene, document: WhyDocument | None) -> Pane:
    """Draw what the score of the chosen link is made of: the answer in words, then the parts of
    both sides."""
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
