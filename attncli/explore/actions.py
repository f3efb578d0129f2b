"""What keys do: moves, other runs, the derivation and effects of the chosen weight, saving what is
in sight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import assert_never

from msgspec import UNSET
from msgspec.structs import replace
from msgspec.structs import replace as replace_member

from attncli.documents import Document
from attncli.errors import AttnError, InputError, UnsupportedError, UsageError
from attncli.explore.frame import Notice
from attncli.explore.head_grid import next_measure
from attncli.explore.loaded_run import (
    LiveSource,
    LoadedRun,
    SavedSource,
    Source,
    live_source,
    same_words,
    strongest_pair_in_head,
    strongest_place,
)
from attncli.explore.panels import STEPS, HeadEffects, find_pair, link_name
from attncli.explore.state import Extent, SightName, State, at_pair, by_head, by_word, next_scale
from attncli.explore.walk import (
    STOPS,
    Over,
    Question,
    Walk,
    Work,
    begin_tour,
    error_text,
    state_at_stop,
    stop_in_sight,
)
from attncli.features.run.document import RunDocument
from attncli.inputs.files import atomic_writer, is_there
from attncli.language import listing, message, say, translate
from attncli.mechanism.spec import spoken_head

SUFFIXES = (".json", ".svg", ".png", ".pdf", ".html")
"""How files end that can be written."""


def document_in_sight(source: Source, state: State, effects: HeadEffects | None) -> Document:
    """The document of what the explorer shows, as the command for it writes with `--json`: of the
    derivation `attn why`'s, of a search `attn find`'s and so on. A saved file is its own document.

    effects: what heads were found to change, None before that was computed.
    """
    if isinstance(source, SavedSource):
        return source.document
    model = source.model
    text = source.text
    tokens = source.tokens
    match state.sight:
        case "why":
            return source.derivation(state.layer, state.head, state.query)
        case "parts":
            return source.parts(state.layer, state.head, state.query, state.key, lambda share: None)
        case "search":
            from attncli.features.find.compute import find

            return find(
                model,
                text,
                f"#{state.query}",
                f"#{state.key}",
                layers=source.layers,
                heads=source.heads,
                words=source.words,
                unknown=True,
                tokens=tokens,
            )
        case "effects" if effects is not None:
            # of all heads where that was asked for, else of the chosen head
            document = effects.every or effects.head or effects.cut_document
            assert document is not None
            return document
        case "difference" if state.subtracted_head is not None:
            from attncli.features.compare.compute import compare

            layer, head = state.subtracted_head
            first_run = _run_document(source, layer, head)
            second_run = _run_document(source, state.layer, state.head)
            names = (spoken_head(layer, head), spoken_head(state.layer, state.head))
            # as many links as `attn compare` lists by itself
            return compare(first_run, second_run, names=names, top=10)
        case _ if state.focus == "heads" and state.sight == "matrix":
            from attncli.features.heads.compute import heads as compute_heads

            measured = compute_heads(
                model,
                text,
                layers=source.layers,
                heads=source.heads,
                words=source.words,
                whole=True,  # all rows at once, as they were on the screen
                tokens=tokens,
            )
            # what the run took of time and memory is no part of what is shown
            return replace_member(measured, resources=UNSET)
        case _:
            return _run_document(source, state.layer, state.head)


def _run_document(source: LiveSource, layer: int, head: int) -> RunDocument:
    """The document of one head, as `attn run --layer --head` makes it, without what the run took of
    time and memory."""
    from attncli.features.run.compute import run

    document = run(
        source.model,
        source.text,
        layers=[layer],
        heads=[head],
        words=source.words,
        whole=True,  # all rows at once, as they were on the screen
        tokens=source.tokens,
    )
    return replace_member(document, resources=UNSET)


def file_to_write(name: str, *, overwrite: bool) -> Path:
    """The path that a typed file name stands for, checked before anything is written.

    overwrite: whether a file that is there may be written over.

    Raises UsageError for an ending other than `SUFFIXES`, InputError for a file that is there.
    """
    path = Path(name.strip()).expanduser()
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(
            "{name} has no known ending", expected=listing(SUFFIXES), name=repr(name.strip())
        )
    if is_there(path) and not overwrite:
        raise InputError(
            "{path} is there already",
            expected="another name; Enter again writes over it",
            path=path.name,
        )
    return path


def save(
    path: Path, source: Source, state: State, effects: HeadEffects | None, *, lang: str
) -> None:
    """Write what the explorer shows to a file. Raises UnsupportedError for what has no figure,
    AttnError for what cannot be written.

    path: its ending says what is written: .json a document, .html a page, any other a figure.
    effects: what heads were found to change, None before that was computed.
    lang: the language of a page or a figure.
    """
    match path.suffix.lower():
        case ".html":
            from attncli.draw.page import Page, page_bytes

            record = source.record(lambda share: None)
            # what the page shows when it is opened: the same search, or the same query
            start = {"query": str(state.query)}
            if state.sight == "search":
                start = {"view": "search", "from": f"#{state.query}", "to": f"#{state.key}"}
            pieces = page_bytes(Page(record.text, [record], start=start, lang=lang))
        case ".json":
            from attncli.draw.encoding import json_pieces

            pieces = iter(json_pieces(document_in_sight(source, state, effects)))
        case suffix:
            from attncli.draw.figures import figure
            from attncli.draw.figures.drawing import figure_bytes, style_of

            style = style_of("")  # of paper, as the commands draw it
            # the explorer has scales of colours that figures lack: these become the plain one
            scale = state.scale if state.scale in ("log", "row") else "linear"
            document = document_in_sight(source, state, effects)
            drawing = figure(document, scale=scale, theme=style.theme, lang=lang)
            if drawing is None:
                raise UnsupportedError(
                    "{schema} has no figure",
                    expected="a file ending in .json or .html",
                    schema=document.schema,
                )
            title = str(getattr(document, "text", ""))  # not every document is about one text
            pieces = iter([figure_bytes(drawing.svg(mm=style.mm, title=title), suffix, style)])
    with atomic_writer(path) as file:
        for piece in pieces:
            file.write(piece)


def default_file_name(state: State) -> str:
    """The file name that is proposed for what is looked at; its ending is of a kind that there is
    for it: a derivation has no figure."""
    if state.sight == "why":
        return "derivation.json"
    if state.sight == "search":
        return "links.svg"
    return f"{state.sight}.svg"


# Of the chosen weight: its derivation, and what it changes.


def explain(walk: Walk, sight: SightName) -> None:
    """Show what explains the chosen weight: its derivation ("why"), or the parts of its score
    ("parts"). Raises AttnError where that cannot be computed, and leaves the screen as it was.
    """
    before = walk.state
    walk.state = replace(walk.state.sees(sight), focus="words")
    try:
        walk.follow()
    except AttnError:
        walk.state = before
        raise


def show_effects(walk: Walk) -> None:
    """Compute in the background, and then show, what changes where the chosen head is taken away
    and where the chosen link is cut; asked again, also where each other head is taken away."""
    source = live_source(
        walk.source, message("a file holds no model, so nothing can be taken away")
    )
    state = walk.state
    before = walk.effects
    place = (state.layer, state.head)
    # effects of all heads stay while the query is the same, since they are about its word
    is_same_query = before is not None and before.query == state.query
    earlier_effects = None
    if before is not None and is_same_query:
        earlier_effects = before.every
    is_asked_again = state.sight == "effects" and is_same_query
    walk.state = state.sees("effects")

    def compute(work: Work) -> Callable[[], None]:
        """Run the model without the head, without the link and, asked again, without each head;
        returns the function that then shows the effects.
        """
        head = source.effects(state.query, place, link=None, progress=work.report)
        try:
            link = (state.query, state.key)
            cut_document = source.effects(state.query, place, link, work.report)
        except AttnError:  # a link that the mask hides
            cut_document = None
        every = earlier_effects
        if is_asked_again:
            every = source.effects(state.query, place=None, link=None, progress=work.report)

        def show() -> None:
            """Keep and show these effects."""
            walk.effects = HeadEffects(place, state.query, state.key, head, cut_document, every)
            walk.follow()

        return walk.finish_with(show)

    walk.begin("effects", compute)


# Other runs: another text, another model, words in place of pieces, a token more or less.


NO_TEXT = message("a file holds no model to run a text on")
NO_MORE_TEXT = message("a file holds no model to continue its text with")
"""What a saved file cannot do."""


def _run_and_go(walk: Walk, source: LiveSource, place: Callable[[State, LoadedRun], State]) -> None:
    """Run a source, then go to a place of its run.

    place: gives the state to show, for the present state and the run.
    """

    def go() -> None:
        """Go to the place, now that the run is there."""
        walk.state = place(walk.state, walk.known_run)

    walk.run(source, then=go)


def run_text(walk: Walk, text: str) -> None:
    """Run another text on the same model, and show the strongest link of the chosen head in it."""
    _run_and_go(walk, live_source(walk.source, NO_TEXT).with_text(text), strongest_pair_in_head)


def switch_model(walk: Walk, name: str) -> None:
    """Load another model in the background, run the text on it, and show its strongest link."""
    source = live_source(walk.source, NO_TEXT)
    load = walk.load
    assert load is not None

    def load_model(work: Work) -> Callable[[], None]:
        """Load the model; returns the function that then runs the text on it."""
        new_source = LiveSource.of(load(name), source.text)
        return lambda: _run_and_go(walk, new_source, partial(strongest_place, about=None))

    walk.begin("load", load_model)


def list_models(walk: Walk) -> None:
    """Draw the list of models that may be switched to over the screen. Raises UnsupportedError for
    a saved file, which has no text to run on another model."""
    live_source(walk.source, NO_TEXT)
    if walk.load is not None:
        walk.names = walk.models()
    else:
        walk.names = []
    walk.over = "models"
    walk.state = replace(walk.state, row=0)


def merge_or_split_words(walk: Walk, *, then: Callable[[], None] = lambda: None) -> None:
    """Run the text again with tokens that are pieces merged to words, or with words taken apart,
    and stay at the same words.

    then: called when that is done.
    """
    source = live_source(walk.source, NO_TEXT)
    before = walk.known_run
    state = walk.state  # the run may have fewer words than this one has

    def finish() -> None:
        """Go back to the words that were chosen, then call `then`."""
        now = replace(walk.state, query=state.query, key=state.key)
        walk.state = same_words(now, before, walk.known_run)
        then()

    walk.run(replace(source, words=not source.words), then=finish)


def add_token(walk: Walk) -> None:
    """Have the model add its likeliest token in the background, and run the longer text."""
    source = live_source(walk.source, NO_MORE_TEXT)

    def generate(work: Work) -> Callable[[], None]:
        """Make the text longer by one token; returns the function that then runs it."""
        new_source = source.longer(work.report)
        return lambda: _run_and_go(walk, new_source, _choose_last_query)

    walk.begin("next", generate)


def remove_token(walk: Walk) -> None:
    """Take the last generated token away and run the shorter text; say so where the text has only
    what was typed."""
    source = live_source(walk.source, NO_MORE_TEXT)
    if len(source.tokens) > source.typed_count:
        _run_and_go(walk, source.shorter, _choose_last_query)
    else:
        walk.notice = Notice(say(walk.view, "nothing was generated; n adds a token"))


def _choose_last_query(state: State, loaded_run: LoadedRun) -> State:
    """The state with the text's last word chosen as query, beside the same key."""
    return at_pair(state, loaded_run.extent, len(loaded_run.queries) - 1, state.key)


