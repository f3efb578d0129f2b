"""What is looked at, as one value that every key turns into another; and the keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from attncli.language import message

SightName = Literal["matrix", "links", "why", "search", "difference", "effects", "parts"]
"""What fills the right side: one head's weights, its links, a weight's derivation, heads by a link,
two heads, what taking heads away changes, the parts that a score is made of."""
ColourScale = Literal["linear", "log", "row", "rest"]
SCALES: tuple[ColourScale, ...] = ("linear", "row", "log", "rest")
"""How weights become colours; "rest" leaves keys out where heads rest, or the first."""
Focus = Literal["heads", "words"]
"""What the arrows move: the head, or the pair of words."""


class State(Struct, frozen=True):
    """What the explorer shows.

    layer, head: the chosen head.
    query, key: the positions of the chosen words, whose weight is the chosen one.
    sight: which pane is shown.
    focus: whether arrows move the head or the words.

    is_turned: whether the sentence tells who looks at the chosen word.
    measure: what colours the heads: "word" for the strongest link of the chosen word, or the name
        of a metric.
    subtracted_head: the one that is subtracted.
    near: whether a long text is shown word by word.
    step: of the derivation.
    row: of a list.
    top: the first line shown of a long part.
    """

    layer: int = 0
    head: int = 0
    query: int = 0
    key: int = 0
    sight: SightName = "matrix"
    focus: Focus = "heads"
    is_turned: bool = False
    scale: ColourScale = "linear"
    measure: str = "word"
    subtracted_head: tuple[int, int] | None = None
    near: bool = False
    step: int = 0
    row: int = 0
    top: int = 0

    @property
    def word(self) -> int:
        """The position of the word that the sentence is about: the one that looks (the query), or,
        where the view is turned, the one looked at (the key)."""
        if self.is_turned:
            return self.key
        return self.query

    @property
    def compared_head(self) -> tuple[int, int] | None:
        """The head whose weights are subtracted, while two heads are compared."""
        if self.sight == "difference":
            return self.subtracted_head
        return None

    def sees(self, sight: SightName) -> State:
        """The state with another pane (sight) shown for the same head and words, scrolled to its
        beginning.
        """
        if sight == self.sight:
            return self
        return replace(self, sight=sight, row=0, top=0, step=0)


class Extent(Struct, frozen=True):
    """What there is to look at.

    heads: by layer, the numbers of its heads.
    queries, keys: how many words.
    """

    heads: dict[int, Sequence[int]]
    queries: int
    keys: int

    def has(self, layer: int, head: int) -> bool:
        """Whether this head is among those there are."""
        return head in self.heads.get(layer, ())

    @property
    def columns(self) -> int:
        """How many columns a grid of the heads has."""
        return max((max(heads) + 1 for heads in self.heads.values()), default=0)

    @property
    def edge(self) -> int:
        """Cells that the layer numbers to the left of a grid of heads take, with a blank behind."""
        return len(str(max(self.heads, default=0))) + 1


def at_head(state: State, extent: Extent, layer: int, head: int) -> State:
    """The state at the head nearest to this one among those there are; itself where there are none."""
    if not extent.heads:
        return state
    layers = list(extent.heads)
    nearest_layer = min(layers, key=lambda number: (abs(number - layer), number))
    heads = extent.heads[nearest_layer]
    nearest_head = min(heads, key=lambda number: (abs(number - head), number))
    return replace(state, layer=nearest_layer, head=nearest_head, top=0)


def by_head(state: State, extent: Extent, layers: int, heads: int) -> State:
    """The state moved by `layers` layers and `heads` heads among those there are, stopping at the
    ends.
    """
    if not extent.heads:
        return state
    state = at_head(state, extent, state.layer, state.head)

    # numbers may have gaps, where only some layers and heads are shown
    layer_numbers = list(extent.heads)
    row = min(max(layer_numbers.index(state.layer) + layers, 0), len(layer_numbers) - 1)
    layer = layer_numbers[row]
    head_numbers = list(extent.heads[layer])
    # the new layer may lack this head: then from the nearest that it has, the lower of two
    head = min(head_numbers, key=lambda number: (abs(number - state.head), number))
    column = min(max(head_numbers.index(head) + heads, 0), len(head_numbers) - 1)
    return replace(state, layer=layer, head=head_numbers[column], top=0)


def at_pair(state: State, extent: Extent, query: int, key: int) -> State:
    """The state at the pair of words at these positions, or at the nearest ones that there are."""
    return replace(
        state,
        query=min(max(query, 0), max(extent.queries - 1, 0)),
        key=min(max(key, 0), max(extent.keys - 1, 0)),
        top=0,
    )


def by_word(state: State, extent: Extent, by: int) -> State:
    """The state with the word that the sentence is about moved by `by` words, stopping at the ends."""
    if state.is_turned:
        return at_pair(state, extent, state.query, state.key + by)
    return at_pair(state, extent, state.query + by, state.key)


def next_scale(state: State) -> State:
    """The state with the next way to colour weights."""
    return replace(state, scale=SCALES[(SCALES.index(state.scale) + 1) % len(SCALES)])


# Keys: each by the names that terminals give it, what it does, and when the footer offers it.


class Key(Struct, frozen=True):
    """One thing that keys do, and the keys that do it.

    names: of the keys, as Textual calls them; the one that is shown stands first.
    does: the name of the action.
    symbol: how the key shown is written.
    words: what it does, as help says it; "" of the arrows.
    foot: the same in the footer; "" where it is not there.
    """

    names: tuple[str, ...]
    does: str
    symbol: str
    words: str = ""
    foot: str = ""


KEYS = (
    Key(("left",), "left", "←"),
    Key(("right",), "right", "→"),
    Key(("up",), "up", "↑"),
    Key(("down",), "down", "↓"),
    Key(("pageup",), "pageup", "PgUp"),
    Key(("pagedown",), "pagedown", "PgDn"),
    Key(("home",), "home", "Home"),
    Key(("end",), "end", "End"),
    Key(
        ("tab", "shift+tab"),
        "focus",
        "Tab",
        message("arrows: heads or words"),
        message("heads/words"),
    ),
    Key(("enter",), "enter", "Enter", message("why this weight; on"), message("why")),
    Key(("left_square_bracket",), "layer_before", "[", message("layer before")),
    Key(("right_square_bracket",), "layer_after", "]", message("layer after")),
    Key(("comma",), "head_before", ",", message("head before")),
    Key(("full_stop",), "head_after", ".", message("head after")),
    Key(("b",), "word_before", "b", message("word before")),
    Key(("f",), "word_after", "f", message("word after")),
    Key(("r",), "turn", "r", message("turn: looks / is looked at")),
    Key(("1",), "matrix", "1", message("weights")),
    Key(("2", "l"), "links", "2", message("links")),
    Key(("3", "y"), "why", "3", message("derivation")),
    Key(("slash", "4"), "search", "/", message("search a link"), message("search")),
    Key(("d", "5"), "difference", "d", message("difference of two heads"), message("difference")),
    Key(("e", "6"), "effects", "e", message("effect; again: every head"), message("effect")),
    Key(("a", "7"), "parts", "a", message("take the score apart")),
    Key(("c",), "scale", "c", message("next colour scale")),
    Key(("m",), "measure", "m", message("next number of the heads")),
    Key(("z",), "near", "z", message("long text: nearer, all")),
    Key(("w",), "words", "w", message("pieces or words")),
    Key(("i",), "type", "i", message("type another text"), message("new text")),
    Key(("o",), "models", "o", message("another model"), message("model")),
    Key(("n",), "next", "n", message("generate the next token")),
    Key(("p",), "previous", "p", message("take it away again")),
    Key(("s",), "save", "s", message("save what is seen"), message("save")),
    Key(("t",), "tour", "t", message("the tour"), message("tour")),
    Key(("question_mark", "f1"), "help", "?", message("this help"), message("help")),
    Key(("escape",), "back", "Esc", message("back; stop")),
    Key(("q", "ctrl+q"), "quit", "q", message("quit"), message("quit")),
    Key(("ctrl+c",), "interrupt", "Ctrl-C", message("quit, as interrupted")),
)
"""Every key there is, in the order in which help tells them."""
ACTIONS = {name: key.does for key in KEYS for name in key.names}
"""What a key does, by its name."""
