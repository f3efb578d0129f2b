"""The frame: a line that says what runs, the grid beside what is looked at, the sentence with its
links, the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, structs

from attncli.draw.lines import FAINT, Line, Lines, Piece, join_sentences, line_width, remark
from attncli.draw.names import link_label
from attncli.draw.numbers import bar, bar_pieces, format_signed, percent
from attncli.draw.safe import cells, cut, label, pad, safe, spell, wrap
from attncli.draw.sentence import (
    LEAST,
    MARKS,
    MARKS_ASCII,
    SECOND,
    Word,
    is_nearly_even,
    looks_most_sentence,
    not_learned_note,
    words,
)
from attncli.draw.shaded_matrix import bar_style, palette_of, shade, sign, tint
from attncli.draw.token_names import bare_text, rest_names, resting_reason, unknown_words_sentence
from attncli.draw.view import View
from attncli.explore.head_grid import MEASURE_NAMES, grid, head_cell_width, head_summary, matrix
from attncli.explore.loaded_run import LoadedRun, Pair
from attncli.explore.panels import (
    SHADES,
    KeySpot,
    Pane,
    Scene,
    Spot,
    WordSpot,
    accent,
    beside,
    blank,
    stack_panes,
)
from attncli.explore.state import KEYS
from attncli.features.rules.screen import mixture_text
from attncli.inputs.token import Token
from attncli.language import contextual, message, plural, say
from attncli.mechanism.spec import spoken_head

NEAR = 200
"""Words before and behind the chosen one that the sentence has at most."""


def shares(scene: Scene) -> list[float | None]:
    """The chosen head's weights: of the chosen query on each key, or, where the view is turned, of
    each query on the chosen key; 0 for a query that sees nothing, None for each where there are no
    weights."""
    state = scene.state
    loaded_run = scene.loaded_run
    place = (scene.state.layer, scene.state.head)
    if state.is_turned:
        weights = loaded_run.column(place, state.key)
    else:
        weights = loaded_run.row(place, state.query)
    if weights is None:
        return [None] * len(loaded_run.queries if state.is_turned else loaded_run.keys)
    return [float(value) for value in np.nan_to_num(weights)]


def _shares_beyond_rest(scene: Scene) -> list[float | None]:
    """The chosen head's weights as `shares` has them, with 0 for the keys where heads rest: the
    first token and the like, which get weight whatever the text says."""
    all_shares = shares(scene)
    if scene.state.is_turned:
        return all_shares
    beyond_rest = []
    for share, is_resting in zip(all_shares, scene.loaded_run.rest.tolist(), strict=True):
        if is_resting and share is not None:
            share = 0.0
        beyond_rest.append(share)
    return beyond_rest


def sentence(scene: Scene) -> Pane:
    """The text's words, shaded by the chosen head's weights, but not the keys where heads rest
    whatever the text says (the first token and the like); of a long text, the lines around the
    chosen word.

    The words are the keys of the chosen query, or, where the view is turned, the queries of the
    chosen key.
    """
    state = scene.state
    loaded_run = scene.loaded_run
    width = scene.width
    height = scene.height
    record = loaded_run.record
    if state.is_turned:
        tokens: Sequence[Token] = loaded_run.queries
        other_end = state.query
    else:
        tokens = loaded_run.keys
        other_end = state.key
    text: str | None = None
    chosen_indices = frozenset[int]()
    if record.sides.is_one_text:
        # across two texts, the chosen word stands in the other one
        text = record.text
        chosen_indices = frozenset({state.word})
    # of a long text, no more than can be seen
    near = slice(max(state.word - NEAR, 0), state.word + NEAR)
    sentence_words = words(text, tokens[near], _shares_beyond_rest(scene)[near], chosen_indices)

    # fill lines word by word; of each line note which cells hold which word, for clicks
    rows: list[Line] = []
    row_spans: list[list[tuple[int, int, int]]] = []
    row: list[Piece] = []
    spans: list[tuple[int, int, int]] = []  # (first cell, cell behind the last, index of the word)
    column = 0
    row_of_chosen = 0
    for index, word in enumerate(sentence_words, near.start):
        pieces = _word_pieces(word, scene.view, width, is_pair_end=index == other_end)
        size = sum(cells(piece) for piece, _ in pieces)
        gap = 1 if row and word.apart else 0
        if row and column + gap + size > width:
            rows.append(tuple(row))
            row_spans.append(spans)
            row = []
            spans = []
            column = 0
            gap = 0
        if word.is_chosen:
            row_of_chosen = len(rows)
        if gap:
            row.append((" ", ""))
        row += pieces
        spans.append((column + gap, column + gap + size, index))
        column += gap + size
    rows.append(tuple(row))
    row_spans.append(spans)

    # the lines that are shown, with the chosen word's in the middle
    start = min(max(row_of_chosen - height // 2, 0), max(len(rows) - height, 0))

    def spot_at(x: int, y: int) -> Spot | None:
        """What a click on this cell of the pane chooses; None for nothing."""
        if y + start < len(row_spans):
            for low, high, index in row_spans[y + start]:
                if low <= x < high:
                    return WordSpot(index)
        return None

    return Pane(tuple(rows[start : start + height]), spot_at)


def _word_pieces(word: Word, view: View, width: int, *, is_pair_end: bool) -> list[Piece]:
    """The (text, style) pieces of one word: tinted by its share or, without colour, between marks
    for it; in brackets if it is chosen.

    width: the most cells that the word may take.
    is_pair_end: whether it is the other end of the chosen pair, which is underlined.
    """
    # 4 cells stay free, for brackets and marks on both sides
    text = cut(safe(word.text, ascii=view.ascii), max(width - 4, 1), ascii=view.ascii)
    word_style = FAINT if word.quiet else ""
    if word.share is not None and word.share >= LEAST:
        if view.color:
            word_style = tint(word.share, view)
        else:  # one of four marks, one for each quarter from 0 to 1
            mark = (MARKS_ASCII if view.ascii else MARKS)[min(int(word.share * 4), 3)]
            text = f"{mark}{text}{mark}"
    if word.is_chosen:
        return [("[", "bold"), (text, f"bold {word_style}".strip()), ("]", "bold")]
    if is_pair_end:
        word_style = f"underline {word_style}".strip()
    return [(text, word_style)]


def answer(scene: Scene) -> Pane:
    """Sentences on the chosen word in the chosen head: what it looks at, or who looks at it; the
    chosen weight; and whether the weights are learned. As many of them as there is room for."""
    loaded_run = scene.loaded_run
    view = scene.view
    # the most important first, for the last sentences may find no room
    sentences = _look_sentences(scene)
    unknown, word_count = loaded_run.unknown_count
    if unknown:  # straight behind the sentence on where the word looks, whose words it qualifies
        sentences.insert(1, unknown_words_sentence(unknown, word_count, view))
    sentences += _weight_sentences(scene)
    rule_sentences = _rule_sentences(scene)
    if scene.state.focus == "heads":
        sentences = [*rule_sentences, *sentences]
    else:
        sentences += rule_sentences
    if loaded_run.record.model is not None:
        sentences.append(not_learned_note(loaded_run.record.model, view))

    # as many of the first sentences as fit, one at least
    rows = Lines()
    for count in range(1, len(sentences) + 1):
        longer = remark(
            spell(join_sentences(sentences[:count], view), ascii=view.ascii), view, style=""
        )
        if count > 1 and len(longer.rows) > scene.height:
            break
        rows = longer
    return Pane(rows.rows)


def _rule_sentences(scene: Scene) -> list[str]:
    """Sentences on which simple rules describe the chosen head; none where the run has no rules."""
    state = scene.state
    mixture = scene.loaded_run.rules.get((state.layer, state.head))
    if mixture is None:
        return []
    return [
        say(
            scene.view,
            "Its rules say {share} on unseen texts: {mixture}.",
            mixture=mixture_text(mixture, scene.view),
            share=percent(mixture.overlap),
        )
    ]


def _weight_sentences(scene: Scene) -> list[str]:
    """The sentence, in a list, on the weight between the two chosen words, or that the mask hides
    it; an empty list where it is not known. Where two heads are compared, the sentence tells both
    weights: that of the chosen head, and that of the head which is subtracted from it, called A on
    the screen.
    """
    state = scene.state
    loaded_run = scene.loaded_run
    view = scene.view
    if state.query >= len(loaded_run.queries) or state.key >= len(loaded_run.keys):
        return []
    query = _word_text(loaded_run, loaded_run.queries[state.query], view)
    key = _word_text(loaded_run, loaded_run.keys[state.key], view)
    place = (state.layer, state.head)
    compared_head = state.compared_head
    weight = loaded_run.weight(place, state.query, state.key)
    if weight is None:
        # the row is there, so the weight is not unknown but hidden
        is_hidden = loaded_run.row(place, state.query) is not None
        if is_hidden:
            return [say(view, "The mask hides {key} from {query}.", query=query, key=key)]
        return []
    # the weight in A; None where no heads are compared, or where A's weight is hidden or unknown
    if compared_head is None:
        subtracted = None
    else:
        subtracted = loaded_run.weight(compared_head, state.query, state.key)
    if subtracted is None:
        sentence = message(
            "The chosen weight, {link}, is {weight}.",
            link=link_label(query, key, view),
            weight=f"{weight:.3f}",
        )
    else:
        sentence = message(
            "The chosen weight, {link}, is {weight} here and {subtracted} in A: {difference}.",
            link=link_label(query, key, view),
            weight=f"{weight:.3f}",
            subtracted=f"{subtracted:.3f}",
            difference=format_signed(weight - subtracted, 3).replace("-", "−"),
        )
    return [say(view, sentence)]


def _is_itself(scene: Scene, others: list[int]) -> bool:
    """Whether the one word at the other end of the chosen word's link is that word itself.

    others: by index, the words at the other end.
    """
    return scene.loaded_run.record.sides.is_one_text and others == [scene.state.word]


def _looked_at_sentence(query: str, key: str, weight: float, view: View, *, itself: bool) -> str:
    """A sentence that says which query looks at a key most.

    itself: whether that is the key's own query.
    """
    template = message("{query} looks at {key} most: {share} of its weight.")
    if itself:
        template = message("{query} gets most from itself: {share} of its weight.")
    return say(view, template, query=query, key=key, share=percent(weight))


def _look_sentences(scene: Scene) -> list[str]:
    """Sentences on what the chosen word looks at most or, turned, which word looks at it most; an
    empty list where no weights are known.
    """
    state = scene.state
    loaded_run = scene.loaded_run
    view = scene.view
    # all are None, and so 0 here, where the head's weights are not known
    weights = np.array([share or 0.0 for share in _shares_beyond_rest(scene)])
    if not weights.size or (state.layer, state.head) not in loaded_run.heads:
        return []
    # the side of the chosen word, and the side that it looks at or is looked at from
    own_side = loaded_run.queries
    far_side = loaded_run.keys
    if state.is_turned:
        own_side = loaded_run.keys
        far_side = loaded_run.queries
    word = own_side[state.word]
    word_text = _word_text(loaded_run, word, view)
    order = np.argsort(-weights, kind="stable")
    first = int(order[0])
    second = int(order[min(1, len(order) - 1)])  # the first again where it is the only one

    # a word that heads rest on, and a word without weights
    if state.is_turned and loaded_run.rest[state.word]:
        return [resting_reason(word, state.word, word_text, view)]
    rest_sentences = _rested_sentences(scene, word_text)
    if weights[first] <= 0 and rest_sentences:
        return rest_sentences
    if weights[first] <= 0:
        # the weights of a head are known for all rows or for none, so that row 0 tells
        if loaded_run.row((state.layer, state.head), 0) is None:
            return []
        if state.is_turned:
            return [say(view, "No word sees {key}.", key=word_text)]
        template = message("{query} can see no word: its weights and its weighted sum A·V are 0.")
        return [say(view, template, query=word_text)]

    # the strongest link, or that there is none above all others
    if state.is_turned:
        query = _word_text(loaded_run, far_side[first], view)
        is_own = _is_itself(scene, [first])
        return [_looked_at_sentence(query, word_text, float(weights[first]), view, itself=is_own)]
    visible_count = int(np.count_nonzero(weights > 0))  # the first is one of them
    if is_nearly_even(float(weights[first]), visible_count) and not rest_sentences:
        spread = message(
            "{query} spreads its weight almost evenly: no word gets more than {weight}, and an even"
            " share is {even}.",
            query=word_text,
            weight=f"{weights[first]:.2f}",
            even=f"{1 / visible_count:.2f}",
        )
        return [say(view, spread)]
    # the second is named, too, where its weight is not far below the first's
    indices = [first]
    if second != first and weights[second] >= SECOND * weights[first]:
        indices = [first, second]
    keys = [
        (_word_text(loaded_run, far_side[index], view), float(weights[index])) for index in indices
    ]
    is_own = _is_itself(scene, indices)
    return [looks_most_sentence(word_text, keys, view, itself=is_own), *rest_sentences]


def _rested_sentences(scene: Scene, query: str) -> list[str]:
    """The sentence, in a list, on how much of the chosen query's weight is on keys where heads rest
    whatever the text says (the first token and the like); an empty list where none is.

    query: the query's name.
    """
    loaded_run = scene.loaded_run
    if scene.state.is_turned or not loaded_run.rest.any():
        return []
    # all are None, and so 0 here, where the head's weights are not known
    weights = np.array([share or 0.0 for share in shares(scene)])
    rested = float(weights[loaded_run.rest].sum())
    if rested <= 0:
        return []
    return [
        say(
            scene.view,
            "In this head {share} of the weight of {query} rests on {rest}.",
            share=percent(rested),
            query=query,
            rest=rest_names(loaded_run.keys),
        )
    ]


def _word_text(loaded_run: LoadedRun, token: Token, view: View) -> str:
    """A token in quotation marks, as a sentence names it: a piece with the word that it is a piece
    of, and a note for one that the model does not know.
    """
    text = cut(
        label(bare_text(token).strip() or token.text, ascii=view.ascii), 24, ascii=view.ascii
    )
    name = say(view, '"{text}"', text=text)
    if token.unknown:
        return say(view, "{name} (unknown)", name=name)
    piece = loaded_run.pieces.get(token.index)
    if piece is None:
        return name
    word = say(view, '"{text}"', text=cut(piece.word, 24, ascii=view.ascii))
    if piece.is_bytes:
        return say(view, "a piece of {word}", word=word)
    return say(view, "{name} (a piece of {word})", name=name, word=word)


# Links: two columns of the words, and lines from the chosen one to what it looks at, or from who
# looks at it.

NAME, LINE, BAR = 14, 9, 24
"""Cells of a word, of the lines between, and of the longest bar."""


def links(scene: Scene) -> Pane:
    """The links of the chosen word: words in two columns, on the left those that look, on the right
    those looked at.

    Of more words than lines, those with the largest shares and the chosen one.
    """
    # all are None, and so 0 here, where the head's weights are not known
    weights = np.array([share or 0.0 for share in shares(scene)])
    indices = _linked_words(weights, scene)

    # how wide the columns of words and the bars are
    names = [scene.loaded_run.names(side, ascii=scene.view.ascii) for side in ("queries", "keys")]
    widest = max(
        scene.loaded_run.widest(side, ascii=scene.view.ascii) for side in ("queries", "keys")
    )
    # in a narrow pane both names take two thirds of what the lines leave, the share the rest
    name_width = min(widest, NAME, max((scene.width - LINE) // 3, 3))
    room = max(min(scene.width - 2 * name_width - LINE - 7, BAR), 0)  # 7 cells are for the number

    # the rows that lines lead to, and the row that they come from
    linked_rows = [row for row, index in enumerate(indices) if weights[index] >= LEAST]
    origin = 0  # where the chosen word is none of these, as of two texts of other lengths
    if scene.state.word in indices:
        origin = indices.index(scene.state.word)
    rows: list[Line] = []
    for row, index in enumerate(indices):
        query, key = _link_ends(index, float(weights[index]), names, name_width, scene)
        connector = _connector(
            row, origin, linked_rows, scene.view, is_turned=scene.state.is_turned
        )
        if row in linked_rows or row == origin:
            line_style = ""
        else:
            line_style = FAINT
        value = _share_pieces(float(weights[index]), room, scene.view)
        rows.append((query, (connector, line_style), key, *value))

    def spot_at(x: int, y: int) -> Spot | None:
        """What a click on this cell of the pane chooses; None for nothing."""
        if y >= len(indices):
            return None
        return WordSpot(indices[y], "query" if x < name_width + LINE // 2 else "key")

    return scene.fit(Pane(tuple(rows), spot_at))


def _linked_words(weights: np.ndarray[Any, Any], scene: Scene) -> list[int]:
    """The positions of the words that stand in the pane of links, a line each: all, or of more
    words than lines the chosen one and those with the largest shares.

    weights: the share of each word.
    """
    lines = scene.height
    indices = set(range(len(weights)))
    if len(weights) > lines:
        order = np.argsort(-weights, kind="stable")
        indices = {scene.state.word, *order[: max(lines - 1, 1)].tolist()}
    return sorted(index for index in indices if index < len(weights))[:lines]


def _link_ends(
    index: int, share: float, names: Sequence[Sequence[str]], name_width: int, scene: Scene
) -> tuple[Piece, Piece]:
    """A word's two pieces in the pane of links, as a query at the left and as a key at the right.
    On the side of the chosen word it is styled by whether it is the chosen one, on the other side
    by its share.

    index: the word's position.
    names: of all queries, and of all keys.
    """
    view = scene.view
    texts = []
    for side, align in zip(names, ("right", "left"), strict=True):
        name = ""
        if index < len(side):  # of two texts, one may be shorter
            name = side[index]
        texts.append(pad(cut(name, name_width, ascii=view.ascii), name_width, align))
    share_style = ""
    if share < LEAST:
        share_style = FAINT
    elif view.color:
        share_style = tint(share, view)
    chosen_style = FAINT
    if index == scene.state.word:
        chosen_style = accent(view) or "bold"
    if scene.state.is_turned:
        return (texts[0], share_style), (texts[1], chosen_style)
    return (texts[0], chosen_style), (texts[1], share_style)


def _share_pieces(share: float, room: int, view: View) -> list[Piece]:
    """A share as a number, and as a bar where there are cells for one."""
    pieces: list[Piece] = [(f" {share:.2f} ", "bold" if share >= 0.5 else FAINT)]
    if room > 3:
        pieces += bar_pieces(bar(share, room, ascii=view.ascii), bar_style(view))
    return pieces


def _connector(
    row: int, origin: int, linked_rows: list[int], view: View, *, is_turned: bool
) -> str:
    """One row of the lines between the two columns of links, `LINE` cells: a vertical trunk that
    starts at the row of the chosen word, and a branch to each linked word, such as " ───┼──▸ ".

    row: the one drawn.
    origin: the row of the chosen word.
    linked_rows: the rows that have a branch.
    is_turned: whether lines lead from words at the left to the chosen word at the right.
    """
    low = min([origin, *linked_rows])
    high = max([origin, *linked_rows])
    inside = low <= row <= high and bool(linked_rows)
    branch = row in linked_rows
    root = row == origin and bool(linked_rows)
    # the stem leads from the left to the trunk, the arm from the trunk to the right
    if is_turned:
        west = branch
        east = root
    else:
        west = root
        east = branch
    if view.ascii:
        stem = "---" if west else "   "
        arm = "--->" if east else "    "
        joint = " "
        if root or branch:
            joint = "+"
        elif inside:
            joint = "|"
        return f" {stem}{joint}{arm}"
    up = inside and row > low
    down = inside and row < high
    stem = " " + ("───" if west else "   ")
    arm = "──▸ " if east else "    "
    # the sign where the trunk meets the lines of this row
    directions = (("up", up), ("down", down), ("west", west), ("east", east))
    joined = [name for name, is_there in directions if is_there]
    return stem + JOINTS["-".join(joined)] + arm


JOINTS = {
    "": " ",
    "east": "─",
    "west": "─",
    "west-east": "─",
    "down": "│",
    "down-east": "┌",
    "down-west": "┐",
    "down-west-east": "┬",
    "up": "│",
    "up-east": "└",
    "up-west": "┘",
    "up-west-east": "┴",
    "up-down": "│",
    "up-down-east": "├",
    "up-down-west": "┤",
    "up-down-west-east": "┼",
}
"""The sign in which lines from these directions meet."""


LEAST_WIDTH, LEAST_HEIGHT = 40, 12
"""Below this there is nothing to see."""
LAST = ("help", "quit")
"""Keys that the footer always has."""
DrawPane = Callable[[Scene], Pane]


class Notice(Struct, frozen=True):
    """What the screen tells for the moment.

    message: a line in place of the answer, "" for none.
    working, share: the name of the work in progress, and how much of it is done, 0 to 1; None for
        no work.
    """

    message: str = ""
    working: str = ""
    share: float | None = None


class Frame(Struct, frozen=True, eq=False):
    """Everything the screen shows.

    scene: of the whole screen.
    right: draws the pane on the right, None for the matrix.
    title: of that pane; "" for the matrix's.
    whole: draws over everything between header and footer; None for nothing.
    values: by head, the numbers that colour the heads in place of the chosen measure; None
        where the measure colours them.
    measure: what these numbers are called.
    tour_text: shown in place of the answer, "" outside the tour.
    """

    scene: Scene
    notice: Notice
    right: DrawPane | None
    title: str
    whole: DrawPane | None
    values: dict[Pair, float | None] | None
    measure: str
    tour_text: str


def draw_frame(frame: Frame) -> Pane:
    """The screen, exactly as large as its scene."""
    scene = frame.scene
    width = frame.scene.width
    room = frame.scene.height - 3  # lines between the header with its rule and the footer
    if width < LEAST_WIDTH or scene.height < LEAST_HEIGHT:
        return scene.fit(_small_window_pane(scene))
    if scene.view.ascii:
        rule = "-" * width
    else:
        rule = "─" * width
    top = scene.with_size(width, 2).fit(Pane((_header(frame), ((rule, FAINT),))))
    foot = scene.with_size(width, 1).fit(_footer(scene))
    if frame.whole is not None:
        # a column stays blank on both sides
        body = scene.with_size(width - 1, room).fit(frame.whole(scene.with_size(width - 2, room)))
        return stack_panes((top, beside(blank(1, room), body), foot))
    answer_pane = _answer_pane(frame, room)
    body = _body(frame, scene.with_size(width, room - answer_pane.height))
    return stack_panes((top, body, answer_pane, foot))


SCALE_NAMES = {
    "row": message("each row"),
    "log": message("logarithmic"),
    "rest": message("without first token"),
}
"""What the colour scales are called, but the plain one."""

SOURCES = {
    "seeded": message("seeded ({seed})"),
    "random": message("random ({seed})"),
    "file": message("weight file"),
    "checkpoint": message("checkpoint"),
    "tensors": message("captured tensors"),
}
"""Where the weights of a model without a name are from."""


def _small_window_pane(scene: Scene) -> Pane:
    """The pane of a window that is too small: how large it must be, as a sentence, or the size
    alone where a sentence does not fit."""
    size = {"width": LEAST_WIDTH, "height": LEAST_HEIGHT}
    text = say(scene.view, "the window is too small: at least {width} × {height}", **size)
    rows = wrap(spell(text, ascii=scene.view.ascii), scene.width, ascii=scene.view.ascii)
    if len(rows) > scene.height or scene.width < len("window"):
        rows = [spell(f"{LEAST_WIDTH} × {LEAST_HEIGHT}", ascii=scene.view.ascii)]
    return Pane(tuple(((row, ""),) for row in rows))


def _body(frame: Frame, scene: Scene) -> Pane:
    """The middle of the screen: at the left the grid of heads with the chosen head below it, at the
    right what is looked at."""
    left_width = _heads_width(scene)
    heads = _heads_pane(frame, scene.with_size(left_width, scene.height))
    # the two sides stand two cells apart, and one cell stays free at either edge
    room = scene.width - left_width - 4
    right = _words_pane(frame, scene.with_size(room, scene.height))
    left = beside(blank(1, scene.height), heads)
    return scene.fit(beside(left, right, "  "))


def _heads_width(scene: Scene) -> int:
    """How many cells wide the grid of heads is: as many as it needs, at most two fifths of a wide
    window and a third of a narrow one."""
    extent = scene.loaded_run.extent
    most = scene.width // 3
    if scene.width >= 64:  # where three fifths are enough for the words
        most = scene.width * 2 // 5
    needed = extent.columns * head_cell_width(extent, most) + extent.edge
    # in fewer than 26 cells the summary of the chosen head below the grid has no room
    return min(max(needed, min(26, most)), most)


def _heads_pane(frame: Frame, scene: Scene) -> Pane:
    """The grid of heads under its title; below it the chosen head, where three lines are left."""
    view = scene.view
    state = scene.state
    # a line for each layer, and one of numbers above them
    grid_lines = min(len(scene.loaded_run.extent.heads) + 1, max(scene.height - 1, 2))
    summary_lines = scene.height - grid_lines - 2
    grid_height = scene.height - 1
    below: list[Pane] = []
    if summary_lines >= 3:
        grid_height -= summary_lines + 1
        below = [blank(scene.width, 1), head_summary(scene.with_size(scene.width, summary_lines))]
    name = frame.measure or say(view, MEASURE_NAMES[state.measure], word=_chosen_word(scene))
    title = Pane((_title(name, view, is_focused=state.focus == "heads"),))
    heads = grid(scene.with_size(scene.width, grid_height), values=frame.values)
    return scene.fit(stack_panes((scene.with_size(scene.width, 1).fit(title), heads, *below)))


def _words_pane(frame: Frame, scene: Scene) -> Pane:
    """The main pane, the matrix of words or the view shown in its place, under its title and its
    legend."""
    view = scene.view
    name = frame.title or say(view, "weights · who looks (rows) at whom (columns)")
    title = _title(name, view, is_focused=scene.state.focus == "words")
    legend: Line = ()
    if frame.right is None:  # only the matrix has colours to explain
        legend = _legend(scene)
    # the legend ends at the right edge, where there is room for it
    heading: Line = title
    free = scene.width - line_width(title) - line_width(legend)
    if free > 1:
        heading = (*title, (" " * free, ""), *legend)
    above = scene.with_size(scene.width, 1).fit(Pane((heading,)))
    rest = scene.with_size(scene.width, scene.height - 1)
    draw = frame.right or matrix
    return stack_panes((above, rest.fit(draw(rest))))


def _chosen_word(scene: Scene) -> str:
    """The word that the sentence is about, as the grid's title names it; "" of a text without
    words.
    """
    side = "queries"
    if scene.state.is_turned:
        side = "keys"
    names = scene.loaded_run.names(side, ascii=scene.view.ascii)
    if not names:
        return ""
    return cut(names[scene.state.word], 14)


def _title(text: str, view: View, *, is_focused: bool) -> Line:
    """The line with the title of a part of the screen.

    is_focused: whether the arrows move that part, whose title is bold behind a mark.
    """
    if is_focused:
        mark = ">" if view.ascii else "▸"
    else:
        mark = " "
    return ((mark, accent(view)), (spell(text, ascii=view.ascii), "bold" if is_focused else ""))


def _legend(scene: Scene) -> Line:
    """The legend of the grid: what is left out or how weights are scaled (nothing for the plain
    scale and for a difference of two heads), then the shades between their two ends."""
    view = scene.view
    state = scene.state
    signed = state.compared_head is not None
    if view.color and not view.ascii:
        palette = palette_of(view, signed=signed)
        # every third shade: more would take too much room
        shades = [palette.colour(number / (SHADES - 1)) for number in range(0, SHADES, 3)]
        ramp: list[Piece] = [(" ", f"on {colour}") for colour in shades]
    else:  # eight marks in place of colours, from 0 to 1
        mark = sign if signed else shade
        ramp = [(mark(number / 7, ascii=view.ascii), "") for number in range(8)]
    if state.scale == "linear":
        most = "1"
    else:
        # the darkest shade is no fixed weight: it depends on the row or grid
        most = say(view, contextual("colour scale", "most"))
    low, high = ("−", "+") if signed else ("0", most)
    if not signed and state.scale == "rest" and scene.loaded_run.rest.any():
        name = say(view, "without rest")
    elif not signed and state.scale in SCALE_NAMES:
        name = say(view, SCALE_NAMES[state.scale])
    else:
        name = ""
    return (
        (f"{spell(name, ascii=view.ascii)} " if name else "", FAINT),
        (spell(low, ascii=view.ascii), FAINT),
        *ramp,
        (spell(high, ascii=view.ascii), FAINT),
    )


def _answer_pane(frame: Frame, room: int) -> Pane:
    """The sentence, and below it the answer or, in its place, a notice or the words of the tour.

    room: lines between header and footer.
    """
    width = frame.scene.width - 2  # a column stays blank on both sides
    view = structs.replace(frame.scene.view, width=width)
    # lines of the sentence and of the answer, at most: a lower window leaves less to them
    if room < 24:
        sentence_lines = 2
        answer_lines = 2
    elif room < 30:
        sentence_lines = 3
        answer_lines = 3
    else:
        sentence_lines = 5
        answer_lines = 4
    if frame.tour_text:
        # four lines in a low window too: there is no other place for what the tour says
        text_rows = remark(frame.tour_text, view, style=accent(view)).rows[:4]
    elif frame.notice.message:
        text = cut(safe(frame.notice.message, ascii=view.ascii), width, ascii=view.ascii)
        text_rows = (((text, accent(view) or "bold"),),)
    else:
        text_rows = answer(frame.scene.with_size(width, answer_lines)).rows[:answer_lines]
    sentence_pane = sentence(frame.scene.with_size(width, sentence_lines))
    height = 1 + sentence_pane.height + len(text_rows)  # 1: a blank line above
    both = stack_panes((Pane(((),)), sentence_pane, Pane(text_rows)))
    return beside(blank(1, height), frame.scene.with_size(width + 1, height).fit(both))


def _header(frame: Frame) -> Line:
    """The first line of the screen: at the left the model, its sizes and the text's; at the right
    the chosen head, or how far work has come."""
    scene = frame.scene
    notice = frame.notice
    view = frame.scene.view
    record = scene.loaded_run.record
    model = record.model
    parts = ["attn explore"]
    if model is not None:
        if model.layers == 1:
            sizes = say(view, "1 layer × {heads} heads", heads=model.heads)
        else:
            sizes = say(
                view, "{layers} layers × {heads} heads", layers=model.layers, heads=model.heads
            )
        name = record.name or model.name or say(view, SOURCES[model.source], seed=model.seed)
        parts = [safe(name, ascii=view.ascii)]
        if model.family:
            parts.append(model.family)
        parts.append(sizes)
        if record.attention is not None and record.attention.mask not in ("none", ""):
            parts.append(safe(record.attention.mask, ascii=view.ascii))
    parts.append(
        say(view, plural("{count} token", "{count} tokens", count=len(scene.loaded_run.queries)))
    )
    if notice.share is not None:
        # the share always takes 4 cells, so that nothing moves as it grows
        right = (
            f"{spell(notice.working, ascii=view.ascii)}{percent(notice.share).rjust(4)} ",
            accent(view),
        )
    else:
        head = say(view, spoken_head(scene.state.layer, scene.state.head))
        right = (spell(head, ascii=view.ascii) + " ", "bold")
    size = cells(right[0])
    title = cut(
        spell(" · ".join(parts), ascii=view.ascii), max(scene.width - size - 2, 1), ascii=view.ascii
    )
    space = " " * max(scene.width - size - cells(title) - 1, 0)
    return (" ", ""), (title, "bold" if not model else ""), (space, ""), right


def _footer(scene: Scene) -> Pane:
    """The keys that lead on from here, as many as fit beside those for help and the way out; each
    can be clicked.
    """
    view = scene.view
    keys = [key for key in KEYS if key.foot]
    texts = {key.does: spell(say(view, key.foot), ascii=view.ascii) for key in keys}
    # a key takes its symbol, a blank and its words, with two blanks before the next key
    sizes = {key.does: len(key.symbol) + 1 + cells(texts[key.does]) for key in keys}
    # the cells that the keys which are always there leave to the others
    room = scene.width - 2 - sum(sizes[does] + 2 for does in LAST)
    pieces: list[Piece] = [(" ", "")]
    spans: list[tuple[int, int, str]] = []
    column = 1
    for key in keys:
        size = sizes[key.does]
        if key.does not in LAST:
            if size + 2 > room:
                continue
            room -= size + 2
        # a click on it does what its first name, pressed as a key, does
        spans.append((column, column + size, key.names[0]))
        pieces += [(key.symbol, accent(view) or "bold"), (f" {texts[key.does]}", FAINT), ("  ", "")]
        column += size + 2

    def spot_at(x: int, y: int) -> Spot | None:
        """What a click on this cell of the pane chooses; None for nothing."""
        return next((KeySpot(name) for start, stop, name in spans if start <= x < stop), None)

    return Pane((tuple(pieces),), spot_at)