# Moves: what the keys that need no work do to what is looked at.

Move = Callable[[State, Extent], State]
PAGE = 8
"""How far a page is."""


def _arrow_move(down: int, right: int) -> Move:
    """The function that moves the state by `down` steps downwards and `right` steps to the right
    (negative: up, left), as an arrow key does: to another head or pair of words, another row of a
    list, or other lines of a part longer than the screen."""

    def move(state: State, extent: Extent) -> State:
        """The state moved by the arrow; what moves depends on the focus and the pane."""
        if state.focus == "heads":
            return by_head(state, extent, layers=down, heads=right)
        if state.sight in ("search", "effects"):  # a list: right is on, as down is
            return replace(state, row=max(state.row + down + right, 0))
        if state.sight == "links":
            return by_word(state, extent, down + right)
        if state.sight == "parts" and down:  # left and right move to another link
            return replace(state, top=max(state.top + down, 0))
        if state.sight == "why":
            if right:
                return replace(state, step=max(state.step + right, 0), top=0)
            return replace(state, top=max(state.top + down, 0))
        return at_pair(state, extent, state.query + down, state.key + right)

    return move


def _end_move(sign: int) -> Move:
    """The function that moves the state as Home (−1) or End (1) does: to the first or the last head
    of the layer, word of the row, or line of the part."""

    def move(state: State, extent: Extent) -> State:
        """The state moved to the first or last head, word or line."""
        far = sign * 1_000_000  # beyond any end, at which moves stop
        if state.focus == "heads":
            return by_head(state, extent, layers=0, heads=far)
        if state.sight == "why":
            return replace(state, top=max(far, 0))
        return at_pair(state, extent, state.query, far)

    return move


