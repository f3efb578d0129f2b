"""The frame: a line that says what runs, the grid beside what is looked at, the sentence with its links, the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from attncli.draw.lines import FAINT, Line, Lines, Piece, join_sentences, line_width, remark
from attncli.draw.numbers import bar, bar_pieces, percent
from attncli.draw.safe import cells, cut, label, pad, safe, spell, wrap
from attncli.draw.sentence import (
    EVEN,
    LEAST,
    MARKS,
    MARKS_ASCII,
    SECOND,
    Word,
    looks_most_sentence,
    not_learned_note,
    words,
)
from attncli.draw.shaded_matrix import bar_style, shade, sign, tint
from attncli.draw.token_names import bare_text, unknown_words_sentence, word_name
from attncli.draw.view import View
from attncli.explore.head_grid import MEASURE_NAMES, about, grid, matrix, slot
from attncli.explore.loaded_run import LoadedRun, Pair
from attncli.explore.panels import (
    SHADES,
    KeySpot,
    Pane,
    Spot,
    WordSpot,
    accent,
    beside,
    blank,
    fit_pane,
    palette_of,
    stack_panes,
)
from attncli.explore.state import KEYS, State
from attncli.inputs.token import Token
from attncli.language import contextual, message, plural, say

NEAR = 200
"""Words before and behind the chosen one that the sentence has at most."""


def shares(state: State, loaded_run: LoadedRun) -> list[float | None]:
    """The chosen head's weights: of the chosen query on each key, or, where the view is turned, of each query on the
    chosen key; 0 for a query that sees nothing, None for each where there are no weights."""
    place = (state.layer, state.head)
    weights = loaded_run.column(place, state.key) if state.is_turned else loaded_run.row(place, state.query)
    if weights is None:
        return [None] * len(loaded_run.queries if state.is_turned else loaded_run.keys)
    return [float(value) for value in np.nan_to_num(weights)]


def sentence(state: State, loaded_run: LoadedRun, view: View, width: int, height: int) -> Pane:
    """The words in this room; of a long text, the lines around the chosen one."""
    record = loaded_run.record
    tokens: Sequence[Token] = loaded_run.queries if state.is_turned else loaded_run.keys
    text = record.text if record.sides.same else None
    chosen_words = frozenset({state.word}) if record.sides.same else frozenset()
    near = slice(max(state.word - NEAR, 0), state.word + NEAR)  # of a long text, no more than can be seen
    sentence_words = words(text, tokens[near], shares(state, loaded_run)[near], chosen_words)
    end = state.query if state.is_turned else state.key
    rows: list[Line] = []
    places: list[list[tuple[int, int, int]]] = []
    row: list[Piece] = []
    spans: list[tuple[int, int, int]] = []
    column, own_index = 0, 0
    for index, word in enumerate(sentence_words, near.start):
        pieces = _word_pieces(word, view, width, end=index == end)
        size = sum(cells(piece) for piece, _ in pieces)
        gap = 1 if row and word.apart else 0
        if row and column + gap + size > width:
            rows.append(tuple(row))
            places.append(spans)
            row, spans, column, gap = [], [], 0, 0
        if word.is_chosen:
            own_index = len(rows)
        row += [*([(" ", "")] if gap else []), *pieces]
        spans.append((column + gap, column + gap + size, index))
        column += gap + size
    rows.append(tuple(row))
    places.append(spans)
    start = min(max(own_index - height // 2, 0), max(len(rows) - height, 0))

    def spots(x: int, y: int) -> Spot | None:
        line = places[y + start] if y + start < len(places) else []
        return next((WordSpot(index) for low, high, index in line if low <= x < high), None)

    return Pane(tuple(rows[start : start + height]), spots)


def _word_pieces(word: Word, view: View, width: int, *, end: bool) -> list[Piece]:
    """One word: tinted by its share, in brackets where it is chosen, underlined at the other end of the pair."""
    text = cut(safe(word.text, ascii=view.ascii), max(width - 4, 1), ascii=view.ascii)
    word_style = FAINT if word.quiet else ""
    if word.share is not None and word.share >= LEAST:
        if view.color:
            word_style = tint(word.share, view)
        else:
            mark = (MARKS_ASCII if view.ascii else MARKS)[min(int(word.share * 4), 3)]
            text = f"{mark}{text}{mark}"
    if word.is_chosen:
        return [("[", "bold"), (text, f"bold {word_style}".strip()), ("]", "bold")]
    return [(text, f"underline {word_style}".strip() if end else word_style)]


def answer(state: State, loaded_run: LoadedRun, view: View, width: int, height: int) -> Pane:
    """What the chosen word looks at in the chosen head, or who looks at it; the chosen weight; whether it is
    learned: as many of these sentences as there is room for."""
    sentences = _looks(state, loaded_run, view)
    sentences += [unknown_words_sentence(*loaded_run.unknown_count, view)] if loaded_run.unknown_count[0] else []
    sentences += _pair(state, loaded_run, view) if state.sight != "difference" else []
    if state.sight == "difference" and state.subtracted_head is not None:
        sentences += _difference(state, loaded_run, view)
    model = loaded_run.record.model
    if model is not None:
        sentences.append(not_learned_note(model, view))
    close, rows = replace(view, width=width), Lines()
    for count in range(1, len(sentences) + 1):
        text = join_sentences(sentences[:count], view)
        longer = remark(spell(text, ascii=view.ascii), close, style="")
        if count > 1 and len(longer.rows) > height:
            break
        rows = longer
    return Pane.of(rows)


def _pair(state: State, loaded_run: LoadedRun, view: View) -> list[str]:
    """The weight between the two chosen words."""
    if state.query >= len(loaded_run.queries) or state.key >= len(loaded_run.keys):
        return []
    query, key = _word_text(loaded_run.queries[state.query], view), _word_text(loaded_run.keys[state.key], view)
    weight = loaded_run.weight((state.layer, state.head), state.query, state.key)
    if weight is None:
        has_row = loaded_run.row((state.layer, state.head), state.query) is not None
        return [say(view, "The mask hides {key} from {query}.", query=query, key=key)] if has_row else []
    return [say(view, "The chosen weight, {query} → {key}, is {weight}.", query=query, key=key, weight=f"{weight:.3f}")]


def _difference(state: State, loaded_run: LoadedRun, view: View) -> list[str]:
    """The chosen weight in both heads."""
    assert state.subtracted_head is not None
    weight, subtracted_weight = (
        loaded_run.weight(place, state.query, state.key) for place in ((state.layer, state.head), state.subtracted_head)
    )
    if weight is None or subtracted_weight is None:
        return _pair(state, loaded_run, view)
    return [
        say(
            view,
            "The chosen weight, {query} → {key}, is {weight} here and {subtracted} in A: {difference}.",
            query=_word_text(loaded_run.queries[state.query], view),
            key=_word_text(loaded_run.keys[state.key], view),
            weight=f"{weight:.3f}",
            subtracted=f"{subtracted_weight:.3f}",
            difference=f"{weight - subtracted_weight:+.3f}".replace("-", "−"),
        )
    ]


def _looks(state: State, loaded_run: LoadedRun, view: View) -> list[str]:
    weights = np.array([0.0 if share is None else share for share in shares(state, loaded_run)])
    if not weights.size or (state.layer, state.head) not in loaded_run.heads:
        return []
    others = loaded_run.queries if state.is_turned else loaded_run.keys
    words_here = loaded_run.keys if state.is_turned else loaded_run.queries
    word_text = _word_text(words_here[min(state.word, len(words_here) - 1)], view)
    order = np.argsort(-weights, kind="stable")
    first, second = int(order[0]), int(order[1]) if len(order) > 1 else int(order[0])
    if weights[first] <= 0:
        if loaded_run.row((state.layer, state.head), 0) is None:
            return []
        return [
            say(view, "No word sees {key}.", key=word_text)
            if state.is_turned
            else say(view, "{query} can see no word: its weights and its output are 0.", query=word_text)
        ]
    if state.is_turned:
        query, share = _word_text(others[first], view), percent(weights[first])
        return [
            say(view, "{query} looks at {key} most: {share} of its weight.", key=word_text, query=query, share=share)
        ]
    visible_count = int(np.count_nonzero(weights > 0)) or 1
    if weights[first] < EVEN / visible_count:
        return [
            say(
                view,
                "{query} spreads its weight almost evenly: no word gets more than {weight}, and an "
                "even share is {even}.",
                query=word_text,
                weight=f"{weights[first]:.2f}",
                even=f"{1 / visible_count:.2f}",
            )
        ]
    indices = [first, second] if second != first and weights[second] >= SECOND * weights[first] else [first]
    keys = [(_word_text(others[index], view), float(weights[index])) for index in indices]
    return [looks_most_sentence(word_text, keys, view)]


def _word_text(token: Token, view: View) -> str:
    name = say(
        view,
        '"{text}"',
        text=cut(label(bare_text(token).strip() or token.text, ascii=view.ascii), 24, ascii=view.ascii),
    )
    return say(view, "{name} (unknown)", name=name) if token.unknown else name


# Links: two columns of the words, and lines from the chosen one to what it looks at, or from who looks at it.

NAME, LINE, BAR = 14, 9, 24
"""Cells of a word, of the lines between, and of the longest bar."""


def links(state: State, loaded_run: LoadedRun, view: View, width: int, height: int) -> Pane:
    """The words in two columns: on the left those that look, on the right those looked at.

    Of more words than lines, those with the largest shares and the chosen one.
    """
    weights = np.array([0.0 if share is None else share for share in shares(state, loaded_run)])
    own_index = state.word
    order = np.argsort(-weights, kind="stable")
    indices = sorted(
        {own_index, *order[: max(height - 1, 1)].tolist()} if len(weights) > height else range(len(weights))
    )
    indices = [index for index in indices if index < len(weights)][:height]
    origin = indices.index(own_index) if own_index in indices else 0
    linked_rows = [row for row, index in enumerate(indices) if weights[index] >= LEAST]
    words = [loaded_run.names(side, ascii=view.ascii) for side in ("queries", "keys")]
    name = min(
        max(loaded_run.widest(side, ascii=view.ascii) for side in ("queries", "keys")),
        NAME,
        max((width - LINE) // 3, 3),
    )
    room = max(min(width - 2 * name - LINE - 7, BAR), 0)
    rows: list[Line] = []
    for row, index in enumerate(indices):
        share = float(weights[index])
        query_text, key_text = (
            pad(cut(side[index] if index < len(side) else "", name, ascii=view.ascii), name, align)
            for side, align in zip(words, ("right", "left"), strict=True)
        )
        text_style = tint(share, view) if view.color and share >= LEAST else FAINT if share < LEAST else ""
        chosen_style = accent(view) or "bold"
        line = _between(row, origin, linked_rows, view, is_turned=state.is_turned)
        strong = "bold" if share >= 0.5 else ""
        strip = bar_pieces(bar(share, room, ascii=view.ascii), bar_style(view)) if room > 3 else []
        value: list[Piece] = [(f" {share:.2f} ", strong or FAINT), *strip]
        if state.is_turned:
            a, b = (query_text, text_style), (key_text, chosen_style if index == own_index else FAINT)
        else:
            a, b = (query_text, chosen_style if index == own_index else FAINT), (key_text, text_style)
        rows.append((a, (line, "" if row in linked_rows or row == origin else FAINT), b, *value))

    def spots(x: int, y: int) -> Spot | None:
        if y >= len(indices):
            return None
        return WordSpot(indices[y], "query" if x < name + LINE // 2 else "key")

    return fit_pane(Pane(tuple(rows), spots), width, height, ascii=view.ascii)


def _between(row: int, origin: int, linked_rows: list[int], view: View, *, is_turned: bool) -> str:
    """The lines between the columns in one row: a trunk beside the chosen word, a branch to every linked one."""
    low, high = min([origin, *linked_rows]), max([origin, *linked_rows])
    inside, branch, root = (
        low <= row <= high and bool(linked_rows),
        row in linked_rows,
        row == origin and bool(linked_rows),
    )
    if view.ascii:
        stem = "-" * 3 if root else " " * 3
        arm = "-" * 3 + ">" if branch else " " * 4
        arm = arm if not is_turned else ("<---" if root else " " * 4)
        return f" {stem}{'+' if root or branch else '|' if inside else ' '}{arm}"
    up, down = inside and row > low, inside and row < high
    west, east = (root, branch) if not is_turned else (branch, root)
    stem = " " + ("───" if west else "   ")
    arm = "──▸ " if east else "    "
    return stem + _JOINTS[up, down, west, east] + arm


_JOINTS = {
    (False, False, False, False): " ", (True, True, False, False): "│", (True, True, True, False): "┤",
    (True, True, False, True): "├", (True, True, True, True): "┼", (False, True, True, False): "┐",
    (False, True, False, True): "┌", (False, True, True, True): "┬", (True, False, True, False): "┘",
    (True, False, False, True): "└", (True, False, True, True): "┴", (False, False, True, True): "─",
    (False, False, True, False): "─", (False, False, False, True): "─", (True, False, False, False): "│",
    (False, True, False, False): "│",
}  # fmt: skip
"""What joins lines upwards, downwards, to the left and to the right."""


LEAST_WIDTH, LEAST_HEIGHT = 40, 12
"""Below this there is nothing to see."""

LAST = ("help", "quit")
"""Keys that the footer always has."""

DrawPane = Callable[[int, int], Pane]


@dataclass(frozen=True)
class Notice:
    """What is told besides: a line in place of the answer, and how far long work has come (None for none)."""

    message: str = ""
    working: str = ""
    share: float | None = None


@dataclass(frozen=True, eq=False)
class Frame:
    """Everything the screen shows. right: draws what is looked at in a room, None for the matrix. title: its name.

    values: what colours the heads in place of the measure, and what it is called; whole: draws over everything between
    header and footer; tour_text: in place of the answer.
    """

    state: State
    loaded_run: LoadedRun
    view: View
    notice: Notice = field(default_factory=Notice)
    right: DrawPane | None = None
    title: str = ""
    whole: DrawPane | None = None
    values: dict[Pair, float | None] | None = None
    measure: str = ""
    tour_text: str = ""


def draw_frame(frame: Frame, width: int, height: int) -> Pane:
    """The screen, exactly this large."""
    view = frame.view
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return fit_pane(_small(width, height, view), width, height, ascii=view.ascii)
    top = fit_pane(Pane((_header(frame, width), _rule(width, view))), width, 2, ascii=view.ascii)
    foot = fit_pane(_footer(frame, width), width, 1, ascii=view.ascii)
    room = height - top.height - foot.height
    if frame.whole is not None:
        body = fit_pane(frame.whole(width - 2, room), width - 1, room, ascii=view.ascii)
        return stack_panes((top, beside(blank(1, room), body), foot))
    answer_pane = _answer_pane(frame, width - 2, room)
    return stack_panes((top, _body(frame, width, room - answer_pane.height), answer_pane, foot))


SCALE_NAMES = {"row": message("each row"), "log": message("logarithmic"), "rest": message("without first token")}
"""What the colour scales are called, but the plain one."""

SOURCES = {
    "seeded": message("seeded ({seed})"),
    "random": message("random ({seed})"),
    "file": message("weight file"),
    "checkpoint": message("checkpoint"),
    "tensors": message("captured tensors"),
}
"""Where the weights of a model without a name are from."""


def _small(width: int, height: int, view: View) -> Pane:
    """How large the window must be: as a sentence, or where that has no room the size alone."""
    least = {"width": LEAST_WIDTH, "height": LEAST_HEIGHT}
    rows = wrap(
        spell(say(view, "the window is too small: at least {width} × {height}", **least), ascii=view.ascii),
        width,
        ascii=view.ascii,
    )
    if len(rows) > height or width < len("window"):
        rows = [spell(f"{LEAST_WIDTH} × {LEAST_HEIGHT}", ascii=view.ascii)]
    return Pane(tuple(((row, ""),) for row in rows))


def _body(frame: Frame, width: int, height: int) -> Pane:
    """The grid with the chosen head below it, beside what is looked at."""
    view, state, loaded_run = frame.view, frame.state, frame.loaded_run
    extent = loaded_run.extent
    most = max(width * 2 // 5, 24) if width >= 64 else width // 3
    wide = slot(extent, most)
    left_width = min(max(extent.columns * wide + extent.edge, min(26, most)), most)
    rows = min(len(extent.heads) + 1, max(height - 1, 2))
    details = height - rows - 2
    details = 0 if details < 3 else details
    name = frame.measure or say(view, MEASURE_NAMES[state.measure], word=_word(frame))
    heads = stack_panes(
        (
            fit_pane(Pane((_title(name, view, is_focused=state.focus == "heads"),)), left_width, 1, ascii=view.ascii),
            grid(
                state, loaded_run, view, left_width, height - 1 - (details + 1 if details else 0), values=frame.values
            ),
            *((blank(left_width, 1), about(state, loaded_run, view, left_width, details)) if details else ()),
        )
    )
    room = width - left_width - 4
    title = _title(
        frame.title or say(view, "weights · who looks (rows) at whom (columns)"),
        view,
        is_focused=state.focus == "words",
    )
    draw_right = frame.right or (lambda w, h: matrix(state, loaded_run, view, w, h))
    legend = _legend(frame) if frame.right is None else ()
    free = room - line_width(title) - line_width(legend)
    heading: Line = (*title, (" " * free, ""), *legend) if free > 1 else title
    above = fit_pane(Pane((heading,)), room, 1, ascii=view.ascii)
    right = stack_panes((above, fit_pane(draw_right(room, height - 1), room, height - 1, ascii=view.ascii)))
    both = beside(beside(blank(1, height), fit_pane(heads, left_width, height), ""), right, "  ")
    return fit_pane(both, width, height, ascii=view.ascii)


def _word(frame: Frame) -> str:
    tokens = frame.loaded_run.keys if frame.state.is_turned else frame.loaded_run.queries
    if not tokens:
        return ""
    return cut(label(word_name(tokens[min(frame.state.word, len(tokens) - 1)]), ascii=frame.view.ascii), 14)


def _title(text: str, view: View, *, is_focused: bool) -> Line:
    """A part's name; the part that the arrows move has a mark before it."""
    mark = (">" if view.ascii else "▸") if is_focused else " "
    return ((mark, accent(view)), (spell(text, ascii=view.ascii), "bold" if is_focused else ""))


