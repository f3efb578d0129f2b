"""Keys: each by the names that terminals give it, what it does, and when the footer offers it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Key:
    """names: as Textual calls it, the first one shown. does: the name of the action, and of its phrase
    `explore.key.…`. symbol: how it is written; foot: whether the footer has it."""

    names: tuple[str, ...]
    does: str
    symbol: str
    foot: bool = False


KEYS = (
    Key(("left",), "left", "←"),
    Key(("right",), "right", "→"),
    Key(("up",), "up", "↑"),
    Key(("down",), "down", "↓"),
    Key(("pageup",), "pageup", "PgUp"),
    Key(("pagedown",), "pagedown", "PgDn"),
    Key(("home",), "home", "Home"),
    Key(("end",), "end", "End"),
    Key(("tab", "shift+tab"), "focus", "Tab", foot=True),
    Key(("enter",), "enter", "Enter", foot=True),
    Key(("left_square_bracket",), "layer_before", "["),
    Key(("right_square_bracket",), "layer_after", "]"),
    Key(("comma",), "head_before", ","),
    Key(("full_stop",), "head_after", "."),
    Key(("b",), "word_before", "b"),
    Key(("f",), "word_after", "f"),
    Key(("r",), "turn", "r"),
    Key(("1",), "matrix", "1"),
    Key(("2", "l"), "links", "2"),
    Key(("3", "y"), "why", "3"),
    Key(("slash", "4"), "search", "/", foot=True),
    Key(("d", "5"), "difference", "d", foot=True),
    Key(("e", "6"), "effects", "e", foot=True),
    Key(("c",), "scale", "c"),
    Key(("m",), "measure", "m"),
    Key(("z",), "near", "z"),
    Key(("w",), "words", "w"),
    Key(("i",), "type", "i", foot=True),
    Key(("o",), "models", "o", foot=True),
    Key(("n",), "next", "n"),
    Key(("p",), "previous", "p"),
    Key(("s",), "save", "s", foot=True),
    Key(("t",), "tour", "t", foot=True),
    Key(("question_mark", "f1"), "help", "?", foot=True),
    Key(("escape",), "back", "Esc"),
    Key(("q", "ctrl+q"), "quit", "q", foot=True),
    Key(("ctrl+c",), "interrupt", "Ctrl-C"),
)
"""Every key there is, in the order in which help tells them."""
ACTIONS = {name: key.does for key in KEYS for name in key.names}
"""What a key does, by its name."""