MOVES: Mapping[str, Move] = {
    "left": _arrow_move(0, -1),
    "right": _arrow_move(0, 1),
    "up": _arrow_move(-1, 0),
    "down": _arrow_move(1, 0),
    "pageup": _arrow_move(-PAGE, 0),
    "pagedown": _arrow_move(PAGE, 0),
    "home": _end_move(-1),
    "end": _end_move(1),
    "focus": lambda state, extent: replace(
        state, focus="words" if state.focus == "heads" else "heads"
    ),
    "layer_before": lambda state, extent: by_head(state, extent, -1, 0),
    "layer_after": lambda state, extent: by_head(state, extent, 1, 0),
    "head_before": lambda state, extent: by_head(state, extent, 0, -1),
    "head_after": lambda state, extent: by_head(state, extent, 0, 1),
    "word_before": lambda state, extent: by_word(state, extent, -1),
    "word_after": lambda state, extent: by_word(state, extent, 1),
    "turn": lambda state, extent: replace(state, is_turned=not state.is_turned),
    "scale": lambda state, extent: next_scale(state),
    "measure": lambda state, extent: next_measure(state),
    "near": lambda state, extent: replace(state, near=not state.near),
    "matrix": lambda state, extent: state.sees("matrix"),
    "links": lambda state, extent: state.sees("links"),
}
"""By action."""