def _legend(frame: Frame) -> Line:
    """The colours from little to much, and how weights become colours."""
    view, state = frame.view, frame.state
    signed = state.sight == "difference" and state.subtracted_head is not None
    steps = [number / 7 for number in range(8)]
    if view.color and not view.ascii:
        palette = palette_of(view, signed=signed)
        shades = [palette.colour(number / (SHADES - 1)) for number in range(0, SHADES, 3)]
        ramp: list[Piece] = [(" ", f"on {colour}") for colour in shades]
    else:
        ramp = [((sign if signed else shade)(step, ascii=view.ascii), "") for step in steps]
    ends = (
        ("−", "+")
        if signed
        else ("0", "1" if state.scale == "linear" else say(view, contextual("colour scale", "most")))
    )
    name = say(view, SCALE_NAMES[state.scale]) if not signed and state.scale in SCALE_NAMES else ""
    return (
        (f"{spell(name, ascii=view.ascii)} " if name else "", FAINT),
        (spell(ends[0], ascii=view.ascii), FAINT),
        *ramp,
        (spell(ends[1], ascii=view.ascii), FAINT),
    )


def _answer_pane(frame: Frame, width: int, room: int) -> Pane:
    """The sentence, and below it the answer or what has just happened."""
    view, state, loaded_run = frame.view, frame.state, frame.loaded_run
    most, rows = (2, 2) if room < 24 else (3, 3) if room < 30 else (5, 4)
    text_pane = (
        Pane.of(remark(frame.tour_text, replace(view, width=width), style=accent(view)))
        if frame.tour_text
        else Pane(
            (((cut(safe(frame.notice.message, ascii=view.ascii), width, ascii=view.ascii), accent(view) or "bold"),),)
        )
        if frame.notice.message
        else answer(state, loaded_run, view, width, rows)
    )
    text_pane = Pane(text_pane.rows[: 4 if frame.tour_text else rows])
    sentence_pane = sentence(state, loaded_run, view, width, most)
    both = fit_pane(
        stack_panes((Pane(((),)), sentence_pane, text_pane)),
        width + 1,
        1 + sentence_pane.height + text_pane.height,
        ascii=view.ascii,
    )
    return beside(blank(1, both.height), both)


def _header(frame: Frame, width: int) -> Line:
    """What runs, on the left; the chosen head, or how far work has come, on the right."""
    view, record = frame.view, frame.loaded_run.record
    model = record.model
    parts = ["attn explore"]
    if model is not None:
        sizes = (
            say(view, "1 layer × {heads} heads", heads=model.heads)
            if model.layers == 1
            else say(view, "{layers} layers × {heads} heads", layers=model.layers, heads=model.heads)
        )
        name = record.name or model.name or say(view, SOURCES[model.source], seed=model.seed)
        parts = [safe(name, ascii=view.ascii), *([model.family] if model.family else []), sizes]
        if record.attention is not None and record.attention.mask not in ("none", ""):
            parts.append(safe(record.attention.mask, ascii=view.ascii))
    parts.append(say(view, plural("{count} token", "{count} tokens", count=len(frame.loaded_run.queries))))
    notice = frame.notice
    if notice.share is not None:
        share = percent(notice.share).rjust(4)
        right: list[Piece] = [(f"{spell(notice.working, ascii=view.ascii)}{share} ", accent(view))]
    else:
        right = [
            (
                spell(
                    say(view, "layer {layer} head {head}", layer=frame.state.layer, head=frame.state.head),
                    ascii=view.ascii,
                )
                + " ",
                "bold",
            )
        ]
    size = line_width(tuple(right))
    title = cut(spell(" · ".join(parts), ascii=view.ascii), max(width - size - 2, 1), ascii=view.ascii)
    return (
        (" ", ""),
        (title, "bold" if not model else ""),
        (" " * max(width - size - cells(title) - 1, 0), ""),
        *right,
    )


def _rule(width: int, view: View) -> Line:
    return (("-" * width if view.ascii else "─" * width, FAINT),)


def _footer(frame: Frame, width: int) -> Pane:
    """The keys that lead on from here, as many as fit beside those for help and the way out; each can be clicked."""
    view = frame.view
    keys = [key for key in KEYS if key.foot]
    texts = {key.does: spell(say(view, key.foot), ascii=view.ascii) for key in keys}
    sizes = {key.does: len(key.symbol) + 1 + cells(texts[key.does]) for key in keys}
    room = width - 2 - sum(sizes[does] + 2 for does in LAST)
    pieces: list[Piece] = [(" ", "")]
    spans: list[tuple[int, int, str]] = []
    column = 1
    for key in keys:
        size = sizes[key.does]
        if key.does not in LAST:
            if size + 2 > room:
                continue
            room -= size + 2
        spans.append((column, column + size, key.names[0]))
        pieces += [(key.symbol, accent(view) or "bold"), (f" {texts[key.does]}", FAINT), ("  ", "")]
        column += size + 2

    def spots(x: int, y: int) -> Spot | None:
        return next((KeySpot(name) for start, stop, name in spans if start <= x < stop), None)

    return Pane((tuple(pieces),), spots)