INTERRUPT = 2
"""The number of the signal that Ctrl-C stands for."""


def go_on(walk: Walk) -> None:
    """Do what Enter does: go to the tour's next stop; from a list to the head of the chosen row; in
    a derivation to its next step; else to the derivation of the chosen weight."""
    if walk.tour is not None:
        next_tour_stop(walk)
    elif walk.state.sight in ("search", "effects"):
        walk.state = walk.state.sees("matrix")
    elif walk.state.sight == "why":
        walk.state = replace(walk.state, step=(walk.state.step + 1) % len(STEPS), top=0)
    else:
        explain(walk, "why")


def go_back(walk: Walk) -> None:
    """Do what Esc does: stop the work that is running; else leave the tour, or go back to the
    matrix."""
    if walk.stop():
        walk.notice = Notice(say(walk.view, "stopped"))
    elif walk.tour is not None:
        _leave_tour(walk)
    elif walk.state.sight != "matrix":
        walk.state = replace(walk.state.sees("matrix"), subtracted_head=None)


def compare_heads(walk: Walk) -> None:
    """Subtract the chosen head's weights from those of each head looked at from now on; asked
    again, end that."""
    state = walk.state
    if state.sight == "difference":
        walk.state = replace(state.sees("matrix"), subtracted_head=None)
    else:
        walk.state = replace(
            state.sees("difference"), subtracted_head=(state.layer, state.head), focus="heads"
        )


def next_tour_stop(walk: Walk) -> None:
    """Begin the tour, or go on to its next stop."""
    source = live_source(walk.source, message("the tour goes with a model, and a file holds none"))
    if walk.tour is None:
        walk.state = replace(walk.state.sees("matrix"), subtracted_head=None)

        def begin() -> None:
            """Begin the tour at its first stop."""
            walk.tour = 0
            walk.state = state_at_stop(begin_tour(walk.state, walk.known_run), 0)

        walk.has_merged_words = source.words
        if source.words:  # the tour explains the derivation, which is of tokens, not of words
            merge_or_split_words(walk, then=begin)
        else:
            begin()
        return
    if walk.tour + 1 == len(STOPS):
        _leave_tour(walk)
        walk.state = walk.state.sees("matrix")
        return
    walk.tour += 1
    walk.state = state_at_stop(walk.state, walk.tour)
    if STOPS[walk.tour].sight == "effects":
        show_effects(walk)
    else:
        walk.follow()


def _leave_tour(walk: Walk) -> None:
    """End the tour; words that it took apart are merged again."""
    walk.tour = None
    # pieces are in sight though the text can be shown by words: the tour has split them
    if walk.has_merged_words and not live_source(walk.source, "").words:
        merge_or_split_words(walk)


def ask_link(walk: Walk) -> None:
    """Ask which link to search for; the chosen one is typed in already."""
    walk.stage.ask("search", text=link_name(walk.state, walk.known_run, walk.view))


def ask_text(walk: Walk) -> None:
    """Ask for another text to run; the one on the screen is typed in already.

    Raises UnsupportedError, which says `NO_TEXT`, for a saved run: it has no model to run a text on.
    """
    source = live_source(walk.source, NO_TEXT)
    walk.stage.ask("type", text=source.text)


def ask_file(walk: Walk) -> None:
    """Ask for the name of the file to save to; a usual one is typed in already."""
    walk.refused_name = None
    walk.stage.ask("save", text=default_file_name(walk.state))


def show_help(walk: Walk) -> None:
    """Draw the help, on what the screen shows and on the keys, over the screen."""
    walk.over = "help"
    walk.state = replace(walk.state, top=0)


def _save_in_background(walk: Walk, path: Path) -> None:
    """Write what is looked at now, in a thread of its own."""
    source = walk.source
    state = walk.state
    effects = walk.effects

    def save_file(work: Work) -> Callable[[], None]:
        """Write the file; returns the function that then says so on the screen."""
        save(path, source, state, effects, lang=walk.view.lang)
        return walk.finish_with(
            lambda: walk.show_message(say(walk.view, "saved: {file}", file=path.name))
        )

    walk.begin("save", save_file)


def take_answer(walk: Walk, question: Question, text: str) -> None:
    """Do what the text typed in answer to a question says: run it, search its link, or save to the
    file of its name.
    """
    loaded_run = walk.known_run
    walk.notice = Notice()
    try:
        match question:
            case "type":
                run_text(walk, text)
            case "search":
                # the name that was proposed means the chosen words, also where the same words are
                # in the text more than once
                if text != link_name(walk.state, loaded_run, walk.view):
                    query, key = find_pair(text, loaded_run)
                    walk.state = at_pair(walk.state, loaded_run.extent, query, key)
                walk.state = replace(walk.state, focus="words").sees("search")
                walk.follow()
            case "save":
                # a file that is there is refused once; the same name again writes over it
                _save_in_background(walk, file_to_write(text, overwrite=walk.refused_name == text))
            case _:
                assert_never(question)
    except AttnError as error:
        walk.refused_name = text
        walk.notice = Notice(error_text(error, walk.view))
        if question != "type":  # ask once more, with the answer to correct
            walk.stage.ask(question, text=text)
    walk.stage.draw()


ACTIONS: Mapping[str, Callable[[Walk], None]] = {
    "enter": go_on,
    "back": go_back,
    "difference": compare_heads,
    "tour": next_tour_stop,
    "search": ask_link,
    "type": ask_text,
    "save": ask_file,
    "help": show_help,
    "why": partial(explain, sight="why"),
    "parts": partial(explain, sight="parts"),
    "effects": show_effects,
    "words": merge_or_split_words,
    "models": list_models,
    "next": add_token,
    "previous": remove_token,
}
"""By the names that keys have for them."""


def act(walk: Walk, action: str) -> None:
    """Do what a key does, and draw. While the help or a list is drawn over the screen, a key acts
    on that first. Before the first run has begun, only the keys that leave do something.

    action: what the key does, by the names of `ACTIONS` and `MOVES`; "quit" or "interrupt".
    """
    walk.notice = Notice()
    if action == "quit":
        walk.stage.leave()
    elif action == "interrupt":
        walk.stage.leave(INTERRUPT)
    elif walk.loaded_run is not None:
        try:
            reaches_screen = walk.over is None or _act_on_overlay(walk, walk.over, action)
            if reaches_screen:
                if action in ACTIONS:
                    ACTIONS[action](walk)
                elif action in MOVES:
                    walk.is_placed = True
                    walk.state = MOVES[action](walk.state, walk.loaded_run.extent)
                    walk.follow()
                # a move to what another stop tells goes there; one to what none tells ends the tour
                if walk.tour is not None and action != "tour":
                    walk.tour = stop_in_sight(walk.state, walk.tour)
        except AttnError as error:
            walk.notice = Notice(translate(error.what, walk.view.lang))
        walk.stage.draw()


def _act_on_overlay(walk: Walk, over: Over, action: str) -> bool:
    """Do what a key does to the help or the list drawn over the screen; returns whether the key
    still has to act on the screen below.
    """
    step = {"up": -1, "down": 1, "pageup": -PAGE, "pagedown": PAGE}.get(action)
    if step is not None and over == "help":
        walk.state = replace(walk.state, top=max(walk.state.top + step, 0))
    elif step is not None:
        walk.state = replace(
            walk.state, row=min(max(walk.state.row + step, 0), max(len(walk.names) - 1, 0))
        )
    else:
        walk.over = None
        walk.state = replace(walk.state, top=0)
        if over == "models" and action == "enter" and walk.names:
            switch_model(walk, walk.names[walk.state.row])
        # any other key closes the overlay and does on the screen what it always does
        return action not in ("help", "models", "back", "enter")
    return False


def choose_row(walk: Walk, index: int) -> None:
    """Choose a row of a list, as a click on it does; in the list of models, switch to the model."""
    if walk.over == "models":
        walk.state = replace(walk.state, row=index)
        act(walk, "enter")
    else:
        walk.state = replace(walk.state, row=index, focus="words")
        walk.follow()
